"""Writes usage events into the log of a bot that is not running, so that tests of usage sums have data."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from bot.core.sqlite_log import FILE, SCHEMA

Row = tuple[str, str, float, dict[str, Any]]
"""Chat key, event kind, time (epoch seconds) and data of one event."""


def used(chat: str, at: float, person: str = "", cost: float | None = None, **more: Any) -> Row:
    """Return an event for one call of the model."""
    usage = {"inputTokens": 100, "outputTokens": 50, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    usage |= more.pop("usage", {})
    data = {"model": "m", "purpose": "turn", "person": person, "usage": usage, "cost_usd": cost, **more}
    return chat, "used", at, {name: value for name, value in data.items() if value is not None}


def write(home: Path, rows: Iterable[Row], turn: str = "") -> None:
    """Append these events to the log in `home`. Each event belongs to the turn of the previous event; with `turn`, all
    belong to the turn that the first one begins.
    """
    insert = (
        "INSERT INTO events (chat, seq, id, turn, person, kind, at, data) VALUES (?, ?, ?, ?, '1', ?, ?, ?)"
    )
    with closing(sqlite3.connect(home / FILE)) as db:
        db.executescript(f"PRAGMA journal_mode = wal; {SCHEMA}")
        (first,) = db.execute("SELECT coalesce(max(n), 0) + 1 FROM events").fetchone()
        db.executemany(
            insert,
            (
                (
                    chat,
                    n,
                    turn if turn and n == first else str(n),
                    turn or str(n - 1),
                    kind,
                    at,
                    json.dumps(data),
                )
                for n, (chat, kind, at, data) in enumerate(rows, first)
            ),
        )
        db.commit()
