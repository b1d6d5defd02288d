from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk, When

WRITING: list[tuple[str, tuple[Any, ...]]] = [
    ("append", (Path("a"), b"more")),
    ("replace", (Path("a"), b"other")),
    ("rename", (Path("a"), Path("b"))),
    ("truncate", (Path("a"), 1)),
    ("remove", (Path("a"),)),
]


def _here(folder: Path, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(folder / arg if isinstance(arg, Path) else arg for arg in args)


def _visible(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


@pytest.mark.parametrize(("name", "args"), WRITING)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failure_before_changes_nothing_and_one_after_changes_all(
    tmp_path: Path, name: str, args: tuple[Any, ...], when: When
) -> None:
    plain, faulty = tmp_path / "plain", tmp_path / "faulty"
    for folder in (plain, faulty):
        folder.mkdir()
        (folder / "a").write_bytes(b"some")
    if when == "after":
        getattr(SystemDisk(), name)(*_here(plain, args))
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure(when=when, error=errno.EIO))
    with pytest.raises(OSError, match=f"Errno {errno.EIO}"):
        getattr(disk, name)(*_here(faulty, args))
    assert _visible(faulty) == _visible(plain)
    assert disk.writes == 1


def test_a_torn_append_leaves_half_and_a_torn_replace_leaves_litter(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    disk.append(tmp_path / "a", b"whole")
    disk.fail(Failure(when="torn", times=2))
    with pytest.raises(OSError, match="No space"):
        disk.append(tmp_path / "a", b"1234")
    with pytest.raises(OSError, match="No space"):
        disk.replace(tmp_path / "a", b"123456")
    assert _visible(tmp_path) == {"a": b"whole12"}
    assert (tmp_path / ".torn.tmp").read_bytes() == b"123"


def test_the_nth_operation_fails_and_then_it_works_again(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure("append", at=3))
    for step in range(1, 6):
        if step == 3:
            with pytest.raises(OSError, match="No space"):
                disk.append(tmp_path / "a", b"x")
        else:
            disk.append(tmp_path / "a", b"x")
    assert disk.read(tmp_path / "a") == b"xxxx"


def test_a_lasting_failure_ends_when_it_is_mended_and_reads_can_fail_too(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure("*", times=None, error=errno.EIO, named="a"))
    reads: list[Any] = [disk.read, disk.size, disk.names]
    for read in reads * 2:
        with pytest.raises(OSError, match="Input/output"):
            read(tmp_path / "a")
    assert disk.size(tmp_path / "b") == 0
    disk.mend()
    assert [read(tmp_path / "a") for read in reads] == [b"", 0, []]


def test_it_can_end_the_process(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure("append", then="exit"))
    with pytest.raises(SystemExit):
        disk.append(tmp_path / "a", b"x")


def test_what_is_not_told_to_fail_is_done(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    disk.append(tmp_path / "a", b"x")
    disk.fail(Failure("remove", when="torn"))
    with pytest.raises(OSError, match="No space"):
        disk.remove(tmp_path / "a")
    disk.rename(tmp_path / "a", tmp_path / "b")
    disk.truncate(tmp_path / "b", 0)
    disk.remove(tmp_path / "b")
    assert list(tmp_path.iterdir()) == []
    assert [kind for kind, _ in disk.done] == ["append", "remove", "rename", "truncate", "remove"]


def test_it_can_kill_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr("os.kill", lambda pid, how: killed.append((pid, how)))
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure("append", then="kill"))
    with pytest.raises(OSError, match="No space"):
        disk.append(tmp_path / "a", b"x")
    assert killed == [(os.getpid(), signal.SIGKILL)]
