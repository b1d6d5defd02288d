"""Bonuses in a line's score beyond the words that it shares with the question."""

from __future__ import annotations

import pytest

from bot.features.search.ranking import LONGEST, Weights, scorer
from tests.bench.recall_form import parse
from tests.bench.recall_ours import Searched

ONE = Weights(speaker=1, first_person=10, number=100)


def score(query: str, text: str, role: str = "assistant", said_by: str | None = "user") -> float:
    return scorer(query, said_by, ONE)(text, role)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The practice on Mill Lane looks after dogs", 0),
        ("I take the dog to a practice on Mill Lane", 10),
        ("我家的狗在桂花巷看病", 10),
        ("Finally, bought a boat in the harbour", 10),
        ("Back from Rome, the food there is great", 10),
        ("Something smells wonderful in the harbour", 0),
        ("The lease comes to 1,140 a month with heating", 100),
        ("房租是每月三千九百块,含暖气", 100),
        ("", 0),
    ],
)
def test_statements_of_people_with_what_is_asked_for(text: str, expected: float) -> None:
    assert score("how much is the rent", text) == expected


def test_a_number_counts_where_one_is_asked_for() -> None:
    assert score("who is the landlord", "The lease comes to 1,140 a month with heating") == 0


def test_a_line_of_who_is_asked_about_counts_more() -> None:
    line = "The practice on Mill Lane looks after dogs"
    assert score("vet", line, "user") == 1
    assert score("vet", line, "user", "assistant") == 0
    assert score("vet", line, "assistant", "assistant") == 1
    assert score("Mara's vet", line, "user", None) == 0, "it names somebody"


@pytest.mark.parametrize("text", ["\ud83d", "?" * 100_000, "\u202e", "a" * (LONGEST + 9), "\0"])
def test_any_text_has_a_worth(text: str) -> None:
    assert isinstance(score(text, text), float | int)


def test_the_same_words_again_come_after_everything_else() -> None:
    said = ["The vet is on Mill Lane", "My vet moved house", "The vet is on Mill Lane", "A vet costs money"]
    turns = [{"id": str(number), "role": "user", "text": text} for number, text in enumerate(said)]
    asked = {"text": "vet Mill Lane", "asked_at": "2026-04-01", "evidence": ["2"]}
    form = {"id": "a", "sessions": [{"start": "2026-03-01", "turns": turns}], "questions": [asked]}
    (one,) = parse({"conversations": [form]})
    search = Searched(one)
    found = [key for key, _ in search.search(one.questions[0], 10)]
    scores = [score for _, score in search.search(one.questions[0], 10)]
    search.close()
    assert (found[0], found[-1]) == ("2", "0")
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My sister writes about boats that nobody wants", 0),
        ("I bought the boat of my sister in the harbour", 10),
        ("My boat lies deep in the old harbour", 10),
        ("My sister came to the harbour, " + "where boats of every kind lay side by side, " * 4, 10),
        ("我妈说船太贵了买不起", 0),
        ("我听大家说船太贵了", 10),
        ("私の母は船が好きではない", 0),
    ],
)
def test_who_speaks_of_others_does_not_speak_of_themselves(text: str, expected: float) -> None:
    assert score("which boat", text) == expected
    assert score("which boat has my sister, 母 の 船, 我妈", text) == score("船、姉の", text) == 10


def test_a_word_in_katakana_is_found_before_longer_ones_that_begin_with_it() -> None:
    said = ["会社のコーヒーメーカーがまた壊れた", "朝はコーヒーとパンだけ", "コーヒーメーカーの話は尽きない"]
    turns = [{"id": str(number), "role": "user", "text": text} for number, text in enumerate(said)]
    asked = {"text": "コーヒーは?", "asked_at": "2026-04-01", "evidence": ["1"]}
    (conversation,) = parse(
        {
            "conversations": [
                {"id": "c", "sessions": [{"start": "2026-03-01", "turns": turns}], "questions": [asked]}
            ]
        }
    )
    searched = Searched(conversation)
    (first, *_) = searched.search(conversation.questions[0], 3)
    searched.close()
    assert first[0] == "1"
