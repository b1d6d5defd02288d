"""Posted writes: kept in memory while the disk refuses them, and written in their order once it takes something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.journal import ANSWERED, STOPPED, Journal
from bot.journal import SqliteJournal
from bot.testing.clock import FakeClock
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.testing.log import MemoryLog
from bot.testing.memory_journal import MemoryJournal
from tests.contracts.journal_rig import inbound, outbound, still_open
from tests.unit.journal.conftest import Failing, Make

ONE, TWO = inbound(1).request_id, inbound(2).request_id
SENT = outbound(1)


async def on_file(path: Path) -> dict[str, tuple[str, str | None]]:
    """What another process would find of each inbound."""
    journal = SqliteJournal(path, clock=FakeClock(), log=MemoryLog())
    records = [await journal.inbound(name) for name in (ONE, TWO)]
    await journal.close()
    return {one.inbound.request_id: (one.state, one.turn_id) for one in records if one is not None}


async def taken_in(journal: Journal) -> None:
    await journal.receive(inbound(1))
    await journal.receive(inbound(2))


@pytest.mark.parametrize("reaches", [True, False])
async def test_what_the_disk_refuses_is_written_in_its_order_once_it_takes_something(
    make: Make, failing: type[Failing], log: MemoryLog, *, reaches: bool
) -> None:
    journal = make()
    await taken_in(journal)
    failing.reaches, failing.failures = reaches, 3
    await journal.post.put_outbox([SENT])
    assert journal.pending_writes == 1
    await journal.post.update_outbox(SENT.begin())
    await asyncio.gather(
        journal.post.update_outbox(SENT.begin().arrive("m1")), journal.post.finish(ONE, ANSWERED)
    )
    assert journal.pending_writes == 4
    assert [entry.message for entry in log.at("error")].count(
        "posted writes wait until the journal can be written"
    ) == 1
    assert await journal.receive(inbound(3))
    assert journal.pending_writes == 0
    (row,) = await journal.deliveries(SENT.request_id)
    assert (row.state, row.message_id) == ("sent", "m1")
    assert [one.request_id for one in await still_open(journal)] == [TWO, inbound(3).request_id]


async def test_it_is_written_by_itself_after_a_while(make: Make, failing: type[Failing], path: Path) -> None:
    clock = FakeClock()
    journal = SqliteJournal(path, clock=clock, log=MemoryLog())
    await taken_in(journal)
    failing.reaches, failing.failures = False, 2
    await journal.post.finish(ONE, ANSWERED)
    async with asyncio.timeout(90):
        while journal.pending_writes:
            await clock.advance(1.0)
            await asyncio.sleep(0.001)
    assert failing.failures == 0
    await journal.close()
    assert await on_file(path) == {ONE: ("answered", None), TWO: ("queued", None)}


async def test_flush_says_whether_the_disk_takes_it(make: Make, failing: type[Failing]) -> None:
    journal = make()
    await taken_in(journal)
    assert await journal.flush()
    failing.reaches, failing.failures = False, 2
    await journal.post.join_turn(ONE, [ONE])
    assert not await journal.flush()
    assert await journal.flush()
    record = await journal.inbound(ONE)
    assert record is not None
    assert record.state == "in_turn"


async def test_an_inbound_is_closed_together_with_all_that_was_posted_before(
    make: Make, failing: type[Failing], path: Path
) -> None:
    """Else a death in between would lose an answer that was put off, or ask again what was answered together."""
    journal = make()
    await taken_in(journal)
    await journal.put_outbox([SENT])
    failing.reaches, failing.failures = False, 1
    await journal.post.update_outbox(SENT.put_off(1.0))
    await journal.post.join_turn(ONE, [TWO])
    await journal.post.end_turn(ONE, "stopped", {TWO: STOPPED, ONE: STOPPED})
    commits = failing.commits
    assert await journal.flush()
    assert failing.commits - commits <= 2
    assert await on_file(path) == {ONE: ("stopped", None), TWO: ("stopped", ONE)}
    assert [row.not_before for row in await journal.deliveries(SENT.request_id)] == [1.0]


async def test_behind_a_posted_write_that_is_refused_no_other_one_of_its_batch_is_written(
    make: Make, failing: type[Failing]
) -> None:
    journal = make()
    await taken_in(journal)
    failing.no_room_for = "INSERT INTO outbox"
    journal.post.put_outbox([SENT])
    finished = journal.post.finish(ONE, ANSWERED)
    assert await journal.receive(inbound(3)), "what is not posted does not wait for it"
    await finished
    assert journal.pending_writes == 2
    record = await journal.inbound(ONE)
    assert record is not None
    assert record.state == "queued"
    failing.no_room_for = ""
    assert await journal.flush()
    assert [one.request_id for one in await still_open(journal)] == [TWO, inbound(3).request_id]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda post: post.put_outbox([outbound(2, state="no such state")]), "the journal cannot write this"),
        (lambda post: post.update_outbox(outbound(2, state="sent")), f"{outbound(2).id} is missing"),
        (lambda post: post.suspend_turn("no turn"), "no turn is missing"),
        (lambda post: post.end_turn("no such turn", "done", {}), "no such turn is missing"),
        (lambda post: post.begin_turn(ONE, inbound(1).chat_key, ["begun"]), "begun is missing"),
        (lambda post: post.join_turn(ONE, ["joined"]), "joined is missing"),
        (lambda post: post.finish("finished", ANSWERED), "finished is missing"),
    ],
)
async def test_one_that_can_never_be_written_is_told_and_keeps_no_other_one_back(
    make: Make, failing: type[Failing], log: MemoryLog, wrong: Callable[[Any], Any], told: str
) -> None:
    journal = make()
    await taken_in(journal)
    await journal.put_outbox([SENT])
    failing.reaches, failing.failures = False, 1
    await journal.post.join_turn(ONE, [ONE])
    await wrong(journal.post)
    await journal.post.finish(ONE, ANSWERED)
    assert journal.pending_writes == 0
    assert told in log.text
    assert [one.request_id for one in await still_open(journal)] == [TWO]


async def test_what_is_written_again_though_it_reached_the_disk_is_no_mistake(
    make: Make, failing: type[Failing], log: MemoryLog
) -> None:
    journal = make()
    await taken_in(journal)
    await journal.put_outbox([outbound(1)])
    failing.reaches, failing.failures = True, 1
    key = inbound(1).chat_key
    posted = [
        journal.post.begin_turn(ONE, key, [ONE]),
        journal.post.suspend_turn(ONE),
        journal.post.join_turn(ONE, [TWO]),
        journal.post.update_outbox(outbound(1, state="sending")),
        journal.post.update_outbox(outbound(1, state="sent", message_id="m1")),
        journal.post.end_turn(ONE, "done", {ONE: ANSWERED, TWO: ANSWERED}),
    ]
    await asyncio.gather(*posted)
    assert await journal.flush()
    assert [(row.state, row.message_id) for row in await journal.deliveries(ONE)] == [("sent", "m1")]
    turn = await journal.turn(ONE)
    assert turn is not None
    assert turn.state == "done"
    assert "the journal cannot be written" in log.text
    assert "cannot follow" not in log.text


async def test_what_is_over_counts_as_finished_while_the_disk_refuses_to_note_it(
    make: Make, failing: type[Failing], path: Path
) -> None:
    journal = make()
    await taken_in(journal)
    for number in range(3, 8):
        await journal.receive(inbound(number))
    failing.reaches, failing.failures = False, 1_000
    closed = [journal.post.finish(inbound(number).request_id, ANSWERED) for number in (1, 2, 3, 5)]
    assert [one.request_id for one in await still_open(journal)] == [inbound(4).request_id, *_names(6, 7)]
    await asyncio.gather(*closed)
    assert [one.request_id for one in await still_open(journal, 2)] == _names(4, 6)
    assert [one.request_id for one in await still_open(journal, 2, inbound(4).request_id)] == _names(6, 7)
    with pytest.raises(errors.StorageError):
        await journal.receive(inbound(9))
    failing.failures = 0
    assert await journal.flush()


async def test_who_is_cancelled_takes_nothing_back(make: Make, failing: type[Failing]) -> None:
    journal = make()
    await taken_in(journal)
    failing.reaches, failing.failures = False, 1

    async def closing() -> None:
        await journal.post.finish(ONE, ANSWERED)

    task = asyncio.ensure_future(closing())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert [one.request_id for one in await still_open(journal)] == [TWO]
    assert await journal.flush()
    assert [one.request_id for one in await still_open(journal)] == [TWO]


async def test_what_is_lost_with_the_process_is_told(
    failing: type[Failing], log: MemoryLog, path: Path
) -> None:
    journal = SqliteJournal(path, clock=FakeClock(), log=log)
    await taken_in(journal)
    failing.reaches, failing.failures = False, 1_000
    await journal.post.finish(ONE, ANSWERED)
    await journal.close()
    assert "what was posted to the journal could not be written" in log.text
    failing.failures = 0
    assert await on_file(path) == {ONE: ("queued", None), TWO: ("queued", None)}


def _names(*numbers: int) -> list[str]:
    return [inbound(number).request_id for number in numbers]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_faulty_journal_keeps_what_fails_and_all_after_it(make: Make, kind: str) -> None:
    inner: Journal = make() if kind == "sqlite" else MemoryJournal(FakeClock())
    journal = FaultyJournal(inner)
    await taken_in(journal)
    journal.fail(JournalFailure("put_outbox", times=3))
    await journal.post.put_outbox([SENT])
    await journal.post.update_outbox(SENT.begin())
    await journal.post.finish(ONE, ANSWERED)
    assert await journal.deliveries(SENT.request_id) == []
    assert [one.request_id for one in await still_open(inner)] == [ONE, TWO]
    assert [one.request_id for one in await still_open(journal)] == [TWO]
    assert journal.pending_writes == 3
    journal.mend()
    assert await journal.flush()
    assert [row.state for row in await journal.deliveries(SENT.request_id)] == ["sending"]
    assert [one.request_id for one in await still_open(inner)] == [TWO]
