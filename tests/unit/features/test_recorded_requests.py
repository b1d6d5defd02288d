"""Recorded requests are returned byte for byte, and removed content is deleted from the file."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.features import replay
from bot.features.replay import (
    DAMAGED,
    DIFFERENT,
    REDACTED,
    REMOVED,
    RecordedRequest,
    RecordedRequests,
)
from bot.system import ulid_of

CHAT = "telegram:chat:1"
CACHE = {"type": "ephemeral"}


def name(number: int) -> str:
    return ulid_of(number << 80)


def body(turns: int, said: str = '你好 }]} {"role": x') -> bytes:
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": [{"type": "text", "text": f"{said} {number} {random.Random(number).random()}"}],
        }
        for number in range(turns)
    ]
    messages[-1]["content"][-1]["cache_control"] = CACHE
    asked = {
        "model": "m",
        "system": [{"type": "text", "text": "s" * 5_000}],
        "messages": messages,
        "stream": True,
    }
    return json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.fixture
def file(tmp_path: Path) -> RecordedRequests:
    return RecordedRequests(tmp_path / "requests.db")


def record(
    file: RecordedRequests, number: int, sent: bytes, *, kept: bytes | None = None, **more: Any
) -> None:
    digest = hashlib.sha256(sent).hexdigest()
    asked = RecordedRequest(name(number), CHAT, "T", None, "turn", "m", digest, None)
    file.transaction(lambda: file.record(replace(asked, **more), sent if kept is None else kept))


def direct(tmp_path: Path, sql: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(tmp_path / "requests.db")) as db, db:
        return db.execute(sql, values).fetchall()


def wrong(file: RecordedRequests) -> list[str | None]:
    return [one.wrong for one in file.find("T")]


def test_bodies_come_back_byte_for_byte_and_share_what_is_the_same(
    tmp_path: Path, file: RecordedRequests
) -> None:
    bodies = [body(turns) for turns in range(1, 200)]
    for number, one in enumerate(bodies):
        record(file, number, one)
    file.transaction(
        lambda: file.answered(name(0), {"stopReason": "end_turn", "content": [{"text": "完了"}]})
    )
    found = file.find("T")
    assert [one.body for one in found] == bodies
    assert (found[0].answer or {})["content"] == [{"text": "完了"}]
    assert {one.wrong for one in found} == {None}
    file.close()
    assert (tmp_path / "requests.db").stat().st_size < sum(map(len, bodies)) / 5


def test_what_is_removed_is_in_no_file_and_the_rest_is_whole(tmp_path: Path, file: RecordedRequests) -> None:
    record(file, 1, body(1, "stays"), request_id="A")
    record(file, 2, body(2, "a plum"))
    record(file, 3, body(2, "a plum"), task="K", request_id=name(1))
    file.transaction(lambda: file.answered(name(2), {"content": "a plum"}))
    record(file, 5, body(3, "later"), request_id="B")
    record(file, 6, body(3, "a plum"), task="K", request_id=name(1))
    file.transaction(lambda: file.remove(CHAT, name(2), name(4)))
    record(file, 7, body(3, "a plum"), task="K", request_id=name(1))
    assert wrong(file) == [REMOVED]
    assert [one.wrong for one in file.find("K")] == [REMOVED] * 3, "asked with what it was given before"
    assert [one.body for one in (*file.find("A"), *file.find("B"))] == [body(1, "stays"), body(3, "later")]
    file.transaction(lambda: file.forget(CHAT))
    assert file.chats() == []
    assert file.find("A") == []
    assert direct(tmp_path, "SELECT count(*) FROM pieces") == [(0,)]


def test_what_is_not_what_was_sent_is_said(tmp_path: Path, file: RecordedRequests) -> None:
    record(file, 1, body(1, "a key"), kept=body(1, "***"))
    (kept,) = file.find("T")
    assert (kept.body, wrong(file)) == (body(1, "***"), [REDACTED])
    direct(tmp_path, "UPDATE pieces SET bytes = ?", zlib.compress(b"x"))
    assert wrong(file) == [DIFFERENT]
    direct(tmp_path, "DELETE FROM pieces")
    assert wrong(file) == [DAMAGED]


def test_the_oldest_go_by_age_and_by_size(file: RecordedRequests, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 9):
        record(file, number, body(number, str(number)))
    file.transaction(lambda: file.sweep(CHAT, name(3)))
    assert [one.id for one in file.find("T")] == [name(number) for number in range(3, 9)]
    monkeypatch.setattr(replay, "CHAT_BYTES", 1_500)
    file.transaction(lambda: file.sweep(CHAT, name(0)))
    left = file.find("T")
    assert 0 < len(left) < 6
    assert left[-1].body == body(8, "8")
