"""Estimates of sizes are close, limits are shared fairly, and every object becomes JSON."""

from __future__ import annotations

import itertools
import sys
from datetime import date
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.telemetry.log import json_copy, size_of
from bot.text import byte_count
from bot.tools.result_limits import fair_cap


@pytest.mark.parametrize(
    "words", ["hello " * 500, "é" * 3_000, "你好，世界" * 600, "👩‍👩‍👧 " * 500, "שלום" * 700]
)
def test_a_text_weighs_what_the_interpreter_needs_for_it(words: str) -> None:
    assert size_of(words) == pytest.approx(sys.getsizeof(words), rel=0.05)


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
    ("bytes_", "words"),
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
def test_a_size_is_said_in_the_unit_that_fits(bytes_: float, words: str) -> None:
    assert byte_count(bytes_) == words


class Colour(Enum):
    RED = "red"


FORMS: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (1.5, 1.5),
    (2**63, 2**63),
    ("字", "字"),
    (Colour.RED, "red"),
    (date(2026, 11, 1), "2026-11-01"),
    (PurePosixPath("a/b"), "a/b"),
    (ValueError("wrong"), "ValueError: wrong"),
    (object(), "[object]"),
    (b"\xff", "[bytes]"),
    ({"set"}, ["set"]),
    ((1, (2,)), [1, [2]]),
    ({1: 1, None: 2}, {"1": 1, "None": 2}),
]


@pytest.mark.parametrize(("value", "shown"), FORMS, ids=map(str, range(len(FORMS))))
def test_each_kind_of_value_has_a_form_of_its_own(value: Any, shown: Any) -> None:
    assert json_copy(value) == shown


def test_the_copy_of_a_cycle_ends() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    assert json_copy({"loop": loop}) == "[dict]"


def test_a_copy_shares_nothing_that_can_change() -> None:
    inner = [1]
    copied = json_copy({"a": inner})
    inner.append(2)
    assert copied == {"a": [1]}
