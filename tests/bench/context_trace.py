"""A simulated chat of two months: the sizes of messages and tool results, and the pauses between turns.

A third of the turns use tools. Most tool results are small and some are huge, as in real use. Three of four
turns follow the previous turn within five minutes, while the provider's cache is still warm.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

CHARACTERS = 4
"""Characters per token, as the fake provider of the bench counts."""
WITH_TOOLS = 0.35
WARM = 0.73
RESULTS = (200, 12_000)
"""Limits of a tool result's size in tokens. The sizes follow a bounded Pareto distribution, so most results
are small.
"""
ALPHA = 0.9
CALLS = (0.35, 0.25, 0.17, 0.11, 0.07, 0.05)
"""Probabilities that a turn with tools takes one step, two steps, three steps and so on."""
LONGEST = 110_000.0
"""Max pause between two turns in seconds. With this limit, a thousand turns take two months."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. Sizes are in tokens; `gap` is the pause after the previous turn in seconds."""

    gap: float
    said: int
    results: tuple[int, ...]
    answer: int


def trace(turns: int, seed: int) -> list[Turn]:
    rng = random.Random(seed)
    return [_turn(rng) for _ in range(turns)]


def days(turns: Sequence[Turn]) -> float:
    return sum(turn.gap for turn in turns) / 86_400


def words(tokens: int, name: str) -> str:
    """Return about `tokens` tokens of text in lines, unique to `name`."""
    line = f"{name}: {name[::-1]} の値を見た, measured and noted down once more.\n"
    size = tokens * CHARACTERS
    return (line * (size // len(line) + 1))[:size]


def _turn(rng: random.Random) -> Turn:
    warm = rng.random() < WARM
    gap = rng.uniform(5, 290) if warm else math.exp(rng.uniform(math.log(300), math.log(LONGEST)))
    said = round(min(600.0, max(8.0, rng.lognormvariate(3.7, 0.8))))
    answer = round(min(1_200.0, max(20.0, rng.lognormvariate(4.9, 0.6))))
    used = rng.random() < WITH_TOOLS
    steps = rng.choices(range(1, len(CALLS) + 1), CALLS)[0] if used else 0
    return Turn(gap, said, tuple(_result(rng) for _ in range(steps)), answer)


def _result(rng: random.Random) -> int:
    low, high = RESULTS
    share = rng.random()
    size: float = low / (1 - share * (1 - (low / high) ** ALPHA)) ** (1 / ALPHA)
    return round(size)
