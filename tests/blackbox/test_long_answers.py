"""Long code and wide tables are files in Slack and Telegram, and complete text in the web page and the terminal."""

from __future__ import annotations

import asyncio
import re

import pytest

from bot.testing.anthropic_script import Halt, text
from bot.testing.anthropic_script import reply as answered
from bot.words import say
from tests.blackbox.conftest import ANN, PERSON, World, fast
from tests.blackbox.test_sent_files import BEFORE, REPEATED, UPLOAD, Reader, archived, settled
from tests.blackbox.test_streaming import in_slack, streaming, told
from tests.blackbox.test_web_approvals import Tabs
from tests.blackbox.test_web_approvals import say as say_in_page

BODY = "\n".join(f"print('step {number}: 你好')" for number in range(80))
CODE = f"```python\n{BODY}\n```"
ANSWER = f"Here is the script that you wanted.\n\n{CODE}\n\nRun it with care."
SENTENCE = say("delivery.code_as_file", name="code.py")
SHORT = f"Here is the script that you wanted.\n\n{SENTENCE}\n\nRun it with care."
FILE = ("code.py", f"{BODY}\n".encode())
CELL = "一个很长的单元格" * 16
SQUARES = [f"{n},{n * n}\r\n".encode() for n in range(1, 80)]
MANY = "| n | square |\n|---|---|\n" + "".join(f"| {n} | {n * n} |\n" for n in range(1, 80))
TABLE = f"So:\n\n| 名称 | 说明 |\n|---|---|\n| 苹果 | {CELL} |\n| x**2 + y**2 | **b** |\n\nEnd."


def seen(words: str) -> str:
    """Return the text as Telegram shows it."""
    return words.replace("`", "")


@pytest.fixture(params=["slack", "telegram"])
def reader(world: World, request: pytest.FixtureRequest) -> Reader:
    world.only(request.param)
    return Reader(world, request.param)


def texts(reader: Reader) -> list[str]:
    return [words for words in reader.texts() if words]


def as_shown(reader: Reader, words: str) -> str:
    return seen(words) if reader.channel == "telegram" else words


async def test_long_code_is_a_file_below_the_words(world: World, reader: Reader) -> None:
    await world.start()
    world.model.then(told(ANSWER))
    await reader.ask("write me a script")
    assert await reader.gets() == [FILE]
    await world.turns(1)
    assert texts(reader) == [as_shown(reader, SHORT)]
    await archived(world, f"{SHORT}\n[file: code.py]\n{CODE}")
    await settled(world)


async def test_a_table_that_does_not_fit_is_its_first_rows_and_a_file_for_programs(
    world: World, reader: Reader
) -> None:
    await world.start()
    world.model.then(told(TABLE), told(MANY))
    await reader.ask("which?")
    assert await reader.gets() == [
        ("table.csv", f"\ufeff名称,说明\r\n苹果,{CELL}\r\nx**2 + y**2,b\r\n".encode())
    ]
    sentence = as_shown(reader, say("delivery.table_as_file", name="table.csv"))
    (words,) = texts(reader)
    assert words.startswith("So:\n\n")
    assert words.endswith(f"\n\n{sentence}\n\nEnd.")
    assert re.search("名称.*\n.*苹果 +.*一个很长的单元格.*…", words, re.DOTALL)
    await reader.ask("and all of them?")
    assert (await reader.gets(2))[1] == ("table.csv", b"n,square\r\n" + b"".join(SQUARES))
    words = texts(reader)[-1]
    assert re.findall(r"\b\d+\b", words) == ["1", "1", "2", "4", "3", "9"]
    assert words.endswith(sentence)


async def test_a_long_answer_breaks_before_a_heading(world: World) -> None:
    """A comment line in code is no heading, even if the code itself is split."""
    await world.start("telegram")
    code = "# a comment\nx = 1\n" * 25
    parts = [f"## Part {n}\n\n{'Words of it. ' * 100}\n\n{'More. ' * 190}\n\n```\n{code}```" for n in "abc"]
    world.model.then(told("\n\n".join(parts)))
    world.telegram.say("tell me all")
    await world.turns(1)
    assert [words.split("\n")[0] for words in world.texts()] == ["Part a", "Part b", "Part c"]


async def test_without_the_right_to_send_files_the_code_comes_as_text(world: World) -> None:
    reader = Reader(world, "slack")
    reader.server.api.scopes.discard("files:write")
    await world.start("slack")
    world.model.then(told(ANSWER))
    await reader.ask("write me a script")
    await reader.server.until(lambda: len(texts(reader)) == 2)
    assert texts(reader) == [SHORT, f"{say('delivery.file_forbidden', name='code.py')}\n\n{CODE}"]


@fast
async def test_where_a_platform_takes_no_file_the_text_comes_and_holds_up_nothing(world: World) -> None:
    internal = {"ok": False, "error": "internal_error"}
    world.slack.fail(UPLOAD["slack"], action="lose")
    world.slack.fail(UPLOAD["slack"], body=internal, times=1_000)
    world.telegram.fail(UPLOAD["telegram"], status=502, times=1_000)
    await world.start("slack", "telegram")
    slack, telegram = Reader(world, "slack"), Reader(world, "telegram")
    script = iter([ANSWER] * 3)
    world.model.script(lambda body: next(script) if "script" in str(body["messages"][-1]) else "Well.")
    await slack.ask("a script whose answer of Slack is lost")
    assert await slack.gets() == [FILE]
    await world.turns(1)
    assert len(world.slack.called("upload")) == 1, "it was shared, as files.info says"
    for reader, tried in ((slack, 2), (telegram, 1)):
        await reader.ask("another script")
        await reader.server.until(lambda r=reader, n=tried: len(r.server.called(UPLOAD[r.channel])) >= n)
        await reader.ask("and how are you?")
    for reader in (telegram, slack):
        await reader.server.until(lambda r=reader: BODY in "".join(r.texts()) and "Well." in r.texts())
        assert not any("is in the file" in words for words in reader.texts())
    assert slack.files() == [FILE]
    assert len(world.slack.called("upload")) == 2
    assert len(world.telegram.called(UPLOAD["telegram"])) < 15
    await settled(world)


