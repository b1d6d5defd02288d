"""100,000 calls that try to get around the rules, against a real folder with real links."""

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
    scene.TOLD.append(f"rules: {CALLS:,} calls, {adversary.decided}, {len(adversary.bypasses)} bypasses")
    assert adversary.bypasses == []
