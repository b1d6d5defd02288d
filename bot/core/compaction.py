"""Decides which messages a compaction drops from the model's context, and which messages its summary covers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bot.contracts.base import Message
from bot.core.context import ContextEntry, KeptTurn, api_rounds

Maker = Literal["memory", "summary", "provider"]
"""Source of the text that replaces the dropped messages: the session memory, our summary, or the provider's summary."""
IDLE_KEEPS = 2_000
"""Min tokens that a compaction of an idle chat keeps; one deep cut is better than many small cuts."""
GROWTH = 2
"""Max messages, in multiples of the message cap, while the session memory cannot be written."""
KEEP_MESSAGES = 5
SPAN = 2
"""Max tokens kept by a compaction, in multiples of `keep_tokens`, if a turn border within that limit exists."""
WORTH = 2_000
"""Min estimated tokens that a compaction must save; a smaller saving costs less than rewriting the cached prefix."""
EXTRACT_AFTER, EXTRACT_CALLS, EXTRACT_ALONE = 5_000, 3, 15_000
"""Min new tokens and tool calls, or min new tokens alone, before the session memory is written again."""
EXTRACT_SHARE = 8
"""Divisor of the message cap: above the cap, so many new messages are enough to write the memory again."""
Size = Callable[[Sequence[Message]], float]
"""Function that estimates the tokens of messages."""


def numbers(turns: Sequence[KeptTurn]) -> list[int]:
    return [entry.seq for turn in turns for entry in turn.entries]


def border(turns: Sequence[KeptTurn], *, size: Size, keep: float) -> list[int]:
    """Return the event numbers of the messages to drop, oldest first, so that at least `keep` tokens and
    `KEEP_MESSAGES` messages stay.

    The cut lies between two turns. If the first kept turn is too long, that turn loses its oldest API rounds
    instead, but keeps the messages of people and its last round, which is the answer.
    """

    def tokens_of(entries: Sequence[ContextEntry]) -> float:
        return size([entry.message for entry in entries])

    tokens, messages = 0.0, 0
    for at in reversed(range(len(turns))):
        if tokens >= keep and messages >= KEEP_MESSAGES:
            return numbers(turns[: at + 1])
        entries = turns[at].entries
        own = tokens_of(entries)
        if tokens + own > SPAN * max(keep, WORTH):
            rounds, kept = api_rounds(entries), 0
            while rounds and (not kept or tokens < keep or messages < KEEP_MESSAGES):
                newest = rounds.pop()
                kept, tokens, messages = kept + 1, tokens + tokens_of(newest), messages + len(newest)
            return [*numbers(turns[:at]), *(entry.seq for one in rounds for entry in one)]
        tokens, messages = tokens + own, messages + len(entries)
    return []


def covered(turns: Sequence[KeptTurn], dropped: Sequence[int], covers: int | None) -> list[int]:
    """Return the part of `dropped` that a memory covers. `covers` is the number of the newest message when
    the memory was written.
    """
    order, gone = numbers(turns), set(dropped)
    if covers not in order:
        return []
    known = set(order[: order.index(covers) + 1])
    kept: list[int] = []
    for turn in turns:
        whole = numbers([turn])
        rounds = [[entry.seq for entry in one] for one in api_rounds(turn.entries)]
        for unit in [whole] if gone.issuperset(whole) else [one for one in rounds if one[0] in gone]:
            if not known.issuperset(unit):
                return kept
            kept += unit
    return kept


def without_oldest(messages: Sequence[Message], tokens: float, size: Size) -> list[Message]:
    """Drop the oldest API rounds, at least `tokens` tokens, and return the remaining messages; [] if too
    little would remain. The first remaining message is a person's message.
    """
    groups: list[list[Message]] = []
    before = ""
    for message in messages:
        role = str(message["role"])
        results = role == "user" and message["content"][0].get("type") == "tool_result"
        if not groups or not (results or role == before == "assistant"):
            groups.append([])
        groups[-1].append(message)
        before = role
    gone = 0.0
    while groups and (gone < tokens or groups[0][0]["role"] != "user"):
        gone += size(groups.pop(0))
    return [message for group in groups for message in group]


@dataclass(frozen=True, slots=True)
class CompactResult:
    """Result of a compaction: the text that replaces `messages` older messages, or `nothing` if there was
    nothing to gain. Token numbers count all messages, like those in `ChatStats`.
    """

    outcome: Maker | Literal["nothing", "failed"]
    messages: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
