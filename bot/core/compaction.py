"""Choosing what leaves the view when a history is compacted, when a compaction is worth it, and which turns its summary tells of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from bot.contracts.base import Message
from bot.contracts.environment import Clock
from bot.core import blocks

N = TypeVar("N", bound=Hashable)
Turn: TypeAlias = Sequence[tuple[N, Message]]
"""The messages of a turn, each with its name."""
Maker = Literal["memory", "summary", "provider"]
"""The maker of a compaction: the memory stands for what went, or a summary of ours or of the provider."""

KEEP_TOKENS = 10_000
IDLE_KEEPS = 2_000
"""A compaction of a quiet chat leaves at least so many tokens. Each changes the front of every request: the deeper, the rarer."""
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


def border(turns: Sequence[Turn[N]], *, size: Size, keep: float) -> list[N]:
    """The names of the messages to drop, oldest first, so that what stays has `keep` tokens and `KEEP_MESSAGES` messages at the least.

    The border stands between turns. Where the turn it would stand before makes more than `most` of what stays, that
    turn loses its oldest API rounds instead, and keeps what people said in it.
    """
    tokens, messages = 0.0, 0
    for at in reversed(range(len(turns))):
        if tokens >= keep and messages >= KEEP_MESSAGES:
            return names(turns[: at + 1])
        turn = turns[at]
        own = _size(turn, size)
        if tokens + own > most(keep):
            return names(turns[:at]) + _oldest_rounds(turn, size, keep - tokens, KEEP_MESSAGES - messages)
        tokens, messages = tokens + own, messages + len(turn)
    return []


def covered(turns: Sequence[Turn[N]], dropped: Sequence[N], covers: N | None) -> list[N]:
    """Of what is to be dropped what a memory knows that was written when `covers` was the newest message."""
    order = names(turns)
    if covers not in order:
        return []
    known = set(order[: order.index(covers) + 1])
    kept: list[N] = []
    for together in _droppable(turns, set(dropped)):
        if not known.issuperset(together):
            break
        kept += together
    return kept


def since(turns: Sequence[Turn[N]], covers: N | None) -> Iterator[Message]:
    """The messages that came after one of this name, newest first; all where it is not there."""
    for turn in reversed(turns):
        for name, message in reversed(turn):
            if name == covers:
                return
            yield message


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


def names(turns: Sequence[Turn[N]]) -> list[N]:
    """The names of all messages of these turns."""
    return [name for turn in turns for name, _ in turn]


def _size(turn: Turn[N], size: Size) -> float:
    return size([message for _, message in turn])


def _droppable(turns: Sequence[Turn[N]], dropped: set[N]) -> Iterator[list[N]]:
    """Yield what is to be dropped, in the pieces in which it goes: a turn, or API rounds of one that is too long."""
    for turn in turns:
        if dropped.issuperset(names([turn])):
            yield names([turn])
        else:
            yield from (names([one]) for one in api_rounds(turn) if one[0][0] in dropped)


def _oldest_rounds(turn: Turn[N], size: Size, keep: float, messages: int) -> list[N]:
    """The oldest API rounds of a turn, as many as it need not keep. The last one stays: it is the answer."""
    going = api_rounds(turn)
    tokens, kept = 0.0, 0
    while going and (not kept or tokens < keep or kept < messages):
        newest = going.pop()
        tokens, kept = tokens + _size(newest, size), kept + len(newest)
    return names(going)


def api_rounds(turn: Turn[N]) -> list[list[tuple[N, Message]]]:
    """The API rounds of a turn: an answer of the model, in however many pieces, with the results of its calls."""
    found = list[list[tuple[N, Message]]]()
    before: Message | None = None
    for name, message in turn:
        if message["role"] == "assistant":
            if before is None or before["role"] != "assistant":
                found.append([])
            found[-1].append((name, message))
        elif found and blocks.result_ids(message):
            found[-1].append((name, message))
        before = message
    return found


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
