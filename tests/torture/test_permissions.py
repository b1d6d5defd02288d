"""100,000 calls try to evade the rules in a folder with real links, with text of every untrusted-text level."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.torture import scene
from tests.unit.tools.adversary import Adversary, plant

CALLS = 100_000

pytestmark = pytest.mark.torture


def test_nobody_gets_around_the_rules(tmp_path: Path) -> None:
    adversary = Adversary(plant(tmp_path), random.Random(int(os.environ["SEED"])))
    adversary.attack(CALLS)
    levels = ", ".join(
        f"{level} {outcome} {count:,}" for (level, outcome), count in sorted(adversary.levels.items())
    )
    scene.TOLD.append(f"rules: {CALLS:,} calls, {levels}; {len(adversary.bypasses)} bypasses")
    assert adversary.bypasses == []
    assert len(adversary.levels) == 9
