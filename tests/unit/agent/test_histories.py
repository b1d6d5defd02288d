"""Random histories, hundreds in `make test`: parallel tools, pauses, crashes, damage, removals, removed quotes, masks, compactions,
forks, resumes.
"""

from __future__ import annotations

import gc
import os

import pytest

from tests.unit.agent import histories

SHORT = 100
LONG = int(os.environ.get("HISTORIES", "100000"))
PART = 1_000


def lived(first: int, count: int) -> int:
    """The histories of so many seeds; returns how many requests the provider took."""
    gc.disable()  # nothing here lives long
    try:
        return sum(histories.lived(seed).requests for seed in range(first, first + count))
    finally:
        gc.enable()


@pytest.mark.parametrize("part", range(SHORT // 100))
def test_random_histories_keep_their_promises(part: int) -> None:
    assert lived(part * 100, 100) > 500


@pytest.mark.parametrize("seed", [29_160])
def test_a_history_that_once_broke_a_promise_keeps_it(seed: int) -> None:
    """29,160: of what `/undo` brought back a line is damaged."""
    assert histories.lived(seed, quotes=False).requests


@pytest.mark.torture
@pytest.mark.parametrize("part", range(LONG // PART))
def test_very_many_random_histories_keep_their_promises(part: int) -> None:
    first = int(os.environ.get("SEED", "0")) * 1_000_000 + SHORT + part * PART
    assert lived(first, PART) > 5 * PART
