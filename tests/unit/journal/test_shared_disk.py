"""Files that hosts share are in the database once they are on disk, and a host that takes over has them."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.archive import ArchiveLine
from bot.history.archive.store import ChatStore
from bot.history.line_stream import LineStream
from bot.system import SystemClock, SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog
from tests import postgres

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)

if postgres.programs() is not None:
    import psycopg

    from bot.journal import shared_disk, shared_files
    from bot.journal.postgres import PostgresConnection, PostgresJournal
    from bot.journal.shared_disk import Copies, SharedDisk


@pytest.fixture
def url() -> str:
    return postgres.shared().journal()


class Hosts:
    """Hosts that lead one after the other, each with a folder of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._leading: list[SharedDisk] = []

    def __call__(self, host: str) -> SharedDisk:
        home = self._folder / host
        home.mkdir(exist_ok=True)
        disk = SharedDisk(SystemDisk(), home, self._url, log=MemoryLog())
        disk.begin(Copies(home, SystemDisk(), MemoryLog()))
        self._leading.append(disk)
        return disk

    def kill(self) -> None:
        """End the session of the last one, as that of a process that is killed."""
        self._leading.pop()
        with psycopg.connect(self._url, autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")

    def close(self) -> None:
        for disk in self._leading:
            disk.close()


@pytest.fixture
def leads(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.setattr(shared_disk, "WRITE_BACK_SECONDS", 1e6)  # nothing goes there by itself
    made = Hosts(url, tmp_path)
    yield made
    made.close()


def there(home: Path) -> dict[str, bytes]:
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in shared_disk.files(home)}


def test_another_host_has_what_was_on_disk_and_nothing_else(leads: Hosts, url: str, tmp_path: Path) -> None:
    a, home = leads("a"), tmp_path / "a"
    chat, notes, big = home / "chats/x.jsonl", home / "memory/x/session.md", home / "artifacts/x/1.txt"
    a.append(chat, b"one\n")
    a.append(chat, b"two\n", sync=True)
    a.replace(notes, b"old")
    a.replace(notes, b"new")
    a.replace(big, bytes(range(256)) * 20_000)
    a.append(home / "transcripts/x/s.jsonl", b"1\n2\n3\n")
    a.truncate(home / "transcripts/x/s.jsonl", 4)
    a.append(home / "transcripts/x/.s.tmp", b"copied")
    a.rename(home / "transcripts/x/.s.tmp", home / "transcripts/x/t.jsonl")
    a.replace(home / "chats/x.rotating", b"mark")
    a.remove(home / "chats/x.rotating")
    a.replace(home / "logs/day.jsonl", b"of this host")
    kept = there(home)
    a.append(chat, b"three, which nobody waited for\n")
    leads.kill()
    leads("b")
    assert there(tmp_path / "b") == kept
    assert not (tmp_path / "b/logs").exists()


def test_a_host_that_has_nothing_fetches_many_files_together(
    leads: Hosts, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, home = leads("a"), tmp_path / "a"
    for number in range(60):
        a.append(home / f"chats/{number}.jsonl", f"{number}\n".encode() * number)
    for number in range(12):
        a.append(home / f"artifacts/x/{number}.txt", bytes([number]) * (shared_files.PIECE - number))
    a.replace(home / "artifacts/x/large.txt", bytes(range(256)) * 40_000)
    a.close()
    asked: list[str] = []
    execute = PostgresConnection.execute

    def listened(self: PostgresConnection, statement: str, *values: object) -> object:
        asked.append(statement)
        return execute(self, statement, *values)

    monkeypatch.setattr(PostgresConnection, "execute", listened)
    leads("b").close()
    assert sum("shared_pieces WHERE" in one for one in asked) <= 6
    assert there(tmp_path / "b") == there(home)


def test_what_many_files_have_got_is_brought_after_one_question(
    leads: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, home = leads("a"), tmp_path / "a"
    asked: list[str] = []
    execute = PostgresConnection.execute

    def listened(self: PostgresConnection, statement: str, *values: object) -> object:
        asked.append(statement)
        return execute(self, statement, *values)

    monkeypatch.setattr(PostgresConnection, "execute", listened)
    for _ in range(2):
        for number in range(40):
            disk.append(home / f"chats/{number}.jsonl", b"line\n")
        asked.clear()
        disk.flush()
        assert sum(one.startswith("SELECT path") for one in asked) == 1
    kept = there(home)
    leads.kill()
    leads("b")
    assert there(tmp_path / "b") == kept


def test_what_this_host_refused_is_taken_back_in_the_database_before_anything_else_is_changed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_disk, "WRITE_BACK_SECONDS", 1e6)
    inner, home = FaultyDisk(SystemDisk()), tmp_path / "a"
    main, older, marker = (home / f"chats/x.{name}" for name in ("jsonl", "archive-1.jsonl", "rotating"))
    home.mkdir()
    disk = SharedDisk(inner, home, url, log=MemoryLog())
    disk.begin(Copies(home, SystemDisk(), MemoryLog()))
    disk.append(main, b"one\ntwo\n", sync=True)
    disk.replace(marker, b"mark")
    disk.replace(older, b"one\n")
    inner.fail(Failure("append", error=errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        disk.replace(main, b"two\n")
    disk.remove(older)  # as the next append does, which finds the whole in the main file
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    inner.fail(Failure("*", times=None))
    shared_disk.refresh(tmp_path / "b", SystemDisk(), url, MemoryLog())
    disk.close()
    assert (tmp_path / "b/chats/x.jsonl").read_bytes() == b"one\ntwo\n"


def test_a_change_of_which_nobody_knows_whether_the_database_has_it_is_settled_before_the_next(
    leads: Hosts, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, home = leads("a"), tmp_path / "a"
    main, older, marker = (home / f"chats/x.{name}" for name in ("jsonl", "archive-1.jsonl", "rotating"))
    disk.append(main, b"one\ntwo\n", sync=True)
    disk.replace(marker, b"mark")
    disk.replace(older, b"one\n")
    execute = PostgresConnection.execute

    def cut_off(self: PostgresConnection, statement: str, *values: object) -> object:
        execute(self, statement, *values)
        raise sqlite3.OperationalError("the network is gone")

    def unreachable(*_: object) -> PostgresConnection:
        raise sqlite3.OperationalError("the network is gone")

    with monkeypatch.context() as network:
        network.setattr(
            PostgresConnection,
            "execute",
            lambda self, statement, *values: (cut_off if statement == "COMMIT" else execute)(
                self, statement, *values
            ),
        )
        network.setattr(shared_files, "connect_to_write", unreachable)
        with pytest.raises(OSError, match="the network is gone"):
            disk.replace(main, b"two\n")
    disk.remove(older)  # as the next append does, which finds the whole in the main file
    leads.kill()
    shared_disk.refresh(tmp_path / "b", SystemDisk(), url, MemoryLog())
    assert (tmp_path / "b/chats/x.jsonl").read_bytes() == b"one\ntwo\n"


def test_the_host_that_led_before_takes_what_was_done_since(leads: Hosts, url: str, tmp_path: Path) -> None:
    a, home = leads("a"), tmp_path / "a"
    for number in range(3):
        a.append(home / f"chats/{number}.jsonl", b"one\n", sync=True)
    a.append(home / "chats/0.jsonl", b"never told\n")
    leads.kill()
    b = leads("b")
    b.append(tmp_path / "b/chats/1.jsonl", b"two\n", sync=True)
    b.remove(tmp_path / "b/chats/2.jsonl")
    b.close()
    untouched = (home / "chats/1.jsonl").stat().st_ino
    leads("a").close()
    assert there(home) == {"chats/0.jsonl": b"one\n", "chats/1.jsonl": b"one\ntwo\n"}
    before = {path: path.stat().st_ino for path in shared_disk.files(home)}
    leads("a")
    assert before == {
        path: path.stat().st_ino for path in shared_disk.files(home)
    }  # nothing is fetched twice
    assert untouched not in before.values()


async def test_a_standby_follows_and_fetches_only_what_came_to_a_file(
    leads: Hosts, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_disk, "FOLLOW_SECONDS", 0.01)
    a, home, copy = leads("a"), tmp_path / "a", tmp_path / "b/chats/x.jsonl"
    a.append(home / "chats/x.jsonl", b"one\n", sync=True)
    (tmp_path / "b").mkdir()
    copies = Copies(tmp_path / "b", SystemDisk(), MemoryLog())
    following = asyncio.create_task(copies.follow(url, SystemClock()))

    async def until(words: bytes | None) -> None:
        async with asyncio.timeout(90):
            while (copy.read_bytes() if copy.exists() else None) != words:  # noqa: ASYNC110 - a thread copies it
                await asyncio.sleep(0.01)

    await until(b"one\n")
    inode = copy.stat().st_ino
    a.append(home / "chats/x.jsonl", b"two\n", sync=True)
    await until(b"one\ntwo\n")
    assert copy.stat().st_ino == inode
    a.replace(home / "chats/x.jsonl", b"anew\n")
    await until(b"anew\n")
    a.remove(home / "chats/x.jsonl")
    await until(None)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    a.append(home / "chats/y.jsonl", b"last\n", sync=True)
    a.close()
    b = SharedDisk(SystemDisk(), tmp_path / "b", url, log=MemoryLog())
    b.begin(copies)
    b.close()
    assert there(tmp_path / "b") == {"chats/y.jsonl": b"last\n"}


def test_the_first_host_brings_what_it_has_and_another_sets_its_own_aside(
    leads: Hosts, tmp_path: Path
) -> None:
    for host in "ab":
        (tmp_path / host / "chats").mkdir(parents=True)
        (tmp_path / host / "chats/x.jsonl").write_bytes(f"of {host}\n".encode())
        (tmp_path / host / "index.db").touch()
    leads("a").close()
    assert (tmp_path / "a/index.db").exists()
    leads("b").close()
    assert there(tmp_path / "b") == there(tmp_path / "a") == {"chats/x.jsonl": b"of a\n"}
    (aside,) = (tmp_path / "b").glob("before-*")
    assert (aside / "chats/x.jsonl").read_bytes() == b"of b\n"
    assert not (tmp_path / "b/index.db").exists()


def test_one_process_writes_at_a_time(leads: Hosts, url: str, tmp_path: Path) -> None:
    leads("a")
    with pytest.raises(errors.StorageError):
        shared_files.connect_to_write(url, None)


def test_what_the_database_refused_is_there_once_it_takes_something_again(
    leads: Hosts, url: str, tmp_path: Path
) -> None:
    a, home = leads("a"), tmp_path / "a"
    a.append(home / "chats/x.jsonl", b"one\n", sync=True)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("ALTER TABLE shared_pieces ADD CONSTRAINT refused CHECK (false) NOT VALID")
        a.append(home / "chats/x.jsonl", b"two\n")
        with pytest.raises(OSError, match="does not take"):
            a.sync(home / "chats/x.jsonl")
        with pytest.raises(OSError, match="does not take"):
            a.replace(home / "memory/x.md", b"never")
        with pytest.raises(OSError, match="does not take"):
            a.truncate(home / "chats/x.jsonl", 6)
        db.execute("ALTER TABLE shared_pieces DROP CONSTRAINT refused")
    a.flush()
    kept = there(home)
    a.close()
    leads("b")
    assert there(tmp_path / "b") == kept == {"chats/x.jsonl": b"one\ntw"}


def test_a_session_that_is_gone_is_made_anew(leads: Hosts, url: str, tmp_path: Path) -> None:
    a, home = leads("a"), tmp_path / "a"
    a.append(home / "chats/x.jsonl", b"one\n", sync=True)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'shipmate'"
        )
    a.append(home / "chats/x.jsonl", b"two\n", sync=True)
    a.close()
    leads("b")
    assert there(tmp_path / "b") == {"chats/x.jsonl": b"one\ntwo\n"}


def test_what_was_erased_goes_with_the_index_of_each_host(leads: Hosts, url: str, tmp_path: Path) -> None:
    a, home = leads("a"), tmp_path / "a"
    a.replace(home / "transcripts/x/s.jsonl", b"secret")
    a.replace(home / "chats/x.jsonl", b"stays")
    a.close()
    leads("b").close()
    (tmp_path / "b/index.db").touch()
    a = leads("a")
    a.remove(home / "transcripts/x/s.jsonl")
    a.erase()
    a.close()
    leads("b")
    assert there(tmp_path / "b") == {"chats/x.jsonl": b"stays"}
    assert not (tmp_path / "b/index.db").exists()
    with psycopg.connect(url) as db:
        assert db.execute("SELECT path FROM shared_files").fetchall() == [("chats/x.jsonl",)]
        assert db.execute("SELECT data FROM shared_pieces").fetchall() == [(b"stays",)]


def test_what_a_command_writes_beside_it_is_brought_along(leads: Hosts, tmp_path: Path) -> None:
    a = leads("a")
    (tmp_path / "a/access.json").write_bytes(b"{}")
    a.close()
    leads("b")
    assert there(tmp_path / "b") == {"access.json": b"{}"}


async def test_lines_leave_the_journal_once_another_host_would_have_them(
    leads: Hosts, url: str, tmp_path: Path
) -> None:
    a, log, clock = leads("a"), MemoryLog(), SystemClock()
    journal = PostgresJournal(url, clock=clock, log=log)
    stream = LineStream(journal, disk=a, clock=clock, log=log)
    chats = ChatStore(tmp_path / "a/chats", disk=a, log=log, stream=stream)
    await stream.replay({"chats": chats})
    said = {
        "ts": 1,
        "channel": "web",
        "chatId": "1",
        "chatKey": "web:chat:1",
        "role": "user",
        "text": "hello",
    }
    await chats.append(ArchiveLine.model_validate(said))
    (row,) = await journal.kept_lines()
    await stream.flush()
    assert await journal.kept_lines() == []
    await chats.close()
    await journal.close()
    leads.kill()
    leads("b")
    assert there(tmp_path / "b") == {f"{row.file}.jsonl": row.lines}
