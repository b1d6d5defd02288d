"""Estimates that keep caches within bounds have to be near the truth; what there is room for is shared fairly."""

from __future__ import annotations

import itertools
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.sizes import fair_cap, in_words, size_of


@pytest.mark.parametrize(
    "words", ["hello " * 500, "é" * 3_000, "你好，世界" * 600, "👩‍👩‍👧 " * 500, "שלום" * 700]
)
def test_a_text_weighs_what_the_interpreter_needs_for_it(words: str) -> None:
    assert size_of(words) == pytest.approx(sys.getsizeof(words), rel=0.05)


def test_everything_inside_counts() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "x" * 10_000}, {"type": "image", "n": 1}]}
    assert 10_000 < size_of(message) < 12_000
    assert size_of([b"y" * 10_000, None, 1.5, ("z" * 10_000,)]) == pytest.approx(20_000, rel=0.05)


def test_depth_is_no_danger() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert size_of(deep) > 100_000


@given(loads=st.lists(st.integers(0, 100_000), max_size=30), room=st.integers(-10, 300_000))
@settings(derandomize=True, deadline=None)
def test_the_largest_give_first_and_no_more_than_they_must(loads: list[int], room: int) -> None:
    share = fair_cap(loads, room)
    if share is None:
        assert sum(loads) <= max(room, 0)
        return
    after = [min(load, share) for load in loads]
    assert sum(after) <= max(room, 0)
    if room >= 0:
        assert sum(after) > room - len(loads), "nothing is given away"
    for one, other in itertools.combinations(sorted(loads), 2):
        assert min(one, share) <= min(other, share)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (16 * 2**20, "16 MB"),
        (1_023 * 2**20, "1.0 GB"),
        (92.2 * 2**30, "92 GB"),
        (1.5 * 2**40, "1.5 TB"),
        (4_000 * 2**40, "4,000 TB"),
    ],
)
def test_a_size_is_said_in_the_unit_that_fits(size: float, words: str) -> None:
    assert in_words(size) == words
