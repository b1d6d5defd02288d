"""Reads the outbox rows of one turn: their order, those left to send, those that its person has. And `REPEATED`, the sentence
that stands before a repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot.contracts.agent import PriorReply
from bot.contracts.outbound import OutboxRow

REPEATED = "(I am not sure that this has arrived, so here it is, perhaps again.)\n\n"
"""Before the words of a row that repeats another one."""


def in_order(rows: Iterable[OutboxRow], kind: str = "reply") -> list[OutboxRow]:
    """Rows of one kind as people should see them: a repeat stands where its original would."""
    found = [row for row in rows if row.kind == kind]
    places: dict[str, int] = {}
    for row in found:
        places.setdefault(row.original, len(places))
    return sorted(found, key=lambda row: places[row.original])


def prior_replies(rows: Sequence[OutboxRow]) -> tuple[PriorReply, ...]:
    """The outcome of each message of an answer, together with its repeats."""
    messages: dict[str, list[OutboxRow]] = {}
    for row in in_order(rows):
        messages.setdefault(row.original, []).append(row)
    return tuple(
        PriorReply(
            name,
            tuple(row.message_id or row.id for row in same if row.message_id or row.deferred),
            all(row.state == "failed" for row in same),
            same[0].step_id,
        )
        for name, same in messages.items()
    )


def seconds_left(row: OutboxRow, now: float) -> float:
    """Seconds until a row is to go out, 0 where it may. A clock that was set back makes them no more than they were when it
    was put off.
    """
    until = row.not_before
    return 0.0 if until is None else max(0.0, min(until - now, until - row.changed_at))
