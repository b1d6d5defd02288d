from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine
from tests.talk import logged

from .conftest import Shipmate

KEY = ChatKey.parse("telegram:chat:1")
START = 1_800_000_000_000


@pytest.fixture
def archive(project: Path) -> Path:
    folder = project / ".ship" / "chats"
    folder.mkdir()
    said = ["hello", "hi there", "你好，退款在哪里？", "line one\nline \x1b[31mtwo", "שלום 😀"]
    lines: list[dict[str, Any]] = [
        {
            "v": 1,
            "ts": START + number * 60_000,
            "channel": "telegram",
            "chatId": "1",
            "chatKey": str(KEY),
            "userId": None if number % 2 else "7",
            "role": "assistant" if number % 2 else "user",
            "text": text,
        }
        for number, text in enumerate(said)
    ]
    name = folder / "telegram%3Achat%3A1.jsonl"
    name.write_text("".join(json.dumps(line) + "\n" for line in lines))
    log_of(project, lines)
    return project


def log_of(project: Path, lines: list[dict[str, Any]]) -> None:
    said = map(ArchiveLine.model_validate, lines)
    asyncio.run(logged(project / ".ship" / "shipmate.db", said))


def texts(done: Any) -> list[str]:
    return [line["text"] for line in done.lines]


def test_the_newest_lines_are_shown_in_order(shipmate: Shipmate, archive: Path) -> None:
    done = shipmate("history", KEY, "--dir", archive, "--limit", "2", "--json")
    assert done.code == 0
    assert [line["ts"] for line in done.lines] == [START + 180_000, START + 240_000]
    assert done.lines[1] == {
        "v": 1,
        "ts": START + 240_000,
        "channel": "telegram",
        "chatId": "1",
        "chatKey": str(KEY),
        "userId": "7",
        "role": "user",
        "text": "שלום 😀",
    }


def test_a_search_shows_the_best_matches_first_with_their_scores(shipmate: Shipmate, archive: Path) -> None:
    def found(words: str) -> list[str]:
        return texts(shipmate("history", KEY, "--dir", archive, "--search", words, "--json"))

    assert found("退款")[0] == "你好，退款在哪里？"
    assert found("HELLO")[0] == "hello"
    assert found('.*" OR') == []
    done = shipmate("history", KEY, "--dir", archive, "--search", "lines", "--json", "--limit", "2")
    assert done.lines[0]["text"].startswith("line one")
    assert done.lines[0]["score"] > done.lines[1]["score"] > 0
    plain = shipmate("history", KEY, "--dir", archive, "--search", "lines", "--limit", "1").out
    assert plain.splitlines()[0].endswith("bot: line one")


def test_an_index_that_cannot_be_made_is_told_of(shipmate: Shipmate, archive: Path) -> None:
    (archive / ".ship" / "index.db").mkdir()
    done = shipmate("index", "rebuild", "--dir", archive)
    assert done.code == 1
    assert "the search index cannot be used" in done.err


def test_before_is_exclusive_and_after_inclusive(shipmate: Shipmate, archive: Path) -> None:
    window = ("--after", "2027-01-15T08:01:00", "--before", "2027-01-15T09:03:00+01:00")
    assert texts(shipmate("history", KEY, "--dir", archive, *window, "--json")) == [
        "hi there",
        "你好，退款在哪里？",
    ]


def test_for_a_person_the_terminal_is_safe(shipmate: Shipmate, archive: Path) -> None:
    done = shipmate("history", KEY, "--dir", archive)
    assert "  7: hello\n" in done.out
    assert "  bot: line one\n    line two\n" in done.out
    assert "\x1b" not in done.out


def test_chats_are_listed(shipmate: Shipmate, archive: Path) -> None:
    assert shipmate("chats", "--dir", archive, "--json").lines == [
        {"chatKey": str(KEY), "lines": 5, "lastTs": START + 240_000}
    ]
    assert shipmate("chats", "--dir", archive).out == f"2027-01-15 08:04:00        5  {KEY}\n"


def test_reading_needs_no_archive_and_makes_none(shipmate: Shipmate, project: Path) -> None:
    assert shipmate("chats", "--dir", project).out == "No conversation yet.\n"
    assert shipmate("chats", "--dir", project, "--json").out == ""
    none = shipmate("history", KEY, "--dir", project)
    assert (none.code, none.out, none.err) == (0, "", f"Nothing found in {KEY}.\n")
    assert shipmate("index", "rebuild", "--dir", project).out == "No conversation yet.\n"
    assert not (project / ".ship" / "chats").exists()


def test_lines_that_cannot_be_read_are_told_of(shipmate: Shipmate, archive: Path) -> None:
    with (archive / ".ship" / "chats" / "telegram%3Achat%3A1.jsonl").open("a") as file:
        file.write("{torn\n")
    done = shipmate("history", KEY, "--dir", archive, "--json")
    assert len(done.lines) == 5
    assert "1 lines of the archive cannot be read" in done.err


def test_chats_show_who_spoke_in_them_last(shipmate: Shipmate, archive: Path) -> None:
    file = archive / ".ship" / "chats" / "telegram%3Achat%3A1.jsonl"
    line = json.loads(file.read_text().splitlines()[0])
    said = [("Ann", "7"), ("Bob, the second", "8"), ("Ann", "7")]
    more = [
        line | {"ts": START + at, "userId": user, "meta": {"username": name}}
        for at, (name, user) in enumerate(said)
    ]
    file.write_text("".join(json.dumps(one) + "\n" for one in more))
    assert shipmate("chats", "--dir", archive).out.endswith(f"{KEY}  Ann, Bob the second\n")
    assert shipmate("chats", "--dir", archive, "--json").lines[0]["people"] == ["Ann", "Bob the second"]
