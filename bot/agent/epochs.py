"""Epochs: the declared moments at which what a chat is shown changes other than by appending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from bot.agent.kit import Kit
from bot.agent.ledger import Ledger
from bot.context import blocks, estimate, replay
from bot.context.store import AgentContextStore
from bot.contracts import Json, Message, TurnRequest, Usage
from bot.llm import prices

Reason = Literal[
    "cold_cache", "idle", "size", "message_cap", "injection", "overflow", "thinking", "model_change", "new",
    "undo", "edit", "instructions", "compact",
]  # fmt: skip
_TOLD = {
    "boundary": ("compaction", "history cut"),
    "mask": ("masking", "results masked"),
    "injection": ("injection", "older messages loaded or given up"),
    "turn_end": ("injection", "the loaded messages go with their turn"),
}
_BAD = frozenset({"overflow", "thinking"})


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the view, as its line in the transcript tells it (`bot.context.replay`)."""

    line: Literal["boundary", "mask", "injection", "turn_end"]
    data: Json


def dropped(uuids: Sequence[str] | Literal["all"]) -> Change:
    """A part of the history goes, or all of it; with no uuid, only the thinking."""
    return Change("boundary", {"dropped": uuids if uuids == "all" else list(uuids)})


def compacted(uuids: Sequence[str], head: Message | None) -> Change:
    """A part of the history goes, and `head` stands for it and for the summary there was."""
    return Change("boundary", {"dropped": list(uuids), "head": head})


def masked(results: Mapping[str, str]) -> Change:
    """Tool results are shown in other words from now on, by id of the call."""
    return Change("mask", {"results": dict(results)})


def injected(record: Json) -> Change:
    """Older turns are shown before the running one, or fewer of them."""
    return Change("injection", record)


class Running(Protocol):
    """The running turn, as far as a change of the view concerns it."""

    @property
    def request(self) -> TurnRequest: ...
    def shown(self) -> Sequence[Message]:
        """What is shown of it: injected older turns, then its own messages."""
        ...

    def changed(self, change: Change) -> None:
        """What stands before it has changed, or it has itself."""
        ...


class Epochs:
    """The one way in which the view of a chat changes but by appending."""

    def __init__(self, store: AgentContextStore, ledger: Ledger, kit: Kit) -> None:
        self.turn: Running | None = None
        self.frame_tokens = 0.0
        """What stands before the messages, in estimated tokens."""
        self.store = store
        self.ledger = ledger
        self._kit = kit

    def declare(self, reason: Reason, change: Change) -> None:
        """Write the change down, carry it out as a restart would, and tell the operator what it was and costs.

        Nothing waits: `Ledger.flush` says when it is on disk.
        """
        kept, before = len(self.store), self.tokens()
        request_id: str | None = None
        if self.turn is not None and change.line not in replay.CHANGES:
            request_id = self.turn.request.request_id
        self.ledger.mark(change.line, request_id, {"reason": reason} | change.data)
        if change.line in replay.CHANGES:
            replay.apply_change(self.store, change.line, change.data)
        if self.turn is not None:
            self.turn.changed(change)
        after, rest = self.tokens(), self._rest(reason, change)
        kind, told = _TOLD[change.line]
        self._kit.log.write(
            kind,
            f"{told}: {reason}",
            level="warn" if reason in _BAD else "info",
            reason=reason,
            messages_before=kept,
            messages_after=len(self.store),
            masked=len(change.data.get("results", ())),
            tokens_before=round(before),
            tokens_after=round(after),
            expected_cost_usd=prices.cost_usd(self._kit.model_name, Usage(cache_write_tokens=round(rest))),
        )

    def tokens(self) -> float:
        """What is shown now, in estimated tokens, with what stands before it."""
        return self.frame_tokens + estimate.tokens(self._shown())

    def _shown(self) -> list[Message]:
        return [*self.store.view(), *(self.turn.shown() if self.turn is not None else ())]

    def _rest(self, reason: Reason, change: Change) -> float:
        """Tokens from the first changed place on: the next request writes them to the cache anew."""
        shown = self._shown()
        first = 0
        if change.line not in replay.CHANGES:
            first = len(self.store.view())
        elif change.line == "mask":
            calls = change.data["results"].keys()
            places = (at for at, one in enumerate(shown) if not calls.isdisjoint(blocks.result_ids(one)))
            first = next(places, len(shown))
        frame = self.frame_tokens if reason in {"instructions", "model_change"} else 0.0
        return frame + estimate.tokens(shown[first:])
