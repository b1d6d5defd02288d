"""A disk that fails: what is refused, what can still be read, and how the journal comes back."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.journal import ANSWERED
from bot.disk_reserve import PIECE, DiskReserve
from bot.journal import SqliteJournal
from bot.journal.connection import close
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.contracts.journal_rig import inbound, outbound, still_open
from tests.unit.journal.conftest import Failing, Make

NOBODY = 65534


@pytest.mark.parametrize("reaches", [True, False])
async def test_after_a_disk_error_what_was_refused_is_not_half_there_and_comes_in_when_it_comes_again(
    make: Make, failing: type[Failing], log: MemoryLog, *, reaches: bool
) -> None:
    journal = make()
    await journal.receive(inbound(1))
    failing.reaches, failing.failures = reaches, 1
    results = await asyncio.gather(
        journal.receive(inbound(2)), journal.finish(inbound(1).request_id, ANSWERED), return_exceptions=True
    )
    assert all(isinstance(result, errors.StorageError) for result in results)
    assert "disk I/O error" in journal.health()
    again = inbound(3, keys=inbound(2).keys)
    assert await journal.receive(again)
    assert failing.opened == 3  # beside the reader: opened anew and checked before anything else is written
    assert journal.health() == ""
    assert again in await still_open(journal)
    assert inbound(2) not in await still_open(journal)
    assert log.at("error")


@pytest.mark.parametrize(
    ("code", "checked"),
    [
        (sqlite3.SQLITE_FULL, []),
        (sqlite3.SQLITE_IOERR_FSYNC, ["PRAGMA quick_check(1)"]),
        (sqlite3.SQLITE_CORRUPT, ["PRAGMA integrity_check(1)"]),
    ],
)
async def test_how_much_is_checked_follows_from_what_went_wrong(
    make: Make, failing: type[Failing], code: int, checked: list[str]
) -> None:
    journal = make()
    await journal.receive(inbound(1))
    assert failing.checks == ["PRAGMA integrity_check(1)"]
    failing.checks, failing.code, failing.failures = [], code, 1
    with pytest.raises(errors.StorageError):
        await journal.receive(inbound(2))
    assert await journal.receive(inbound(3))
    assert failing.checks == checked
    assert inbound(1) in await still_open(journal)


async def test_what_was_refused_is_taken_back_before_anything_else_is_written(
    make: Make, failing: type[Failing], path: Path
) -> None:
    journal = make(busy_seconds=0.0)
    await journal.receive(inbound(1))
    failing.failures = 1
    with pytest.raises(errors.StorageError):
        await journal.receive(inbound(2))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TRIGGER no BEFORE DELETE ON keys BEGIN SELECT raise(ABORT, 'not now'); END")
    with pytest.raises(errors.StorageError, match="not now"):
        await journal.receive(inbound(3))
    other.execute("DROP TRIGGER no")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(errors.StorageError, match="locked"):
        await journal.receive(inbound(3))
    other.close()
    assert await journal.receive(inbound(3))
    assert await still_open(journal) == [inbound(1), inbound(3)]


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY])
async def test_while_nothing_can_be_written_everything_can_be_read_and_the_operator_is_told_once(
    make: Make, failing: type[Failing], log: MemoryLog, code: int
) -> None:
    journal = make()
    await asyncio.gather(*(journal.receive(inbound(number)) for number in (1, 2)))
    failing.code, failing.reaches, failing.failures = code, False, 1_000
    for number in (3, 4, 5):
        with pytest.raises(errors.StorageError, match="cannot be written"):
            await journal.receive(inbound(number))
        assert await still_open(journal) == [inbound(1), inbound(2)]
        assert await journal.inbound(inbound(1).request_id) is not None
        assert "disk I/O error" in await journal.probe()
    assert "disk I/O error" in journal.health()
    assert len(log.at("error")) == 1
    failing.failures = 0
    # Nobody writes to the bot: the probe alone finds that the disk is well again.
    assert await journal.probe() == ""
    assert journal.health() == ""
    assert "written again" in log.at("info")[0].message
    assert await journal.receive(inbound(3))
    assert await still_open(journal) == [inbound(1), inbound(2), inbound(3)]


async def test_a_commit_that_failed_is_not_tried_again_and_reads_beside_it_are_answered(
    make: Make, failing: type[Failing]
) -> None:
    journal = make()
    await journal.receive(inbound(1))
    before = failing.commits, failing.opened
    failing.reaches, failing.failures = False, 1
    receiving = [asyncio.create_task(journal.receive(inbound(number))) for number in (2, 3)]
    reading = asyncio.create_task(still_open(journal))
    results = await asyncio.gather(*receiving, reading, return_exceptions=True)
    assert [isinstance(result, errors.StorageError) for result in results[:2]] == [True, True]
    assert results[2] == [inbound(1)]
    assert (failing.commits, failing.opened) == (before[0] + 1, before[1])
    assert await journal.receive(inbound(2))
    assert failing.opened == before[1] + 1


async def test_messages_whose_intent_was_refused_are_never_found_in_the_outbox(
    make: Make, failing: type[Failing]
) -> None:
    journal = make()
    await journal.put_outbox([outbound(1)])
    failing.failures = 1
    with pytest.raises(errors.StorageError):
        await journal.put_outbox([outbound(1), outbound(2)])
    await journal.probe()
    assert [row.id for row in await journal.deliveries(outbound(1).request_id)] == [outbound(1).id]


async def test_what_may_have_been_written_and_was_refused_is_not_read_through_a_fresh_connection(
    make: Make, failing: type[Failing]
) -> None:
    journal = make()
    await journal.receive(inbound(1))
    failing.failures = 1
    with pytest.raises(errors.StorageError):
        await journal.receive(inbound(2))
    close(journal.base._reader)
    journal.base._reader = None
    with pytest.raises(errors.StorageError):
        await still_open(journal)
    assert await journal.probe() == ""
    assert await still_open(journal) == [inbound(1)]


async def test_values_that_cannot_be_written_are_no_trouble_of_the_disk(make: Make, log: MemoryLog) -> None:
    journal = make()
    await journal.receive(inbound(1))
    with pytest.raises(errors.StorageError, match="cannot write this"):
        await journal.receive(inbound(2, request_id=inbound(1).request_id))
    assert journal.health() == ""
    assert len(log.at("error")) == 1


async def test_reading_waits_for_nobody_who_writes(make: Make, path: Path) -> None:
    journal = make(busy_seconds=0.0)
    await journal.receive(inbound(1))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert await still_open(journal) == [inbound(1)]
    assert journal.health() == ""
    other.close()


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder that can be made read-only, and a process that has to keep to it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        root = os.geteuid() == 0
        if root:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o700)


@pytest.mark.parametrize("killed", [True, False])
async def test_a_folder_that_turned_read_only_can_be_read_until_it_can_be_written(
    unprivileged: Path, *, killed: bool
) -> None:
    path, log = unprivileged / "journal.db", MemoryLog()
    first = SqliteJournal(path, clock=FakeClock(), log=log)
    await first.receive(inbound(1))
    if not killed:
        await first.close()
    path.chmod(0o400)
    unprivileged.chmod(0o500)
    journal = SqliteJournal(path, clock=FakeClock(), log=log)
    for _ in range(2):
        with pytest.raises(errors.StorageError, match="cannot be written"):
            await journal.receive(inbound(2))
        assert await still_open(journal) == [inbound(1)]
    assert "cannot be written" in journal.health()
    path.chmod(0o600)
    unprivileged.chmod(0o700)
    assert await journal.probe() == ""
    assert await journal.receive(inbound(2))
    assert await still_open(journal) == [inbound(1), inbound(2)]
    for one in (journal, first):
        await one.close()


def test_a_disk_that_takes_nothing_more_and_gets_room_again_loses_nothing_it_said_it_had(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.journal.process_fills", str(tmp_path / "journal.db")],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["filled", "read", "refused", "recovered", "whole"]


@pytest.mark.parametrize("times", [1, 2])
async def test_on_a_full_disk_ends_are_recorded_from_the_reserve_and_nothing_new_is_taken_in(
    make: Make, failing: type[Failing], log: MemoryLog, path: Path, times: int
) -> None:
    kept = DiskReserve(path.with_name("reserve"), log, most=4 * PIECE)
    journal = make(reserve=kept)
    await journal.receive(inbound(1))
    kept.look()
    failing.reaches, failing.failures, failing.code = False, times, sqlite3.SQLITE_FULL
    await journal.put_outbox([outbound(1, state="sending")])
    assert kept.left == (4 - times) * PIECE
    assert journal.health() == ""
    results = await asyncio.gather(
        journal.update_outbox(outbound(1, state="sent", message_id="m1")),
        journal.receive(inbound(2)),
        journal.finish(inbound(1).request_id, ANSWERED),
        return_exceptions=True,
    )
    assert [str(one) for one in results] == [
        "None",
        "the journal takes in nothing new: the disk is full",
        "None",
    ]
    (row,) = await journal.deliveries(outbound(1).request_id)
    assert (row.state, row.message_id) == ("sent", "m1")
    assert await journal.unfinished() == []
    kept.look()
    assert await journal.receive(inbound(2))


async def test_a_reserve_that_is_used_up_leaves_the_refusal(
    make: Make, failing: type[Failing], log: MemoryLog, path: Path
) -> None:
    kept = DiskReserve(path.with_name("reserve"), log, most=2 * PIECE)
    journal = make(reserve=kept)
    await journal.receive(inbound(1))
    kept.look()
    failing.reaches, failing.failures, failing.code = False, 3, sqlite3.SQLITE_FULL
    with pytest.raises(errors.StorageError, match="disk I/O error"):
        await journal.finish(inbound(1).request_id, ANSWERED)
    assert kept.left == 0
    await journal.finish(inbound(1).request_id, ANSWERED)
    assert await journal.unfinished() == []
