"""Reads single turns from the event log for the console: the wait of the person, and the words said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.core.usage import UsageSums

SPAN = 2_000
"""Max events after a turn's first message that are searched for its answer."""
PARTS = 20
"""Max parts of an answer that are shown."""
_WAITS = "FROM events AS waits{} WHERE waits.kind = 'waited' AND waits.at >= ?"
_SAID = " LEFT JOIN events AS said ON said.id = waits.turn"
_SLOW = "SELECT waits.turn, waits.chat, waits.at, waits.data, said.data {} ORDER BY json_extract(waits.data, '$.ms') DESC LIMIT ? OFFSET ?"
_ANSWER = "SELECT data FROM events WHERE chat = ? AND seq > ? AND seq < ? AND kind = 'queued' AND turn = ? ORDER BY seq LIMIT ?"


@dataclass(frozen=True, slots=True)
class TurnWait:
    """Wait of a turn's person for the answer: `ms` milliseconds, which ended at the time `at` (epoch seconds).
    `parts` are the milliseconds of each activity (`bot.core.waits.Wait`). `words` is the person's message.
    """

    request: str
    chat: str
    at: float
    person: str
    words: str
    ms: int
    parts: Mapping[str, int] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Return what took the most time; "" if nothing is known."""
        return max(self.parts, key=lambda part: self.parts[part], default="")

    def share(self, part: str) -> float | None:
        """Return the share of a part in the wait."""
        return self.parts.get(part, 0) / self.ms if self.ms else None


class TurnRecords:
    """Reads the events of single turns. Blocks on disk access; may be used on any thread."""

    def __init__(self, sums: UsageSums) -> None:
        self._opened = sums.opened

    def slowest(self, since: float, offset: int, limit: int) -> tuple[list[TurnWait], int]:
        """Return a page of the turns whose person saw an answer since a time (epoch seconds), the longest
        wait first, and the number of all of them.
        """
        with self._opened() as db:
            if db is None:
                return [], 0
            (total,) = db.execute(f"SELECT count(*) {_WAITS.format('')}", (since,)).fetchone()
            rows = db.execute(_SLOW.format(_WAITS.format(_SAID)), (since, limit, offset)).fetchall()
        return [_wait(*row) for row in rows], total

    def said(self, request: str) -> tuple[str, str]:
        """Return the person's message and the answer of a turn; "" for what is not in the log."""
        with self._opened() as db:
            found = (
                None
                if db is None
                else db.execute(
                    "SELECT chat, seq, data FROM events WHERE id = ? AND kind = 'received'", (request,)
                ).fetchone()
            )
            if db is None or found is None:
                return "", ""
            chat, seq, data = found
            rows = db.execute(_ANSWER, (chat, seq, seq + SPAN, request, PARTS)).fetchall()
        queued = [json.loads(row) for (row,) in rows]
        answer = [str(one.get("text") or "") for one in queued if "question" not in one]
        return _words(data), "\n\n".join(filter(None, answer))


def _wait(request: str, chat: str, at: float, waited: str, said: str | None) -> TurnWait:
    told, inbound = json.loads(waited), _inbound(said)
    person = f"{inbound.get('channel')}:{inbound.get('user_id')}" if inbound else ""
    return TurnWait(request, chat, at, person, _words(said), told["ms"], told.get("parts") or {})


def _words(said: str | None) -> str:
    return str(_inbound(said).get("text") or "")


def _inbound(said: str | None) -> Mapping[str, Any]:
    found = json.loads(said or "{}").get("inbound")
    return found if isinstance(found, dict) else {}
