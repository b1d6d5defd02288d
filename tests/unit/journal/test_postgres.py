"""The journal in PostgreSQL where the server, the network or another process is in its way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Self
from urllib.parse import unquote

import pytest

from bot import errors
from bot.contracts.journal import ANSWERED, StepRecord
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests import postgres
from tests.contracts.journal_rig import inbound, outbound, still_open

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)

if postgres.programs() is not None:
    import psycopg

    from bot.journal.postgres import PostgresJournal, examine

Make = Callable[..., "PostgresJournal"]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def url() -> str:
    return postgres.shared().journal()


@pytest.fixture
async def make(url: str, clock: FakeClock, log: MemoryLog) -> AsyncIterator[Make]:
    made: list[PostgresJournal] = []

    def make(at: str = url, *, busy_seconds: float = 5.0) -> PostgresJournal:
        made.append(PostgresJournal(at, clock=clock, log=log, busy_seconds=busy_seconds))
        return made[-1]

    yield make
    for journal in made:
        await journal.close()


def end_sessions(url: str) -> None:
    """End every session but this one, and wait until they are over."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


async def test_a_session_that_has_ended_is_made_anew_and_nobody_hears_of_it(make: Make, url: str) -> None:
    journal = make()
    assert await journal.receive(inbound(1))
    end_sessions(url)
    assert await journal.receive(inbound(2))
    end_sessions(url)
    assert len(await still_open(journal)) == 2
    assert journal.health() == ""


async def test_one_process_at_a_time_has_the_journal(make: Make) -> None:
    first = make()
    await first.open()
    second = make(busy_seconds=0.05)
    with pytest.raises(errors.StorageError, match="another process has the journal"):
        await second.open()
    await first.close()
    await second.open()


async def test_a_server_that_crashes_loses_nothing_and_posted_writes_wait_for_it(
    clock: FakeClock, log: MemoryLog
) -> None:
    server = postgres.Postgres(durable=True)
    journal = PostgresJournal(server.url(), clock=clock, log=log)
    try:
        assert await journal.receive(inbound(1))
        await journal.put_outbox([outbound(1)])
        server.crash()
        with pytest.raises(errors.StorageError):
            await journal.receive(inbound(2))
        await journal.post.finish(inbound(1).request_id, ANSWERED)
        assert journal.pending_writes == 1
        assert "cannot be written" in journal.health()
        server.start()
        assert await journal.flush()
        assert (journal.health(), await still_open(journal)) == ("", [])
        assert await journal.receive(inbound(2))
        assert [row.id for row in await journal.deliveries(inbound(1).request_id)] == [outbound(1).id]
    finally:
        await journal.close()
        server.stop()


async def test_a_commit_without_an_answer_is_taken_back_where_it_was_refused_and_made_once_where_it_was_posted(
    make: Make, url: str
) -> None:
    with Cutting(postgres.shared().home) as cut:
        journal = make(unquote(url).replace(cut.server, cut.home))
        assert await journal.receive(inbound(1))
        cut.behind(b"COMMIT")
        with pytest.raises(errors.StorageError):
            await journal.receive(inbound(2))
        assert await journal.receive(inbound(2))  # its platform brings it again
        cut.behind(b"COMMIT")
        await journal.post.end_turn("T1", "done", {inbound(1).request_id: ANSWERED}, [outbound(1)])
        assert await journal.flush()
        assert [row.id for row in await journal.deliveries(inbound(1).request_id)] == [outbound(1).id]
        assert [one.request_id for one in await still_open(journal)] == [inbound(2).request_id]


async def test_a_message_takes_few_ways_to_the_server_and_back(make: Make, url: str) -> None:
    message, answer = inbound(1), outbound(1)
    with Cutting(postgres.shared().home) as between:
        journal = make(unquote(url).replace(between.server, between.home))
        await journal.open()
        before = between.answers
        about = asyncio.ensure_future(journal.about(message.chat_key, "1", "message:5:1"))
        assert await asyncio.gather(asyncio.ensure_future(journal.receive(message)), about)
        journal.post.begin_turn(message.request_id, message.chat_key, [message.request_id])
        begun = journal.begin_step(StepRecord(message.request_id, "S1", "model", "m", 0.0))
        await journal.put_outbox([answer.begin()])
        ended = journal.end_step(message.request_id, "S1", {"said": "answer 1"})
        await journal.update_outbox(answer.begin().arrive("2"))
        await asyncio.gather(begun, ended)
        await journal.post.end_turn(message.request_id, "done", {message.request_id: ANSWERED})
        assert between.answers - before <= 6  # four, where each statement had its own, thirty
        assert (await still_open(journal), journal.health()) == ([], "")


