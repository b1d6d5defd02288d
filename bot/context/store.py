"""`AgentContextStore`: the short-term history of one conversation, capped, cut between turns.

The store changes in three ways only, each a line of the transcript: a finished turn is appended (`commit`), the
oldest part goes (`boundary`), or all of it does. Live turns and the replay of a transcript use the same two
methods, so that a store that was filled again after a restart is the store that was lost, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bot.context import blocks
from bot.contracts import Message


@dataclass(frozen=True, slots=True)
class Entry:
    """A message with the uuid of its transcript line."""

    uuid: str
    message: Message


@dataclass(frozen=True, slots=True)
class Turn:
    """Everything from one inbound to its reply. `sources` are the requestIds of the inbound it answered."""

    request_id: str
    sources: tuple[str, ...]
    entries: tuple[Entry, ...]


class AgentContextStore:
    """The history of one chatKey as whole turns, at most `max_messages` API messages between turns."""

    def __init__(self, max_messages: int) -> None:
        self._max = max_messages
        self._low_water = max(1, max_messages // 2)
        self.turns: list[Turn] = []

    def __len__(self) -> int:
        """How many messages are kept."""
        return sum(len(turn.entries) for turn in self.turns)

    def messages(self) -> list[Message]:
        """The kept messages, oldest first."""
        return [entry.message for turn in self.turns for entry in turn.entries]

    def sources(self) -> set[str]:
        """The requestIds of every inbound whose turn is kept."""
        return {source for turn in self.turns for source in turn.sources}

    def commit(self, turn: Turn, *, strip_thinking: bool = False) -> None:
        """Append a finished turn. `strip_thinking`: its view had injections that now are gone."""
        if strip_thinking:
            turn = _stripped(turn)
        if turn.entries:
            self.turns.append(turn)

    def over_cap(self) -> list[str]:
        """What to drop now that the cap is passed: uuids, oldest first; [] where it is not.

        Whole turns go, in one batch, until what is left is within half the cap; the newest turn stays. Where
        that one alone is over the cap it loses its oldest API rounds, never what the person said.
        """
        if len(self) <= self._max:
            return []
        return self._oldest(len(self) - self._low_water, self.turns[-1])

    def oldest_half(self) -> list[str]:
        """The uuids of the oldest half, on whole-turn borders: at least one turn, [] where there is none."""
        return self._oldest((len(self) + 1) // 2, None)

    def _oldest(self, at_least: int, keep: Turn | None) -> list[str]:
        dropped: list[str] = []
        for turn in self.turns:
            if len(dropped) >= at_least or turn is keep:
                break
            dropped += [entry.uuid for entry in turn.entries]
        left = len(self) - len(dropped)
        if keep is not None and left > self._max:
            dropped += _oldest_rounds(keep, left - self._low_water)
        return dropped

    def drop(self, uuids: Iterable[str]) -> None:
        """Carry out a boundary: the entries go, and with them every thinking block that stood behind them."""
        gone = frozenset(uuids)
        kept = []
        for turn in self.turns:
            entries = tuple(entry for entry in turn.entries if entry.uuid not in gone)
            if entries:
                kept.append(_stripped(Turn(turn.request_id, turn.sources, entries)))
        self.turns = kept

    def clear(self) -> None:
        """Forget everything; transcript and archive keep it."""
        self.turns = []


def _oldest_rounds(turn: Turn, at_least: int) -> list[str]:
    """The oldest API rounds of a turn, each an assistant message with the results that answer it."""
    rounds: list[list[str]] = []
    for entry in turn.entries:
        if entry.message["role"] == "assistant":
            rounds.append([entry.uuid])
        elif rounds and blocks.is_results(entry.message):
            rounds[-1].append(entry.uuid)
    dropped: list[str] = []
    for one in rounds[:-1]:
        if len(dropped) >= at_least:
            break
        dropped += one
    return dropped


def without_thinking(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries without their thinking blocks; one that held nothing else goes."""
    return tuple(
        Entry(entry.uuid, message)
        for entry in entries
        for message in blocks.without_thinking([entry.message])
    )


def _stripped(turn: Turn) -> Turn:
    return Turn(turn.request_id, turn.sources, without_thinking(turn.entries))
