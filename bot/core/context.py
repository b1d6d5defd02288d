"""`AgentContextStore`: the model's messages of one chat, a fold of its events as whole turns.

Between turns it holds at most `max_messages` messages of the model's API. What is shown is a view: masks and the head stand in place of
what they hide, and the events keep the whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot import text
from bot.contracts.base import Json, Message
from bot.contracts.provenance import NOBODYS, ORIGIN
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import blocks, events
from bot.core.compaction import api_rounds
from bot.core.events import Event
from bot.core.removal import Gone, message_without, redacted

LENGTH = frozenset({"max_tokens", "model_context_window_exceeded"})
"""Reasons with which the limit of length ends an answer."""
MOST_WRONG = 3
"""Limit of failed turns that the model is told of."""
INTERRUPTED = "Interrupted: the turn was stopped while this ran. It may or may not have taken effect."


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One message of the model's API. `seq` is the number of the event that made it, `sources` the requests whose words it carries."""

    seq: int
    message: Message
    sources: tuple[str, ...] = ()
    cut: frozenset[str] = frozenset()
    """Tool calls in it that did not arrive whole."""
    stop_reason: str | None = None
    continues: int = 0


@dataclass(frozen=True, slots=True)
class KeptTurn:
    """A turn that has ended. `began` is epoch seconds, `since` the number of the oldest event that it rests on."""

    id: str
    entries: tuple[ContextEntry, ...]
    began: float
    since: int

    @property
    def sources(self) -> frozenset[str]:
        """The requests that it answered."""
        return frozenset({self.id}.union(*(one.sources for one in self.entries)))

    @property
    def named(self) -> list[tuple[int, Message]]:
        """Its messages by the numbers of their events."""
        return [(entry.seq, entry.message) for entry in self.entries]


@dataclass(slots=True)
class RunningTurn:
    """The messages of the turn that runs."""

    id: str
    began: float
    since: int
    entries: tuple[ContextEntry, ...] = ()
    results: dict[str, Json] = field(default_factory=dict)
    """Results of the calls of the last answer, while some are missing."""
    older: tuple[tuple[int, Message], ...] = ()
    """Injected older messages with their times (ms), in time order."""
    injected: int = 0
    lines: set[str] = field(default_factory=set)
    """The archive lines that were injected."""
    last: events.Answered | None = None
    """The newest answer, while nothing stands behind it."""
    cuts: int = 0
    """Answers that the limit has ended in a tool call or in thinking."""
    thoughts: int = 0
    """Those in thinking."""
    silences: int = 0
    """Answers without a word that nothing has cut off."""
    pauses: int = 0
    """Answers in which the provider has paused."""
    noted: tuple[str, ...] = ()
    """Notes for its person that came with answers."""
    untold_notes: tuple[str, ...] = ()
    """Those that no message has brought yet."""

    @property
    def speaks(self) -> bool:
        """True where its last message is the model's."""
        return bool(self.entries) and self.entries[-1].message["role"] == "assistant"

    @property
    def words(self) -> str:
        """The text with which it ends: an answer that paused and went on is one answer."""
        said = itertools.takewhile(lambda one: one.message["role"] == "assistant", reversed(self.entries))
        words = "".join(reversed([blocks.plain_text(one.message["content"]) for one in said])).strip()
        return words if text.visible(words) else ""

    @property
    def after_results(self) -> bool:
        """True where the last that came to the model is what tools gave, with or without other words behind it."""
        said = itertools.takewhile(lambda one: one.message["role"] == "user", reversed(self.entries))
        return any(blocks.is_results(one.message) for one in said)

    @property
    def open_calls(self) -> list[ToolCall]:
        """The calls of the last answer that have no result."""
        if not self.entries or self.entries[-1].message["role"] != "assistant":
            return []
        return [
            one
            for one in blocks.tool_calls(self.entries[-1].message["content"])
            if one.id not in self.results
        ]


