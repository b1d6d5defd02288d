"""The reserve file is shrunk when the disk is full, and grows when there is space. Only running work may use the reserve's space."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from bot.resources import MOST, PIECE, DiskReserve, DiskSpace
from bot.testing.log import MemoryLog


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def kept(tmp_path: Path, log: MemoryLog) -> DiskReserve:
    made = DiskReserve(tmp_path / "reserve", log, most=4 * PIECE)
    made.look()
    return made


def on_disk(path: Path) -> int:
    """Return the number of allocated bytes of a file."""
    return (path / "reserve").stat().st_blocks * 512


def room(monkeypatch: pytest.MonkeyPatch, free: int, total: int = 1 << 40) -> None:
    """Make the disk report this number of free bytes."""
    said = SimpleNamespace(f_frsize=1, f_bfree=free, f_bavail=free, f_blocks=total)
    monkeypatch.setattr("bot.resources.os.statvfs", lambda _: said)


def test_its_blocks_are_really_allocated(tmp_path: Path, log: MemoryLog) -> None:
    made = DiskReserve(tmp_path / "reserve", log)
    made.look()
    assert made.trouble == ""
    assert made.left == MOST
    assert on_disk(tmp_path) >= MOST
    assert (tmp_path / "reserve").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_told_with_what_is_free_as_people_read_it(
    tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = SimpleNamespace(f_frsize=1, f_bfree=12 * 2**20, f_bavail=12 * 2**20, f_blocks=2**40)
    monkeypatch.setattr("bot.resources.os.statvfs", lambda _: space)
    kept = DiskReserve(tmp_path / "reserve", log)
    kept.look()
    assert kept.trouble == "the disk is full: 12 MB are free"


def test_a_disk_that_refuses_even_to_release_the_reserve_ends_nothing(
    kept: DiskReserve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full copy-on-write file system may refuse to shorten a file."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("bot.resources.os.truncate", refused)
    assert not kept.give()
    assert kept.left == 4 * PIECE


def test_it_is_given_up_piece_by_piece_told_once_and_made_again(
    tmp_path: Path, kept: DiskReserve, log: MemoryLog
) -> None:
    for left in (3, 2, 1, 0):
        assert kept.give()
        assert kept.left == left * PIECE
        assert on_disk(tmp_path) == left * PIECE
        assert kept.trouble
    assert not kept.give()
    assert [entry.message for entry in log.at("error")] == [
        "the disk is full; nothing new is taken in",
        "the reserve on the disk is used up",
    ]
    kept.look()
    assert (kept.left, kept.trouble) == (4 * PIECE, "")
    assert log.entries[-1].message == "the disk has room again"


@pytest.mark.parametrize("given", [0, 2])
def test_it_is_made_again_only_where_there_is_room_for_it_and_half_as_much_again_besides(
    kept: DiskReserve, monkeypatch: pytest.MonkeyPatch, given: int
) -> None:
    for _ in range(given):
        kept.give()
    room(monkeypatch, (4 + given) * PIECE - 1)
    kept.look()
    assert "are free" in kept.trouble
    assert kept.left == (4 - given) * PIECE
    room(monkeypatch, (4 + given + 2) * PIECE)
    kept.look()
    assert (kept.left, kept.trouble) == (4 * PIECE, "")


def test_trouble_does_not_come_and_go_at_the_edge(kept: DiskReserve, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = 4 * PIECE
    seen = []
    for free in (whole + 1, whole - 1, whole + 1, whole - 1, whole + whole // 2):
        room(monkeypatch, free)
        kept.look()
        seen.append(bool(kept.trouble))
    assert seen == [False, True, True, True, False]


def test_a_small_disk_keeps_a_sixteenth_of_itself(kept: DiskReserve, monkeypatch: pytest.MonkeyPatch) -> None:
    room(monkeypatch, 16 * PIECE, 16 * PIECE)
    kept.look()
    assert (kept.left, kept.trouble) == (PIECE, "")


def test_a_quota_that_refuses_the_reserve_is_trouble_and_leaves_what_was_there(
    tmp_path: Path, kept: DiskReserve, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.give()

    def refused(handle: int, begin: int, size: int) -> None:
        os.pwrite(handle, b"\0", begin + size - 1)  # the part that was allocated before the failure
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patched:
        patched.setattr("bot.resources.os.posix_fallocate", refused)
        kept.look()
    assert "Disk quota exceeded" in kept.trouble
    assert on_disk(tmp_path) == kept.left == 3 * PIECE


def test_where_blocks_cannot_be_asked_for_they_are_written(
    tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("bot.resources.os.posix_fallocate")
    DiskReserve(tmp_path / "reserve", log, most=PIECE + 1).look()
    assert on_disk(tmp_path) >= PIECE + 1


def test_a_process_that_starts_on_a_full_disk_finds_what_the_last_one_left(
    tmp_path: Path, kept: DiskReserve, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.give()
    room(monkeypatch, 0)
    next_one = DiskReserve(tmp_path / "reserve", log, most=4 * PIECE)
    next_one.look()
    assert next_one.trouble
    assert next_one.give()
    assert on_disk(tmp_path) == 2 * PIECE


def test_a_small_disk_is_told_in_megabytes() -> None:
    assert str(DiskSpace(2 * 2**20, 20 * 2**20)) == "2.0 MB of 20 MB are free (10%)"
    assert str(DiskSpace(2**30, 4 * 2**30)) == "1.0 GB of 4.0 GB are free (25%)"
