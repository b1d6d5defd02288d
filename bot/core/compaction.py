"""Decides which messages a compaction drops from the model's context, when a compaction pays off, and which
messages its summary covers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from bot.contracts.base import Message
from bot.contracts.environment import Clock
from bot.core import blocks

N = TypeVar("N", bound=Hashable)
Turn: TypeAlias = Sequence[tuple[N, Message]]
"""Messages of a turn, each with its event number."""
Maker = Literal["memory", "summary", "provider"]
"""Source of the text that replaces the dropped messages: the session memory, our summary, or the provider's summary."""

KEEP_TOKENS = 10_000
IDLE_KEEPS = 2_000
"""Min tokens that a compaction of an idle chat keeps. Each compaction invalidates the cached prefix, so one
deep cut is better than many small cuts.
"""
GROWTH = 2
"""Max number of messages sent to the model, in multiples of the message cap, while the session memory cannot
be written.
"""
KEEP_MESSAGES = 5
SPAN = 2
"""Max tokens kept by a compaction, in multiples of `keep_tokens`, if a turn border within that limit exists."""
WORTH = 2_000
"""Min estimated tokens that a compaction must save; a smaller saving costs less than rewriting the cached prefix."""
IDLE_ABOVE = 8_000
EXTRACT_AFTER = 5_000
EXTRACT_CALLS = 3
"""Min new tool calls before the session memory is written again; `EXTRACT_AFTER` new tokens are required as well."""
EXTRACT_ALONE = 15_000
"""Min new tokens before the session memory is written again even without any tool call."""
EXTRACT_SHARE = 8
"""Divisor of the message cap. Above the cap, `cap / EXTRACT_SHARE` new messages are enough to write the
session memory again, since the memory should cover the messages that are dropped.
"""
FAILURES = 3
HALF_OPEN_AFTER = 600.0

Size = Callable[[Sequence[Message]], float]
"""Function that estimates the tokens of messages."""
BY_MEMORY: Maker = "memory"


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings `context.compaction` of ship.json. If not `enabled`, only a person's command compacts."""

    enabled: bool = True
    keep_tokens: int = KEEP_TOKENS
    idle: bool = True
    idle_above: int = IDLE_ABOVE
    provider: bool = True
    """True if the provider's own summaries are used when the model supports them."""


def most(keep: float) -> float:
    """Return the max tokens to keep; above this limit less than a whole turn is kept."""
    return SPAN * max(keep, WORTH)


def border(turns: Sequence[Turn[N]], *, size: Size, keep: float) -> list[N]:
    """Return the numbers of the messages to drop, oldest first, so that at least `keep` tokens and
    `KEEP_MESSAGES` messages stay.

    The cut lies between two turns. If the first kept turn would exceed `most` tokens, that turn loses its
    oldest API rounds instead, but keeps the messages of people.
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
    """Return the part of `dropped` that a memory covers. `covers` is the number of the newest message when
    the memory was written.
    """
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
    """Yield the messages after message number `covers`, newest first; all messages if no message has that number."""
    for turn in reversed(turns):
        for name, message in reversed(turn):
            if name == covers:
                return
            yield message


def wants_extraction(tokens: float, calls: int) -> bool:
    """Return True if there are enough new tokens and tool calls to write the session memory again."""
    return tokens >= EXTRACT_ALONE or (tokens >= EXTRACT_AFTER and calls >= EXTRACT_CALLS)


def rounds(messages: Sequence[Message]) -> list[list[Message]]:
    """Group messages into units that can be dropped as a whole: first people's messages up to an answer,
    then each answer with its tool results.
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
    """Drop the oldest API rounds, at least `tokens` tokens, and return the remaining messages; [] if too
    little would remain.

    The first remaining message is a person's message.
    """
    groups = rounds(messages)
    gone = 0.0
    while groups and (gone < tokens or groups[0][0]["role"] != "user"):
        gone += size(groups.pop(0))
    return [message for group in groups for message in group]


def names(turns: Sequence[Turn[N]]) -> list[N]:
    """Return the event numbers of all messages of these turns."""
    return [name for turn in turns for name, _ in turn]


def _size(turn: Turn[N], size: Size) -> float:
    return size([message for _, message in turn])


def _droppable(turns: Sequence[Turn[N]], dropped: set[N]) -> Iterator[list[N]]:
    """Yield the dropped message numbers in units that can be dropped separately: a whole turn, or an API
    round of a turn that is too long.
    """
    for turn in turns:
        if dropped.issuperset(names([turn])):
            yield names([turn])
        else:
            yield from (names([one]) for one in api_rounds(turn) if one[0][0] in dropped)


def _oldest_rounds(turn: Turn[N], size: Size, keep: float, messages: int) -> list[N]:
    """Return the message numbers of the turn's oldest API rounds that need not be kept. The last round,
    which is the answer, always stays.
    """
    going = api_rounds(turn)
    tokens, kept = 0.0, 0
    while going and (not kept or tokens < keep or kept < messages):
        newest = going.pop()
        tokens, kept = tokens + _size(newest, size), kept + len(newest)
    return names(going)


def api_rounds(turn: Turn[N]) -> list[list[tuple[N, Message]]]:
    """Return the API rounds of a turn. A round is one answer of the model with its tool results."""
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
    """Circuit breaker: opens after three failures in a row; ten minutes later one attempt is allowed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._failed_at = 0.0

    @property
    def open(self) -> bool:
        """Return True while the circuit breaker allows no attempt."""
        since_then = self._clock.monotonic() - self._failed_at
        return self._failures >= FAILURES and since_then < HALF_OPEN_AFTER

    def failed(self) -> bool:
        """Record a failed compaction. Returns True if the circuit breaker now allows no attempt."""
        self._failures += 1
        self._failed_at = self._clock.monotonic()
        return self._failures >= FAILURES

    def succeeded(self) -> None:
        self._failures = 0


@dataclass(frozen=True, slots=True)
class CompactResult:
    """Result of a compaction that a person asked for. The outcome `memory`, `summary` (our summary) or
    `provider` (the provider's summary) names the text that replaces `messages` older messages. The
    outcome is `nothing` if there was nothing to gain, else `failed`. Token numbers count all messages,
    like those in `ChatStats`.
    """

    outcome: Literal["memory", "summary", "provider", "nothing", "failed"]
    messages: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
