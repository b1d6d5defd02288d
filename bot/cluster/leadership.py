"""Leader election with a lease in the database that contains the log.

The leader increments a counter in the database every `BEAT` seconds. Another process (a standby) takes over if the
leader released the lease, or if the counter has not changed for `LEASE` seconds. The standby measures this time with
its own clock, so that clocks of different hosts are never compared. Each takeover increases the leader's number (`epoch`).
After that, the database refuses transactions of the former leader. A leader stops sending before a standby
can take over. So a leader that continues after a freeze can neither write nor send.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import psycopg

from bot import errors
from bot.contracts.environment import Clock, Log
from bot.core.postgres_log import ERRORS, PostgresSession, has_tables, prepared

T = TypeVar("T")
BEAT = 0.5
LEASE = 3.0
MARGIN = 0.5
"""Min seconds between the end of a leader's work and a standby's takeover."""
_SEEN = """INSERT INTO cluster_hosts VALUES (?, clock_timestamp())
    ON CONFLICT (holder) DO UPDATE SET seen_at = excluded.seen_at"""
_BEAT = "UPDATE cluster_leader SET beats = beats + 1 WHERE epoch = ? AND holder = ?"
_LEASE = "SELECT epoch, holder, beats FROM cluster_leader"
_TAKE = """UPDATE cluster_leader SET epoch = epoch + 1, holder = ?, beats = beats + 1
    WHERE epoch = ? AND holder = ? AND beats = ?"""
_END_FROZEN = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'shipmate' AND datname = current_database() AND usename = current_user
    AND state <> 'idle' AND wait_event = 'ClientRead' AND state_change < clock_timestamp() - INTERVAL '2 s'"""
"""Statement that ends sessions that are stuck inside a transaction. In pipeline mode, the server's timeouts miss some such sessions."""
_RELEASE = "UPDATE cluster_leader SET holder = '' WHERE epoch = ? AND holder = ?"
_FORGET = "DELETE FROM cluster_hosts WHERE holder = ? OR seen_at < clock_timestamp() - INTERVAL '1 day'"
_HOSTS = """SELECT h.holder, l.holder IS NOT NULL FROM cluster_hosts h LEFT JOIN cluster_leader l ON l.holder = h.holder
    WHERE seen_at > clock_timestamp() - INTERVAL '6 s' ORDER BY l.holder IS NULL, h.holder"""