class AgentContextStore:
    """The history of one chat, and the turn that runs behind it."""

    def __init__(self, max_messages: int) -> None:
        self.max_messages = max_messages
        self.turns: list[KeptTurn] = []
        self.head: Message | None = None
        """The message that stands for what was cut away."""
        self.masked: dict[str, str] = {}
        """Words in place of tool results, by the id of their call."""
        self.running: RunningTurn | None = None
        self.frame: events.Framed | None = None
        self.memory: events.Remembered | None = None
        self._stated: dict[str, int] = {}
        """The numbers of the events of the frame, of the memory and of the head."""
        self.asked_at: float | None = None
        """The time of the last request (epoch seconds)."""
        self.cached = False
        """True where the last request read from the provider's cache."""
        self.wrong: tuple[str, ...] = ()
        """Failures of turns since the last that went well, in words for the model."""
        self.stood_in = ""
        """The model that gave the last answer in the place of the chat's own."""
        self.left: dict[str, KeptTurn] | None = None
        """The turns that have left the view, by id: kept while the log is read, since a conversation that goes on brings some back."""
        self.recalled: dict[str, KeptTurn] = {}
        """Those of a conversation that is about to go on, in a chat whose log was read long ago."""
        self._view: tuple[Message, ...] | None = ()

    def __len__(self) -> int:
        return sum(len(turn.entries) for turn in self.turns)

    # ------------------------------------------------------------ the views

    def view(self) -> tuple[Message, ...]:
        """The messages of the turns that have ended, as the model is shown them. Grows at its end alone, between changes."""
        if self._view is None:
            head = () if self.head is None else (self.head,)
            kept = (entry.message for turn in self.turns for entry in turn.entries)
            self._view = (*head, *(blocks.masked(one, self.masked) for one in kept))
        return self._view

    def current(self) -> list[Message]:
        """Those of the running turn."""
        entries = self.running.entries if self.running is not None else ()
        return [blocks.masked(entry.message, self.masked) for entry in entries]

    def older(self) -> list[Message]:
        """Those of older turns that the running one has loaded: they stand before it."""
        return [message for _, message in self.running.older] if self.running is not None else []

    def sources(self) -> frozenset[str]:
        """The requests whose words are in view."""
        kept = frozenset[str]().union(*(turn.sources for turn in self.turns))
        running = self.running
        return kept if running is None else kept.union(*(one.sources for one in running.entries))

    @property
    def base(self) -> int | None:
        """The number of the oldest event that it rests on; None where it is empty."""
        since = [self.turns[0].since] if self.turns else []
        return min([*since, *self._stated.values()], default=None)

    @property
    def out_of_reach(self) -> list[events.EventData]:
        """The frame and the memory, where a fold that begins with the oldest turn in view would not find them: they are stated anew."""
        if not self.turns:
            return []
        lasting = [one for one in (self.frame, self.memory) if one is not None]
        return [one for one in lasting if self._stated[one.kind] < self.turns[0].since]

    # ------------------------------------------------------------ the fold

    def recall(self, turns: Mapping[str, KeptTurn]) -> None:
        """Have these turns at hand for a conversation that is about to go on."""
        self.recalled = dict(turns)

    def begin(self, turn: str, at: float, since: int) -> None:
        """A turn begins; the oldest event that it rests on has the number `since`."""
        self.running = RunningTurn(turn, at, since)

    def apply(self, event: Event) -> None:
        """Take an event in. One of a turn that does not run changes nothing."""
        data, running = event.data, self.running
        match data:
            case events.Cut():
                self._cut(data)
                self._state_head(event)
            case events.SessionMoved():
                self._move(data)
                self._state_head(event)
            case events.Expired():
                self._expire(data.before)
            case events.Masked():
                self._mask(data.results)
            case events.Removed():
                self.remove(Gone.of(data), head=data.head)
            case events.Framed():
                self._frame(event, data)
            case events.Remembered():
                self.memory, self._stated[data.kind] = data, event.seq
            case _ if running is not None and running.id == event.turn:
                self._apply_to(running, event)
            case _:
                pass

    def _apply_to(self, running: RunningTurn, event: Event) -> None:
        match data := event.data:
            case events.Asked():
                self.asked_at = event.at
            case events.Told():
                running.entries += (ContextEntry(event.seq, data.message, data.sources),)
                running.last = None
            case events.Answered():
                self.cached = data.usage.get("cacheRead", 0) > 0
                self._answer(running, event, data)
            case events.ToolEnded():
                self._end_tool(running, event, data)
            case events.Injected():
                self._inject(running, data)
            case events.Queued() if data.form == "reply":
                running.untold_notes = ()
            case events.TurnEnded():
                self._end(running, event, data)

    def _answer(self, running: RunningTurn, event: Event, data: events.Answered) -> None:
        kept = running.entries
        if data.continues and kept and kept[-1].message["role"] == "assistant":
            kept = kept[:-1]  # an answer that went on is one message
        running.results, running.last = {}, data
        self.stood_in = data.model if data.note else ""
        thought = not data.content and data.stop_reason in LENGTH
        running.cuts += bool(data.cut) or thought
        running.thoughts += thought
        running.silences += not data.content and not thought
        running.pauses += data.stop_reason == "pause_turn" and not data.continues
        if data.note and data.note not in running.noted:
            running.noted += (data.note,)
            running.untold_notes += (data.note,)
        if data.content:
            message: Message = {"role": "assistant", "content": list(data.content)}
            if data.origin is not None:
                message |= {ORIGIN: data.origin}
            kept += (
                ContextEntry(
                    event.seq,
                    message,
                    cut=frozenset(data.cut),
                    stop_reason=data.stop_reason,
                    continues=data.continues,
                ),
            )
        running.entries = kept

    def _end_tool(self, running: RunningTurn, event: Event, data: events.ToolEnded) -> None:
        if data.call not in {call.id for call in running.open_calls}:
            return
        running.results[data.call] = data.result
        if not running.open_calls:
            self._add_results(running, event.seq)

    def _add_results(self, running: RunningTurn, seq: int) -> None:
        calls = blocks.tool_calls(running.entries[-1].message["content"])
        message: Message = {"role": "user", "content": [running.results[call.id] for call in calls]}
        running.entries += (ContextEntry(seq, message),)
        running.results, running.last = {}, None

    def _inject(self, running: RunningTurn, data: events.Injected) -> None:
        if data.kept is not None:
            running.older = running.older[len(running.older) - data.kept :]
        else:
            more = zip(data.times, data.messages, strict=True)
            # Stable, and what is loaded later is as a rule older: messages of one moment keep their order.
            running.older = tuple(sorted([*more, *running.older], key=lambda one: one[0]))
        running.injected += len(data.messages)
        running.lines.update(data.lines)
        running.entries = without_thinking(running.entries)

    def _end(self, running: RunningTurn, event: Event, data: events.TurnEnded) -> None:
        if running.entries and running.open_calls:
            for call in running.open_calls:
                running.results[call.id] = ToolResult(call.id, INTERRUPTED, failed=True, origin=NOBODYS).block
            self._add_results(running, event.seq)
        self.running = None
        if data.reason:
            self.wrong = (*self.wrong, data.reason)[-MOST_WRONG:]
        elif data.end == "answered":
            self.wrong = ()
        if data.end == "withdrawn" or not running.entries:
            return
        # Its view had older messages that are gone now.
        entries = without_thinking(running.entries) if running.injected else running.entries
        if running.speaks:
            entries = (*entries[:-1], *_unpaused(entries[-1:]))
        self.turns.append(KeptTurn(running.id, entries, running.began, running.since))
        if self._view is not None:
            self._view += tuple(blocks.masked(entry.message, self.masked) for entry in entries)

    def _frame(self, event: Event, data: events.Framed) -> None:
        if self.frame is not None and (self.frame.model, self.frame.prefix) != (data.model, data.prefix):
            # What was thought is bound to what stood before it.
            self.turns = [replace(turn, entries=without_thinking(turn.entries)) for turn in self.turns]
            if self.running is not None:
                self.running.entries = without_thinking(self.running.entries)
            self._view = None
        self.frame, self._stated[data.kind] = data, event.seq

    def _leave(self) -> None:
        """Keep the turns in view, should they come back; of one that had lost messages before, the whole."""
        left = self.left
        for turn in self.turns if left is not None else ():
            if left is not None and len(turn.entries) >= len(getattr(left.get(turn.id), "entries", ())):
                left[turn.id] = turn

    def _forget_memory(self) -> None:
        self.memory = None
        self._stated.pop(events.Remembered.kind, None)

    def _state_head(self, event: Event) -> None:
        self._stated.pop(events.Cut.kind, None)
        if self.head is not None:
            self._stated[events.Cut.kind] = event.seq

    def _expire(self, before: int) -> None:
        """Let go what began before this event. The frame and the memory stay while a turn does: they are stated anew."""
        kept = list(itertools.dropwhile(lambda turn: turn.since < before, self.turns))
        old = {kind for kind, seq in self._stated.items() if seq < before}
        if not kept and events.Remembered.kind in old:
            self._forget_memory()
        if not kept and events.Framed.kind in old:
            self.frame = None
            del self._stated[events.Framed.kind]
        if events.Cut.kind in old:
            self.head = None
            del self._stated[events.Cut.kind]
        if events.Cut.kind in old or len(kept) < len(self.turns):
            self._show(kept)

    def _move(self, data: events.SessionMoved) -> None:
        self._leave()
        self._forget_memory()
        known = {**(self.left or {}), **self.recalled}
        self.head, self.masked, self.wrong, self.recalled = data.head, dict(data.masked), (), {}
        self.turns = [
            replace(turn, entries=without_thinking(turn.entries))
            for turn in map(known.get, data.turns)
            if turn is not None
        ]
        self._view = None

    def _cut(self, data: events.Cut) -> None:
        self._leave()
        self.head = data.head
        if data.reason == "new":
            self._forget_memory()
            self.wrong = ()
        gone = None if data.dropped == "all" else frozenset(data.dropped)
        kept = list[KeptTurn]()
        for turn in self.turns if gone is not None else ():
            entries = tuple(entry for entry in turn.entries if gone is None or entry.seq not in gone)
            if entries:
                kept.append(replace(turn, entries=entries))
        self._show(kept)

    def _show(self, kept: Sequence[KeptTurn]) -> None:
        """Have these alone in view, with the turn that runs."""
        self.turns = [replace(turn, entries=without_thinking(turn.entries)) for turn in kept]
        if self.running is not None:
            self.running.entries = without_thinking(self.running.entries)
        shown = {
            one for turn in self.turns for entry in turn.entries for one in blocks.maskable(entry.message)
        }
        if self.running is not None:
            shown |= {one for entry in self.running.entries for one in blocks.maskable(entry.message)}
        self.masked = {name: words for name, words in self.masked.items() if name in shown}
        self._view = None

    def _mask(self, words: Mapping[str, str]) -> None:
        self.masked |= words
        found = False
        for at, turn in enumerate(self.turns):
            entries, found = stripped_behind(turn.entries, words, found=found)
            self.turns[at] = replace(turn, entries=entries)
        if self.running is not None:
            self.running.entries, _ = stripped_behind(self.running.entries, words, found=found)
        self._view = None

    def remove(self, gone: Gone, *, head: bool) -> None:
        """Take out what is removed, and with `head` the message that stands for what was cut away."""
        if head:
            self.head = None
            self._stated.pop(events.Cut.kind, None)
        self.turns = [replace(turn, entries=_without(turn.entries, turn.id, gone)) for turn in self.turns]
        if (running := self.running) is not None:
            running.entries = _without(running.entries, running.id, gone)
            # Whose words each older message is cannot be told any more.
            running.older = tuple((at, redacted(one)) for at, one in running.older)
        self._view = None

    # ------------------------------------------------------------ what may go

    def over_cap(self) -> list[int]:
        """The entries to drop now that the cap is passed, oldest first; [] while it is not. Whole turns go in one batch, until half
        the cap is left; the newest turn stays, and loses its oldest API rounds where it alone is over the cap.
        """
        over = len(self.view()) - self.max_messages
        if over <= 0 or not self.turns:
            return []
        return self._oldest(over + self.max_messages // 2, self.turns[-1])

    def oldest_half(self) -> list[int]:
        """The oldest half of the entries, on borders of turns: at least one turn, [] where there is none."""
        return self._oldest((len(self) + 1) // 2, None)

    def _oldest(self, at_least: int, keep: KeptTurn | None) -> list[int]:
        dropped = list[int]()
        for turn in self.turns:
            if len(dropped) >= at_least or turn is keep:
                break
            dropped += [entry.seq for entry in turn.entries]
        left = len(self) - len(dropped)
        if keep is not None and left > self.max_messages:
            for one in api_rounds(keep.named)[:-1]:
                if left <= self.max_messages // 2:
                    break
                dropped += [seq for seq, _ in one]
                left -= len(one)
        return dropped


def _without(entries: Iterable[ContextEntry], turn: str, gone: Gone) -> tuple[ContextEntry, ...]:
    """The entries of a turn without what is removed."""
    return tuple(
        entry if message is entry.message else replace(entry, message=message)
        for entry in entries
        for message in [message_without(entry.message, entry.sources, turn, gone)]
    )


def without_thinking(entries: Iterable[ContextEntry]) -> tuple[ContextEntry, ...]:
    """The entries without their thinking blocks, which newer models refuse behind a changed position; one that held nothing else goes."""
    return tuple(
        entry if message is entry.message else replace(entry, message=message)
        for entry in entries
        for message in blocks.without_thinking([entry.message])
    )


def _unpaused(entries: Iterable[ContextEntry]) -> Iterator[ContextEntry]:
    """The entries without calls of the provider's own tools that will never get their result."""
    for entry in entries:
        content = blocks.without_open_calls(entry.message["content"])
        if len(content) == len(entry.message["content"]):
            yield entry
        elif left := blocks.sayable(content):
            yield replace(entry, message={**entry.message, "content": left})


def stripped_behind(
    entries: Iterable[ContextEntry], calls: Mapping[str, str], *, found: bool = False
) -> tuple[tuple[ContextEntry, ...], bool]:
    """The entries without the thinking behind the first result of these calls, or without any where that was `found` before; and
    whether it is found now.
    """
    kept = list[ContextEntry]()
    for entry in entries:
        kept += without_thinking([entry]) if found else [entry]
        found = found or not calls.keys().isdisjoint(blocks.maskable(entry.message))
    return tuple(kept), found
