"""Changes of the model's view other than appending. Each begins an epoch: it is written to the transcript and logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from bot.agent.deps import AgentDeps
from bot.agent.ledger import Ledger
from bot.agent.tally import KEY, Tally
from bot.context import blocks, checkpoint, deletions, masking, memory, replay
from bot.context.store import AgentContextStore
from bot.contracts.agent import TurnRequest
from bot.contracts.base import Json, Message
from bot.llm import body, prices
from bot.tools import excerpt

Reason = Literal[
    "cold_cache",
    "idle",
    "size",
    "message_cap",
    "injection",
    "overflow",
    "thinking",
    "model_change",
    "new",
    "undo",
    "edit",
    "deletion",
    "instructions",
    "compact",
    "repair",
    "continuation",
    "summary_refused",
]
_TOLD = {
    "boundary": ("compaction", "history cut"),
    "mask": ("masking", "results masked"),
    "injection": ("injection", "older messages loaded or given up"),
    "turn_end": ("injection", "the loaded messages go with their turn"),
    "tail": ("injection", "a line that asked the model to go on goes"),
}
_BAD = frozenset({"overflow", "thinking", "repair", "summary_refused"})
_ANEW = frozenset(
    {"message_cap", "idle", "size", "compact", "instructions", "model_change", "undo", "deletion"}
)
"""After these the whole history is written to the cache anew: what is old in it can be masked for nothing."""
COLD_HIDES = 2_000
"""Tokens that masks must hide in a cold chat. They cost nothing there, but each changes the front of every request."""
WARM = 3
"""So many times the threshold of a cold chat is that of a warm one, where masks cost a rewrite of what stands behind them."""
WARM_HIDES = 0.5
"""The part of what is shown that masks must hide in a warm chat to be worth that."""
COLD_AFTER = 300.0
"""Seconds from the start of a request after which the provider's cache of it has surely expired."""


@dataclass(frozen=True, slots=True)
class ViewChange:
    """A change of the view, as its line in the transcript tells it (`bot.context.replay`)."""

    line: Literal["boundary", "mask", "injection", "turn_end", "tail"]
    """A `tail` is no line: what only one request had at its end goes, and nothing stands behind it."""
    data: Json


def dropped(uuids: Sequence[str] | Literal["all"]) -> ViewChange:
    """A part of the history goes, or all of it; with no uuid, only the thinking."""
    return ViewChange("boundary", {"dropped": uuids if uuids == "all" else list(uuids)})


def compacted(uuids: Sequence[str], head: Message | None) -> ViewChange:
    """A part of the history goes, and `head` stands for it and for the summary there was."""
    return ViewChange("boundary", {"dropped": list(uuids), "head": head})


def changed_frame(frame: Json, head: Message | None = None) -> ViewChange:
    """The request prefix has changed: the thinking in the history goes, and a summary of the provider's becomes words."""
    return ViewChange("boundary", {"dropped": [], "frame": frame} | _in_words(head))


def in_words(head: Message | None) -> ViewChange:
    """A summary of the provider's becomes words, which say the same."""
    return ViewChange("boundary", {"dropped": []} | _in_words(head))


def _in_words(head: Message | None) -> Json:
    """It was made for one system prompt, these tools and this model."""
    if head is None or not memory.condensed(head):
        return {}
    return {"head": memory.in_plain_words(head), deletions.AGAIN: True}


def masked(results: Mapping[str, str]) -> ViewChange:
    """Tool results are shown in other words from now on, by id of the call."""
    return ViewChange("mask", {"results": dict(results)})


def injected(record: Json) -> ViewChange:
    """Older turns are shown before the running one, or fewer of them."""
    return ViewChange("injection", record)


class Running(Protocol):
    """The running turn, as far as a change of the view concerns it."""

    @property
    def request(self) -> TurnRequest: ...
    def shown(self) -> Sequence[Message]:
        """Return its messages in view: injected older turns, then its own."""
        ...

    def changed(self, change: ViewChange) -> None:
        """Apply a change of the messages before it, or of its own."""
        ...


