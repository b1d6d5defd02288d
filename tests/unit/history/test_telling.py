"""What a line is worth to a question beside the words that they share."""

from __future__ import annotations

import pytest

from bot.history.ranking import Weights
from bot.history.telling import LONGEST, Look
from tests.bench.recall_form import parse
from tests.bench.recall_ours import Searched

ONE = Weights(speaker=1, first_person=10, number=100, tiny=1_000, asks=10_000)


def worth(query: str, text: str, role: str = "assistant", said_by: str | None = None) -> float:
    return Look(query, said_by, ONE).worth(text, role)


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
        ("Sounds good", -1_000),
        ("好的。", -1_000),
        ("Is the vet on Mill Lane any good?", -10_000),
        ("The vet on Mill Lane is open. Does he take dogs?", 0),
        ("", -1_000),
    ],
)
def test_statements_of_people_with_what_is_asked_for(text: str, expected: float) -> None:
    assert worth("how much is the rent", text) == expected


def test_a_number_counts_where_one_is_asked_for() -> None:
    assert worth("who is the landlord", "The lease comes to 1,140 a month with heating") == 0


def test_the_person_is_asked_about_unless_the_question_says_otherwise() -> None:
    line = "The practice on Mill Lane looks after dogs"
    assert worth("vet", line, "user") == 1
    assert worth("vet", line, "user", "assistant") == 0
    assert worth("vet", line, "assistant", "assistant") == 1


@pytest.mark.parametrize("text", ["\ud83d", "?" * 100_000, "\u202e", "a" * (LONGEST + 9), "\0"])
def test_any_text_has_a_worth(text: str) -> None:
    assert isinstance(worth(text, text), float | int)


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
