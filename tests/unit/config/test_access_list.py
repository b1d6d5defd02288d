from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bot import errors
from bot.core.access import MOST_PENDING, AccessList
from bot.system import SystemDisk
from bot.testing.clock import FakeClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".ship" / "access.json"


def make(path: Path, clock: FakeClock | None = None) -> AccessList:
    return AccessList(path, SystemDisk(), clock or FakeClock())


def test_without_a_file_the_lists_are_empty(path: Path) -> None:
    lists = make(path)
    assert (lists.allowed("telegram"), lists.blocked("telegram"), lists.pending()) == (
        frozenset(),
        frozenset(),
        [],
    )
    assert not path.exists()


def test_an_id_stands_in_one_list_at_a_time(path: Path) -> None:
    lists = make(path)
    lists.note("telegram", "1")
    lists.allow("telegram", "1")
    lists.allow("telegram", "1")
    assert lists.allowed("telegram") == {"1"}
    assert lists.blocked("telegram") == set()
    assert lists.pending() == []
    lists.block("telegram", "1")
    assert lists.allowed("telegram") == set()
    assert lists.blocked("telegram") == {"1"}
    lists.note("telegram", "1")
    assert lists.pending() == []
    assert lists.allowed("slack") == frozenset()
    assert json.loads(path.read_text()) == {
        "v": 1,
        "channels": {"telegram": {"allow": [], "block": ["1"], "operators": [], "pending": {}, "names": {}}},
    }
    assert path.stat().st_mode & 0o777 == 0o600


async def test_those_who_asked_are_listed_newest_first_and_bounded(path: Path) -> None:
    clock = FakeClock()
    lists = make(path, clock)
    for number in range(MOST_PENDING + 5):
        lists.note("telegram", str(number))
        clock.jump(1)
    lists.note("telegram", "7")
    asked = lists.pending()
    assert len(asked) == MOST_PENDING
    assert [item.user_id for item in asked[:2]] == ["7", str(MOST_PENDING + 4)]
    assert "4" not in {item.user_id for item in asked}


async def test_changes_of_another_process_are_in_force_within_two_seconds(path: Path) -> None:
    clock = FakeClock()
    lists = make(path, clock)
    assert lists.blocked("telegram") == frozenset()
    code = (
        "import sys, pathlib; from bot.core.access import AccessList; from bot.system import *\n"
        "AccessList(pathlib.Path(sys.argv[1]), SystemDisk(), SystemClock()).block('telegram', '666')"
    )
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, str(path)], check=True)
    await clock.advance(2)
    assert lists.blocked("telegram") == {"666"}
    path.unlink()
    await clock.advance(2)
    assert lists.blocked("telegram") == frozenset()


def test_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    code = (
        "import sys, pathlib; from bot.core.access import AccessList; from bot.system import *\n"
        "lists = AccessList(pathlib.Path(sys.argv[1]), SystemDisk(), SystemClock())\n"
        "for number in range(20): lists.allow('telegram', f'{sys.argv[2]}{number}')"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), str(who)]) for who in (1, 2, 3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert len(make(path).allowed("telegram")) == 60


async def test_a_file_that_breaks_while_running_changes_nothing(path: Path) -> None:
    clock = FakeClock()
    lists = make(path, clock)
    lists.block("telegram", "1")
    path.write_text('{"v": 1, "chan')
    await clock.advance(2)
    assert lists.blocked("telegram") == {"1"}
    assert lists.problem is not None
    with pytest.raises(errors.StorageError, match=r"cannot be changed: \.ship/access\.json: found"):
        lists.allow("telegram", "2")
    path.write_text('{"v": 1, "channels": {"telegram": {"allow": ["3"]}}}')
    await clock.advance(2)
    assert lists.allowed("telegram") == {"3"}
    assert lists.problem is None


async def test_a_file_that_is_cut_off_to_nothing_lets_nobody_in(path: Path) -> None:
    clock = FakeClock()
    lists = make(path, clock)
    lists.block("telegram", "1")
    path.write_bytes(b"")
    await clock.advance(2)
    assert lists.blocked("telegram") == {"1"}
    assert lists.problem is not None
    with pytest.raises(errors.StorageError):
        lists.allow("telegram", "2")


async def test_a_folder_in_its_place_is_told_without_where_that_is(path: Path) -> None:
    clock = FakeClock()
    lists = make(path, clock)
    path.mkdir(parents=True)
    await clock.advance(2)
    assert lists.problem is not None
    assert str(path.parent.parent) not in lists.problem
    with pytest.raises(errors.ConfigError, match=r"\.ship/access\.json: found .*directory"):
        make(path)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"channels": {"telegram": {"allow": [1]}}}', '{"x": 1}', "\xff"]
)
def test_a_file_that_cannot_be_read_stops_the_start(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(errors.ConfigError, match=r"\.ship/access\.json: found .*; expected the lists"):
        make(path)


def test_a_disk_that_cannot_be_written_is_a_storage_error(path: Path) -> None:
    class Full(SystemDisk):
        def replace(self, path: Path, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    lists = AccessList(path, Full(), FakeClock())
    with pytest.raises(errors.StorageError, match="No space left"):
        lists.allow("telegram", "1")
    assert lists.allowed("telegram") == frozenset()


def test_a_lock_that_is_held_is_waited_for_and_then_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import filelock

    monkeypatch.setattr("bot.core.access.LOCK_SECONDS", 0.05)
    lists = make(path)
    path.parent.mkdir()
    with (
        filelock.FileLock(path.with_name("access.json.lock")),
        pytest.raises(errors.StorageError, match="held"),
    ):
        lists.allow("telegram", "1")


async def test_a_file_that_stays_as_it_is_is_read_once(path: Path) -> None:
    class Counting(SystemDisk):
        reads = 0

        def read(self, path: Path) -> bytes:
            self.reads += 1
            return super().read(path)

    disk, clock = Counting(), FakeClock()
    make(path).allow("telegram", "1")
    lists = AccessList(path, disk, clock)
    for _ in range(5):
        await clock.advance(2)
        assert lists.allowed("telegram") == {"1"}
    assert disk.reads == 1
