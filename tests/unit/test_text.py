"""Borders of graphemes are found locally. Printed texts are safe and have one line."""

from __future__ import annotations

import json
import time

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import text
from tests.shares import examples

FAMILY = "👩\u200d👩\u200d👧\u200d👦"
PARTS = ["a", "字", "\r\n", "\r", "\n", FAMILY, "🇩🇪", "🇩", "e\u0301", "क्षि", "👍🏽", "\u200d", "\u0600"]


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(words=st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=40).map("".join))
def test_every_place_has_the_borders_that_a_reader_sees(words: str) -> None:
    borders = [0]
    for grapheme in text.graphemes(words):
        borders.append(borders[-1] + len(grapheme))
    for at in range(len(words) + 1):
        assert text.border(words, at) == max(one for one in borders if one <= at)
        assert text.border_after(words, at) == min(one for one in borders if one >= at)


def test_behind_the_end_and_before_the_beginning_are_the_ends() -> None:
    assert (text.border("字字", 9), text.border_after("字字", 9)) == (2, 2)
    assert (text.border("字字", -3), text.border_after("字字", -3)) == (0, 0)


def test_far_from_everything_it_is_quick_and_the_same() -> None:
    words = FAMILY * 1_000_000
    for at in (3_500_000, 3_500_003, 6_999_999):
        assert text.border(words, at) == at // 7 * 7
        assert text.border_after(words, at) == -(-at // 7) * 7


def test_a_grapheme_without_end_is_cut_where_it_must_be() -> None:
    words = "e" + "\u0301" * 5_000
    assert text.border(words, 500) == 0
    assert text.border(words, 4_000) == 4_000


TERMINAL = {
    "plain\ttext\nof two lines": "plain\ttext\nof two lines",
    "\x1b[31mred\x1b[0m": "red",
    "\x1b]0;title\x07a\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\": "alink",
    "\x9b2Ja\x9d0;title\x9cb": "ab",
    "a\x1bPqsixel\x1b\\b\x1bcc": "abc",
    "\u202egpj.exe\u202c \u2066a\u2069 \u200fb\u200e": "gpj.exe a b",
    "one\u2028two\u2029three": "one\ntwo\nthree",
    "a\rb\x07c\x1b": "a\ufffdb\ufffdc\ufffd",
    "👩\u200d👩\u200d👧 می\u200cخواهم 你好": "👩\u200d👩\u200d👧 می\u200cخواهم 你好",
}


@pytest.mark.parametrize("given", TERMINAL)
def test_words_of_others_are_safe_to_print(given: str) -> None:
    assert text.for_terminal(given) == TERMINAL[given]


@settings(derandomize=True, deadline=None)
@given(st.text(alphabet="\x1b\x9b\x9d[]0;mJ\x07\\ab\u202e\n\x00", max_size=40))
def test_nothing_steers_the_terminal(words: str) -> None:
    assert not set(text.for_terminal(words)) & set("\x1b\x9b\x9d\x07\u202e\x00\r")


def test_a_line_is_one_for_every_reader() -> None:
    value = {"text": "a\u2028b\u2029c\x85d 你好"}
    line = text.one_line(json.dumps(value, ensure_ascii=False))
    assert len(line.splitlines()) == 1
    assert "你好" in line
    assert json.loads(line) == value


def test_the_beginning_of_a_text_costs_the_same_however_long_it_is() -> None:
    """A search from the first character would take longer in longer texts: 0.7 ms for 4,000 characters."""
    seen = 0

    class Counted(str):
        __slots__ = ()

        def __getitem__(self, at: object) -> str:
            nonlocal seen
            found = super().__getitem__(at)  # type: ignore[index]
            seen += len(found)
            return found

    assert text.head(Counted("名" * 500_000 + "👩‍👩‍👧"), 500_001) == "名" * 500_000
    assert seen < 500_000 + 2_000
    assert text.head("👩‍👩‍👧 and more", 3) == "👩‍👩‍👧"[:3], "one grapheme that is longer than all"


def test_any_number_of_flags_takes_no_time() -> None:
    began = time.process_time()
    assert text.width("\U0001f1e9\U0001f1ea" * 30_000) == 2 * text.width("\U0001f1e9\U0001f1ea" * 15_000)
    assert time.process_time() - began < 2


@given(
    st.text(
        alphabet="a\u0301\u200d\u0903\u094d\u0915\r\n\U0001f1e9\U0001f1ea\U0001f468\U0001f3fb", max_size=20
    )
)
@settings(derandomize=True, deadline=None, max_examples=examples(300))
def test_characters_are_those_that_unicode_says(words: str) -> None:
    assert text.graphemes(words) == regex.findall(r"\X", words)
