"""Of several processes on a database, one leads. A former leader that was frozen writes and sends nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psycopg
import pytest

from bot import errors
from bot.contracts.environment import Clock
from bot.system import SystemClock, SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests import postgres
from tests.contracts.event_log import entry, received

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)

if postgres.programs() is not None:
    from bot.cluster.leadership import LEASE, PostgresLeadership
    from bot.core.postgres_log import PostgresLog, PostgresSession

Candidate = Callable[..., "PostgresLeadership"]


@pytest.fixture
def url() -> str:
    return postgres.shared().log()


@pytest.fixture
async def candidate(url: str) -> AsyncIterator[Candidate]:
    made: list[PostgresLeadership] = []

    def make(name: str, clock: Clock | None = None) -> PostgresLeadership:
        clock = clock or SystemClock()
        made.append(PostgresLeadership(url, clock=clock, log=MemoryLog(), holder=name))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def leads(one: PostgresLeadership) -> None:
    async with asyncio.timeout(90):
        assert await one.lead(asyncio.Event(), lambda _: None)


async def froze(candidate: Candidate, url: str) -> PostgresLeadership:
    """Return a leader that no longer renews its lease but still holds it, like a frozen process."""
    frozen = candidate("a")
    await leads(frozen)
    await frozen.close()
    await asyncio.to_thread(postgres.lease, url, "a")
    return frozen


async def test_a_standby_that_is_stopped_ends(candidate: Candidate) -> None:
    await leads(candidate("a"))
    stop = asyncio.Event()
    assert not await candidate("b").lead(stop, lambda _: stop.set())


def log_of(url: str, folder: Path, leadership: PostgresLeadership) -> PostgresLog:
    return PostgresLog(
        url,
        folder / "exports.json",
        epoch=leadership.epoch,
        disk=SystemDisk(),
        clock=SystemClock(),
        log=MemoryLog(),
    )


async def test_one_whose_number_stands_still_is_followed_and_can_neither_write_nor_send(
    candidate: Candidate, url: str, tmp_path: Path
) -> None:
    frozen = candidate("a")
    await leads(frozen)
    before = log_of(url, tmp_path, frozen)
    before.append([entry(1, received())])
    await before.committed()
    # Like a frozen process, the leader stops renewing its lease and keeps it.
    await frozen.close()
    await asyncio.to_thread(postgres.lease, url, "a")
    after = candidate("b")
    await leads(after)
    now = log_of(url, tmp_path, after)
    now.append([entry(2, received("k2"))])
    await now.committed()
    before.append([entry(3, received("k3"))])
    with pytest.raises(errors.StorageError, match="another process leads"):
        await before.committed(patient=False)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(frozen.confirmed(), 0.2)
        pytest.fail("it would have sent")
    await before.close()
    assert [one.seq for one in await now.read(entry(1, received()).event.chat)] == [1, 2]
    await now.close()


async def test_one_that_froze_in_a_transaction_holds_nobody_up_and_writes_nothing(
    candidate: Candidate, url: str
) -> None:
    await froze(candidate, url)
    with contextlib.closing(PostgresSession(url)) as db:
        db.execute(
            "BEGIN; SELECT epoch FROM cluster_leader FOR SHARE; INSERT INTO facts VALUES ('late', 'k', 'v')"
        )
        await leads(candidate("b"))
        with pytest.raises(psycopg.Error):
            db.execute("COMMIT")
    with contextlib.closing(PostgresSession(url)) as db:
        assert db.execute("SELECT 1 FROM facts WHERE kind = 'late'").fetchone() is None


async def test_one_that_froze_before_the_server_had_all_of_its_transaction_holds_nobody_up(
    candidate: Candidate, url: str
) -> None:
    epoch = (await froze(candidate, url)).epoch

    async def write_slowly(db: PostgresSession) -> None:
        with db.leading(epoch):
            db.execute("INSERT INTO facts VALUES ('late', 'k', 'v')")
            # The server has run this statement and waits for the rest of the pipeline, so it counts the session as active.
            db.execute("SELECT epoch FROM cluster_leader FOR SHARE").fetchone()
            await leads(candidate("b"))

    with (
        contextlib.closing(PostgresSession(url)) as db,
        pytest.raises((psycopg.Error, errors.StorageError)),
    ):
        await write_slowly(db)
    with contextlib.closing(PostgresSession(url)) as db:
        assert db.execute("SELECT 1 FROM facts WHERE kind = 'late'").fetchone() is None


async def test_one_that_was_suspended_leads_only_once_the_database_has_said_so(
    candidate: Candidate, url: str
) -> None:
    clock = FakeClock()
    woken = candidate("a", clock)
    await leads(woken)
    with contextlib.closing(PostgresSession(url)) as db:
        db.execute("BEGIN; SELECT 1 FROM cluster_leader FOR UPDATE")  # the lock makes the leader's query wait
        clock.suspend(LEASE)
        sending = asyncio.ensure_future(woken.confirmed())
        await asyncio.wait([sending], timeout=0.2)
        assert not sending.done(), "it would have sent"
        db.execute("UPDATE cluster_leader SET epoch = epoch + 1, holder = 'b'; COMMIT")
    await asyncio.wait_for(woken.deposed.wait(), 90)
    await clock.advance(60)
    assert not sending.done(), "it would have sent"
    sending.cancel()


async def test_what_takes_long_ends_once_it_may_not_lead_any_more(candidate: Candidate, url: str) -> None:
    first, begun, over = candidate("a"), asyncio.Event(), asyncio.Event()

    async def upload() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    async def at_once() -> str:
        return "done"

    await leads(first)
    assert await first.while_leading(at_once()) == "done"
    sending = asyncio.ensure_future(first.while_leading(upload()))
    await begun.wait()
    await asyncio.to_thread(postgres.lease, url, "b")
    with pytest.raises(errors.DeliveryUncertain):
        await asyncio.wait_for(sending, 90)
    assert over.is_set()
    await asyncio.wait_for(first.deposed.wait(), 90)
    assert first.role() == "b leads in its place"


async def test_a_leader_whose_lease_is_gone_ends(candidate: Candidate, url: str) -> None:
    first = candidate("a")
    await leads(first)
    with contextlib.closing(PostgresSession(url)) as db:
        db.execute("DELETE FROM cluster_leader")
    await asyncio.wait_for(first.deposed.wait(), 90)
    await leads(candidate("b"))
