"""Passages of a message that another text repeats."""

from __future__ import annotations

import time

import pytest

from bot.gateway.deletions import MOST_WORDS, without_repetitions


@pytest.mark.parametrize(
    ("message", "answer", "left"),
    [
        ("the code is 7731", "Noted: the code is 7731. Bye", "Noted: [removed]. Bye"),
        ("the code is 7731", "Your **code** 7731 is kept", "Your **code** [removed] is kept"),
        ("my iban is DE44 5001", "Your IBAN is DE44\n5001, right", "Your IBAN is [removed], right"),
        ("我们明天在东京站南口见面", "好的，我们明天在东京站南口见面。", "好的，[removed]。"),
        ("let us meet at the old harbour", "We MEET  at the old harbour, yes", "We [removed], yes"),
        ("Anna Katharina", "> anna katharina\nfine", "> [removed]\nfine"),
        ("hello", "hello there", "hello there"),
        ("你好", "你好！", "你好！"),
        ("what is 2 + 2?", "4", "4"),
        ("shall we ship it on Monday?", "We ship on Monday.", "We ship on Monday."),
        ("", "anything", "anything"),
    ],
)
def test_what_is_repeated_goes_and_nothing_else(message: str, answer: str, left: str) -> None:
    assert without_repetitions(answer, message, "[removed]") == left


def test_long_texts_are_looked_through_in_bounds() -> None:
    words = " ".join(f"w{number}x" for number in range(3 * MOST_WORDS))
    began = time.monotonic()
    assert without_repetitions(words, words, "[removed]").startswith("[removed]")
    assert time.monotonic() - began < 30
