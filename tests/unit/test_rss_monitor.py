"""The memory limit: caches are emptied before the limit, and files are refused above it. People still get answers."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot import resources
from bot.resources import RssMonitor
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog

MB = 1024 * 1024


class Machine:
    """A process whose memory a test sets. Trimming returns `garbage` bytes to the system."""

    def __init__(self) -> None:
        self.used: int | None = 10
        self.garbage = self.freed = 0
        self.log, self.clock = MemoryLog(), FakeClock()
        self.monitor = RssMonitor(
            100, clock=self.clock, log=self.log, read=self.read, give_back=self.give_back
        )

    def read(self) -> int | None:
        return None if self.used is None else (self.used + self.garbage) * MB

    def give_back(self) -> None:
        self.freed, self.garbage = self.freed + 1, 0

    async def look(self, used: int | None, garbage: int = 0) -> None:
        self.used, self.garbage = used, garbage
        await self.monitor.look()


@pytest.fixture
def machine() -> Machine:
    return Machine()


async def test_above_85_percent_memory_is_freed_and_a_shortage_is_logged_once(machine: Machine) -> None:
    await machine.look(40, 46)
    assert (machine.freed, machine.monitor.full, machine.monitor.used) == (1, False, 40 * MB)
    (line,) = machine.log.at("warn")
    assert "86 MB; garbage was collected, now 40 MB" in line.message
    for _ in range(5):
        await machine.look(90)
    assert (machine.freed, len(machine.log.at("warn"))) == (6, 1)
    await machine.look(50)
    await machine.look(90)
    assert len(machine.log.at("warn")) == 2


async def test_above_the_limit_it_is_full_until_there_is_room(machine: Machine) -> None:
    await machine.look(101)
    assert machine.monitor.full
    await machine.look(101 - 2)
    assert not machine.monitor.full
    await machine.look(None)
    assert not machine.monitor.full


def test_the_resident_size_is_known_on_linux() -> None:
    used = resources.resident()
    assert used is not None or sys.platform != "linux"
    assert used is None or used > MB


HEAPS = """
import ctypes, sys, threading
from bot import resources

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
if sys.argv[2] == "one":
    resources.one_heap()
for _ in range(4):
    threads = [threading.Thread(target=lambda: libc.malloc(5_000)) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc has a heap for each thread")
def test_all_threads_share_one_heap(tmp_path: Path) -> None:
    def heaps(how: str) -> int:
        path = tmp_path / how
        subprocess.run([sys.executable, "-c", HEAPS, str(path), how], check=True, timeout=60)
        return path.read_text(encoding="ascii").count("<heap ")

    assert heaps("one") == 1
    assert heaps("many") > 1, "else there was nothing to do"


class TestCollector:
    @pytest.fixture
    def full(self, machine: Machine) -> Iterator[list[str]]:
        """Yield the list of full garbage collections. Each takes 50 ms."""
        full: list[str] = []

        def seen(phase: str, info: dict[str, int]) -> None:
            if phase == "start" and info["generation"] == 2:
                full.append(phase)
                machine.clock.ticks += 0.05

        machine.monitor.start()
        gc.collect()
        gc.disable()  # except the monitor's own collections
        gc.callbacks.append(seen)
        yield full
        gc.callbacks.remove(seen)
        gc.enable()
        machine.monitor.stop()
        gc.freeze()  # the setting of `conftest`

    async def test_everything_is_collected_once_a_minute(self, machine: Machine, full: list[str]) -> None:
        await machine.look(10)
        assert not full
        await machine.clock.advance(resources.FULL_EVERY)
        await machine.look(10)
        await machine.look(10)
        assert len(full) == 1

    async def test_after_much_new_the_next_collection_does_not_wait_for_its_minute(
        self, machine: Machine, full: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the next full collection takes too long: after 2,000 new chats it took 54 ms."""
        monkeypatch.setattr(resources, "NEW", 30_000)
        kept = [[number] for number in range(45_000)]
        await machine.look(10)
        await machine.look(10)
        assert (len(full), len(kept)) == (1, 45_000)

    async def test_what_survives_a_long_collection_is_left_out_until_memory_is_short(
        self, machine: Machine, full: list[str]
    ) -> None:
        gc.unfreeze()
        await machine.clock.advance(resources.FULL_EVERY)
        await machine.look(10)
        assert gc.get_freeze_count() > 0

        class Ring:
            gone = False

            def __init__(self) -> None:
                self.me = self

            def __del__(self) -> None:
                Ring.gone = True

        Ring()
        gc.freeze()
        await machine.look(90)
        assert Ring.gone
        assert len(full) == 2
