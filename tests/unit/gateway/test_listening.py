"""What the bot listens to in groups, as `/listen` says, and when it need not answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Command
from bot.testing.journal import FaultyJournal
from tests.unit.gateway.conftest import Bench, refusing
from tests.unit.gateway.outgoing import until

ROOM = ChatKey.parse("tele:chat:-100")
GROUP: dict[str, Any] = {
    "chat_id": "-100",
    "chat_key": "tele:chat:-100:thread:1",
    "chat_type": "group",
    "target": {"chat": "-100"},
}
HEARD: dict[str, list[str]] = {
    "mention": ["a mention"],
    "thread": ["a mention", "a reply", "in the thread"],
    "always": [
        "a mention",
        "a reply",
        "in the thread",
        "to others in the thread",
        "in another thread",
        "in the room",
        "to others in the room",
    ],
    "never": [],
}


async def say_all(bench: Bench) -> None:
    """Every kind of words, in a room where the bot takes part in one thread."""
    other = {"chat_key": "tele:chat:-100:thread:2"}
    said: list[tuple[str, dict[str, Any]]] = [
        ("a mention", {"addressed": "mention"}),
        ("a reply", {"addressed": "reply"}),
        ("in the thread", {"addressed": "thread"}),
        ("to others in the thread", {"addressed": "thread", "to_others": True}),
        ("in another thread", {"addressed": "thread"} | other),
        ("in the room", {"addressed": "chat"} | other),
        ("to others in the room", {"addressed": "chat", "to_others": True} | other),
    ]
    for words, more in said:
        await bench.say(words, **(GROUP | more), keys=(words,))
        await bench.idle()


async def listen(bench: Bench, args: str, user: str = "1", **more: Any) -> str:
    """Give the command; its answer."""
    before = len(bench.tele.sent)
    command = Command(name="listen", args=args)
    await bench.say("", user_id=user, command=command, addressed="command", **(GROUP | more))
    return (await bench.tele.until(before + 1))[-1]


@pytest.mark.parametrize("mode", [None, *HEARD])
async def test_what_counts_is_what_somebody_has_chosen_over_restarts(
    tmp_path: Path, mode: str | None
) -> None:
    first = Bench(tmp_path)
    await first.open()
    await first.say("the first", **GROUP, addressed="mention")
    await first.idle()
    if mode is not None:
        await listen(first, mode.upper())
    await first.close()
    second = Bench(tmp_path)
    await second.open()
    await say_all(second)
    assert [one.inbound.text for one in second.agent.requests if one.inbound is not None] == HEARD[
        mode or "thread"
    ]
    assert await second.intake.hears_all(ChatKey.parse(GROUP["chat_key"])) is (mode == "always")
    await second.close()


async def test_only_operators_change_it_and_everybody_may_ask(bench: Bench) -> None:
    told = await listen(bench, "", user="77")
    assert told.startswith("I answer here when somebody mentions me or replies to me, and in threads")
    assert told.endswith("in threads I take part in."), "who cannot change it is not told how"
    told = await listen(bench, "")
    assert told.endswith("/listen and one of mention, thread, always, never changes that.")
    assert await listen(bench, "always", user="77") == "Only operators say what I listen to."
    assert (await listen(bench, "loud")).startswith("I can listen to: mention, thread, always, never.")
    assert not await bench.intake.hears_all(ROOM)
    assert await listen(bench, "always") == "I read everything said here, and answer where I can help."
    assert (await listen(bench, "")).startswith("I read everything said here")
    direct: dict[str, Any] = {
        "chat_id": "1",
        "chat_key": "tele:chat:1",
        "chat_type": "direct",
        "target": {"chat": "1"},
    }
    assert await listen(bench, "never", **direct) == "Here I read everything you write."


async def test_what_nobody_said_to_the_bot_is_told_to_nobody_where_it_is_not_listened_to(
    bench: Bench,
) -> None:
    for user in ("77", "666"):
        assert not await bench.say("in the room", user_id=user, addressed="chat", **GROUP)
    assert not await bench.say("by a bot", from_bot=True, addressed="chat", **GROUP)
    assert bench.log.of("denied") == []
    assert bench.log.of("inbound") == []


async def test_a_change_counts_where_its_message_did_whatever_is_listened_to_by_then(bench: Bench) -> None:
    await listen(bench, "always")
    await bench.say("in the room", **GROUP, addressed="chat", message_id="31")
    await bench.idle()
    await listen(bench, "never")
    changed: dict[str, Any] = {**GROUP, "addressed": "chat"}
    assert not await bench.say("changed", message_id="32", kind="edit", **changed)
    assert await bench.say("", message_id="31", kind="delete", **changed)
    await bench.idle()
    assert bench.agent.forgot == [ChatKey.parse(GROUP["chat_key"])]


async def test_where_the_disk_does_not_say_it_the_platform_brings_the_message_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, wrap=FaultyJournal)
    await bench.open()
    journal = refusing(bench, "listening")
    with pytest.raises(errors.StorageError):
        await bench.say("a mention", **GROUP, addressed="mention")
    journal.mend()
    assert await bench.say("a mention", **GROUP, addressed="mention")
    await bench.idle()
    await bench.close()


# ------------------------------------------------------------ silence


async def test_words_that_were_not_said_to_the_bot_need_no_answer(bench: Bench) -> None:
    await listen(bench, "always")
    asked: list[bool] = []

    def answer(request: TurnRequest) -> TurnOutcome:
        asked.append(request.arrivals.quiet)
        return TurnOutcome("failed", notice="something went wrong")

    bench.agent.answer = answer
    count = len(bench.tele.sent)
    for addressed in ("chat", "thread", "mention"):
        await bench.say(addressed, **GROUP, addressed=addressed)
        await bench.idle()
    assert asked == [True, True, False]
    # What failed in a conversation that the bot takes part in is told.
    assert bench.tele.texts[count:] == ["something went wrong"] * 2


async def test_a_picture_that_nobody_sent_to_the_bot_gets_no_answer(bench: Bench) -> None:
    await listen(bench, "always")
    count = len(bench.tele.sent)
    picture = (Attachment(kind="photo"),)
    await bench.say("", **GROUP, addressed="chat", attachments=picture)
    await bench.say("", **GROUP, addressed="mention", attachments=picture)
    await bench.idle()
    assert len(bench.tele.sent) == count + 1


async def test_what_joins_and_speaks_to_the_bot_makes_the_turn_owe_an_answer(bench: Bench) -> None:
    await listen(bench, "always")
    bench.agent.hold = asyncio.Event()
    await bench.say("not to you", **GROUP, addressed="chat")
    await bench.agent.began.wait()
    (request,) = bench.agent.requests
    assert request.arrivals.quiet
    await bench.clock.advance(5)
    assert bench.tele.signs == []
    await bench.say("but this is", **GROUP, addressed="mention")
    take_more = request.arrivals.take_more
    await until(lambda: bool(take_more()))
    assert not request.arrivals.quiet
    bench.agent.hold.set()
    await bench.idle()
