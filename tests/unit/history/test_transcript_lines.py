"""A line of the transcript comes back to the last byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.history import jsonl, reading
from bot.history import transcript as module
from tests.shares import examples
from tests.unit.history.test_transcript import line

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@settings(derandomize=True, deadline=None, max_examples=examples(150))
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), JSON, max_size=6))
def test_a_message_comes_back_to_the_last_byte(message: dict[str, Any]) -> None:
    stored = module._dumped(line("a", message=message, data=message), "s")
    back = reading.parsed(stored)
    assert back is not None
    for value in (back.message, back.data):
        assert json.dumps(value, ensure_ascii=False) == json.dumps(message, ensure_ascii=False)
    assert module._dumped(back, "s") == stored


def test_a_line_of_ours_is_parsed_once_and_what_only_json_of_python_takes_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = module._dumped(line("a", message={"text": "x"}), "s")
    strange = ours.replace(b'"x"', b'["\\ud800", NaN]')
    back = reading.parsed(strange)
    assert back is not None
    assert back.message is not None
    assert repr(back.message["text"]) == repr(["\ud800", float("nan")])
    monkeypatch.setattr(jsonl, "loads", lambda _: None)
    assert (back := reading.parsed(ours)) is not None
    assert back.message == {"text": "x"}
