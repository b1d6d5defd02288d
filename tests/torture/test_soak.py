"""Weeks within minutes: a gateway's allocated memory does not grow with its work. `EVENTS=… CHATTER=… SEED=… make torture`
repeats a run.

The tests measure allocated memory, not resident memory. Allocators return a page only when it is completely free, so
resident memory grows in rare steps although the number and size of objects stay the same. Therefore the process takes
all objects from the C library's heap (PYTHONMALLOC=malloc), which counts each allocated byte. Resident memory beyond
these bytes has a limit of its own.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bot.llm import demo
from tests.torture.soaking import TASKS, Mallinfo, Parrot, Sample, slope, soak

EVENTS = int(os.environ.get("EVENTS", "1000000"))
CHATTER = float(os.environ.get("CHATTER", "0.9"))
"""Share of events that need no answer, as in busy groups. With 0, nearly every event starts a turn."""
FEW = 300
LOOKS = 50
WARM = 0.7
"""Share of a soak's events after which every cache is full. The largest cache needs 60,000 of 100,000 events."""
MEGABYTE = 1_000_000
GROWTH = MEGABYTE / 100_000
"""Max growth in bytes per event."""
TREMBLE = 2 * MEGABYTE
"""Normal variation of a process's memory in bytes."""
HOLES = 64 * MEGABYTE
"""Max resident memory in bytes beyond the allocated memory: 32 MB of libraries, and partly used pages of the heap."""
PAGES = 32 * MEGABYTE
"""Max bytes allocated by SQLite. They grow slowly to 2 MB per connection, which is no growth of stored data."""
COUNTED = {**os.environ, "PYTHONMALLOC": "malloc"}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def seed(monkeypatch: pytest.MonkeyPatch) -> int:
    found = int(os.environ.get("SEED", secrets.randbelow(1_000_000)))
    print(f"SEED={found}")  # noqa: T201 - shown where it fails
    monkeypatch.setattr(demo, "DemoModel", lambda *_, **__: Parrot(random.Random(found)))
    return found


def steady(samples: list[Sample]) -> None:
    """Check that no task and no open file is left over."""
    assert max(one.tasks for one in samples) <= samples[0].tasks + TASKS, samples
    assert max(one.files for one in samples) <= samples[0].files + 3, samples


async def test_a_day_leaves_no_task_and_no_open_file_behind(tmp_path: Path, seed: int) -> None:
    lived = await soak(tmp_path, FEW, looks=10, seed=seed, chatter=0.3)
    steady(lived.samples[2:])


@pytest.mark.torture
@pytest.mark.skipif(not Mallinfo.held(), reason="this C library does not tell how much of its heap is in use")
def test_each_small_object_counts_as_held_as_long_as_it_is_there() -> None:
    code = """
from tests.torture.soaking import Mallinfo
before = Mallinfo.held()
kept = [str(number) for number in range(1_000_000, 1_200_000)]
with_them = Mallinfo.held()
kept.clear()
print(with_them - before, Mallinfo.held() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=COUNTED, check=True, capture_output=True, text=True
    )
    grown, left = map(int, done.stdout.split())
    assert grown > 200_000 * 56
    assert left < MEGABYTE


def test_growth_is_told_where_there_are_few_looks() -> None:
    samples = [Sample(events, 7 + 3 * events, 0, 0, 0, 0) for events in (50, 100, 150)]
    assert slope(samples, lambda one: one.held) == pytest.approx(3.0)
    assert slope(samples[:1], lambda one: one.held) == 0.0


@pytest.mark.torture
@pytest.mark.skipif(not Mallinfo.held(), reason="this C library does not tell how much of its heap is in use")
def test_weeks_leave_memory_as_it_was(tmp_path: Path, seed: int) -> None:
    began = time.monotonic()
    asked = [tmp_path, EVENTS, f"--looks={LOOKS}", f"--seed={seed}", f"--chatter={CHATTER}"]
    command = [sys.executable, "-m", "tests.torture.soaking", *map(str, asked)]
    done = subprocess.run(command, cwd=ROOT, env=COUNTED, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    samples = [Sample(**json.loads(line)) for line in done.stdout.splitlines()]
    rate = EVENTS / (time.monotonic() - began)
    warm = samples[int(len(samples) * WARM) :]  # with few events there are fewer samples than `LOOKS`
    grows, resident = (
        slope(warm, value) * 100_000 / MEGABYTE
        for value in (lambda one: one.held - one.pages, lambda one: one.resident)
    )
    told = (
        f"SEED={seed}: {rate:.0f} events a second; in 100,000 events {grows:+.2f} MB are held more and {resident:+.2f} MB "
        f"resident, {warm[-1].held / MEGABYTE:.0f} and {warm[-1].resident / MEGABYTE:.0f} MB in the end"
    )
    print(told)  # noqa: T201 - a figure to be kept
    steady(warm)
    events = warm[-1].events - warm[0].events
    assert grows / 100_000 * MEGABYTE * events < GROWTH * events + TREMBLE, told
    assert max(one.pages for one in warm) < PAGES, told
    assert max(one.resident - one.held for one in warm) < HOLES, told
