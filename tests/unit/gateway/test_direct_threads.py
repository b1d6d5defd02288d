"""Direct chats whose threads are conversations: each stands alone, begins with the last exchange, and forgets with the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot import errors
from bot.contracts.agent import LastTurn
from bot.contracts.archive import HistoryQuery
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Command, Quoted
from bot.contracts.provenance import ANYBODYS, Provenance
from bot.features.conversations.earlier import RECENT_SECONDS
from bot.gateway import commands
from bot.words import say
from tests.unit.gateway.conftest import Bench
from tests.unit.gateway.outgoing import until

DIRECT = ChatKey.parse("tele:chat:77")
OWN = Provenance(frozenset({"77"}))


def thread(root: str) -> ChatKey:
    return ChatKey("tele", "77", root)


async def opened(bench: Bench, words: str, root: str, **more: Any) -> str:
    """Say something outside of threads; its requestId."""
    now = {"ts": int(bench.clock.now() * 1000) + 60_000 * int(root)}  # not in a row
    target = {"chat": "77", "thread": root}
    await bench.say(words, message_id=root, chat_key=str(thread(root)), target=target, **(now | more))
    return bench.agent.requests[-1].request_id if bench.agent.requests else ""


async def answered(
    bench: Bench, words: str, root: str, origin: Provenance | None = OWN, **more: Any
) -> tuple[Quoted, ...]:
    """The same, with its answer, which is then in mind; the exchange that it began with."""
    request_id = await opened(bench, words, root, **more)
    await bench.idle()
    request_id = bench.agent.requests[-1].request_id
    if origin is not None:
        bench.agent.last_turns[thread(root)] = LastTurn((request_id,), origin)
    return bench.agent.requests[-1].context


def told(context: tuple[Quoted, ...]) -> list[tuple[str, bool]]:
    return [(one.text, one.from_self) for one in context]


async def test_messages_outside_of_threads_run_side_by_side(bench: Bench) -> None:
    bench.agent.hold = asyncio.Event()
    for root in ("1", "2"):
        await opened(bench, f"question {root}", root)
    await until(lambda: len(bench.agent.running) == 2)
    await bench.say("more", chat_key=str(thread("1")), message_id="9")
    bench.agent.hold.set()
    await bench.idle()
    assert sorted(bench.tele.texts) == ["re: more", "re: question 1", "re: question 2"]
    assert {one.target["thread"] for one in bench.tele.sent if "question" in one.text} == {"1", "2"}


async def test_a_new_one_begins_with_the_last_exchange_of_the_hour(bench: Bench) -> None:
    assert await answered(bench, "the ship is Ada", "1") == ()
    await answered(bench, "鯨?", "2")
    context = await answered(bench, "and her name?", "3")
    assert told(context) == [("鯨?", False), ("re: 鯨?", True)]
    assert [one.message_id for one in context] == ["2", "m2"]
    assert {one.provenance for one in context} == {OWN}
    await bench.say("in the thread", chat_key=str(thread("3")), message_id="4")
    bench.agent.messages = 2
    await bench.idle()
    assert bench.agent.requests[-1].context == bench.tele.thread, "there the platform is asked"
    bench.agent.messages = 0
    await bench.clock.advance(RECENT_SECONDS + 1)
    assert await answered(bench, "later", "5") == ()


async def test_it_tells_whose_words_the_answer_may_hold_and_cuts_what_is_long(bench: Bench) -> None:
    await answered(bench, "look at the page " + "x" * 9_000, "1", ANYBODYS)
    context = await answered(bench, "and?", "2")
    assert {one.provenance for one in context} == {ANYBODYS}
    assert all(len(one.text) <= 4_000 for one in context)


async def test_what_runs_still_or_was_set_aside_is_not_quoted(bench: Bench) -> None:
    await answered(bench, "first", "1")
    bench.agent.hold = asyncio.Event()
    await opened(bench, "still running", "2")
    await bench.agent.began.wait()
    bench.agent.hold = None
    assert told(await answered(bench, "third", "3", None)) == [("first", False), ("re: first", True)]
    assert await answered(bench, "after a new beginning", "4") == ()


async def test_without_what_was_removed_and_where_the_disk_refuses_without_any(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await answered(bench, "my secret", "1")
    await bench.say("", kind="delete", message_id="1", chat_key=str(thread("1")))
    await bench.idle()
    assert told(await answered(bench, "and?", "2")) == [("re: my secret", True)]

    async def refuse(*_: Any) -> Any:
        raise errors.StorageError

    monkeypatch.setattr(bench.archive, "search", refuse)
    assert await answered(bench, "still there?", "3") == ()
    assert bench.tele.texts[-1] == "re: still there?"


async def test_what_is_deleted_goes_from_the_conversation_that_began_with_it_too(bench: Bench) -> None:
    await answered(bench, "my secret", "1")
    await answered(bench, "and?", "2")
    second = bench.agent.requests[-1].request_id
    await answered(bench, "long after", "3", ts=int((bench.clock.now() + 2 * RECENT_SECONDS) * 1000))
    await bench.say("", kind="delete", message_id="1", chat_key=str(thread("1")))
    await bench.idle()
    assert bench.agent.forgot == [thread("1"), thread("2")]
    (line,) = await bench.archive.removals(thread("2"))
    assert line.message_id == "1"
    assert (line.meta or {})["turns"] == [second]
    assert await bench.archive.removals(thread("3")) == []
    page = await bench.archive.search(thread("2"), HistoryQuery(limit=9))
    assert [one.text for one in page.lines] == ["and?", "re: and?"]


async def test_what_was_said_while_the_chat_was_one_conversation_is_removed_there(bench: Bench) -> None:
    await bench.say("my secret", message_id="1")
    await bench.idle()
    await bench.say("", kind="delete", message_id="1", chat_key=str(thread("1")))
    await bench.idle()
    assert await bench.lines() == [("assistant", "re: my secret")]
    assert bench.agent.forgot == [DIRECT]


@pytest.mark.parametrize("words", ["stop", "停下来"])
async def test_stop_alone_stops_what_runs_in_the_other_conversations(bench: Bench, words: str) -> None:
    bench.agent.hold = asyncio.Event()
    await opened(bench, "long work", "1")
    await bench.agent.began.wait()
    await opened(bench, words, "2")
    assert await bench.tele.until(1) == [say("stop.stopped")]
    await bench.idle()
    assert await bench.journal.unfinished() == []
    bench.agent.hold = None
    await opened(bench, words, "3")
    assert (await bench.tele.until(2))[-1] == f"re: {words}"


async def command(bench: Bench, name: str, **more: Any) -> None:
    await bench.say(f"/{name}", command=Command(name=name), **({"message_id": f"c-{name}"} | more))
    await bench.idle()


async def test_a_command_outside_of_threads_is_about_the_conversation_last_spoken_in(bench: Bench) -> None:
    await command(bench, "new")
    await answered(bench, "one", "1")
    await answered(bench, "two", "2")
    await command(bench, "undo")
    await command(bench, "new")
    await command(bench, "new", chat_key=str(thread("1")), message_id="in")
    assert bench.agent.undone == [thread("2")]
    assert bench.agent.resets == [DIRECT, thread("2"), thread("1")]
    assert all(one.target == {"chat": "77"} for one in bench.tele.sent[-3:])


async def test_the_last_conversation_is_found_behind_any_number_of_commands(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "LOOKED_AT", 2)
    await answered(bench, "one", "1")
    for number in range(5):
        await command(bench, "help", message_id=f"h{number}")
    await command(bench, "new")
    assert bench.agent.resets == [thread("1")]


async def test_status_outside_of_threads_tells_of_what_runs_in_them(bench: Bench) -> None:
    bench.agent.hold = asyncio.Event()
    for root in ("1", "2"):
        await opened(bench, f"question {root}", root)
    await until(lambda: len(bench.agent.running) == 2)
    await bench.say("/status", command=Command(name="status"))
    await bench.say("/status", command=Command(name="status"), chat_key=str(thread("1")))
    await bench.say("/status", command=Command(name="status"), chat_key="tele:chat:77:topic:5")
    first, second, topic = await bench.tele.until(3)
    assert first.startswith("Working on 2 messages.")
    assert second.startswith("Working on a message.")
    assert topic.startswith("Ready.")
    bench.agent.hold.set()
    await bench.idle()


async def test_status_outside_of_threads_tells_of_the_memory_of_the_conversation_last_spoken_in(
    bench: Bench,
) -> None:
    await answered(bench, "one", "1")
    await command(bench, "status", user_id="1")
    assert set(bench.agent.described) == {thread("1")}


async def test_a_topic_keeps_its_commands_to_itself(bench: Bench) -> None:
    await bench.say("in a topic", chat_key="tele:chat:77:topic:5", message_id="9")
    await bench.idle()
    await command(bench, "new")
    assert bench.agent.resets == [DIRECT]


@pytest.mark.parametrize("kind", ["delete", "edit"])
async def test_a_change_of_an_old_message_does_not_make_its_conversation_the_last(
    bench: Bench, kind: str
) -> None:
    await answered(bench, "one", "1")
    await answered(bench, "two", "2")
    await bench.say("changed", kind=kind, message_id="1", chat_key=str(thread("1")))
    await bench.idle()
    await command(bench, "new")
    assert bench.agent.resets == [thread("2")]


async def test_an_old_exchange_is_not_the_last_of_the_hour_because_it_was_changed(bench: Bench) -> None:
    await answered(bench, "ancient", "1")
    await bench.clock.advance(RECENT_SECONDS + 1)
    await bench.say("changed", kind="edit", message_id="1", chat_key=str(thread("1")))
    await bench.idle()
    assert await answered(bench, "fresh", "2") == ()
