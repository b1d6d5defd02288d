"""Weeks in minutes: what a gateway holds does not grow with what it has done. `EVENTS=… CHATTER=… SEED=… make torture`."""

from __future__ import annotations

import os
import random
import secrets
import time
from pathlib import Path

import pytest

from bot.llm import factory
from tests.torture.soaking import Parrot, Sample, Soak, slope, soak

EVENTS = int(os.environ.get("EVENTS", "1000000"))
CHATTER = float(os.environ.get("CHATTER", "0.9"))
"""As in busy groups, where most of what a platform brings asks for nothing; 0 makes nearly every event a turn."""
FEW = 300
LOOKS = 50
WARM = 0.6
"""The share of a soak after which every cache is as full as it gets."""
MEGABYTE = 1_000_000
GROWTH = MEGABYTE / 100_000
"""Bytes an event."""
TREMBLE = 2 * MEGABYTE
"""By which the memory of a process goes up and down."""


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> int:
    found = int(os.environ.get("SEED", secrets.randbelow(1_000_000)))
    print(f"SEED={found}")  # noqa: T201 - shown where it fails
    monkeypatch.setattr(factory, "_provider", lambda *_, **__: Parrot(random.Random(found)))
    return found


def steady(lived: Soak, samples: list[Sample]) -> None:
    """Nothing is left behind: no task, no open file."""
    assert max(one.tasks for one in samples) <= samples[0].tasks + 4, samples
    assert max(one.files for one in samples) <= samples[0].files + 3, samples
    assert lived.gateway.parts.scheduler.active == lived.gateway.parts.scheduler.total == 0


async def test_a_day_leaves_no_task_and_no_open_file_behind(tmp_path: Path, seed: int) -> None:
    lived = await soak(tmp_path, FEW, looks=10, seed=seed, chatter=0.3)
    steady(lived, lived.samples[2:])


@pytest.mark.torture
async def test_weeks_leave_memory_as_it_was(tmp_path: Path, seed: int) -> None:
    began = time.monotonic()
    lived = await soak(tmp_path, EVENTS, looks=LOOKS, seed=seed, chatter=CHATTER)
    rate = EVENTS / (time.monotonic() - began)
    warm = lived.samples[int(LOOKS * WARM) :]
    grows = slope(warm, lambda one: one.resident)
    told = f"SEED={seed}: {rate:.0f} events a second, {grows * 100_000 / MEGABYTE:+.2f} MB per 100,000 events"
    print(told)  # noqa: T201 - a figure to be kept
    steady(lived, warm)
    events = warm[-1].events - warm[0].events
    assert grows * events < GROWTH * events + TREMBLE, told
