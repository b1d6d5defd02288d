from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.system import SystemDisk, UlidSource
from bot.telemetry.log import JsonlLog
from bot.testing.clock import FakeClock

NOON = 1_800_000_000.0 - 1_800_000_000.0 % 86_400 + 43_200  # 2027-01-15T12:00:00Z
Make = Callable[..., JsonlLog]


class GatedDisk(SystemDisk):
    """A disk that a test can block and make fail."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.error: OSError | None = None
        self.half = False

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        self.reached.set()
        assert self.gate.wait(90)
        if self.error is not None:
            if self.half:
                super().append(path, data[:10])
            raise self.error
        super().append(path, data, sync=sync)


@pytest.fixture
def disk() -> GatedDisk:
    return GatedDisk()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def make(tmp_path: Path, disk: GatedDisk, clock: FakeClock) -> Iterator[Make]:
    made: list[JsonlLog] = []

    def build(**how: Any) -> JsonlLog:
        made.append(JsonlLog(tmp_path / "logs", clock=clock, disk=disk, ids=UlidSource(), **how))
        return made[-1]

    yield build
    disk.gate.set()
    for log in made:
        log.close()


def lines(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted((folder / "logs").iterdir()):
        found += [json.loads(line) for line in path.read_text().split("\n") if line]
    return found
