"""The archive on a disk that fails, and after a process that died at any moment."""

from __future__ import annotations

import errno
import faulthandler
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from bot import errors
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.storage import jsonl
from bot.system import SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.disk import Failure, FaultyDisk, When
from bot.testing.log import MemoryLog
from tests.archives import WrittenArchive as ChatStore

Make = Callable[..., ChatStore]
Said = Callable[..., ArchiveLine]
KEY = ChatKey.parse("web:chat:1")
NAME = "web%3Achat%3A1"
LIMIT = 4
COUNT = 14


async def everything(store: ChatStore, key: ChatKey = KEY) -> list[str]:
    page = await store.search(key, HistoryQuery(limit=10_000))
    assert page.unreadable == 0
    return [line.text for line in page.lines]


def on_disk(folder: Path) -> list[str]:
    """All texts, without any knowledge of ours but the order of the files."""
    archives = sorted(folder.glob("*.archive-*.jsonl"), key=lambda path: int(path.name.split("-")[-1][:-6]))
    files = [*archives, folder / f"{NAME}.jsonl"]
    return [json.loads(raw)["text"] for path in files for raw in path.read_bytes().split(b"\n") if raw]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the device: what a process leaves behind does not depend on it."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr("os.fdatasync", lambda _: None)


def dying(at: int, when: When) -> FaultyDisk:
    """A disk that stops in its `at`-th change and changes nothing any more, as if the process were gone."""
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure(at=at, when=when, error=errno.EIO))
    disk.fail(Failure(at=at, times=None, error=errno.EIO))
    return disk


async def say(store: ChatStore, said: Said, numbers: range) -> int:
    """Append until one is refused; returns how many were acknowledged."""
    for done, number in enumerate(numbers):
        try:
            await store.append(said(f"t{number}"))
        except errors.StorageError:
            return done
    return len(numbers)


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"t{number}" for number in range(start, count)]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("when", ["before", "torn", "after"])
async def test_dying_at_any_change_loses_nothing_acknowledged_and_doubles_nothing(
    store: Make, folder: Path, said: Said, when: When, stride: int
) -> None:
    at = 1 - stride
    while True:
        at += stride
        for path in folder.glob("*"):
            path.unlink()
        disk = dying(at, when)
        acknowledged = await say(store(LIMIT, disk), said, range(COUNT))
        if disk.writes < at:
            break
        page = await store(LIMIT).search(KEY, HistoryQuery(limit=100))
        seen = [line.text for line in page.lines]
        assert seen in (numbered(acknowledged), numbered(acknowledged + 1)), at
        survivor = store(LIMIT)
        assert await say(survivor, said, range(len(seen), COUNT + 3)) == COUNT + 3 - len(seen)
        assert await everything(survivor) == on_disk(folder) == numbered(COUNT + 3), at
        assert not [path for path in folder.iterdir() if path.suffix in {".tmp", ".rotating"}]
    assert at > COUNT + 4 * 4  # every append, and four steps of four rotations at the least


def test_threads_get_a_folder_in_the_order_in_which_they_asked(folder: Path, tmp_path: Path) -> None:
    had: list[int] = []

    def use(number: int) -> None:
        with jsonl.locked(folder, shared=number % 3 == 0):
            had.append(number)

    def waits(thread: threading.Thread) -> bool:
        with (tmp_path / "stacks").open("w+") as stacks:
            faulthandler.dump_traceback(stacks)
            stacks.seek(0)
            mine = stacks.read().partition(f"Thread 0x{thread.ident:016x}")[2]
        return mine.splitlines()[1].endswith(" in wait")

    with jsonl.locked(folder):
        threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
            while not waits(thread):
                threading.Event().wait(0.001)
    for thread in threads:
        thread.join()
    assert had == list(range(8))


async def test_a_search_that_fails_leaves_no_file_open(store: Make, said: Said) -> None:
    disk = FaultyDisk(SystemDisk())
    chats = store(disk=disk)
    line = said("t0")
    await chats.append(line)
    await chats.search(line.chat_key, HistoryQuery())  # with a thread, and what that opens
    before = sum(1 for _ in Path("/dev/fd").iterdir())
    disk.fail(Failure("size", times=None, error=errno.EIO))
    for _ in range(3):
        with pytest.raises(errors.StorageError):
            await chats.search(line.chat_key, HistoryQuery())
    assert sum(1 for _ in Path("/dev/fd").iterdir()) == before
    disk.mend()


