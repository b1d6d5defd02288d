"""Decides what leaves the view in a compaction, when a compaction pays off, and what its summary covers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from bot.contracts.base import Message
from bot.contracts.environment import Clock
from bot.core import blocks

N = TypeVar("N", bound=Hashable)
Turn: TypeAlias = Sequence[tuple[N, Message]]
"""The messages of a turn, each with its number."""
Maker = Literal["memory", "summary", "provider"]
"""What stands for the dropped messages: the memory, our summary, or the provider's."""

KEEP_TOKENS = 10_000
IDLE_KEEPS = 2_000
"""Min tokens that an idle compaction keeps. Each compaction invalidates the cached prefix, so it cuts deep
to be rare.
"""
GROWTH = 2
"""Max size of the view as a multiple of the message cap while the memory cannot be written."""
KEEP_MESSAGES = 5
SPAN = 2
"""Max size of the kept part as a multiple of `keep_tokens`, if there is a border for it."""
WORTH = 2_000
"""Min estimated tokens to gain: below that, rewriting the cached prefix costs more."""
IDLE_ABOVE = 8_000
EXTRACT_AFTER = 5_000
EXTRACT_CALLS = 3
"""Min new tokens, together with `EXTRACT_CALLS` new tool calls, before the memory is written again."""
EXTRACT_ALONE = 15_000
"""Min new tokens before the memory is written again, without any tool call."""
EXTRACT_SHARE = 8
"""Once over the message cap, one new message in so many of the cap is enough: the memory should know what is
dropped.
"""
FAILURES = 3
HALF_OPEN_AFTER = 600.0

Size = Callable[[Sequence[Message]], float]
"""Estimates the tokens of messages."""
BY_MEMORY: Maker = "memory"


@dataclass(frozen=True, slots=True)
class Policy:
    """`context.compaction` of ship.json. If not `enabled`, only a person's command compacts."""

    enabled: bool = True
    keep_tokens: int = KEEP_TOKENS
    idle: bool = True
    idle_above: int = IDLE_ABOVE
    provider: bool = True
    """Use the provider's own summaries where the model supports them."""


def most(keep: float) -> float:
    """Return the tokens above which less is kept, if there is a border for it."""
    return SPAN * max(keep, WORTH)


def border(turns: Sequence[Turn[N]], *, size: Size, keep: float) -> list[N]:
    """Return the numbers of the messages to drop, oldest first, so that at least `keep` tokens and
    `KEEP_MESSAGES` messages stay.

    The border lies between turns. If the turn after it holds more than `most` tokens, that turn loses its
    oldest API rounds instead, and keeps what people said in it.
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
    """Return the part of `dropped` that a memory knows which was written when `covers` was the newest message."""
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
    """Yield the messages after the one numbered `covers`, newest first; all messages if it is not there."""
    for turn in reversed(turns):
        for name, message in reversed(turn):
            if name == covers:
                return
            yield message


def wants_extraction(tokens: float, calls: int) -> bool:
    """Return True if enough is new for the memory to be written again."""
    return tokens >= EXTRACT_ALONE or (tokens >= EXTRACT_AFTER and calls >= EXTRACT_CALLS)


def rounds(messages: Sequence[Message]) -> list[list[Message]]:
    """Group messages into units that can be dropped as a whole: people's messages up to an answer, then each
    answer with its tool results.
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
    """Drop the oldest API rounds, at least `tokens` tokens; return [] if too little would be left.

    The first message left is a person's.
    """
    groups = rounds(messages)
    gone = 0.0
    while groups and (gone < tokens or groups[0][0]["role"] != "user"):
        gone += size(groups.pop(0))
    return [message for group in groups for message in group]


def names(turns: Sequence[Turn[N]]) -> list[N]:
    """Return the numbers of all messages of these turns."""
    return [name for turn in turns for name, _ in turn]


def _size(turn: Turn[N], size: Size) -> float:
    return size([message for _, message in turn])


def _droppable(turns: Sequence[Turn[N]], dropped: set[N]) -> Iterator[list[N]]:
    """Yield what is dropped in the units in which it can go: a turn, or API rounds of a turn that is too long."""
    for turn in turns:
        if dropped.issuperset(names([turn])):
            yield names([turn])
        else:
            yield from (names([one]) for one in api_rounds(turn) if one[0][0] in dropped)


def _oldest_rounds(turn: Turn[N], size: Size, keep: float, messages: int) -> list[N]:
    """Return the oldest API rounds of a turn beyond what must be kept. The last round, the answer, always stays."""
    going = api_rounds(turn)
    tokens, kept = 0.0, 0
    while going and (not kept or tokens < keep or kept < messages):
        newest = going.pop()
        tokens, kept = tokens + _size(newest, size), kept + len(newest)
    return names(going)


def api_rounds(turn: Turn[N]) -> list[list[tuple[N, Message]]]:
    """Return the API rounds of a turn: an answer of the model with its tool results."""
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
    """Circuit breaker: opens after three failures in a row; ten minutes later one try is allowed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._failed_at = 0.0

    @property
    def open(self) -> bool:
        """True while no try is allowed."""
        since_then = self._clock.monotonic() - self._failed_at
        return self._failures >= FAILURES and since_then < HALF_OPEN_AFTER

    def failed(self) -> bool:
        """Record a failure; returns True if it opened the breaker."""
        self._failures += 1
        self._failed_at = self._clock.monotonic()
        return self._failures >= FAILURES

    def succeeded(self) -> None:
        self._failures = 0


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The end of a compaction that a person asked for: the memory, a `summary` of ours or one of the `provider` stands now for
    `messages` older ones, there was `nothing` to gain, or it `failed`. The tokens are those of all messages, as `ChatStats` has them.
    """

    outcome: Literal["memory", "summary", "provider", "nothing", "failed"]
    messages: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
