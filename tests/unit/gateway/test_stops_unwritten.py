"""Stops that cannot be written down, or not at once: they do their work all the same, and that once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.inbound import Inbound
from bot.gateway import stops
from bot.testing.journal import FaultyJournal
from bot.words import say
from tests.unit.gateway.conftest import Bench, refusing
from tests.unit.gateway.outgoing import until
from tests.unit.gateway.test_stops import GROUP, STOP, running

THREAD = {**GROUP, "chat_key": "tele:chat:-100:thread:1", "target": {"thread": "1"}}


@pytest.fixture
def full(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set, it makes the journal refuse what comes in."""
    receive, full = bench.journal.receive, asyncio.Event()

    async def refusing(inbound: Inbound) -> bool:
        if full.is_set():
            raise errors.StorageError("no space left")
        return await receive(inbound)

    monkeypatch.setattr(bench.journal, "receive", refusing)
    return full


async def test_it_ends_what_runs_and_is_answered_when_it_comes_again(
    bench: Bench, full: asyncio.Event
) -> None:
    await running(bench)
    full.set()
    with pytest.raises(errors.StorageError):
        await bench.say("/stop", **STOP, keys=("stop",))
    await bench.idle()  # the turn is over although nothing lets its agent go on
    assert bench.tele.sent == []
    full.clear()
    assert await bench.say("/stop", **STOP, keys=("stop",))
    assert await bench.tele.until(1) == [say("stop.stopped")]
    await bench.say("/stop", **STOP)
    assert await bench.tele.until(2) == [say("stop.stopped"), say("stop.nothing")]
    await bench.idle()
    assert await bench.journal.unfinished() == []


async def test_that_of_somebody_else_ends_nothing(bench: Bench, full: asyncio.Event) -> None:
    await running(bench, **GROUP)
    full.set()
    for words, more in (("/stop", STOP), ("and this", {})):
        with pytest.raises(errors.StorageError):
            await bench.say(words, **more, **GROUP, user_id="78")
    full.clear()
    assert bench.agent.hold is not None
    bench.agent.hold.set()
    assert await bench.tele.until(1) == ["re: long work"]


async def test_brought_again_it_spares_what_was_said_since(bench: Bench, full: asyncio.Event) -> None:
    # A platform's clock may be ahead of the one that a press of its button is timed by.
    await running(bench, ts=1_700_000_000_500)
    stop = bench.inbound("/stop", **STOP)
    full.set()
    with pytest.raises(errors.StorageError):
        await bench.intake.accept(stop)
    await bench.idle()
    full.clear()
    bench.agent.began.clear()
    await running(bench)
    assert await bench.intake.accept(stop)
    assert await bench.tele.until(1) == [say("stop.stopped")]
    bench.agent.hold.set()  # type: ignore[union-attr]
    assert await bench.tele.until(2) == [say("stop.stopped"), "re: long work"]
    await bench.idle()
    assert await bench.journal.unfinished() == []


async def test_brought_again_and_again_it_ends_one_turn_of_somebody_else(
    bench: Bench, full: asyncio.Event
) -> None:
    await running(bench, **GROUP)
    await bench.say("theirs", **GROUP, user_id="78")
    stop = bench.inbound("/stop", **STOP, **GROUP, user_id="1")
    full.set()
    bench.agent.began.clear()
    with pytest.raises(errors.StorageError):
        await bench.intake.accept(stop)
    await bench.agent.began.wait()  # the other's
    with pytest.raises(errors.StorageError):
        await bench.intake.accept(stop)
    full.clear()
    assert await bench.intake.accept(stop)
    assert await bench.tele.until(1) == [say("stop.stopped")]
    bench.agent.hold.set()  # type: ignore[union-attr]
    assert await bench.tele.until(2) == [say("stop.stopped"), "re: theirs"]


async def test_it_takes_what_waits_too_and_what_was_said_before_it_and_came_behind(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, mode="followup", wrap=FaultyJournal)
    await bench.open()
    await running(bench)
    await bench.say("waits")
    before, stop = bench.inbound("before"), bench.inbound("/stop", **STOP)
    journal = refusing(bench, "receive", "finish", "begin_turn", "end_turn")
    for one in (before, stop):
        with pytest.raises(errors.StorageError):
            await bench.intake.accept(one)
    await bench.idle()
    journal.mend()
    assert [asked.inbound.text for asked in bench.agent.requests if asked.inbound] == ["long work"]
    bench.agent.began.clear()
    assert await bench.intake.accept(before)
    await bench.agent.began.wait()
    assert await bench.intake.accept(stop)
    await bench.idle()
    assert await bench.tele.until(1) == [say("stop.stopped")]
    assert await bench.journal.unfinished() == []
    await bench.close()


async def test_outside_of_threads_it_ends_what_is_in_them(bench: Bench, full: asyncio.Event) -> None:
    await running(bench, **THREAD)
    full.set()
    with pytest.raises(errors.StorageError):
        await bench.say("/shipmate stop", **GROUP, **STOP)
    await bench.idle()
    assert bench.agent.running == {}


async def test_it_waits_for_no_disk_that_takes_long(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await running(bench)
    receive, go_on = bench.journal.receive, asyncio.Event()

    async def slow(inbound: Inbound) -> bool:
        await go_on.wait()
        return await receive(inbound)

    with monkeypatch.context() as stalled:
        stalled.setattr(bench.journal, "receive", slow)
        stop, sleeping = bench.inbound("/stop", **STOP), bench.clock.sleeping
        stopping = asyncio.create_task(bench.intake.accept(stop))
        await until(lambda: bench.clock.sleeping > sleeping)
        await bench.clock.advance(0.5)
        await bench.idle()
        again = asyncio.create_task(bench.intake.accept(stop))  # nobody has told its platform that it came
        go_on.set()
        assert [await stopping, await again] == [True, False]
    assert await bench.tele.until(1) == [say("stop.stopped")]
    await bench.idle()
    assert await bench.journal.unfinished() == []


async def test_few_are_remembered(bench: Bench, full: asyncio.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "MOST_HEARD", 1)
    for chat in ("1", "2"):
        there = {"chat_id": chat, "chat_key": f"tele:chat:{chat}", "target": {"chat": chat}}
        bench.agent.began.clear()
        await running(bench, **there)
        full.set()
        with pytest.raises(errors.StorageError):
            await bench.say("/stop", **STOP, **there, keys=(f"stop {chat}",))
        full.clear()
        await bench.idle()
    assert list(bench.stops.seen) == [("stop 2",)]