class PostgresLeadership:
    """Implements `contracts.environment.Leadership` with a lease, which is a row in the log's database."""

    def __init__(self, url: str, *, clock: Clock, log: Log, holder: str = "") -> None:
        self._url, self._clock, self._log = url, clock, log
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.epoch = 0
        self.leader = ""
        """Name (`holder`) of the leader of the last known lease; "" if there was no leader."""
        self.deposed = asyncio.Event()
        """Event that is set once another process has taken over from this process. It is never cleared."""
        self._leads = asyncio.Event()
        self._refusal: errors.StorageError | None = None
        self._until = 0.0
        self._seen: tuple[int, str, int] | None = None
        self._since = 0.0
        self._trouble = ""
        self._over = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)

    async def lead(self, stop: asyncio.Event, stands_by: Callable[[str], object]) -> bool:
        """Wait until this process is the leader, and return True. Return False if `stop` is set first. If the wait takes
        longer than 2 × `BEAT`, call `stands_by` once with the leader's name. Raises `errors.StorageError` if the
        database's tables have a newer version.
        """
        self._thread.start()
        waiting = [asyncio.create_task(one.wait()) for one in (self._leads, stop)]
        done, _ = await asyncio.wait(waiting, timeout=2 * BEAT, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            stands_by(self.leader)
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()
        if self._refusal is not None:
            raise self._refusal
        return self._leads.is_set() and not stop.is_set()

    async def confirmed(self) -> None:
        while self._clock.boottime() >= self._until:
            await self._clock.sleep(0.05)

    async def while_leading(self, call: Coroutine[Any, Any, T]) -> T:
        working, losing = asyncio.ensure_future(call), asyncio.ensure_future(self._lost_lead())
        try:
            await asyncio.wait((working, losing), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise errors.DeliveryUncertain("another process may lead by now")
            return working.result()
        finally:
            working.cancel()
            losing.cancel()
            await asyncio.gather(working, losing, return_exceptions=True)

    async def _lost_lead(self) -> None:
        while self._clock.boottime() < self._until:
            await self._clock.sleep(0.05)

    def role(self) -> str:
        if self.deposed.is_set():
            return f"{self.leader} leads in its place"
        return f"leader, epoch {self.epoch}" if self.epoch else f"standby; {self.leader or 'nobody'} leads"

    async def close(self) -> None:
        """Release the lease, so that another process can take over. Call this after the last write."""
        self._over.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    # All methods below run on the thread `leadership`.

    def _run(self) -> None:
        db: PostgresSession | None = None
        while not self._over.is_set() and not self.deposed.is_set():
            try:
                if db is None:
                    db = prepared(self._url, seconds=2)
                    db.execute("SET statement_timeout = '2s'")
                self._beat(db)
                self._trouble = ""
            except psycopg.Error as error:
                self._seen = None  # another process may have changed the counter meanwhile
                if (words := errors.words_of(error)) != self._trouble:
                    self._trouble = words
                    self._log.write("cluster", f"the lease cannot be polled: {words}", level="warn")
                if db is not None:
                    db.close()
                db = None
            except errors.StorageError as error:
                self._refusal = error
                self._loop.call_soon_threadsafe(self._leads.set)
                break
            self._over.wait(BEAT)
        if db is not None:
            with contextlib.suppress(psycopg.Error), contextlib.closing(db):
                db.execute(_RELEASE, (self.epoch, self.holder))
                db.execute(_FORGET, (self.holder,))
        self._until = 0.0

    def _beat(self, db: PostgresSession) -> None:
        db.execute(_SEEN, (self.holder,))
        if not self.epoch:
            self._poll(db)
            return
        asked = self._clock.boottime()
        if db.execute(_BEAT, (self.epoch, self.holder)).rowcount:
            self._until = asked + LEASE - MARGIN
            return
        self._until = 0.0
        _, self.leader, _ = _lease(db)
        self._log.write(
            "cluster", "another process leads now; this one ends", level="error", leader=self.leader
        )
        self._loop.call_soon_threadsafe(self.deposed.set)
        self._over.set()

    def _poll(self, db: PostgresSession) -> None:
        has_tables(db)  # the former leader may have been a newer version that changed the tables
        asked, found = self._clock.boottime(), _lease(db)
        epoch, self.leader, _ = found
        if found != self._seen:
            self._seen, self._since = found, asked
        if self.leader and asked - self._since < LEASE:
            return
        db.execute(_END_FROZEN)
        if not db.execute(_TAKE, (self.holder, *(epoch, self.leader, found[2]))).rowcount:
            return
        self._log.write("cluster", "this process leads now", epoch=epoch + 1, before=self.leader)
        self.epoch, self.leader, self._until = epoch + 1, self.holder, asked + LEASE - MARGIN
        self._loop.call_soon_threadsafe(self._leads.set)


def _lease(db: PostgresSession) -> tuple[Any, ...]:
    found = db.execute(_LEASE).fetchone()
    if found is None:
        raise psycopg.OperationalError("the lease is gone")  # a new session creates the lease
    return tuple(found)


@contextlib.contextmanager
def _opened(url: str) -> Iterator[PostgresSession]:
    with (
        errors.as_storage_error("the database cannot be used", *ERRORS),
        contextlib.closing(PostgresSession(url)) as db,
    ):
        yield db


def hosts(url: str) -> list[tuple[str, bool]]:
    """Return the processes that have used the database at `url` within the last six seconds. Each is a pair: its name, and True
    if it is the leader. The leader comes first. Raises `errors.StorageError`.
    """
    with _opened(url) as db:
        if db.execute("SELECT to_regclass('cluster_hosts')").fetchone() == (None,):
            return []
        return [(str(holder), bool(leads)) for holder, leads in db.execute(_HOSTS).fetchall()]


def examine(url: str) -> tuple[str, str]:
    """Return the database server's version, and a description of a problem; "" if there is no problem. Raises
    `errors.StorageError`.
    """
    with _opened(url) as db:
        names = ("server_version", "fsync", "full_page_writes")
        version, *kept = (str((db.execute(f"SHOW {name}").fetchone() or ("",))[0]) for name in names)
        try:
            has_tables(db)
        except errors.StorageError as error:
            return version, str(error)
    if kept != ["on", "on"]:
        return version, "fsync or full_page_writes is off, so a crash may lose accepted messages"
    return version, ""
