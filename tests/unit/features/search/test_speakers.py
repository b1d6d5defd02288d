"""Lines are found by their writer if the question names this person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine
from bot.features.search import ranking
from bot.tools.context import RecallQuery
from tests.talk import Found, indexed

KEY = ChatKey.parse("slack:chat:C1")
NOW, DAY = 1_800_000_000_000, 86_400_000
Said = Sequence[tuple[str, str]]
Ask = Callable[..., list[str]]


def line(number: int, name: str, text: str) -> ArchiveLine:
    given = {
        "channel": "slack",
        "chatId": "C1",
        "chatKey": str(KEY),
        "role": "user",
        "messageId": f"m{number}",
    }
    return ArchiveLine.model_validate(
        {**given, "ts": NOW - 10**11 + number * DAY, "text": text, "meta": {"username": name}}
    )


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Callable[[Said], Ask]]:
    """Return a function that writes lines of people, a day apart, and searches them."""
    opened: list[Found] = []

    def made(said: Said, *further: ArchiveLine) -> Ask:
        lines = [line(number, name, text) for number, (name, text) in enumerate(said)]
        path = tmp_path / f"{len(opened)}.db"
        asyncio.run(indexed(path, [*lines, *further]))
        opened.append(found := Found(path))
        return lambda query, *phrasings, limit=30: [
            hit.line.text
            for hit in found.recall([str(KEY)], RecallQuery((query, *phrasings), NOW, limit=limit)).hits
        ]

    yield made
    for found in opened:
        found.close()


PETS: Said = [
    ("Ana Ruiz", "the vet says the cat is fine"),
    ("Bob", "a cat! is that your cat? my cat and the vet, the cat and the vet"),
    ("小明", "我家的猫很好"),
    ("Muhammad", "the cat of my sister is ill"),
    ("Carl", "cat cat cat vet"),
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Which cat does Ana take to the vet?", PETS[0][1]),
        ("ruiz: the cat", PETS[0][1]),
        ("ANA'S CAT", PETS[0][1]),
        ("what about Muhammad's cat", PETS[3][1]),
        ("小明的猫怎么样", PETS[2][1]),
        ("the cat and vet that Carl means", PETS[4][1]),
    ],
)
def test_a_line_of_the_person_who_is_named_comes_first(
    ask: Callable[[Said], Ask], query: str, expected: str
) -> None:
    assert ask(PETS)(query)[0] == expected


def test_who_names_nobody_gets_the_best_words(ask: Callable[[Said], Ask]) -> None:
    assert ask(PETS)("cat, vet")[0] == PETS[1][1]


def test_a_name_alone_brings_what_that_person_said(ask: Callable[[Said], Ask]) -> None:
    said: Said = [("Ana", "the boat leaks"), ("Bob", "the boat sinks"), ("Ana", "we bail water")]
    assert ask(said)("What did Ana say?")[:2] == ["we bail water", "the boat leaks"]


def test_a_name_counts_less_than_what_is_asked_about(ask: Callable[[Said], Ask]) -> None:
    said: Said = [("Carl", "a boat"), ("Bob", "an Ana"), ("Ana", "rain again")]
    found = ask(said)("Ana's boat")
    assert found.index("a boat") < found.index("an Ana")


def test_where_somebody_is_named_no_role_is_preferred(ask: Callable[..., Ask]) -> None:
    said: Said = [("Ana", "rain again"), ("Bob", "cat asleep")]
    answer = line(9, "", "cat awake").model_copy(update={"role": "assistant", "meta": None})
    found = ask(said, answer)("the cat of Ana")
    assert found.index("cat awake") < found.index("cat asleep")
    assert ask(said, answer)("cat")[0] == "cat asleep"


def test_people_who_wrote_very_much_are_preferred_too(
    ask: Callable[[Said], Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "BUDGET", 20)
    often: Said = [("Ana" if number % 2 else "Bob", f"note {number}") for number in range(100)]
    said: Said = [("Ana", "the ferry is late"), *often, ("Bob", "the ferry is late today")]
    assert ask(said)("Was the ferry late for Ana?", limit=2)[0] == "the ferry is late"


def test_a_message_that_was_removed_is_not_found_by_its_writer(ask: Callable[..., Ask]) -> None:
    said: Said = [("Ana", "the boat leaks"), ("Bob", "the boat sinks")]
    gone = line(9, "", "").model_copy(
        update={"message_id": "m0", "role": "system", "meta": {"deleted": True}}
    )
    assert ask(said)("What did Ana say?")[0] == "the boat leaks"
    assert "the boat leaks" not in ask(said, gone)("What did Ana say?")


def test_several_phrasings_bring_what_each_finds_and_first_what_more_of_them_find(
    ask: Callable[[Said], Ask],
) -> None:
    said: Said = [("Ana", "a trek"), ("Bob", "a walk"), ("Ana", "a trek, then a walk"), ("Bob", "rain again")]
    find = ask(said)
    assert (
        set(find("trek")) | set(find("walk")) == set(find("trek", "walk")) == {text for _, text in said[:3]}
    )
    assert find("trek", "walk")[0] == "a trek, then a walk"
    assert find("trek", "trek") == find("trek")


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("\u0645\u062d\u0645\u062f", "\u0642\u0637\u0629 \u0645\u062d\u0645\u062f"),
        ("\u05d3\u05e0\u05d4", "\u05d3\u05e0\u05d4 cat"),
        ("\u7530\u4e2d", "\u7530\u4e2d\u306e\u732b"),
        ("\U0001f98a Fox", "fox's cat"),
    ],
)
def test_names_of_every_script_are_known(ask: Callable[[Said], Ask], name: str, query: str) -> None:
    cat = "cat \u0642\u0637\u0629 \u732b"
    said: Said = [("Bob", f"my {cat}"), (name, f"{cat} is asleep"), ("Bob", f"the {cat}"), ("Bob", "rain")]
    assert ask(said)(query)[0] == f"{cat} is asleep"
