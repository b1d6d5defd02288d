"""`.ship` as one file: whole or not at all, on the way out and on the way back."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import re
import shutil
import sqlite3
import stat
import tarfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from bot import backup, errors, instance
from bot.contracts.approvals import Approval
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutboxRow
from bot.history.archive.store import ChatStore
from bot.journal import SqliteJournal
from bot.personal_data import PersonalData
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.testing.log import MemoryLog
from tests.shares import examples

KEY = ChatKey("telegram", "1")
DISK, CLOCK = SystemDisk(), SystemClock()


def line(text: str) -> ArchiveLine:
    return ArchiveLine(ts=1, channel="telegram", chat_id="1", chat_key=KEY, role="user", text=text)


async def said(home: Path, *texts: str) -> None:
    store = ChatStore(home / "chats", disk=DISK, log=MemoryLog())
    for text in texts:
        await store.append(line(text))
    await store.close()


async def read(home: Path) -> list[str]:
    store = ChatStore(home / "chats", disk=DISK, log=MemoryLog())
    page = await store.search(KEY, HistoryQuery(limit=100_000))
    await store.close()
    return [one.text for one in page.lines]


def carried(home: Path, place: Path, *, moved: bool = False) -> Path:
    """Back up a `.ship`, and restore that elsewhere."""
    place.mkdir()
    backup.write(home, place / "file", disk=DISK, clock=CLOCK)
    backup.restore(place / "file", place / ".ship", disk=DISK, moved=moved)
    return place / ".ship"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "here" / ".ship"
    folder.parent.mkdir()
    instance.prepare_home(folder)
    return folder


def files(home: Path) -> dict[str, bytes]:
    return {str(one.relative_to(home)): one.read_bytes() for one in home.rglob("*") if one.is_file()}


async def test_what_is_kept_is_carried_and_what_belongs_to_a_process_is_not(
    home: Path, tmp_path: Path
) -> None:
    await said(home, "你好", "مرحبا", "👩‍👩‍👧")
    kept = {
        "memory/telegram%3Achat%3A1/session.md": "# Memory",
        "memory/people/telegram-1/a.md": "likes tea",
        "transcripts/telegram%3Achat%3A1/01HZZZZZZZZZZZZZZZZZZZZZZZ.jsonl": '{"uuid": "a"}\n',
        "artifacts/telegram%3Achat%3A1/01HZZZZZZZZZZZZZZZZZZZZZZZ.txt": "{}\nwords",
        "logs/2026-11-24.jsonl": '{"id": "1"}\n',
        "logs/2026-11-23.jsonl.gz": "compressed",
        "access.json": "{}",
        "web.json": "{}",
        "cache/models.json": "{}",
    }
    passing = [
        "pid",
        "reserve",
        "links/abc",
        "schema/ship.schema.json",
        "web.json.new",
        "index.db",
        "memory/.lock",
    ]
    passing += ["artifacts/x/.0a1b.tmp", "chats/a.rotating", "console.path"]
    for name, text in [*kept.items(), *((name, "") for name in passing)]:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    (home / "memory" / "link").symlink_to(tmp_path)
    there = carried(home, tmp_path / "there")
    found = files(there)
    (chat,) = [name for name in found if name.startswith("chats/") and not name.endswith(".lock")]
    assert found.pop(chat) == (home / chat).read_bytes()
    assert {name: found[name].decode() for name in kept} == kept
    assert set(found) - set(kept) == {".gitignore", "lock"}
    modes = {stat.S_IMODE(one.stat().st_mode) for one in there.rglob("*") if one.is_file()}
    assert modes == {0o600}
    assert stat.S_IMODE((there / "memory").stat().st_mode) == 0o700
    assert stat.S_IMODE((there.parent / "file").stat().st_mode) == 0o600
    assert sorted(one.name for one in there.parent.iterdir()) == [".ship", "file"]


async def at_work(home: Path) -> None:
    """A journal with an inbound in a turn, one that waits, a question, and a message that has still to go out."""
    journal = SqliteJournal(home / "journal.db", clock=CLOCK, log=MemoryLog())
    for name in ("A", "B"):
        await journal.receive(
            Inbound(
                request_id=name,
                channel="telegram",
                chat_id="1",
                chat_key=KEY,
                chat_type="direct",
                user_id="1",
                message_id=name,
                text=name,
                ts=1,
                keys=(f"key {name}",),
                target={},
            )
        )
    await journal.begin_turn("A", KEY, ["A"])
    await journal.put_outbox([OutboxRow("row", "A", KEY, {}, "words")])
    await journal.ask(
        "NAME",
        Approval("A", "call", KEY, "run_shell", "print", "ls", "", "", "telegram", "1", False, False),
    )
    await journal.close()


async def rows(home: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(home / "journal.db")) as db:
        return db.execute(question).fetchall()


OPEN = "SELECT request_id FROM inbox WHERE state IN ('queued', 'in_turn') ORDER BY request_id"


async def test_what_was_open_goes_on_where_the_gateway_has_only_moved(home: Path, tmp_path: Path) -> None:
    await at_work(home)
    there = carried(home, tmp_path / "there", moved=True)
    assert await rows(there, OPEN) == [("A",), ("B",)]
    assert await rows(there, "SELECT state FROM turns") == [("running",)]
    assert await rows(there, "SELECT state FROM outbox") == [("ready",)]
    assert await rows(there, "SELECT what FROM lost") == await rows(home, "SELECT what FROM lost")


async def test_what_was_open_is_not_done_again_where_it_may_have_been_since(
    home: Path, tmp_path: Path
) -> None:
    await at_work(home)
    there = carried(home, tmp_path / "there")
    assert await rows(there, OPEN) == []
    assert await rows(there, "SELECT state FROM turns") == [("stopped",)]
    assert await rows(there, "SELECT state FROM outbox") == [("sending",)]
    assert await rows(there, "SELECT state FROM approvals") == [("stopped",)]
    journal = SqliteJournal(there / "journal.db", clock=CLOCK, log=MemoryLog())
    await journal.open()
    lost = journal.lost()
    assert lost is not None
    assert lost.what == "gone"
    assert CLOCK.now() - lost.at < 60
    # What the platform brings again was seen.
    assert await journal.inbound("A") is None
    await journal.close()
    assert await rows(there, "SELECT key FROM keys ORDER BY key") == [
        ("telegram:key A",),
        ("telegram:key B",),
    ]


async def test_no_line_is_missing_or_doubled_while_the_archive_is_written_and_rotated(
    home: Path, tmp_path: Path
) -> None:
    store = ChatStore(home / "chats", disk=DISK, log=MemoryLog(), archive_after_lines=4)
    over = asyncio.Event()
    count = 0

    async def write() -> None:
        nonlocal count
        while not over.is_set():
            await store.append(line(str(count)))
            count += 1
            await asyncio.sleep(0.002)  # a lock of files has no queue: who never pauses keeps others out

    writing = asyncio.create_task(write())
    found: list[list[str]] = []
    while len(found) < examples(25) or count <= 50:
        number = len(found)
        file = tmp_path / f"{number}.backup"
        await asyncio.to_thread(backup.write, home, file, disk=DISK, clock=CLOCK)
        await asyncio.to_thread(backup.restore, file, tmp_path / str(number) / ".ship", disk=DISK, moved=True)
        found.append(await read(tmp_path / str(number) / ".ship"))
    over.set()
    await writing
    await store.close()
    assert found[-1] != found[0]
    for texts in found:
        assert texts == [str(one) for one in range(len(texts))]


async def test_a_line_that_is_half_written_is_left_out(home: Path, tmp_path: Path) -> None:
    await said(home, "one", "two")
    (chat,) = (home / "chats").glob("*.jsonl")
    whole = chat.read_bytes()
    for number, rest in enumerate((b'{"v": 1, "text": "th', b"\x00\x00\xff", "{“".encode()[:-1])):
        chat.write_bytes(whole + rest)
        there = carried(home, tmp_path / f"there-{number}")
        assert (there / "chats" / chat.name).read_bytes() == whole


class Compressing(SystemDisk):
    """A day of the log is compressed as soon as its folder has been listed."""

    def names(self, folder: Path) -> list[str]:
        found = super().names(folder)
        for name in found:
            if name.endswith(".jsonl") and folder.name == "logs":
                (folder / name).rename(folder / f"{name}.gz")
        return found


async def test_a_day_of_the_log_that_is_compressed_meanwhile_is_not_missing(
    home: Path, tmp_path: Path
) -> None:
    (home / "logs").mkdir()
    (home / "logs" / "2026-11-23.jsonl").write_text("{}\n", encoding="utf-8")
    backup.write(home, tmp_path / "file", disk=Compressing(), clock=CLOCK)
    backup.restore(tmp_path / "file", tmp_path / "there" / ".ship", disk=DISK, moved=True)
    assert [one.name for one in (tmp_path / "there" / ".ship" / "logs").iterdir()] == ["2026-11-23.jsonl.gz"]


async def test_a_rotation_that_a_kill_cut_off_doubles_nothing(home: Path, tmp_path: Path) -> None:
    await said(home, "one", "two")
    (chat,) = (home / "chats").glob("*.jsonl")
    first = chat.read_bytes().splitlines(keepends=True)[0]
    chat.with_name(f"{chat.stem}.archive-1.jsonl").write_bytes(first)
    marker = {"archive": 1, "size": chat.stat().st_size}
    chat.with_suffix(".rotating").write_text(json.dumps(marker), encoding="utf-8")
    assert await read(carried(home, tmp_path / "there")) == ["one", "two"]


async def test_a_backup_that_was_cut_short_leaves_the_folder_empty(home: Path, tmp_path: Path) -> None:
    await at_work(home)
    await said(home, *map(str, range(50)))
    backup.write(home, tmp_path / "file", disk=DISK, clock=CLOCK)
    data, there = (tmp_path / "file").read_bytes(), tmp_path / "there" / ".ship"
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 0xFF
    for part in (*(data[:cut] for cut in range(0, len(data), len(data) // 40)), data[:-1], bytes(damaged)):
        (tmp_path / "part").write_bytes(part)
        with pytest.raises(errors.StorageError):
            backup.restore(tmp_path / "part", there, disk=DISK, moved=False)
        assert {one.name for one in there.iterdir()} <= {".gitignore", "lock"}
    backup.restore(tmp_path / "file", there, disk=DISK, moved=False)
    assert await read(there) == [str(one) for one in range(50)]


def packed(
    path: Path,
    *members: tuple[str, bytes],
    kind: bytes = tarfile.REGTYPE,
    facts: Mapping[str, str] | None = None,
) -> Path:
    with gzip.open(path, "wb") as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if name != backup.ABOUT:
                info.type, info.linkname, info.pax_headers = kind, "/etc/passwd", dict(facts or {})
            tar.addfile(info, io.BytesIO(data))
    return path


ABOUT = (backup.ABOUT, b'{"v": 1, "running": false}')


@pytest.mark.parametrize(
    "name",
    ["../out", "/tmp/out", "a/../../out", "..", "a//..", ".", instance.LOCK, f"{instance.RESTORING}/a"],
)
def test_nothing_is_written_outside_of_the_folder(tmp_path: Path, name: str) -> None:
    file = packed(tmp_path / "file", ABOUT, (name, b"x"))
    with pytest.raises(errors.StorageError):
        backup.restore(file, tmp_path / "there" / ".ship", disk=DISK, moved=False)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "there"]


@pytest.mark.parametrize(
    "make",
    [
        lambda path: packed(path, ABOUT, ("link", b""), kind=tarfile.SYMTYPE),
        lambda path: packed(path, ABOUT, ("pipe", b""), kind=tarfile.FIFOTYPE),
        lambda path: packed(path, ("chats/a.jsonl", b"{}\n"), ABOUT),
        lambda path: packed(path, (backup.ABOUT, b'{"v": 2, "shipmate": "9.0"}')),
        lambda path: packed(path, (backup.ABOUT, b"no json")),
        packed,
        lambda path: path.write_bytes(b"PK\x03\x04 something else") and path,
        lambda path: packed(path, ABOUT, ("chats/a", b"x"), facts={"path": "chats/a\0b"}),
        lambda path: packed(path, ABOUT, ("chats/a", b"x"), facts={"GNU.sparse.map": "x,y"}),
    ],
    ids=["link", "pipe", "late", "newer", "garbled", "empty", "other", "zero", "sparse"],
)
def test_what_is_no_backup_of_this_version_is_refused(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    with pytest.raises(errors.StorageError):
        backup.restore(make(tmp_path / "file"), tmp_path / "there" / ".ship", disk=DISK, moved=False)
    with instance.held(tmp_path / "there" / ".ship"):
        pass  # nothing is left that keeps a gateway from its start
    assert {one.name for one in (tmp_path / "there" / ".ship").iterdir()} <= {".gitignore", "lock"}


async def test_a_folder_with_a_conversation_is_left_alone(home: Path, tmp_path: Path) -> None:
    await said(home, "mine")
    before = files(home)
    backup.write(home, tmp_path / "file", disk=DISK, clock=CLOCK)
    with pytest.raises(errors.ConfigError, match=r"found a conversation .* expected an empty folder"):
        backup.restore(tmp_path / "file", home, disk=DISK, moved=False)
    assert files(home) == before | {"lock": b""}


async def test_of_a_folder_in_which_nobody_is_left_it_says_what_has_to_go(home: Path, tmp_path: Path) -> None:
    store = ChatStore(home / "chats", disk=DISK, log=MemoryLog())
    await store.append(line("mine").model_copy(update={"user_id": "1"}))
    await store.close()
    backup.write(home, tmp_path / "file", disk=DISK, clock=CLOCK)
    there = tmp_path / "there" / ".ship"
    backup.restore(tmp_path / "file", there, disk=DISK, moved=False)
    person = UserRef("telegram", "1")
    await PersonalData(there, person, disk=DISK, clock=CLOCK, ids=UlidSource(), log=MemoryLog()).erase()
    with pytest.raises(errors.ConfigError) as refused:
        backup.restore(tmp_path / "file", there, disk=DISK, moved=False)
    found = re.search(r"found (.*), and no conversation; .* move these out of it", str(refused.value))
    assert found is not None
    away = tmp_path / "away"
    away.mkdir()
    for name in found[1].split(", "):
        (there / name).rename(away / name)
    backup.restore(tmp_path / "file", there, disk=DISK, moved=False)
    assert await read(there) == ["mine"]


async def test_a_restore_that_was_cut_off_keeps_a_gateway_away_and_can_be_done_again(
    home: Path, tmp_path: Path
) -> None:
    await said(home, "one")
    backup.write(home, tmp_path / "file", disk=DISK, clock=CLOCK)
    there = tmp_path / "there" / ".ship"
    backup.restore(tmp_path / "file", there, disk=DISK, moved=False)
    (there / instance.RESTORING / "memory").mkdir(parents=True)
    (there / "access.json").write_text("half", encoding="utf-8")
    with pytest.raises(errors.ConfigError, match="restore"), instance.held(there):
        pass
    with pytest.raises(errors.ConfigError, match="restore"):
        backup.write(there, tmp_path / "again", disk=DISK, clock=CLOCK)
    backup.restore(tmp_path / "file", there, disk=DISK, moved=False)
    assert await read(there) == ["one"]
    assert not (there / "access.json").exists()
    with instance.held(there):
        pass


def test_a_kill_while_the_rest_of_a_restore_is_cleared_leaves_the_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / ".ship"
    instance.prepare_home(there)
    for name in ("chats", "memory", "transcripts", "artifacts", "logs", instance.RESTORING):
        (there / name).mkdir()
    real, removed = shutil.rmtree, list[str]()

    def rmtree(path: Path) -> None:
        if len(removed) == 5:
            raise Killed
        removed.append(path.name)
        real(path)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with pytest.raises(Killed):
        backup.restore(tmp_path / "file", there, disk=DISK, moved=False)
    assert (there / instance.RESTORING).exists()
    with pytest.raises(errors.ConfigError, match="restore"), instance.held(there):
        pass


class Killed(BaseException):
    """The process dies where it is: nothing that it would do after an error is done."""


class Dying(SystemDisk):
    """A disk whose process dies before the rename with a number, and leaves what was renamed before it; `into` counts those to
    a folder only.
    """

    def __init__(self, left: int, *, into: Path | None = None) -> None:
        self._left = left
        self._into = into

    def rename(self, source: Path, target: Path) -> None:
        self._left -= self._into in (None, target.parent)
        if self._left < 0:
            raise Killed
        super().rename(source, target)


async def test_a_kill_at_any_rename_leaves_nothing_half_restored_that_counts(
    home: Path, tmp_path: Path
) -> None:
    await at_work(home)
    await said(home, "one", "two")
    (home / "access.json").write_text("{}", encoding="utf-8")
    backup.write(home, tmp_path / "file", disk=DISK, clock=CLOCK)
    there = tmp_path / "there" / ".ship"
    for kills in range(20):
        try:
            backup.restore(tmp_path / "file", there, disk=Dying(kills), moved=True)
        except Killed:
            with pytest.raises(errors.ConfigError, match="restore"), instance.held(there):
                pass
        else:
            break
    assert kills > 3
    assert await read(there) == ["one", "two"]
    assert await rows(there, OPEN) == [("A",), ("B",)]
    with instance.held(there):
        pass


async def test_a_kill_before_the_last_step_leaves_no_backup(home: Path, tmp_path: Path) -> None:
    await said(home, "one")
    with pytest.raises(Killed):
        backup.write(home, tmp_path / "file", disk=Dying(0), clock=CLOCK)
    assert not (tmp_path / "file").exists()
    backup.write(home, tmp_path / "file", disk=DISK, clock=CLOCK)


async def test_a_gateway_that_ran_meanwhile_has_not_only_moved(home: Path, tmp_path: Path) -> None:
    await said(home, "one")
    with instance.locked(home):
        made = backup.write(home, tmp_path / "file", disk=DISK, clock=CLOCK)
    assert made.running
    with pytest.raises(errors.ConfigError, match="running gateway"):
        backup.restore(tmp_path / "file", tmp_path / "there" / ".ship", disk=DISK, moved=True)
    assert backup.restore(tmp_path / "file", tmp_path / "there" / ".ship", disk=DISK, moved=False).running


async def test_a_gateway_that_holds_the_folder_is_not_restored_over(home: Path, tmp_path: Path) -> None:
    backup.write(home, tmp_path / "file", disk=DISK, clock=CLOCK)
    with instance.locked(home), pytest.raises(errors.Unavailable):
        backup.restore(tmp_path / "file", home, disk=DISK, moved=False)


async def test_a_damaged_journal_is_told_and_leaves_no_file(home: Path, tmp_path: Path) -> None:
    await at_work(home)
    path = home / "journal.db"
    for damage in (bytes(4096), b"\xa5" * 4096):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2] + damage + whole[len(whole) // 2 + 4096 :])
        (tmp_path / "out").mkdir()
        with pytest.raises(errors.StorageError):
            backup.write(home, tmp_path / "out" / "file", disk=DISK, clock=CLOCK)
        assert list((tmp_path / "out").iterdir()) == []
        shutil.rmtree(tmp_path / "out")
        path.write_bytes(whole)


async def test_a_journal_of_a_newer_version_is_told(home: Path, tmp_path: Path) -> None:
    await at_work(home)
    with closing(sqlite3.connect(home / "journal.db")) as db:
        db.execute("PRAGMA user_version = 99")
    backup.write(home, tmp_path / "file", disk=DISK, clock=CLOCK)
    with pytest.raises(errors.StorageError, match="newer"):
        backup.restore(tmp_path / "file", tmp_path / "there" / ".ship", disk=DISK, moved=True)
    assert not (tmp_path / "there" / ".ship" / "journal.db").exists()


def test_a_file_of_another_kind_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("junk")
    with pytest.raises(
        errors.StorageError, match="junk is no backup; expected a file that `shipmate backup`"
    ):
        backup.restore(tmp_path / "junk", tmp_path / "new" / ".ship", disk=SystemDisk(), moved=False)
