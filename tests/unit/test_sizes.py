"""Estimates are near the truth, limits are shared fairly, and any object becomes JSON of limited size."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping
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

from bot.sizes import Bounds, fair_cap, in_words, normalize_to_size, plain_details, size, size_of
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


@dataclass
class Torn:
    value: int

    def __getattribute__(self, name: str) -> Any:
        if name == "value":
            raise RuntimeError("not now")
        return super().__getattribute__(name)


class Hostile(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def named() -> None: ...


FORMS: list[tuple[Any, Any]] = [
    (None, "[null]"),
    (float("nan"), "[NaN]"),
    (float("inf"), "[Infinity]"),
    (float("-inf"), "[-Infinity]"),
    (True, True),
    (1.5, 1.5),
    (2**63, 2**63),
    (2**70, "[BigInt: 71 bits]"),
    ("字", "字"),
    ("lone \ud800", "lone \N{REPLACEMENT CHARACTER}"),
    (named, "[Function: named]"),
    (lambda: 1, "[Function: <lambda>]"),
    (Colour.RED, "red"),
    (b"abc", "[bytes: 3]"),
    (bytearray(2), "[bytes: 2]"),
    (date(2026, 11, 1), "2026-11-01"),
    (datetime(2026, 11, 1, 5, tzinfo=UTC), "2026-11-01T05:00:00+00:00"),
    (timedelta(seconds=90), "0:01:30"),
    (Decimal("1.10"), "1.10"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (PurePosixPath("a/b"), "a/b"),
    (ValueError("wrong"), "ValueError: wrong"),
    (Model, "[Class: Model]"),
    (object(), "[object]"),
    (iter(()), "[tuple_iterator]"),
    (Point(1), {"leftX": 1, "inner": "[null]"}),
    (Model(), {"someName": "n"}),
    (Torn(1), "[Error accessing property]"),
    (Hostile(), "[Error accessing property]"),
    ({"set"}, ["set"]),
    ((1, (2,)), [1, [2]]),
    (
        {1: 1, None: 2, b"k": 4, (1,): 5},
        {"1": 1, "None": 2, "[bytes: 1]": 4, "(1,)": 5},
    ),
]


@pytest.mark.parametrize(("value", "shown"), FORMS, ids=map(str, range(len(FORMS))))
def test_each_kind_of_value_has_a_form_of_its_own(value: Any, shown: Any) -> None:
    assert normalize_to_size(value) == shown
    json.dumps(normalize_to_size(value), allow_nan=False).encode()


def test_what_is_deeper_than_the_depth_is_named() -> None:
    deep = {"a": {"list": [[1, 2]], "dict": {"x": {}}, "point": [Point(1)]}}
    assert normalize_to_size(deep) == {
        "a": {"list": ["[Array(2)]"], "dict": {"x": "[Object]"}, "point": ["[Point]"]}
    }
    assert normalize_to_size(deep, bounds=Bounds(depth=0)) == "[Object]"
    assert normalize_to_size([1] * 7, bounds=Bounds(depth=0)) == "[Array(7)]"


def test_long_lists_and_wide_objects_say_how_much_more_there_is() -> None:
    items = normalize_to_size(list(range(250)))
    assert (len(items), items[99], items[100]) == (101, 99, "... 150 more items")
    wide = normalize_to_size({f"k{number}": number for number in range(80)} | {"...": 1})
    assert len(wide) == 51
    assert wide["..."] == "31 more properties"


def test_a_cycle_is_one_among_ancestors_only() -> None:
    shared = [1]
    loop: list[Any] = [shared, shared]
    loop.append(loop)
    assert normalize_to_size(loop) == [[1], [1], "[Circular]"]
    point = Point(1)
    point.inner = {"back": point}
    assert normalize_to_size(point) == {"leftX": 1, "inner": {"back": "[Circular]"}}


def test_strings_give_before_structure_and_the_longest_first() -> None:
    made = normalize_to_size({"short": "s" * 100, "long": FAMILY * 10_000, "deep": {"x": [1]}}, 2_000)
    assert made["short"] == "s" * 100
    assert made["deep"] == {"x": [1]}
    assert 1_700 < size(made) <= 2_000
    assert "characters left out" in made["long"]
    assert set(graphemes(made["long"].split("\n")[0])) == {FAMILY}


def test_depth_is_lowered_where_strings_cannot_give() -> None:
    value = [[[n] * 50 for n in range(50)] for _ in range(50)]
    made = normalize_to_size(value, 40_000)
    assert size(made) <= 40_000
    assert made[0][0] == "[Array(50)]"
    assert normalize_to_size(value, 100) == "[Array(50)]"


def test_there_is_no_way_around_the_limit() -> None:
    class Asking(dict[str, Any]):
        __sentry_skip_normalization__ = True

    assert (
        size(normalize_to_size(Asking({"x": "y" * 10_000, "__sentry_skip_normalization__": True}), 300))
        <= 300
    )


def test_a_copy_shares_nothing_that_can_change() -> None:
    inner = [1]
    copied = plain_details({"a": inner}, Bounds())
    inner.append(2)
    assert copied == {"a": [1]}


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=400)
    | st.binary(max_size=20)
    | st.sampled_from(["\x00" * 300, '"\\' * 200, FAMILY * 50, "\ud800" * 90, "字" * 500]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=30), inner, max_size=6),
    max_leaves=15,
)


@given(value=ANYTHING, most=st.integers(2, 3_000), depth=st.integers(0, 6))
@settings(derandomize=True, deadline=None, max_examples=examples(60))
def test_nothing_is_ever_over_the_limit(value: Any, most: int, depth: int) -> None:
    made = normalize_to_size(value, most, Bounds(depth))
    written = json.dumps(made, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    assert len(written) <= most
    assert normalize_to_size(value, most, Bounds(depth)) == made
