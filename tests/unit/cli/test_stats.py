from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.core.sqlite_log import FILE
from tests.usage_rows import Row, used, write

from .conftest import Shipmate

JAN = datetime(2027, 1, 1, 12, tzinfo=UTC).timestamp()


def at(day: int) -> float:
    return JAN + (day - 1) * 86_400


def answer(chat: str, read: int, cost: float | None, wait: int, day: int = 15) -> list[Row]:
    usage = {"cacheReadTokens": read, "cacheWriteTokens": 100}
    shown = {"ms": wait, "rounded": wait, "parts": {"queue": 100, "model": wait // 2}}
    return [used(chat, at(day), cost=cost, usage=usage), (chat, "waited", at(day), shown)]


def failed(error: str, **more: Any) -> Row:
    data = {"model": "m", "purpose": "turn", "error": error, **more}
    return "telegram:chat:群", "used", at(15), data


def turn(chat: str, end: str) -> list[Row]:
    return [(chat, "received", at(15), {}), (chat, "turn_ended", at(15), {"end": end, "model": "m"})]


@pytest.fixture
def folder(project: Path) -> Path:
    rows = [
        *answer("web:chat:1", 0, 0.5, 900, day=14),
        *answer("web:chat:1", 1_800, 0.25, 400),
        *turn("web:chat:1", "answered"),
        *answer("telegram:chat:群", 1_800, None, 2_000),
        failed("Overloaded"),
        failed("Overloaded"),
        failed("StreamBroken", usage={"inputTokens": 9}, cost_usd=0.0),
        *turn("telegram:chat:群", "failed"),
        ("telegram:chat:群", "turn_ended", at(15), {"end": "answered"}),
    ]
    write(project / ".ship", rows)
    return project


def test_what_the_model_cost_is_summed_up_from_the_log(shipmate: Shipmate, folder: Path) -> None:
    done = shipmate("stats", "--dir", folder, "--json")
    assert done.code == 0
    assert done.lines == [
        {
            "chat": None,
            "turns": 2,
            "failedTurns": 1,
            "calls": 3,
            "errors": {"Overloaded": 2, "StreamBroken": 1},
            "models": {"m": 3},
            "inputTokens": 309,
            "cacheReadTokens": 3_600,
            "cacheWriteTokens": 300,
            "outputTokens": 150,
            "cacheReadShare": 0.8553,
            "costUsd": 0.75,
            "unpricedCalls": 1,
            "waitedMs": {"p50": 900, "p99": 2_000},
            "modelShare": 0.5,
            "ratings": {},
        }
    ]


def test_ratings_are_counted_and_sums_stay_when_events_go(shipmate: Shipmate, folder: Path) -> None:
    write(
        folder / ".ship",
        [("web:chat:1", "rated", at(15), {"rating": one}) for one in ("good", "good", "bad", "none")],
    )
    with closing(sqlite3.connect(folder / ".ship" / FILE)) as db:
        db.execute("DELETE FROM events")
        db.commit()
    (found,) = shipmate("stats", "--dir", folder, "--json").lines
    assert found["ratings"] == {"good": 2, "bad": 1, "none": 1}
    assert (found["turns"], found["calls"]) == (2, 3)
    assert "👍 2, 👎 1, taken back 1" in shipmate("stats", "--dir", folder).out
    (elsewhere,) = shipmate("stats", "--dir", folder, "--json", "--chat", "telegram:chat:群").lines
    assert elsewhere["ratings"] == {}


def test_parts_are_shown_in_a_table_or_as_json(shipmate: Shipmate, folder: Path) -> None:
    assert shipmate("stats", "--dir", folder, "--by", "day").out.splitlines() == [
        "day          turns  answers          read cache     written  cost",
        "2027-01-14       0        1           200    0%          50  $0.50",
        "2027-01-15       2        2         4,009   90%         100  $0.25, and 1 answer of unknown price",
    ]
    people = shipmate("stats", "--dir", folder, "--by", "person").out.splitlines()
    assert [row.split()[0] for row in people] == ["person", "-", "telegram:1", "web:1"]
    chats = shipmate("stats", "--dir", folder, "--by", "chat", "--json").lines
    assert [(row["chat"], row["costUsd"]) for row in chats] == [("web:chat:1", 0.75), ("telegram:chat:群", 0)]
    (model,) = shipmate("stats", "--dir", folder, "--by", "model", "--since", "2027-01-15", "--json").lines
    assert (model["model"], model["turns"], model["calls"], model["outputTokens"]) == ("m", 2, 2, 100)
    assert shipmate("stats", "--dir", folder, "--by", "year").code == 2


def test_people_are_shown_with_their_names(shipmate: Shipmate, folder: Path) -> None:
    write(
        folder / ".ship",
        [used("telegram:chat:-5", at(16), who, 2.0) for who in ("telegram:7", "telegram:8")],
    )
    chats = folder / ".ship" / "chats"
    chats.mkdir()
    said = {"ts": 1, "channel": "telegram", "chatId": "-5", "chatKey": "telegram:chat:-5", "role": "user"}
    lines = [
        said | {"userId": who, "text": "hi", "meta": {"username": name}}
        for who, name in (("7", "Ann Older"), ("7", "Ann"), ("9", "Bob"))
    ]
    (chats / "telegram%3Achat%3A-5.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    rows = shipmate("stats", "--dir", folder, "--by", "person").out.splitlines()
    assert [" ".join((row.split()[0], *row.split()[6:])) for row in rows[1:3]] == [
        "telegram:7 $2.00 Ann",
        "telegram:8 $2.00",
    ]
