"""Wildcards: what they match, and that none is slow."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bot.tools.permissions.patterns import glob, path_glob
from tests.shares import examples

PIECE = st.text(alphabet="ab*?", max_size=8)


@given(pattern=PIECE, words=st.text(alphabet="ab", max_size=10))
@settings(max_examples=examples(150), deadline=None)
def test_wildcards_match_as_their_definition_says(pattern: str, words: str) -> None:
    def matches(form: str, rest: str) -> bool:
        if not form:
            return not rest
        if form[0] == "*":
            return any(matches(form[1:], rest[cut:]) for cut in range(len(rest) + 1))
        return bool(rest) and form[0] in {"?", rest[0]} and matches(form[1:], rest[1:])

    assert glob(pattern)(words) == matches(pattern, words)


def test_no_pattern_is_slow() -> None:
    assert not glob("*a" * 300 + "b")("a" * 5_000)
    assert not path_glob(["**", "*a*"] * 20 + ["b"])(["a" * 20] * 200)
