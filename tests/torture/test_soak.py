"""Weeks in minutes: what a gateway holds does not grow with what it has done. `EVENTS=… CHATTER=… SEED=… make torture`.

It is held memory that is measured, not what is resident. A process has the most pages that it ever needed at once: its
allocators give back only what is free as a whole, so what is resident goes on by steps, ever more rarely, while the number of
objects and their bytes stay as they are. So the soak runs in a process whose objects all come from the C library's heap
(PYTHONMALLOC=malloc), which counts each byte; what its pages take beyond that is held below a bound of its own.
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
"""As in busy groups, where most of what a platform brings asks for nothing; 0 makes nearly every event a turn."""
FEW = 300
LOOKS = 50
WARM = 0.7
"""The share of a soak after which every cache is as full as it gets. Of 100,000 events the first 60,000 fill the largest one:
the newest requests of the 4,000 chats that asked last (`history.requests.MOST_CHATS`), some 40 MB.
"""
MEGABYTE = 1_000_000
GROWTH = MEGABYTE / 100_000
"""Bytes an event."""
TREMBLE = 2 * MEGABYTE
"""By which the memory of a process goes up and down."""
HOLES = 64 * MEGABYTE
"""What is resident beside what is held: 32 MB of libraries, and pages of the heap that are not free as a whole."""
PAGES = 32 * MEGABYTE
"""What SQLite holds of its files: it grows slowly up to 2 MB for each connection, and is no growth of what is kept."""
COUNTED = {**os.environ, "PYTHONMALLOC": "malloc"}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def seed(monkeypatch: pytest.MonkeyPatch) -> int:
    found = int(os.environ.get("SEED", secrets.randbelow(1_000_000)))
    print(f"SEED={found}")  # noqa: T201 - shown where it fails
    monkeypatch.setattr(demo, "DemoModel", lambda *_, **__: Parrot(random.Random(found)))
    return found


def steady(samples: list[Sample]) -> None:
    """Nothing is left behind: no task, no open file."""
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
    warm = samples[int(len(samples) * WARM) :]  # few events come in fewer rounds than `LOOKS`
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
