from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.journal import ANSWERED, Journal
from bot.testing.clock import FakeClock
from bot.testing.journal import WRITES, FaultyJournal, JournalFailure
from bot.testing.memory_journal import MemoryJournal
from tests.contracts.journal_rig import inbound, step, still_open


@pytest.fixture
def inner() -> Journal:
    return MemoryJournal(FakeClock())


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failure_before_leaves_nothing_and_one_after_leaves_what_its_caller_does_not_know_of(
    inner: Journal, when: Literal["before", "after"]
) -> None:
    journal = FaultyJournal(inner)
    journal.fail(JournalFailure("receive", when=when))
    with pytest.raises(errors.StorageError, match="receive"):
        await journal.receive(inbound(1))
    assert await still_open(inner) == ([inbound(1)] if when == "after" else [])
    assert await journal.receive(inbound(2))


async def test_the_nth_call_of_a_kind_fails_as_often_as_it_should(inner: Journal) -> None:
    journal = FaultyJournal(inner)
    journal.fail(JournalFailure("receive", at=2, times=2))
    taken = [journal.receive(inbound(number)) for number in (1, 2, 3, 4)]
    results = await asyncio.gather(*taken, return_exceptions=True)
    assert [isinstance(result, errors.StorageError) for result in results] == [False, True, True, False]
    assert await still_open(journal) == [inbound(1), inbound(4)]
    assert journal.done == ["receive"] * 4 + ["unfinished"]


async def test_what_only_reads_does_not_count_as_a_write_and_fails_only_where_everything_does(
    inner: Journal,
) -> None:
    journal = FaultyJournal(inner)
    journal.fail(JournalFailure(times=None))
    assert await journal.knows(ChatKey("tele", "x")) is False
    assert await journal.probe() == ""
    for name in WRITES:
        assert hasattr(inner, name)
    with pytest.raises(errors.StorageError):
        await journal.join_turn("x", [])
    journal.mend()
    await journal.join_turn("x", [])
    journal.fail(JournalFailure("*", times=None))
    with pytest.raises(errors.StorageError):
        await journal.steps("x")
    assert "probe" in await journal.probe()


async def test_it_can_kill_the_process_before_and_after() -> None:
    inner = MemoryJournal(FakeClock())
    there: list[list[str]] = []
    journal = FaultyJournal(inner, die=lambda: there.append(list(inner.inbox)))
    journal.fail(JournalFailure("receive", then="kill"))
    journal.fail(JournalFailure("receive", then="kill", when="after"))
    for number in (1, 2):
        with pytest.raises(errors.StorageError):
            await journal.receive(inbound(number))
    assert there == [[], [inbound(2).request_id]]


async def test_what_is_called_first_is_carried_out_first(inner: Journal) -> None:
    seen: list[str] = []
    journal = FaultyJournal(inner, seen=seen.append)
    journal.fail(JournalFailure("finish", when="after"))
    await journal.receive(inbound(1))
    begun = journal.begin_step(step(1))
    finished = journal.finish(inbound(1).request_id, ANSWERED)
    assert [one.id for one in await inner.steps(step(1).request_id)] == [step(1).id]
    assert await inner.unfinished() == []
    with pytest.raises(errors.StorageError):
        await finished
    await begun
    assert seen == ["receive", "begin_step", "finish"]
