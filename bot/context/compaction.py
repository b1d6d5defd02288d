"""Choosing what leaves the view when a history is compacted, when a compaction is worth it, and which turns its summary tells of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bot.context.store import Entry, Turn, api_rounds
from bot.contracts.base import Message
from bot.contracts.environment import Clock
from bot.contracts.transcript import UNCHANGED, Boundary, Maker, TranscriptLine
from bot.core import blocks

KEEP_TOKENS = 10_000
IDLE_KEEPS = 2_000
"""A compaction of a quiet chat leaves at least so many tokens. Each changes the front of every request: the deeper, the
rarer.
"""
GROWTH = 2
"""The view grows to so many times the cap of messages where the memory fails."""
KEEP_MESSAGES = 5
SPAN = 2
"""The kept part is at most so many times `keep_tokens`, if there is a border to keep less at."""
WORTH = 2_000
"""Estimated tokens: less than this is not worth writing the rest of the history to the cache anew."""
IDLE_ABOVE = 8_000
EXTRACT_AFTER = 5_000
EXTRACT_CALLS = 3
"""Tokens and tool calls that are new together since the memory was written, before it is written again."""
EXTRACT_ALONE = 15_000
"""New tokens that are enough without any tool call."""
EXTRACT_SHARE = 8
"""One of so many messages of the cap is enough once the cap is passed: what goes is what the memory knows."""
FAILURES = 3
HALF_OPEN_AFTER = 600.0

Size = Callable[[Sequence[Message]], float]
"""Estimated tokens of messages."""
BY_MEMORY: Maker = "memory"
"""The maker of a compaction (`Boundary.how`)."""


@dataclass(frozen=True, slots=True)
class Policy:
    """`context.compaction` of ship.json. Without `enabled` nothing happens unasked."""

    enabled: bool = True
    keep_tokens: int = KEEP_TOKENS
    idle: bool = True
    idle_above: int = IDLE_ABOVE
    provider: bool = True
    """True if summaries are the provider's own where the model can."""


def most(keep: float) -> float:
    """Tokens above which less is kept where there is a border for it."""
    return SPAN * max(keep, WORTH)


def border(turns: Sequence[Turn], *, size: Size, keep: int) -> list[str]:
    """The uuids to drop, oldest first, so that what stays has `keep` tokens and `KEEP_MESSAGES` messages at the least.

    The border stands between turns. Where the turn it would stand before makes more than `most` of what stays, that
    turn loses its oldest API rounds instead, and keeps what people said in it.
    """
    tokens, messages = 0.0, 0
    for at in reversed(range(len(turns))):
        if tokens >= keep and messages >= KEEP_MESSAGES:
            return _uuids(turns[: at + 1])
        turn = turns[at]
        own = _size(turn.entries, size)
        if tokens + own > most(keep):
            return _uuids(turns[:at]) + _oldest_rounds(turn, size, keep - tokens, KEEP_MESSAGES - messages)
        tokens, messages = tokens + own, messages + len(turn.entries)
    return []


def covered(turns: Sequence[Turn], dropped: Sequence[str], covers: str | None) -> list[str]:
    """Of what is to be dropped what a memory knows that was written when `covers` was the newest entry."""
    order = _uuids(turns)
    if covers not in order:
        return []
    known = set(order[: order.index(covers) + 1])
    kept: list[str] = []
    for together in _droppable(turns, set(dropped)):
        uuids = [entry.uuid for entry in together]
        if not known.issuperset(uuids):
            break
        kept += uuids
    return kept


def since(turns: Sequence[Turn], covers: str | None) -> Iterator[Message]:
    """The messages that came after an entry, newest first; all where it is not there."""
    for turn in reversed(turns):
        for entry in reversed(turn.entries):
            if entry.uuid == covers:
                return
            yield entry.message


def wants_extraction(tokens: float, calls: int) -> bool:
    """True if so much is new that the memory is to be written again."""
    return tokens >= EXTRACT_ALONE or (tokens >= EXTRACT_AFTER and calls >= EXTRACT_CALLS)


def rounds(messages: Sequence[Message]) -> list[list[Message]]:
    """Messages as groups that a request can do without, each from its first to before the next: what people said up to
    the answer, then each answer with the results of its calls.
    """
    groups: list[list[Message]] = []
    before: Message | None = None
    for message in messages:
        begins = message["role"] == "assistant" or not blocks.result_ids(message)
        together = before is not None and message["role"] == "assistant" == before["role"]
        if not groups or (begins and not together):
            groups.append([])
        groups[-1].append(message)
        before = message
    return groups


def without_oldest(messages: Sequence[Message], tokens: float, size: Size) -> list[Message]:
    """Messages without their oldest API rounds, `tokens` of them at the least; [] where too little is left.

    The first that stays is a person's.
    """
    groups = rounds(messages)
    gone = 0.0
    while groups and (gone < tokens or groups[0][0]["role"] != "user"):
        gone += size(groups.pop(0))
    return [message for group in groups for message in group]


def _uuids(turns: Sequence[Turn]) -> list[str]:
    return [entry.uuid for turn in turns for entry in turn.entries]


def _size(entries: Sequence[Entry], size: Size) -> float:
    return size([entry.message for entry in entries])


def _droppable(turns: Sequence[Turn], dropped: set[str]) -> Iterator[tuple[Entry, ...]]:
    """Yield what is to be dropped, in the pieces in which it goes: a turn, or API rounds of one that is too long."""
    for turn in turns:
        if dropped.issuperset(entry.uuid for entry in turn.entries):
            yield turn.entries
        else:
            yield from (one for one in api_rounds(turn) if one[0].uuid in dropped)


def _oldest_rounds(turn: Turn, size: Size, keep: float, messages: int) -> list[str]:
    """The oldest API rounds of a turn, as many as it need not keep. The last one stays: it is the answer."""
    going = api_rounds(turn)
    tokens, kept = 0.0, 0
    while going and (not kept or tokens < keep or kept < messages):
        newest = going.pop()
        tokens, kept = tokens + _size(newest, size), kept + len(newest)
    return [entry.uuid for one in going for entry in one]


class Breaker:
    """Stops what has failed three times in a row; ten minutes later it may be tried once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._failed_at = 0.0

    @property
    def open(self) -> bool:
        """True if it is not to be tried now."""
        since_then = self._clock.monotonic() - self._failed_at
        return self._failures >= FAILURES and since_then < HALF_OPEN_AFTER

    def failed(self) -> bool:
        """It has failed; True if that opened it, for the first time or again."""
        self._failures += 1
        self._failed_at = self._clock.monotonic()
        return self._failures >= FAILURES

    def succeeded(self) -> None:
        self._failures = 0


def summed_up(turn: Turn, lines: Sequence[TranscriptLine], covers: str | None) -> bool:
    """True if a summary may tell of this turn, by the lines of its session. The memory, where that took a summary's place,
    knows what was said up to the entry that it `covers`.
    """
    own = {entry.uuid for entry in turn.entries}
    first = next((at for at, line in enumerate(lines) if line.uuid in own), len(lines))
    told = (line.event for line in lines[first:] if isinstance(line.event, Boundary))
    made = (one for one in told if one.head is not UNCHANGED and not one.again)
    return any(one.how != BY_MEMORY or covers in own for one in made)