class ViewChanges:
    """Applies every change of a chat's view other than appending."""

    def __init__(self, store: AgentContextStore, ledger: Ledger, deps: AgentDeps) -> None:
        self.turn: Running | None = None
        self.frame: Json | None = None
        """The request prefix by model and digest; None if it is not known."""
        self.asked_at: float | None = None
        """Time of the last request (monotonic seconds); None if none is known."""
        self.tools: tuple[Json, ...] = ()
        """The definitions that requests have since the last time that it was settled."""
        self.sent: Sequence[Message] = ()
        """The messages of the newest request of a turn; () where none is known."""
        self.tally = Tally()
        self._frame_tokens = 0
        self._system: Sequence[Json] = ()
        self.store = store
        self.ledger = ledger
        self._deps = deps

    @property
    def cold(self) -> bool:
        """True if the provider's cache of this chat has expired, or there never was one."""
        return self.asked_at is None or self._deps.clock.monotonic() - self.asked_at > COLD_AFTER

    def settle(self, system: Sequence[Json]) -> None:
        """A turn is about to ask, with this before its messages: what has changed there since the last one, and what
        costs nothing while the cache is cold, is done now.
        """
        self._system = system
        tools, model = self._deps.declared(), self._deps.model_name
        self.tools = tools
        self._frame_tokens = self._deps.estimator.frame(model, system, tools)
        before, self.frame = self.frame, {"model": model, "digest": body.prefix_digest(system, tools)}
        bound = memory.condensed(self.store.head)
        shown = bool(len(self.store)) or self.turn is not None or bound
        if before != self.frame and shown and (before is not None or bound):
            other = before is not None and before["model"] != model
            change = changed_frame(self.frame, self.store.head)
            self.apply("model_change" if other else "instructions", change)
        elif self.cold:
            self.mask_old("cold_cache", hides=COLD_HIDES)
        else:
            above = WARM * self._deps.mask_threshold
            self.mask_old("size", above=above, hides=WARM_HIDES * self.tokens())

    def fewer_tools(self) -> bool:
        """Declare less of the tools, where the window has turned out to have no room for them; whether there is less."""
        before = self._deps.estimator.frame(self._deps.model_name, (), self.tools)
        if self._deps.estimator.frame(self._deps.model_name, (), self._deps.declared()) >= before:
            return False
        self.settle(self._system)
        return True

    def mask_old(self, reason: Reason, *, above: int | None = None, hides: float = 0) -> bool:
        """Mask old tool results where what is shown is more than so many tokens, by default the configured threshold, and
        that `hides` so many of them at the least; whether anything was masked.
        """
        deps, shown = self._deps, self._shown()
        if self.tokens() <= (deps.mask_threshold if above is None else above):
            return False
        results = masking.masks(shown, ages=self._ages, keep=deps.keep_observations, pointer=_pointer)
        if not results or self._hidden(shown, results) < hides:
            return False
        self.apply(reason, masked(results))
        return True

    def _hidden(self, shown: Sequence[Message], results: Mapping[str, str]) -> int:
        """How many tokens of what is shown the masks hide."""
        count, model = self._deps.estimator.messages, self._deps.model_name
        return count(model, shown) - count(model, [blocks.masked(one, results) for one in shown])

    def _ages(self, name: str) -> bool:
        tool = self._deps.registry.get(name)
        return tool is not None and tool.ages

    def apply(self, reason: Reason, change: ViewChange) -> None:
        """Write the change down, carry it out as a restart would, and tell the operator what it was and costs.

        Nothing waits: `Ledger.flush` says when it is on disk.
        """
        kept, before = len(self.store), self.tokens()
        request_id: str | None = None
        if self.turn is not None and change.line not in replay.CHANGES:
            request_id = self.turn.request.request_id
        self.tally.epoch()
        # Within a turn its end will tell: what it has asked is counted from the steps until then.
        totals = {KEY: self.tally.facts} if self.turn is None else {}
        data = {"reason": reason} | change.data | totals
        if change.line in replay.CHANGES:
            replay.apply_change(self.store, change.line, change.data)
        if change.line == "boundary":
            self.ledger.boundary(request_id, data, checkpoint.told(self.store, change.data))
        elif change.line != "tail":
            self.ledger.mark(change.line, request_id, data)
        if self.turn is not None and change.line != "tail":
            self.turn.changed(change)
        after, rest = self.tokens(), self._rest(change)
        cost = prices.prefix_cost(self._deps.model_name, rest, prompt=after)
        kind, told = _TOLD[change.line]
        self._deps.log.write(
            kind,
            f"{told}: {reason}",
            level="warn" if reason in _BAD else "info",
            reason=reason,
            messages_before=kept,
            messages_after=len(self.store),
            masked=len(change.data.get("results", ())),
            how=change.data.get("how"),
            tokens_before=before,
            tokens_after=after,
            expected_cost_usd=None if cost is None else cost.write,
        )
        if reason in _ANEW and change.line == "boundary":
            self.mask_old(reason)

    def within_cap(self, cut: Callable[[Sequence[str]], ViewChange]) -> bool:
        """Let go what is over the cap of messages, as after a turn, a fork or a crash; whether anything is."""
        if over := self.store.over_cap():
            self.apply("message_cap", cut(over))
        return bool(over)

    def note_totals(self) -> None:
        """Write down what the chat has come to, where the end of a running turn will not do so."""
        if self.turn is None:
            self.ledger.mark("meta", None, {KEY: self.tally.facts})

    def tokens(self) -> int:
        """Estimated tokens of the view, with the request prefix."""
        return self._frame_tokens + self._deps.estimator.messages(self._deps.model_name, self._shown())

    def _shown(self) -> list[Message]:
        return [*self.store.view(), *(self.turn.shown() if self.turn is not None else ())]

    def _rest(self, change: ViewChange) -> int:
        """Tokens from the first changed place on: the next request writes them to the cache anew."""
        shown = self._shown()
        first = 0
        if change.line == "tail":
            first = len(shown) - 1
        elif change.line not in replay.CHANGES:
            first = len(self.store.view())
        elif change.line == "mask":
            calls = change.data["results"].keys()
            places = (at for at, one in enumerate(shown) if not calls.isdisjoint(blocks.result_ids(one)))
            first = next(places, len(shown))
        frame = self._frame_tokens if "frame" in change.data else 0
        return frame + self._deps.estimator.messages(self._deps.model_name, shown[first:])


def _pointer(words: str) -> masking.Pointer | None:
    """Where the whole of a result is that is shown in part."""
    found = excerpt.read(words)
    if found is None or found.artifact is None:
        return None
    return masking.Pointer(found.artifact, found.lines)
