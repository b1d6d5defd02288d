"""Random lives: killed at any operation, refused by disk and channel, every message is answered once. `SEED=…` repeats a run."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from bot.gateway.outbox import batch_sender

from bot import batch
from bot.history import line_stream
from tests.torture import scene
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


@pytest.mark.torture
@pytest.mark.parametrize("name", OPTIONS)
def test_whatever_the_lives_were_every_message_is_answered_once(tmp_path: Path, name: str) -> None:
    lived(tmp_path, name, range(scene.seed(), scene.seed() + LIVES))
    scene.tell(f"lives ({name}): {LIVES}")


def lived(folder: Path, name: str, seeds: range) -> None:
    for seed in seeds:
        root = folder / str(seed)
        root.mkdir()
        world = World(root, seed, OPTIONS[name])
        wrong = asyncio.run(example(world))
        log = "\n".join(world.log)
        assert not wrong, f"SEED={seed} LIVES=1: {wrong}\n{log}"
