"""Memory has a limit: caches go before it, files are refused above it, and people are answered all the same."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot import rss_monitor
from bot.rss_monitor import GarbageCollector, RssMonitor
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.words import Sentence

MB = 1024 * 1024


class Told:
    def __init__(self) -> None:
        self.spells: list[tuple[str, str, str]] = []

    def begin(self, subject: str, words: Sentence) -> bool:
        self.spells.append(("begin", subject, str(words)))
        return True

    def end(self, subject: str, words: Sentence) -> bool:
        self.spells.append(("end", subject, str(words)))
        return True


class Machine:
    """A process whose memory a test sets; freeing returns `garbage` to the system."""

    def __init__(self) -> None:
        self.used: int | None = 10
        self.garbage = self.freed = 0
        self.told, self.log = Told(), MemoryLog()
        self.monitor = RssMonitor(
            100, reports=self.told, clock=FakeClock(), log=self.log, read=self.read, give_back=self.give_back
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


async def test_above_the_limit_it_is_full_until_there_is_room_and_operators_hear_of_both(
    machine: Machine,
) -> None:
    for _ in range(3):
        await machine.look(101)
        assert machine.monitor.full
    (spell,) = machine.told.spells
    assert spell[:2] == ("begin", "memory")
    assert "101 MB of 100 MB" in spell[2]
    await machine.look(101 - 2)
    assert not machine.monitor.full
    assert [spell[:2] for spell in machine.told.spells] == [("begin", "memory"), ("end", "memory")]


def test_the_resident_size_is_what_the_system_says(tmp_path: Path) -> None:
    (tmp_path / "statm").write_bytes(b"5000 300 200 1 0 900 0\n")
    assert rss_monitor.resident(tmp_path / "statm") == 300 * os.sysconf("SC_PAGE_SIZE")
    for wrong in (b"", b"5000", b"a b c"):
        (tmp_path / "statm").write_bytes(wrong)
        assert rss_monitor.resident(tmp_path / "statm") is None
    assert rss_monitor.resident(tmp_path / "none") is None


HEAPS = """
import ctypes, sys, threading
from bot import rss_monitor

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
if sys.argv[2] == "one":
    rss_monitor.one_heap()
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


@contextlib.contextmanager
def dragging(clock: FakeClock) -> Iterator[None]:
    """Each full collection takes 50 ms."""

    def drag(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            clock.ticks += 0.05

    gc.callbacks.append(drag)  # after the one that takes the time
    try:
        yield
    finally:
        gc.callbacks.remove(drag)


class TestCollector:
    @pytest.fixture
    def slow(self) -> Iterator[tuple[GarbageCollector, FakeClock]]:
        clock = FakeClock()
        collector = GarbageCollector(clock)
        collector.start()
        yield collector, clock
        collector.stop()
        collector.stop()

    def test_a_ring_of_objects_goes(self, slow: tuple[GarbageCollector, FakeClock]) -> None:
        class Ring:
            gone = False

            def __init__(self) -> None:
                self.me = self

            def __del__(self) -> None:
                Ring.gone = True

        Ring()
        assert slow[0].collect()
        assert Ring.gone

    async def test_after_a_long_collection_only_the_young_are_looked_at_for_a_while(
        self, slow: tuple[GarbageCollector, FakeClock]
    ) -> None:
        collector, clock = slow

        with dragging(clock):
            assert collector.collect()
            assert not collector.collect()
            await clock.advance(rss_monitor.PAUSED_FOR + 1)
            assert collector.collect()

    async def test_everything_is_collected_once_a_minute(
        self, slow: tuple[GarbageCollector, FakeClock]
    ) -> None:
        collector, clock = slow
        full: list[str] = []

        def seen(phase: str, info: dict[str, int]) -> None:
            if phase == "start" and info["generation"] == 2:
                full.append(phase)

        gc.collect()
        gc.disable()  # but for the collector's own
        gc.callbacks.append(seen)
        try:
            collector.maintain()
            assert not full
            await clock.advance(rss_monitor.FULL_EVERY)
            collector.maintain()
            collector.maintain()
            assert len(full) == 1
        finally:
            gc.callbacks.remove(seen)
            gc.enable()

    async def test_where_much_has_come_the_next_one_does_not_wait_for_its_minute(
        self, slow: tuple[GarbageCollector, FakeClock], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A first full collection of 2,000 new chats at the end of their minute took 54 ms."""
        collector, _ = slow
        monkeypatch.setattr(rss_monitor, "NEW", 30_000)
        collector.start()
        try:
            gc.collect()
            assert rss_monitor.new_objects() < 5_000
            collector.maintain()
            kept = [[number] for number in range(45_000)]
            assert 30_000 <= rss_monitor.new_objects() < 80_000
            collector.maintain()
            assert rss_monitor.new_objects() < 5_000, "they were collected"
            assert len(kept) == 45_000
        finally:
            collector.stop()

    async def test_what_took_long_to_look_through_is_left_out_until_memory_is_short(
        self, slow: tuple[GarbageCollector, FakeClock]
    ) -> None:
        collector, clock = slow

        frozen = gc.get_freeze_count()
        with dragging(clock):
            await clock.advance(rss_monitor.FULL_EVERY)
            collector.maintain()
            assert gc.get_freeze_count() > frozen
            await clock.advance(rss_monitor.PAUSED_FOR + 1)
            assert collector.collect()
            assert gc.get_freeze_count() == 0
        gc.freeze()  # as `conftest` leaves it
