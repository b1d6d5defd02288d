"""Messages to the gateway, and its answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot import errors
from bot.contracts.approvals import QuestionButtons
from bot.contracts.channel import Channel, MembershipAnswer
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine, Command
from bot.testing.clock import FakeClock
from bot.testing.intake import RecordingIntake
from bot.words import speaking
from channels.web import live_chats
from tests.contracts.channel_contract import notice, reply
from tests.contracts.web_rig import Browser

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"></textarea><svg onload=alert(1)>',
    "[click](javascript:alert(1)) ![x](https://evil.example/?leak)",
    "data: line\n\nevent: message\ndata: {}\n\n\u2028\u2029\r\n\0",
    "\u202egnp.exe\u202c مرحبا שלום 👩🏽\u200d🚀 你好",
)


async def test_two_browsers_may_choose_the_same_id(
    channel: Channel, browser: Browser, intake: RecordingIntake
) -> None:
    async with Browser(channel) as other:
        assert await browser.say("one", "m1") == await other.say("two", "m1") == 202
    assert [inbound.text for inbound in intake.accepted] == ["one", "two"]


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"",
        b"[]",
        b"null",
        b"[" * 100_000,
        b"\xff\xfe{}",
        b'{"text": "x"}',
        b'{"text": 5, "clientId": "m1"}',
        b'{"text": null, "clientId": "m1"}',
        b'{"text": "x", "clientId": 5}',
        b'{"text": "x", "clientId": ""}',
        b'{"text": "x", "clientId": "a b"}',
        b'{"text": "x", "clientId": "m1\\n"}',
        b'{"text": "x", "clientId": "' + b"a" * 65 + b'"}',
        b'{"text": " \\n ", "clientId": "m1"}',
        b'{"text": "x", "clientId": ' + b"9" * 10_000 + b"}",
    ],
)
async def test_what_is_no_message_is_refused_in_a_sentence(
    browser: Browser, intake: RecordingIntake, body: bytes
) -> None:
    async with browser.http.post(
        f"{browser.url}/api/messages", data=body, headers={"Content-Type": "application/json"}
    ) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"].endswith(".")
    assert intake.offered == []


async def test_a_message_over_a_megabyte_is_refused_in_a_sentence(
    browser: Browser, intake: RecordingIntake
) -> None:
    answer = await browser.post("/api/messages", {"text": "x" * 1_000_000, "clientId": "m1"})
    assert answer == (413, {"error": "That message is too large: the most is 1 MB."})
    assert intake.offered == []


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_text_travels_untouched_as_json(
    channel: Channel, browser: Browser, intake: RecordingIntake, hostile: str
) -> None:
    stream = await browser.listen()
    await browser.say(hostile)
    await channel.send(reply(intake.accepted[0], hostile))
    heard = [await stream.next() for _ in range(4)]
    assert [name for name, _ in heard] == ["history", "working", "message", "message"]
    assert [data["text"] for _, data in heard[2:]] == [hostile, hostile]
    assert [message["text"] for message in await browser.page()] == [hostile, hostile]


QUESTION = "01M8K3Z5Q2W4E6R8T0Y1V3X5Z7"


async def test_a_press_is_a_command_a_rating_or_a_stop_and_no_message(
    channel: Channel, browser: Browser, intake: RecordingIntake
) -> None:
    stream = await browser.listen()
    await browser.say("run it", "m1")
    asks = notice(intake.accepted[0], "May I?")
    await channel.send(replace(asks, buttons=QuestionButtons(QUESTION)))
    await channel.send(notice(intake.accepted[0], "no question"))
    heard = [(await stream.next())[1] for _ in range(5)][2:]
    assert [said.get("approval") for said in heard] == [None, QUESTION, None]
    presses: list[tuple[str, str, Any]] = [
        ("once", QUESTION, Command(name="approve", args=f"{QUESTION} once")),
        ("deny", QUESTION, Command(name="deny", args=QUESTION)),
        ("afresh", QUESTION, Command(name="afresh", args=QUESTION)),
        ("again", QUESTION, Command(name="retry", args=QUESTION)),
        ("model", "claude-opus-5", Command(name="model", args="claude-opus-5")),
        ("good", "some-answer", None),
        ("stop", "", None),
    ]
    for number, (choice, of, meant) in enumerate(presses):
        for taken in (True, False):
            pressed = await browser.post(
                "/api/presses", {"clientId": f"p{number}", "choice": choice, "of": of}
            )
            assert pressed == (202, {"taken": taken})
        press = intake.accepted[-1]
        assert (press.command, press.text, press.message_id) == (meant, "", None)
    assert [(one.kind, one.rating, one.answers) for one in intake.accepted[-2:]] == [
        ("rating", "good", "some-answer"),
        ("stop", None, None),
    ]
    await channel.send(notice(intake.accepted[1], "Allowed."))
    assert await stream.next() == ("ratings", {"some-answer": "good"})
    assert await stream.next() == ("answer", {"press": "p0", "text": "Allowed."})
    assert [said["text"] for said in await browser.page()] == ["run it", "May I?", "no question"]
    for wrong in (
        {},
        {"clientId": "x", "choice": "once", "of": "01 ABC"},
        {"clientId": "x", "choice": "new", "of": QUESTION},
        {"clientId": "x", "choice": "good"},
        {"clientId": "x" * 65, "choice": "stop"},
        {"clientId": "x", "choice": "model", "of": "m" * 301},
    ):
        assert (await browser.post("/api/presses", wrong))[0] == 400, wrong


async def test_the_sign_of_work_comes_and_goes(
    channel: Channel, browser: Browser, intake: RecordingIntake
) -> None:
    await browser.say("hello")
    target = intake.accepted[0].target
    stream = await browser.listen()
    assert (await stream.next())[0] == "history"
    assert await stream.next() == ("working", {"working": False})
    await channel.indicate(target, working=True)
    await channel.indicate(target, working=True)
    await channel.indicate(target, working=False)
    assert await stream.next() == ("working", {"working": True})
    assert await stream.next() == ("working", {"working": False})
    await channel.indicate(target, working=True)
    late = await browser.listen()
    await late.next()
    assert await late.next() == ("working", {"working": True})


async def test_a_page_that_comes_back_has_the_newest_messages_of_a_long_conversation(
    channel: Channel, browser: Browser, intake: RecordingIntake
) -> None:
    await browser.say("hello")
    for number in range(live_chats.MESSAGES + 1):
        await channel.send(reply(intake.accepted[0], f"answer {number}"))
    shown = await browser.page()
    assert [message["text"] for message in shown][-2:] == ["answer 99", "answer 100"]


def _line(
    intake: RecordingIntake, chat_key: ChatKey, role: Any, text: str, *, ts: int, id_: str | None = None
) -> None:
    intake.lines[chat_key].append(
        ArchiveLine(
            ts=ts, channel="web", chat_id="x", chat_key=chat_key, role=role, text=text, message_id=id_
        )
    )


async def test_the_archive_is_shown_before_what_was_said_since_the_start(
    channel: Channel, browser: Browser, intake: RecordingIntake, clock: FakeClock
) -> None:
    await browser.say("first words")
    inbound = intake.accepted[0]
    intake.lines.clear()
    _line(intake, inbound.chat_key, "user", "long ago", ts=1000, id_="old")
    _line(intake, inbound.chat_key, "assistant", "an old answer", ts=2000)
    _line(intake, inbound.chat_key, "system", "a summary", ts=3000)
    _line(intake, inbound.chat_key, "tool", "a result", ts=3000)
    _line(intake, inbound.chat_key, "user", "first words", ts=inbound.ts, id_=inbound.message_id)
    await clock.advance(1)
    answer = await channel.send(reply(inbound, "an answer"))
    _line(intake, inbound.chat_key, "assistant", "an answer", ts=inbound.ts - 5, id_=answer.message_id)
    _line(intake, inbound.chat_key, "assistant", "an answer", ts=inbound.ts + 1000)
    shown = await browser.page()
    assert [(message["role"], message["text"]) for message in shown] == [
        ("user", "long ago"),
        ("assistant", "an old answer"),
        ("user", "first words"),
        ("assistant", "an answer"),
    ]
    assert len({message["id"] for message in shown}) == 4


async def test_an_answer_that_is_faster_than_the_confirmation_stands_below_its_question(
    channel: Channel, browser: Browser, intake: RecordingIntake, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = intake.accept

    async def at_once(inbound: Any) -> bool:
        await channel.send(notice(inbound, "here is your help"))
        return await taken(inbound)

    monkeypatch.setattr(intake, "accept", at_once)
    await browser.say("/help")
    shown = await browser.page()
    assert [message["text"] for message in shown] == ["/help", "here is your help"]
    assert shown[0]["n"] < shown[1]["n"]


async def test_a_silent_stream_shows_that_it_lives(browser: Browser, clock: FakeClock) -> None:
    stream = await browser.listen()
    await stream.next()
    await stream.next()
    await clock.advance(15)
    assert await stream.next() == ("", "still here")
    await clock.advance(15)
    assert await stream.next() == ("", "still here")


async def test_pages_that_come_at_once_share_the_places(
    browser: Browser, intake: RecordingIntake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, read = asyncio.Semaphore(0), asyncio.Event()

    async def slowly(_chat: str, _limit: int) -> list[ArchiveLine]:
        reading.release()
        await read.wait()
        return []

    await browser.get("/api/info")  # the browser has its cookie now and counts as one visitor
    monkeypatch.setattr(intake, "recent", slowly)
    opening = [asyncio.create_task(browser.listen()) for _ in range(live_chats.STREAMS)]
    for _ in opening:
        await reading.acquire()
    try:
        async with asyncio.timeout(90):
            assert (await browser.get("/api/events"))[0] == 503
    finally:
        read.set()
        await asyncio.gather(*opening)


async def test_stopping_ends_the_streams(channel: Channel, browser: Browser) -> None:
    stream = await browser.listen()
    await stream.next()
    await stream.next()
    await channel.stop()
    assert await stream.response.content.read() == b""


async def test_a_browser_has_its_own_conversations_and_no_others(channel: Channel) -> None:
    names = ["web:chat:aa", "web:chat:aa:thread:1", "web:chat:bb", "web:chat:bb:thread:1", "slack:chat:aa"]
    keys = [*map(ChatKey.parse, names)]
    assert await channel.chats_of("aa", keys, direct=True) == MembershipAnswer(keys[:2])
    assert await channel.chats_of("aa", keys, direct=False) == MembershipAnswer([])
    assert await channel.chats_of("../aa", keys, direct=True) == MembershipAnswer([])


async def test_times_are_told_in_the_zone_that_a_browser_names(
    browser: Browser, intake: RecordingIntake
) -> None:
    for number, zone in enumerate(("Asia/Tokyo", "x" * 101, 9)):
        said = {"text": "x", "clientId": f"m{number}", "zone": zone}
        assert (await browser.post("/api/messages", said))[0] == 202
    assert [inbound.zone for inbound in intake.accepted] == ["Asia/Tokyo", None, None]


async def test_a_browser_is_answered_in_the_language_that_it_likes_best(
    browser: Browser, intake: RecordingIntake, channel: Channel
) -> None:
    chinese = {"Accept-Language": "fr, en;q=0.5, zh-CN;q=0.9"}
    said = {"text": "x", "clientId": "m1"}
    assert (await browser.post("/api/messages", said, headers=chinese))[0] == 202
    assert (await browser.post("/api/messages", said | {"clientId": "m2"}))[0] == 202
    assert [inbound.language for inbound in intake.accepted] == ["zh", None]
    empty = await browser.post("/api/messages", said | {"text": " "}, headers=chinese)
    assert empty == (400, {"error": "消息是空的。"})
    intake.failure = errors.StorageError("disk")
    refused = await browser.post("/api/messages", said | {"clientId": "m3"}, headers=chinese)
    with speaking("zh"):
        assert refused == (503, {"error": errors.StorageError().person})
    await channel.pause()
    closing = await browser.post("/api/messages", said | {"clientId": "m4"}, headers=chinese)
    assert closing == (503, {"error": "我正在关闭，不再接收新消息。"})
