"""Random lives: killed at any operation, refused by disk and channel, every message is answered once. `SEED=…` repeats a run.
On PostgreSQL each death takes all files of its host.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bot import batch
from bot.gateway.outbox import batch_sender
from bot.history import line_stream
from tests import postgres
from tests.torture import scene
from tests.torture.engines import EMBEDDED, LOST_DISK, on
from tests.torture.lives import Options, World, example

LIVES = int(os.environ.get("LIVES", "200"))
FAULTS = (8, 1, 1, 1, 1)
OPTIONS = {
    "steer": Options(),
    "followup": Options(mode="followup"),
    "collect": Options(mode="collect"),
    "edits": Options(edits=0.4),
    "channel": Options(channel=FAULTS),
    "journal": Options(refusing=0.8),
    "down": Options(channel=FAULTS, edits=0.3, down=3600.0),
}


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sender, "GRACE_SECONDS", 0.0)
    # Real time has no say in what comes after what.
    for module in (batch, line_stream):
        monkeypatch.setattr(module, "LINGER", 0.0)
    if postgres.programs() is not None:
        from bot.journal import shared_disk

        monkeypatch.setattr(shared_disk, "WRITE_BACK_SECONDS", 1e6)


@pytest.mark.parametrize(
    ("name", "engine"),
    [on(engine, name, torture=True) for engine in (EMBEDDED, LOST_DISK) for name in OPTIONS],
)
def test_whatever_the_lives_were_every_message_is_answered_once(
    tmp_path: Path, name: str, engine: str
) -> None:
    count = LIVES if engine == EMBEDDED else -(-LIVES // 10)  # there they take ten times as long
    lived(tmp_path, name, engine, range(scene.seed(), scene.seed() + count))
    scene.tell(f"lives ({name}, {engine}): {count}")


@pytest.mark.parametrize(("name", "engine"), [on(LOST_DISK, "down")])
def test_some_lives_on_hosts_that_are_lost(tmp_path: Path, name: str, engine: str) -> None:
    lived(tmp_path, name, engine, range(4))


def lived(folder: Path, name: str, engine: str, seeds: range) -> None:
    for seed in seeds:
        root = folder / str(seed)
        root.mkdir()
        world = World(root, seed, OPTIONS[name], engine)
        wrong = asyncio.run(example(world))
        log = "\n".join(world.log)
        assert not wrong, f"SEED={seed} LIVES=1: {wrong}\n{log}"
