"""The input of a tool call while it arrives. The preview is a beginning of the final text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import text
from bot.contracts.model import TextDelta, ToolInputDelta
from bot.core.reply import PartialReply
from tests.shares import examples

WORDS = st.text(max_size=30)


def call(*pieces: str, name: str = "chat_send", call_id: str = "toolu_1") -> list[ToolInputDelta]:
    return [ToolInputDelta(call_id, name, piece) for piece in pieces]


def heard(*events: TextDelta | ToolInputDelta) -> PartialReply:
    made = PartialReply()
    for event in events:
        made.take(event)
    return made


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(WORDS, st.booleans(), st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_a_text_grows_into_what_it_will_be(words: str, escaped: bool, sizes: list[int]) -> None:
    raw = json.dumps({"more": [1, {"a": None}], "text": words}, ensure_ascii=escaped)
    made, at, number = PartialReply(), 0, 0
    while at < len(raw):
        size = sizes[number % len(sizes)]
        made.take(*call(raw[at : at + size]))
        at, number = at + size, number + 1
        assert text.clean(words).startswith(made.shown())
    assert made.shown() == text.clean(words)


def test_the_words_of_the_first_message_are_shown_as_they_come() -> None:
    made = heard(TextDelta("I shall say: "), *call('{"text": "Es ist', " gr\\u00fc"))
    assert (made.speaks, made.shown()) == (True, "Es ist grü")
    for event in (*call('n."}'), *call('{"text": "And more."}', call_id="toolu_2")):
        made.take(event)
    assert made.shown() == "Es ist grün."
    assert made.words() == "Es ist grün.\n\nAnd more."


def test_what_follows_an_act_is_not_shown_before_that_is_done() -> None:
    made = heard(*call('{"command": "rm', name="run_shell"), *call('{"text": "It is gone', call_id="toolu_2"))
    assert (made.speaks, made.shown()) == (False, "")


@pytest.mark.parametrize("raw", ['["a', '{"text": 5', '{"text": null', '{"text": {"a": "b', '"text'])
def test_what_is_no_message_shows_nothing(raw: str) -> None:
    assert heard(*call(raw)).shown() == ""
