"""Changes of the model's view other than appending. Each begins an epoch: it is written to the transcript and logged. `load_store`
carries out those on file.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from bot import errors
from bot.agent.chat_totals import ChatTotals
from bot.agent.deps import AgentDeps
from bot.agent.ledger import Ledger
from bot.context import checkpoint, replay
from bot.context.store import AgentContextStore, Turn
from bot.contracts.base import Json, Message
from bot.contracts.manner import effort_of
from bot.contracts.transcript import (
    Boundary,
    Injection,
    LastingFacts,
    Mask,
    MessageEvent,
    Meta,
    PrefixDigest,
    TranscriptLine,
    TurnEnd,
    TurnStart,
)
from bot.core import blocks, masking, memory
from bot.llm import body

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
    "retention",
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
    {
        "message_cap",
        "idle",
        "size",
        "compact",
        "instructions",
        "model_change",
        "undo",
        "deletion",
        "retention",
    }
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
class Tail:
    """The end of one request goes, which no other has. No line tells it: nothing stands behind it."""

    type: ClassVar[Literal["tail"]] = "tail"


ViewChange = Boundary | Mask | Injection | TurnEnd | Tail
"""A change of the view, as its line in the transcript tells it."""


def in_words(head: Message | None) -> Boundary:
    """A summary of the provider's becomes words, which say the same: it was made for one system prompt, these tools and
    this model.
    """
    if head is None or not memory.condensed(head):
        return Boundary()
    return Boundary(head=memory.in_plain_words(head), again=True)


class ViewChanges:
    """Applies every change of a chat's view other than appending."""

    def __init__(self, store: AgentContextStore, ledger: Ledger, deps: AgentDeps) -> None:
        self.live = False
        """True while a turn runs. One that a crash cut off does not until it goes on."""
        self.frame: PrefixDigest | None = None
        """The request prefix of the last request; None if it is not known."""
        self.asked_at: float | None = None
        """Time of the last request (monotonic seconds); None if none is known."""
        self.tools: tuple[Json, ...] = ()
        """The definitions that requests have since the last time that it was settled."""
        self.sent: Sequence[Message] = ()
        """The messages of the newest request of a turn; () where none is known."""
        self.chat_totals = ChatTotals()
        self._frame_tokens = 0
        self.system: Sequence[Json] = ()
        """The system prompt of the newest request; () where none is known, as after a restart."""
        self.store = store
        self.ledger = ledger
        self._deps = deps

    @property
    def cold(self) -> bool:
        """True if the provider's cache of this chat has expired, or there never was one."""
        return self.asked_at is None or self._deps.clock.monotonic() - self.asked_at > COLD_AFTER

    def _same(self, system: Sequence[Json], tools: Sequence[Json]) -> bool:
        """True if the last turn had this before its messages too."""
        return tools is self.tools and system == self.system

    def prepare(self, system: Sequence[Json], surroundings: Mapping[str, str] | None = None) -> None:
        """A turn is about to ask, with this before its messages: what has changed there since the last one, and what
        costs nothing while the cache is cold, is done now. `surroundings` stand in `system`.
        """
        tools, model = self._deps.declared(), self._deps.models.name
        known = self.frame.digest if self.frame is not None and self._same(system, tools) else None
        self.system, self.tools = system, tools
        self._frame_tokens = self._deps.models.estimator.frame(model, system, tools)
        before = self.frame
        self.frame = PrefixDigest(
            model,
            known or body.prefix_digest(system, tools),
            dict(surroundings) if surroundings else None,
            str(self._deps.models.sent()) or None,
        )
        bound = memory.condensed(self.store.head)
        shown = bool(len(self.store)) or self.live or bound
        if before != self.frame and shown and (before is not None or bound):
            now = self.frame.model, self.frame.manner
            other = before is not None and (before.model, before.manner) != now
            change = replace(in_words(self.store.head), frame=self.frame)
            self.apply("model_change" if other else "instructions", change)
        elif masking.crowded(self._shown()):
            self.mask_old("size", above=0)
        elif self.cold:
            self.mask_old("cold_cache", hides=COLD_HIDES)
        else:
            above = WARM * self._deps.limits.mask_threshold
            self.mask_old("size", above=above, hides=WARM_HIDES * self.tokens())

    def fewer_tools(self) -> bool:
        """Declare less of the tools, where the window has turned out to have no room for them; whether there is less."""
        before = self._deps.models.estimator.frame(self._deps.models.name, (), self.tools)
        if self._deps.models.estimator.frame(self._deps.models.name, (), self._deps.declared()) >= before:
            return False
        self.prepare(self.system, self.frame.surroundings if self.frame is not None else None)
        return True

    def mask_old(self, reason: Reason, *, above: int | None = None, hides: float = 0) -> bool:
        """Mask old tool results where what is shown is more than so many tokens, by default the configured threshold, and
        that `hides` so many of them at the least; whether anything was masked.
        """
        deps, shown = self._deps, self._shown()
        if self.tokens() <= (deps.limits.mask_threshold if above is None else above):
            return False
        results = masking.masks(
            shown,
            ages=self._ages,
            keep=deps.limits.keep_observations,
            masked=self.store.masked,
        )
        if not results or self._hidden(shown, results) < hides:
            return False
        self.apply(reason, Mask(results=results))
        return True

    def _hidden(self, shown: Sequence[Message], results: Mapping[str, str]) -> int:
        """Count the tokens of what is shown that the masks hide."""
        count, model = self._deps.models.estimator.messages, self._deps.models.name
        return count(model, shown) - count(model, [blocks.masked(one, results) for one in shown])

    def _ages(self, name: str) -> bool:
        tool = self._deps.registry.get(name)
        return tool is not None and tool.ages

    def apply(self, reason: Reason, change: ViewChange) -> None:
        """Write the change down, carry it out as a restart would, and tell the operator what it was and costs.

        Nothing waits: `Ledger.flush` says when it is on disk.
        """
        messages, before = len(self.store), self.tokens()
        self.chat_totals.epoch()
        if isinstance(change, Boundary | Mask):
            # Within a turn its end will tell: what it has asked is counted from the steps until then.
            totals = None if self.live else self.chat_totals.facts
            change = replace(change, reason=reason, totals=totals)
            self.store.change(change)
            if isinstance(change, Boundary):
                kept = checkpoint.kept(self.store, change, self.ledger.facts, self.ledger.running)
                change = replace(change, kept=kept)
            self.ledger.add(change)
        elif not isinstance(change, Tail):
            self.tell(replace(change, reason=reason))
        after, rest = self.tokens(), self._rest(change)
        cost = self._deps.models.prices.prefix_cost(self._deps.models.name, rest, prompt=after)
        kind, told = _TOLD[change.type]
        self._deps.log.write(
            kind,
            f"{told}: {reason}",
            level="warn" if reason in _BAD else "info",
            reason=reason,
            messages_before=messages,
            messages_after=len(self.store),
            masked=len(change.results) if isinstance(change, Mask) else 0,
            how=change.how if isinstance(change, Boundary) else None,
            tokens_before=before,
            tokens_after=after,
            expected_cost_usd=None if cost is None else cost.write,
        )
        if reason in _ANEW and isinstance(change, Boundary):
            self.mask_old(reason)

    def tell(self, event: MessageEvent | Injection | TurnEnd) -> str:
        """Write down an event of the running turn, and carry it out; returns the uuid of its line."""
        running = self.store.running
        line = self.ledger.add(event, running.request_id if running is not None else None)
        self.store.apply(line)
        return line.uuid

    def begin_turn(self, request_id: str) -> None:
        """A turn begins."""
        facts = self.ledger.facts
        start = TurnStart(
            frame=self.frame, chosen_model=facts.chosen_model, chosen_effort=facts.chosen_effort
        )
        line = self.ledger.add(start, request_id)
        self.store.apply(line)
        self.live = True

    def resume_turn(self) -> None:
        """The turn that a crash cut off goes on."""
        self.live = True

    def end_turn(self, ended: TurnEnd) -> None:
        """The running turn ends; what it had loaded goes with it."""
        if self.store.older() and ended.status != "withdrawn":
            self.apply("injection", ended)
        else:
            self.tell(ended)
        self.live = False

    def older_than(self, since: float) -> list[str]:
        """The uuids of the oldest turns that began before a time (epoch seconds). One whose time is not known counts as new."""

        def is_old(turn: Turn) -> bool:
            return turn.began is not None and turn.began < since * 1000

        old = itertools.takewhile(is_old, self.store.turns)
        return [entry.uuid for turn in old for entry in turn.entries]

    def note_read(self) -> None:
        """A fork reads what the next request begins with: it stays in the provider's cache for as long again."""
        if self.system:
            self.asked_at = self._deps.clock.monotonic()

    def note_sent(self, messages: Sequence[Message]) -> None:
        """The turn asks the model with these messages: from now on they are in the provider's cache."""
        self.sent = messages
        self.asked_at = self._deps.clock.monotonic()

    def take_up(self, facts: LastingFacts) -> None:
        """After a restart: what the lines of the chat say of it as a whole."""
        self.chat_totals.load(facts.totals)
        self.frame = facts.frame
        if facts.answered_at is not None:
            # It was asked before it answered.
            ago = max(0.0, self._deps.clock.now() - facts.answered_at / 1000)
            self.asked_at = self._deps.clock.monotonic() - ago

    def forget_prefix(self) -> None:
        """Another model answers: there is no prompt for it yet, and no cache holds this chat."""
        self.system, self.asked_at = (), None

    def note_totals(self) -> None:
        """Write down what the chat has come to, where the end of a running turn will not do so."""
        if not self.live:
            self.ledger.add(Meta(totals=self.chat_totals.facts))

    def tokens(self) -> int:
        """Estimated tokens of the view, with the request prefix."""
        return self._frame_tokens + self._deps.models.estimator.messages(
            self._deps.models.name, self._shown()
        )

    def _shown(self) -> list[Message]:
        if not self.live:
            return list(self.store.view())
        return [*self.store.view(), *self.store.older(), *self.store.current()]

    def _rest(self, change: ViewChange) -> int:
        """Tokens from the first changed place on: the next request writes them to the cache anew."""
        shown = self._shown()
        first, frame = 0, 0
        if isinstance(change, Tail):
            first = len(shown) - 1
        elif isinstance(change, Boundary):
            frame = self._frame_tokens if change.frame is not None else 0
        elif isinstance(change, Mask):
            calls = change.results.keys()
            places = (at for at, one in enumerate(shown) if not calls.isdisjoint(blocks.maskable(one)))
            first = next(places, len(shown))
        else:
            first = len(self.store.view())
        return frame + self._deps.models.estimator.messages(self._deps.models.name, shown[first:])