@pytest.mark.parametrize("last", [True, False])
async def test_what_the_server_refuses_takes_nothing_else_down_and_its_words_are_not_told(
    make: Make, log: MemoryLog, *, last: bool
) -> None:
    journal = make()
    await journal.open()
    changes = [journal.put_outbox([outbound(1)])]
    bad = journal.put_outbox([outbound(2, state="no such state", text="hush")])
    if not last:
        changes.append(journal.update_outbox(outbound(1).begin()))  # it asks for a row
    with pytest.raises(errors.StorageError, match=r"cannot write this: .*violates check"):
        await bad
    await asyncio.gather(*changes)
    assert [row.id for row in await journal.deliveries(inbound(1).request_id)] == [outbound(1).id]
    assert "hush" not in log.text
    assert not any("cannot be written" in one.message for one in log.entries)


async def test_what_takes_too_long_is_an_error_and_the_session_goes_on(make: Make, url: str) -> None:
    journal = make(busy_seconds=0.05)
    assert await journal.receive(inbound(1))
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE inbox")
        with pytest.raises(errors.StorageError, match="lock timeout"):
            await journal.receive(inbound(2))
    assert await journal.receive(inbound(2))


async def test_the_password_is_in_no_error(make: Make, log: MemoryLog) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        journal = make(f"postgresql://ann:geheim99@127.0.0.1:{taken.getsockname()[1]}/x")
        with pytest.raises(errors.StorageError) as caught:
            await journal.open()
    assert "geheim99" not in f"{caught.value}{log.text}"
    assert "refused" in str(caught.value)


@pytest.mark.parametrize(("by", "told"), [(1, "written by a newer one"), (-1, "unreleased earlier version")])
async def test_a_journal_of_another_version_is_left_alone(by: int, told: str, make: Make, url: str) -> None:
    await make().close()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE journal_version SET version = version + %s", (by,))
        try:
            with pytest.raises(errors.StorageError, match=told):
                await make().open()
            assert told in examine(url)[1]
        finally:
            db.execute("UPDATE journal_version SET version = version - %s", (by,))


class Cutting:
    """A socket of its own before the server's, which counts the answers. Told a word, it brings what has that word to the server, and
    loses the answer.
    """

    def __init__(self, server: Path) -> None:
        self.server, self._word, self.answers = str(server), b"", 0
        self.home = f"{server}-cut"
        Path(self.home).mkdir()
        self._name = ".s.PGSQL.5432"
        self._listening = socket.socket(socket.AF_UNIX)

    def behind(self, word: bytes) -> None:
        self._word = word

    def __enter__(self) -> Self:
        self._listening.bind(f"{self.home}/{self._name}")
        self._listening.listen()
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        Path(self.home, self._name).unlink()
        Path(self.home).rmdir()

    def _serve(self) -> None:
        for here in _accepted(self._listening):
            there = socket.socket(socket.AF_UNIX)
            there.connect(f"{self.server}/{self._name}")
            threading.Thread(target=self._forth, args=(here, there), daemon=True).start()
            threading.Thread(target=self._back, args=(here, there), daemon=True).start()

    def _forth(self, here: socket.socket, there: socket.socket) -> None:
        while data := _received(here):
            if self._word and self._word in data:
                self._word = b""
                here.shutdown(socket.SHUT_RDWR)  # the answer has nowhere to go
                there.sendall(data)
                break
            there.sendall(data)
        with contextlib.suppress(OSError):  # the other way has ended too, and closed both
            there.shutdown(socket.SHUT_WR)

    def _back(self, here: socket.socket, there: socket.socket) -> None:
        while data := _received(there):
            self.answers += 1
            try:
                here.sendall(data)
            except OSError:
                break
        here.close()
        there.close()


def _accepted(listening: socket.socket) -> Iterator[socket.socket]:
    try:
        while True:
            yield listening.accept()[0]
    except OSError:
        return


def _received(one: socket.socket) -> bytes:
    try:
        return one.recv(65_536)
    except OSError:
        return b""
