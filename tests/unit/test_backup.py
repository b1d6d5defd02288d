"""Backups of `.ship`: hostile backup files, and the log after a restore."""

from __future__ import annotations

import gzip
import io
import sqlite3
import tarfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from bot import backup, errors, instance
from bot.core.sqlite_log import SCHEMA
from bot.system import SystemClock, SystemDisk

DISK, CLOCK = SystemDisk(), SystemClock()


def home_with_log(tmp_path: Path) -> Path:
    home = tmp_path / "here" / ".ship"
    home.parent.mkdir()
    instance.prepare_home(home)
    with closing(sqlite3.connect(home / "shipmate.db")) as db, db:
        db.executescript(SCHEMA)
        db.execute("INSERT INTO facts VALUES ('cursor', 'archive', '7')")
        db.executemany("INSERT INTO keys VALUES (?, 'a', 1)", [(f"key {n}",) for n in range(5_000)])
    return home


@pytest.mark.parametrize(("moved", "facts"), [(True, []), (False, [("restored", "restored", "{}")])])
def test_the_first_start_learns_what_may_have_gone_on(
    tmp_path: Path, moved: bool, facts: list[tuple[str, str, str]]
) -> None:
    home = home_with_log(tmp_path)
    (home / "chats").mkdir()
    (home / "chats" / "a.jsonl").write_text("{}\n")
    backup.write(home, tmp_path / "file", disk=DISK, clock=CLOCK)
    there = tmp_path / "there" / ".ship"
    backup.restore(tmp_path / "file", there, disk=DISK, moved=moved)
    assert {one.name for one in there.iterdir()} == {".gitignore", "lock", "shipmate.db"}
    with closing(sqlite3.connect(there / "shipmate.db")) as db:
        assert db.execute("SELECT * FROM facts").fetchall() == facts
    with pytest.raises(errors.ConfigError, match="a conversation"):
        backup.restore(tmp_path / "file", there, disk=DISK, moved=moved)


def test_a_damaged_log_is_told_and_leaves_no_file(tmp_path: Path) -> None:
    path = home_with_log(tmp_path) / "shipmate.db"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + b"\xa5" * 4096 + whole[len(whole) // 2 + 4096 :])
    (tmp_path / "out").mkdir()
    with pytest.raises(errors.StorageError):
        backup.write(path.parent, tmp_path / "out" / "file", disk=DISK, clock=CLOCK)
    assert list((tmp_path / "out").iterdir()) == []


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
        pass  # no file is left that would prevent the start of a gateway
    assert {one.name for one in (tmp_path / "there" / ".ship").iterdir()} <= {".gitignore", "lock"}
