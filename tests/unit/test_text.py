"""Borders of graphemes, found in the neighbourhood alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bot import text

FAMILY = "👩\u200d👩\u200d👧\u200d👦"
PARTS = ["a", "字", "\r\n", "\r", "\n", FAMILY, "🇩🇪", "🇩", "e\u0301", "क्षि", "👍🏽", "\u200d", "\u0600"]


@settings(derandomize=True, deadline=None, max_examples=200)
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
