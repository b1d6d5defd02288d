"""Whose words a question is about."""

from __future__ import annotations

import pytest

from bot.features.search import analysis
from bot.features.search.line_features import speaker_meant


@pytest.mark.parametrize(
    "query",
    [
        "Which book did you recommend to me?",
        "what have you told me about taxes",
        "your advice on the contract",
        "You've once suggested a name for my boat",
        "你给我推荐过哪本书",
        "您上次说的那家店",
        "あなたが勧めた本",
        "教えてくれた店はどこ",
    ],
)
def test_what_the_bot_said(query: str) -> None:
    assert speaker_meant(query) == "assistant"


@pytest.mark.parametrize(
    "query",
    [
        "你知道我说过什么吗",
        "Where is my dog's vet?",
        "What did I cook",
        "our deadline",
        "我的房租是多少",
        "私の家賃は?",
    ],
)
def test_what_the_person_said(query: str) -> None:
    assert speaker_meant(query) == "user"


@pytest.mark.parametrize("query", ["", "vet address", "退款 流程", "Mike's iPhone", "your", "x" * 100_000])
def test_who_said_it_is_open(query: str) -> None:
    assert speaker_meant(query) is None


def test_characters_that_join_words_count_less_than_words() -> None:
    weights = {term.token: term.weight for term in analysis.terms("我的钢琴课在哪里", single=0.4)}
    assert weights["钢琴"] == 1.0
    assert weights["钢"] == 0.4
    assert "在" not in weights
    assert 0 < weights["课在"] < 1
    assert {term.token: term.weight for term in analysis.terms("在")} == {"在": 1.0}
