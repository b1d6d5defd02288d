"""A line of the transcript comes back to the last byte, and every event as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.archive import ArchiveKey
from bot.contracts.transcript import (
    UNCHANGED,
    Boundary,
    Event,
    Injection,
    KeptTurn,
    Mask,
    MessageEvent,
    Meta,
    PrefixDigest,
    RetainedView,
    TurnEnd,
    TurnStart,
)
from bot.core import jsonl
from bot.history.transcript import lines as transcript_lines
from tests.shares import examples
from tests.unit.history.test_transcript import line

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
ARCHIVE_KEYS = st.builds(ArchiveKey, st.integers(), TEXT, TEXT, st.none() | TEXT)
LASTING: dict[str, st.SearchStrategy[Any]] = {
    "totals": st.none() | OBJECT,
    "frame": st.none() | st.builds(PrefixDigest, TEXT, TEXT),
    "chosen_model": st.none() | TEXT,
    "answered_at": st.none() | st.integers(),
}
KEPT = st.builds(
    RetainedView,
    turns=st.lists(
        st.builds(KeptTurn, request_id=TEXT, sources=TEXTS, uuids=TEXTS, began=st.none() | st.integers()),
        max_size=3,
    ).map(tuple),
    masked=st.dictionaries(TEXT, TEXT, max_size=3),
    digest=TEXT,
    head=st.none() | OBJECT,
    blank=TEXTS,
    unquoted=st.lists(st.tuples(TEXT, TEXTS), max_size=3).map(tuple),
    since=st.none() | TEXT,
    **LASTING,
)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(TurnStart, from_=TEXT, **LASTING),
    st.builds(
        MessageEvent,
        role=st.sampled_from(["user", "assistant"]),
        message=OBJECT,
        sources=TEXTS,
        adopted=st.none() | ARCHIVE_KEYS,
        unquoted=TEXTS,
        written=TEXTS,
        instead=st.none() | TEXT,
        continued=st.integers(0, 3),
        stop_reason=st.none() | TEXT,
        cut=TEXTS,
        usage=st.none() | OBJECT,
        cost_usd=st.none() | st.floats(allow_nan=False),
    ),
    st.builds(
        Injection,
        reason=TEXT,
        before=st.none() | TEXT,
        messages=st.lists(OBJECT, max_size=3).map(tuple),
        ts=st.lists(st.integers(), max_size=3).map(tuple),
        keys=st.lists(ARCHIVE_KEYS, max_size=3).map(tuple),
        kept=st.none() | st.integers(),
    ),
    st.builds(
        TurnEnd,
        status=st.sampled_from(["done", "failed", "stopped", "withdrawn"]),
        notice=st.none() | TEXT,
        owed=TEXT,
        reason=TEXT,
        **LASTING,
    ),
    st.builds(
        Boundary,
        reason=TEXT,
        dropped=TEXTS | st.just("all"),
        head=st.none() | st.just(UNCHANGED) | OBJECT,
        again=st.booleans(),
        blank=TEXTS,
        unquoted=TEXTS,
        restored=st.booleans(),
        how=st.sampled_from([None, "memory", "summary", "provider"]),
        kept=st.none() | KEPT,
        **LASTING,
    ),
    st.builds(Mask, reason=TEXT, results=st.dictionaries(TEXT, TEXT, max_size=3), **LASTING),
    st.builds(
        Meta,
        reason=TEXT,
        from_=st.none() | OBJECT,
        **LASTING,
    ),
)


@settings(derandomize=True, deadline=None, max_examples=examples(150))
@given(st.dictionaries(TEXT, JSON, max_size=6))
def test_a_message_comes_back_to_the_last_byte(message: dict[str, Any]) -> None:
    stored = transcript_lines.dumped(line("a", message=message), "s")
    back = transcript_lines.parsed(stored)
    assert back is not None
    assert json.dumps(back.message, ensure_ascii=False) == json.dumps(message, ensure_ascii=False)
    assert transcript_lines.dumped(back, "s") == stored


@settings(derandomize=True, deadline=None, max_examples=examples(500))
@given(EVENTS)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    stored = transcript_lines.dumped(line("a", event=event), "s")
    back = transcript_lines.parsed(stored)
    assert back is not None
    assert back.event == event
    assert transcript_lines.dumped(back, "s") == stored


def test_what_cannot_be_read_of_a_checkpoint_or_of_totals_is_as_good_as_not_there() -> None:
    data = {"reason": "size", "dropped": ["a"], "totals": 3, "frame": {"model": "m"}, "kept": {"turns": [{}]}}
    assert transcript_lines.event("boundary", None, data) == Boundary(reason="size", dropped=("a",))


@pytest.mark.parametrize(
    ("field", "damaged"), [("adopted", [1, "user"]), ("unquoted", [1]), ("unquoted", None)]
)
def test_a_damaged_field_of_a_message_costs_itself_alone(field: str, damaged: object) -> None:
    data = {"sources": ["a"], field: damaged}
    assert transcript_lines.event("user", {"text": "x"}, data) == MessageEvent(
        role="user", message={"text": "x"}, sources=("a",)
    )


def test_damaged_ids_of_quotes_cost_no_boundary() -> None:
    data = {"reason": "deleted", "dropped": [], "blank": ["a"], "unquoted": [1]}
    assert transcript_lines.event("boundary", None, data) == Boundary(
        reason="deleted", dropped=(), blank=("a",)
    )


def test_a_line_of_ours_is_parsed_once_and_what_only_json_of_python_takes_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = transcript_lines.dumped(line("a", message={"text": "x"}), "s")
    strange = ours.replace(b'"x"', b'["\\ud800", NaN]')
    back = transcript_lines.parsed(strange)
    assert back is not None
    assert back.message is not None
    assert repr(back.message["text"]) == repr(["\ud800", float("nan")])
    monkeypatch.setattr(jsonl, "loads", lambda _: None)
    assert (back := transcript_lines.parsed(ours)) is not None
    assert back.message == {"text": "x"}
