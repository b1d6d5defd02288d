"""Estimates are near the truth, limits are shared fairly, and any object becomes JSON of limited size."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from bot.sizes import fair_cap, fitted, in_words, json_copy, size_of
from bot.text import graphemes
from tests.shares import examples


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
    assert in_words(bytes_) == words


FAMILY = "👨‍👩‍👧‍👦"


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    left_x: int
    inner: Any = None


class Model(BaseModel):
    some_name: str = "n"


FORMS: list[tuple[Any, Any]] = [
    (None, None),
    (float("nan"), "[nan]"),
    (float("-inf"), "[-inf]"),
    (True, True),
    (1.5, 1.5),
    (2**63, 2**63),
    (2**70, "[int: 71 bits]"),
    ("字", "字"),
    (Colour.RED, "red"),
    (b"abc", "[bytes: 3]"),
    (date(2026, 11, 1), "2026-11-01"),
    (datetime(2026, 11, 1, 5, tzinfo=UTC), "2026-11-01T05:00:00+00:00"),
    (timedelta(seconds=90), "0:01:30"),
    (Decimal("1.10"), "1.10"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (PurePosixPath("a/b"), "a/b"),
    (ValueError("wrong"), "ValueError: wrong"),
    (object(), "[object]"),
    (Point(1), {"leftX": 1, "inner": None}),
    (Model(), {"someName": "n"}),
    ({"set"}, ["set"]),
    ((1, (2,)), [1, [2]]),
    ({1: 1, None: 2}, {"1": 1, "None": 2}),
]


@pytest.mark.parametrize(("value", "shown"), FORMS, ids=map(str, range(len(FORMS))))
def test_each_kind_of_value_has_a_form_of_its_own(value: Any, shown: Any) -> None:
    assert json_copy(value) == shown


def test_the_copy_of_a_cycle_and_of_a_long_list_ends() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    assert len(json.dumps(json_copy(loop))) < 1_000_000
    items = json_copy(list(range(6_000)))
    assert items[-1] == "... 1001 more"
    assert list(json_copy({f"k{number}": 1 for number in range(6_000)}))[-1] == "... 1001 more"


def test_a_copy_shares_nothing_that_can_change() -> None:
    inner = [1]
    copied = json_copy({"a": inner})
    inner.append(2)
    assert copied == {"a": [1]}


def test_the_longest_strings_are_shortened_first() -> None:
    made = fitted({"short": "s" * 100, "long": FAMILY * 10_000, "deep": {"x": [1]}}, 2_000)
    assert made is not None
    assert made["short"] == "s" * 100
    assert made["deep"] == {"x": [1]}
    assert 1_700 < size(made) <= 2_000
    assert "characters left out" in made["long"]
    assert set(graphemes(made["long"].split("\n")[0])) == {FAMILY}


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.text(max_size=400)
    | st.sampled_from(["\x00" * 300, '"\\' * 200, FAMILY * 50, "字" * 500]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=30), inner, max_size=6),
    max_leaves=15,
)


@given(value=ANYTHING, most=st.integers(2, 3_000))
@settings(derandomize=True, deadline=None, max_examples=examples(60))
def test_nothing_is_ever_over_the_limit(value: Any, most: int) -> None:
    made = fitted(value, most)
    assert made is None or size(made) <= most


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
