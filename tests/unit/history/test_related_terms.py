"""Words of one family, found through the words that a chat has."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from bot.history import analysis
from bot.history.analysis import Term
from bot.history.related_terms import related_terms
from tests.bench.recall_form import Question, parse
from tests.bench.recall_ours import Searched


def found(query: str, *said: str) -> list[str]:
    """The ids of what is found of these lines, which are numbered."""
    turns = [{"id": str(number), "role": "user", "text": text} for number, text in enumerate(said)]
    sessions = [{"start": f"2026-03-{number + 1:02}", "turns": [turn]} for number, turn in enumerate(turns)]
    (one,) = parse({"conversations": [{"id": "a", "sessions": sessions, "questions": []}]})
    search = Searched(one)
    hits = search.search(Question(query, 1_800_000_000_000, frozenset(), ""), 10)
    search.close()
    return [key for key, _ in hits]


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("allergic", "An allergy to kiwi, quite a strong one"),
        ("complaint", "The customer complained about the form"),
    ],
)
def test_a_relative_is_found(query: str, line: str) -> None:
    token, other = analysis.tokens(query)[0], analysis.tokens(line)
    assert token not in other
    assert found(query, "Nothing of the sort", line) == ["1"]


def test_the_word_itself_comes_first() -> None:
    assert found("allergic", "I am allergic to kiwi", "An allergy to nuts", "Rain again")[0] == "0"


@pytest.mark.parametrize(
    "query", ["train", "complaint-77", "a" * 500, "'\"; DROP", "ééééééé", "退款退款退款"]
)
def test_short_or_strange_words_have_no_relatives(query: str) -> None:
    assert found(query, "Complaining about the trainer", "Bbbbbbb") in ([], ["0"])


def test_another_chat_lends_no_words() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE vocabulary (term TEXT)")
        words = ["1:allergi", "1:allerg", "1:~allergi", "1:aller", "1:allergenic", "2:allergo"]
        db.executemany("INSERT INTO vocabulary VALUES (?)", [(word,) for word in words])
        assert related_terms(db, "1:", [Term("allerg", 0.5)], 0.8) == [
            Term("allergi", 0.4),
            Term("aller", 0.4),
        ]
        assert related_terms(db, "2:", [Term("allerg")], 0.8) == [Term("allergo", 0.8)]
        assert related_terms(db, "3:", [Term("allerg")], 0.8) == []
