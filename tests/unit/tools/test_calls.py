"""Calls and results are typed inside; as blocks they are what the model writes and gets, and what is kept."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.base import Json
from bot.contracts.provenance import ANYBODYS, NOBODYS, Provenance, Taint
from bot.contracts.tools import Omission, ToolCall, ToolResult
from bot.core import blocks
from tests.shares import examples

WORDS = st.text(max_size=20)
FOUND = st.fixed_dictionaries(
    {"type": st.just("tool_reference"), "tool_name": WORDS, "definition": st.just({"name": "x"})}
)
NUMBERS = st.integers(0, 10**6)
ORIGINS = st.none() | st.builds(Provenance, st.frozensets(WORDS, max_size=3), st.sampled_from(Taint))
RESULTS = st.builds(
    ToolResult,
    WORDS,
    WORDS | st.lists(FOUND, max_size=2),
    failed=st.booleans(),
    origin=ORIGINS,
    omission=st.none() | st.builds(Omission, WORDS, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    instructions=st.dictionaries(WORDS, WORDS, max_size=2),
)


@settings(derandomize=True, deadline=None, max_examples=examples(300))
@given(result=RESULTS)
def test_a_result_that_is_kept_is_read_as_it_was(result: ToolResult) -> None:
    assert ToolResult.of(json.loads(json.dumps(result.block))) == result


@settings(derandomize=True, deadline=None, max_examples=examples(100))
@given(name=WORDS, given_=st.dictionaries(WORDS, WORDS | NUMBERS, max_size=3))
def test_a_call_is_what_the_model_has_written(name: str, given_: Json) -> None:
    said: list[Json] = [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t", "name": name, "input": given_},
    ]
    assert blocks.tool_calls(said) == [ToolCall("t", name, given_)]


def test_a_result_says_no_more_than_it_has() -> None:
    assert ToolResult("t", "fine").block == {"type": "tool_result", "tool_use_id": "t", "content": "fine"}
    assert list(ToolResult("t", "no", failed=True, origin=NOBODYS).block) == [
        *("type", "tool_use_id", "content"),
        *("origin", "is_error"),
    ]


@pytest.mark.parametrize(
    ("more", "read"),
    [
        ({}, ToolResult("t", "")),
        ({"content": "x", "is_error": None}, ToolResult("t", "x")),
        ({"content": "x", "origin": "nonsense"}, ToolResult("t", "x", origin=ANYBODYS)),
        ({"content": "x", "omission": {"artifact": 7}}, ToolResult("t", "x")),
        ({"content": "x", "instructions": ["x"]}, ToolResult("t", "x")),
        ({"content": "x", "written": ["o1"], "made": [{}]}, ToolResult("t", "x")),
    ],
)
def test_what_is_not_in_a_kept_result_is_what_nobody_knows(more: Json, read: ToolResult) -> None:
    assert ToolResult.of({"type": "tool_result", "tool_use_id": "t"} | more) == read


def test_a_call_without_its_parts_is_one_of_no_tool() -> None:
    assert blocks.tool_calls([{"type": "tool_use"}]) == [ToolCall("", "", {})]