async def test_every_line_is_synced_before_it_is_acknowledged(store: Make, said: Said) -> None:
    class Watching(SystemDisk):
        synced: ClassVar[list[bool]] = []

        def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
            self.synced.append(sync)
            super().append(path, data, sync=sync)

    chats = store(disk=Watching())
    for number in range(3):
        await chats.append(said(f"t{number}"))
    assert Watching.synced == [True, True]


async def test_a_rotation_that_fails_is_said_and_tried_again(
    store: Make, folder: Path, log: MemoryLog, said: Said
) -> None:
    disk = FaultyDisk(SystemDisk())
    chats = store(LIMIT, disk)
    disk.fail(Failure("replace", times=2, named=".archive-1"))
    for number in range(LIMIT + 2):
        await chats.append(said(f"t{number}"))
    assert [entry.level for entry in log.entries] == ["error", "error"]
    assert not list(folder.glob("*.archive-*"))
    await chats.append(said(f"t{LIMIT + 2}"))
    assert len(list(folder.glob("*.archive-1.jsonl"))) == 1
    assert await everything(chats) == on_disk(folder) == numbered(LIMIT + 3)


async def test_a_tail_torn_at_any_byte_costs_that_line_alone_and_is_set_aside(
    store: Make, folder: Path, log: MemoryLog, clock: FakeClock, said: Said
) -> None:
    chats = store()
    await chats.append(said("first 你好"))
    await chats.append(said("last 😀"))
    main = folder / f"{NAME}.jsonl"
    whole = main.read_bytes()
    start = whole.index(b"\n") + 1
    for cut in range(start, len(whole)):
        main.write_bytes(whole[:cut])
        survivor = store()
        await survivor.append(said("next"))
        complete = cut == len(whole) - 1  # only its newline is missing
        assert await everything(store()) == ["first 你好", *(["last 😀"] if complete else []), "next"], cut
        aside = list(folder.glob("*.corrupt-*"))
        if complete or cut == start:
            assert not aside
        else:
            (path,) = aside
            assert path.name == f"{NAME}.jsonl.corrupt-{int(clock.now() * 1000)}"
            assert path.read_bytes() == whole[start:cut]
            assert log.entries[-1].level == "warn"
            assert log.entries[-1].details["offset"] == start
            path.unlink()


@pytest.mark.parametrize(
    "garbage", [b"\0" * 512, b"\xff\xfe{\n\n", b'{"a":\n"torn"', b"[" * 9, b'"text"\n17\n']
)
async def test_garbage_behind_the_last_line_is_set_aside(
    store: Make, folder: Path, said: Said, garbage: bytes
) -> None:
    main = folder / f"{NAME}.jsonl"
    for _ in range(2):
        chats = store()
        await chats.append(said("x"))
        with main.open("ab") as file:
            file.write(garbage)
    chats = store()
    await chats.append(said("y"))
    assert await everything(chats) == ["x", "x", "y"]
    # Two quarantines in one moment have names of their own.
    assert [path.read_bytes() for path in folder.glob("*.corrupt-*")] == [garbage] * 2


async def test_a_rotation_marker_that_makes_no_sense_is_removed(
    store: Make, folder: Path, said: Said
) -> None:
    chats = store(LIMIT)
    for number in range(LIMIT + 1):
        await chats.append(said(f"t{number}"))
    main = folder / f"{NAME}.jsonl"
    size = main.stat().st_size
    # The last one has the right size, but the archive it names holds lines that the main file does not.
    for marker in (b"?", b"[]", b'{"archive":"1","size":%d}' % size, b'{"archive":1,"size":%d}' % size):
        (folder / f"{NAME}.rotating").write_bytes(marker)
        assert await everything(store(LIMIT)) == numbered(LIMIT + 1)
    await chats.append(said(f"t{LIMIT + 1}"))
    assert await everything(chats) == on_disk(folder) == numbered(LIMIT + 2)
    assert not (folder / f"{NAME}.rotating").exists()
