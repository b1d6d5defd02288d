"""A chat of two months: who says how much, what tools give, and how long it is quiet in between.

A third of the turns use tools, whose results are as uneven as they are in life: most are small, some are huge. Three of
four turns follow the one before within five minutes, while the provider's cache is warm; the others come when it is not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

CHARACTERS = 4
"""Of a token, as the provider of the bench counts."""
WITH_TOOLS = 0.35
WARM = 0.73
RESULTS = (200, 12_000)
"""Tokens of a tool result: a bounded Pareto distribution, so that small ones are the rule."""
ALPHA = 0.9
CALLS = (0.35, 0.25, 0.17, 0.11, 0.07, 0.05)
"""How often a turn with tools takes one step, two, three and so on."""
LONGEST = 110_000.0
"""Seconds: with this, a thousand turns take two months."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn; sizes in tokens, `gap` in seconds from the end of the turn before."""

    gap: float
    said: int
    results: tuple[int, ...]
    answer: int


def trace(turns: int, seed: int) -> list[Turn]:
    """The same chat for the same seed, and a longer one begins like a shorter one."""
    rng = random.Random(seed)
    return [_turn(rng) for _ in range(turns)]


def days(turns: Sequence[Turn]) -> float:
    """How long the chat takes."""
    return sum(turn.gap for turn in turns) / 86_400


def words(tokens: int, name: str) -> str:
    """So many tokens of text that occurs nowhere else, in lines."""
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
