"""A search reads all lines with a rare word. It reads lines with a common word only if other words narrow them down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine
from bot.features.search import ranking
from bot.tools.context import RecallQuery
from tests.talk import Found, indexed

KEY = ChatKey.parse("web:chat:1")
START = int(datetime(2026, 3, 2, 9, tzinfo=UTC).timestamp() * 1000)
DAY = 86_400_000
NOW = START + 400 * DAY
Ask = Callable[..., list[str]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[str]], Ask]]:
    """Return a function that writes lines of one chat, a day apart, and searches them. A word in more than 20 lines counts
    as common.
    """
    monkeypatch.setattr(ranking, "BUDGET", 20)
    opened: list[Found] = []

    def made(said: list[str]) -> Ask:
        lines = [
            ArchiveLine(ts=START + n * DAY, channel="web", chat_id="1", chat_key=KEY, role="user", text=text)
            for n, text in enumerate(said)
        ]
        asyncio.run(indexed(tmp_path / "index.db", lines))
        opened.append(found := Found(tmp_path / "index.db"))
        return lambda query, limit=30: [
            hit.line.text for hit in found.recall([str(KEY)], RecallQuery((query,), NOW, limit=limit)).hits
        ]

    yield made
    for found in opened:
        found.close()


def many(*words: str, count: int = 60) -> list[str]:
    return [f"{words[number % len(words)]} note {number}" for number in range(count)]


def test_a_rare_word_brings_the_line_that_also_has_the_common_one(ask: Callable[[list[str]], Ask]) -> None:
    said = [*many("harbour"), "the harbour has a crane", "a crane elsewhere in town", *many("harbour")]
    assert ask(said)("crane harbour", 2)[0] == "the harbour has a crane"


def test_words_that_are_everywhere_are_found_where_they_stand_together(
    ask: Callable[[list[str]], Ask],
) -> None:
    said = [*many("harbour", "market"), "the harbour beside the market is closed", *many("harbour", "market")]
    found = ask(said)("harbour market", 5)
    assert found[0] == "the harbour beside the market is closed"
    assert len(found) == 5


def test_one_word_that_is_everywhere_brings_lines_that_have_it(ask: Callable[[list[str]], Ask]) -> None:
    found = ask(many("harbour", "market", count=120))("harbour", 5)
    assert len(found) == 5
    assert all("harbour" in text for text in found)


def test_a_word_that_is_everywhere_is_looked_for_in_the_time_that_was_asked_for(
    ask: Callable[[list[str]], Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "CANDIDATES", 20)
    found = ask(many("harbour", count=300))("harbour in April 2026", 5)
    assert {int(text.split()[-1]) for text in found} <= set(range(30, 60)), (
        "30 days after the second of March"
    )


def test_a_time_alone_brings_what_was_said_then_the_newest_first(ask: Callable[[list[str]], Ask]) -> None:
    found = ask(many("harbour"))("390 days ago", 3)
    assert found == ["harbour note 11", "harbour note 10", "harbour note 9"]


def test_questions_of_nothing_find_nothing(ask: Callable[[list[str]], Ask]) -> None:
    search = ask(many("harbour"))
    for query in ("", "???", "albatross", "😀"):
        assert search(query) == []


def test_a_line_that_is_repeated_very_often_does_not_displace_all_others(
    ask: Callable[[list[str]], Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "BUDGET", 1_500)
    said = "I am away in Lisbon for the whole of August, and Anna takes care of the plants and of the cat"
    assert said in ask([said, *["water the plants"] * 300])("plants", ranking.CANDIDATES)