async def test_killed_while_the_file_is_on_its_way_there_is_one_text_and_one_file(
    world: World, reader: Reader
) -> None:
    streaming(world, reader.channel)
    await world.start()
    world.model.then(told(ANSWER))
    reader.server.fail(BEFORE[reader.channel], action="hang")
    await reader.ask("write me a script")
    await reader.server.until(lambda: bool(reader.server.called(BEFORE[reader.channel])))
    await world.process.kill()
    await world.start()
    assert await reader.gets() == [FILE]
    await settled(world)
    assert [words for words in texts(reader) if words.strip() != REPEATED] == [as_shown(reader, SHORT)]
    assert len(world.model.bodies) == 1, "it is not asked again"


async def test_telegram_shows_the_sentence_as_soon_as_the_code_is_long(world: World) -> None:
    streaming(world, "telegram")
    await world.start()
    early, late = asyncio.Event(), asyncio.Event()
    world.model.then(told(ANSWER, (0.4, early), (0.9, late)))
    world.telegram.say("write me a script")
    await world.telegram.until(lambda: any("print('step 1:" in words for words in world.texts()))
    early.set()
    await world.telegram.until(lambda: world.texts()[-1].endswith(f"{seen(SENTENCE)} …"))
    assert len(world.texts()) == 1
    late.set()
    await world.telegram.until(lambda: world.texts() == [seen(SHORT), ""])
    assert [(name, data) for name, _, data in world.telegram.documents()] == [FILE]
    assert world.telegram.tally(PERSON).posted == 2


async def test_slacks_stream_becomes_the_words_of_the_answer(world: World) -> None:
    streaming(world, "slack")
    await world.start()
    early, late = asyncio.Event(), asyncio.Event()
    world.model.then(told(ANSWER, (0.4, early), (0.9, late)))
    asked = await world.slack.say("write me a script", channel="D0ANN", user=ANN)
    await in_slack(world, asked, lambda words: "print('step 1:" in words)
    early.set()
    await in_slack(world, asked, lambda words: SENTENCE in words and "step 1:" not in words)
    late.set()
    await world.slack.until(lambda: bool(world.slack.sent_files("D0ANN")))
    found = [one.text for one in world.slack.replies("D0ANN", asked) if one.text]
    assert found == [SHORT]
    assert world.slack.called("chat.startStream")
    assert [(name, data) for name, _, data in world.slack.sent_files("D0ANN")] == [FILE]


async def test_a_stop_in_the_middle_of_long_code_marks_the_words(world: World) -> None:
    streaming(world, "telegram")
    await world.start()
    world.model.then(told(ANSWER, (0.9, Halt.STALL)))
    world.telegram.say("write me a script")
    await world.telegram.until(lambda: any(SENTENCE.replace("`", "") in words for words in world.texts()))
    world.telegram.say("/stop")
    await world.telegram.until(lambda: len(world.telegram.documents()) == 1)
    words = world.texts()[0]
    assert words.endswith(f"{seen(SENTENCE)}\n\n{say('turn.stopped')}")
    (_, _, data) = world.telegram.documents()[0]
    assert FILE[1].startswith(data.rstrip())
    assert [one for one in world.texts() if one.endswith(" …")] == []


async def test_answered_again_the_words_take_their_place_and_the_new_file_comes_below(world: World) -> None:
    await world.start("telegram")
    world.model.then(told(ANSWER))
    number = world.telegram.say("write me a script")["message"]["message_id"]
    await world.telegram.until(lambda: len(world.telegram.documents()) == 1)
    await world.turns(1)
    await world.sent()
    world.telegram.edit(number, "write me a better script")
    chat = world.telegram.chat(PERSON)
    await world.telegram.until(lambda: any("reply_markup" in one for one in chat.messages.values()))
    answer = next(one for one in chat.messages.values() if "reply_markup" in one)
    ((button,),) = answer["reply_markup"]["inline_keyboard"]
    world.model.then(told(ANSWER.replace("step", "stage")))
    world.telegram.press(answer["message_id"], button["callback_data"], chat_id=PERSON)
    await world.telegram.until(lambda: len(world.telegram.documents()) == 2)
    assert world.texts() == [seen(SHORT), "", ""]
    assert [name for name, _, _ in world.telegram.documents()] == ["code.py", "code.py"]
    assert b"stage 79" in world.telegram.documents()[1][2]


async def test_the_page_shows_it_whole(world: World) -> None:
    await world.start("web")
    world.model.then(answered(text(ANSWER)))
    page = re.findall(r"http://127\.0\.0\.1:\d+", world.process.ready_line)[0]
    async with Tabs() as tabs:
        stream = await tabs.open(page)
        await say_in_page(tabs.browser, page, "write me a script", "k1")
        async with asyncio.timeout(60):
            while True:
                name, data = await stream.next()
                if name == "message" and data.get("text") == ANSWER:
                    break
