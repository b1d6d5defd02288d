"""[Try again] below the notice of a failure: the failed turn's messages once more, once, for those who may."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.inbound import Attachment
from bot.gateway.retries import BEGUN, NOT_YOURS, RETRYING, UNKNOWN
from tests.unit.gateway.conftest import Bench, killed, leave_open
from tests.unit.gateway.outgoing import until
from tests.unit.gateway.test_turns import command

FAILED = TurnOutcome("failed", notice="Something went wrong.")


def once(failed: int = 1) -> Any:
    """An agent that fails so many times."""
    left = [FAILED] * failed

    def answer(request: TurnRequest) -> str | TurnOutcome:
        assert request.inbound is not None
        return left.pop() if left else f"re: {request.inbound.text}"

    return answer


async def failed(bench: Bench, *words: str, **more: Any) -> str:
    """A turn that failed; its id, as the button below its notice has it."""
    bench.agent.answer = once()
    bench.agent.hold = asyncio.Event()
    for one in words:
        await bench.say(one, **more)
    await bench.agent.began.wait()
    bench.agent.hold.set()
    await bench.idle()
    notice = bench.tele.sent[-1]
    assert notice.text == "Something went wrong."
    assert notice.buttons is not None
    assert notice.buttons.choices == ("again",)
    return notice.buttons.question_id


async def press(bench: Bench, name: str, **more: Any) -> str:
    """What the person who presses is told at once."""
    before = len(bench.tele.sent)
    await bench.say("", **command("retry", args=name), message_id=None, keys=(bench.ids.ulid(),), **more)
    await bench.idle()
    (said,) = [one for one in bench.tele.texts[before:] if one in {BEGUN, NOT_YOURS, RETRYING, UNKNOWN}]
    return said


async def test_a_failed_message_is_tried_again_once_and_a_second_press_is_told_so(bench: Bench) -> None:
    name = await failed(bench, "what is new?")
    assert await press(bench, name) == RETRYING
    assert "re: what is new?" in bench.tele.texts
    assert await press(bench, name) == BEGUN
    assert bench.tele.texts.count("re: what is new?") == 1
    assert await bench.lines() == [
        ("user", "what is new?"),
        ("user", "what is new?"),
        ("assistant", "re: what is new?"),
    ]


async def test_what_fails_again_can_be_tried_again_by_its_own_button(bench: Bench) -> None:
    name = await failed(bench, "what is new?")
    bench.agent.answer = once()
    assert await press(bench, name) == RETRYING
    (again,) = [one for one in bench.tele.sent[1:] if one.buttons is not None]
    assert again.buttons is not None
    assert again.buttons.question_id != name
    assert await press(bench, again.buttons.question_id) == RETRYING
    assert "re: what is new?" in bench.tele.texts


async def test_all_that_the_turn_had_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, debounce=0.05)
    await bench.open()
    bench.agent.answer = once()
    for words in ("one", "two"):
        await bench.say(words, attachments=(Attachment(kind="photo", name=f"{words}.jpg"),))
    while not bench.tele.sent:
        await bench.clock.advance(0.1)
        await asyncio.sleep(0.001)
    await bench.idle()
    buttons = bench.tele.sent[-1].buttons
    assert buttons is not None
    bench.agent.hold = asyncio.Event()
    bench.agent.hold.set()
    await bench.say("", **command("retry", args=buttons.question_id), message_id=None)
    while not bench.agent.requests[1:]:
        await bench.clock.advance(0.1)
        await asyncio.sleep(0.001)
    await bench.idle()
    request = bench.agent.requests[-1]
    assert request.inbound is not None
    assert request.inbound.text == "one\ntwo"
    assert [file.name for file in request.inbound.attachments] == ["one.jpg", "two.jpg"]
    await bench.close()


GROUP = {"chat_id": "-100", "chat_key": "tele:chat:-100", "chat_type": "group", "target": {"chat": "-100"}}


async def test_in_a_group_only_the_person_who_asked_and_operators_may(bench: Bench) -> None:
    name = await failed(bench, "what is new?", user_id="5", addressed="mention", **GROUP)
    assert await press(bench, name, user_id="6", **GROUP) == NOT_YOURS
    assert len(bench.agent.requests) == 1
    assert await press(bench, name, user_id="1", **GROUP) == RETRYING
    request = bench.agent.requests[-1]
    assert request.inbound is not None
    assert request.inbound.user_id == "5", "with the rights of the person who asked"


async def test_a_person_who_was_blocked_meanwhile_is_not_answered(bench: Bench) -> None:
    name = await failed(bench, "what is new?", user_id="5", addressed="mention", **GROUP)
    bench.lists.block("tele", "5")
    assert await press(bench, name, user_id="1", **GROUP) == NOT_YOURS
    assert len(bench.agent.requests) == 1


async def test_only_what_failed_here_can_be_tried_again(bench: Bench) -> None:
    name = await failed(bench, "what is new?")
    elsewhere = {"chat_id": "1", "chat_key": "tele:chat:1", "user_id": "1", "target": {"chat": "1"}}
    assert await press(bench, name, **elsewhere) == UNKNOWN
    assert await press(bench, "01UNKNOWN") == UNKNOWN
    await bench.say("and this?")
    await bench.idle()
    assert await press(bench, str(bench.agent.requests[-1].request_id)) == UNKNOWN


async def test_a_failure_that_has_no_words_to_show_ends_all_the_same(bench: Bench) -> None:
    bench.agent.answer = lambda _: TurnOutcome("failed", notice=" \n ")
    await bench.say("what is new?")
    await bench.idle()
    assert bench.tele.sent == []
    assert await bench.journal.unfinished() == []


async def test_the_notice_of_a_command_has_no_button(bench: Bench) -> None:
    async def broken(_: Any) -> str:
        raise asyncio.QueueEmpty

    bench.commands.run = broken  # type: ignore[method-assign, assignment]
    await bench.say("/new", **command("new"))
    await bench.idle()
    assert [one.buttons for one in bench.tele.sent] == [None]


@pytest.mark.parametrize("cut", ["before the press has ended", "before the new turn has ended"])
async def test_over_a_kill_it_is_tried_again_once(tmp_path: Path, cut: str) -> None:
    first = Bench(tmp_path)
    await first.open()
    name = await failed(first, "what is new?")
    first.agent.hold = asyncio.Event()
    first.agent.began.clear()
    if cut == "before the press has ended":
        leave_open(first.journal)
    await first.say("", **command("retry", args=name), message_id=None)
    await first.agent.began.wait()
    await killed(first)
    second = Bench(tmp_path)
    await second.open()
    await second.delivery.open()
    await until(lambda: "re: what is new?" in second.tele.texts)
    await second.idle()
    assert [text for text in second.tele.texts if text.startswith("re: ")] == ["re: what is new?"]
    assert await press(second, name) == BEGUN
    assert len(second.agent.requests) == 1
    assert await second.journal.unfinished() == []
    await second.close()
