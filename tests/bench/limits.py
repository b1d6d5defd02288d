"""Compares the ratios of a run with the stored ratios. `python -m tests.bench --store` stores new ones."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench import aims

STORED = Path(__file__).with_name("ratios.toml")
NOISE = 1.35
"""Max factor by which a ratio may be worse than the stored one. Runs of the same code differ by this much on
a machine that also does other work.
"""
KEPT = (
    "oneChat.overheadMs",
    "crowd.wholeMs",
    "crowd.cpuMs",
    "rush.messageMs",
    "rush.cpuMs",
    "firstReply.cpuMs",
    "firstReply.residentMb",
    "growth.turns.cpuMs",
    "growth.chats.cpuMs",
)
"""Names of the ratios that are stored; smaller is better. Most compare Shipmate with the plain script; those
in `growth` compare Shipmate with much data and with little.
"""


def stored() -> dict[str, float]:
    """Return the stored ratios by dotted name."""
    return dict(tomllib.loads(STORED.read_text(encoding="utf-8"))["ratios"])


def ratios(found: Mapping[str, Any]) -> dict[str, float]:
    """Return the ratios of a run by dotted name, without ratios that could not be measured."""
    told = {name: aims.at(found, f"{name}.ratio") for name in KEPT}
    return {name: ratio for name, ratio in told.items() if ratio}


def regressions(now: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """Return a sentence for each ratio that is worse than before by more than noise."""
    return [
        f"{name}: {now[name]:.2f} times the yardstick, stored are {ratio:.2f}"
        for name, ratio in before.items()
        if name in now and now[name] > ratio * NOISE
    ]


def store(now: Mapping[str, float]) -> None:
    lines = [f'"{name}" = {ratio:.2f}\n' for name, ratio in now.items()]
    words = "# Shipmate's share of what the plain script takes, and in growth of what it takes with little, as measured last (`tests/bench/limits.py`).\n[ratios]\n"
    STORED.write_text(words + "".join(lines), encoding="utf-8")