async def load_store(changes: ViewChanges, deps: AgentDeps) -> Sequence[TranscriptLine]:
    """Carry out the transcript: from the newest boundary on whose rest is there as it was, else all of it. Returns the lines."""
    lines, mended = await _replayed(changes)
    changes.take_up(changes.ledger.facts)
    deps.models.chosen = changes.ledger.facts.chosen_model or None
    if deps.models.chosen:
        with contextlib.suppress(errors.ModelError):
            # What it takes may not have been kept before a crash, and a change of that costs the chat's cache.
            await deps.models.windows.ask(deps.models.model, deps.models.chosen)
    deps.models.chosen_effort = effort_of(changes.ledger.facts.chosen_effort)
    if mended:
        changes.apply("repair", Boundary())
        lines, _ = await _replayed(changes)
    return lines


async def _replayed(changes: ViewChanges) -> tuple[Sequence[TranscriptLine], int]:
    """Fill the store from what is on file; how much of it had to be mended."""
    store, ledger = changes.store, changes.ledger
    store.reset()
    loaded = await ledger.load()
    base = None
    if loaded.base is not None:
        base = checkpoint.rebuilt(loaded.base, loaded.messages)
        if base is None:
            loaded = await ledger.load(whole=True)
    return loaded.lines, replay.replay(store, loaded.lines, base)
