"""`AgentContextStore` holds the messages that are sent to the model for one chat, grouped by turn. They are computed from
the chat's events. Placeholder texts replace masked tool results, and one head message replaces all dropped messages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot import tags, text
from bot.contracts.base import Json, Message
from bot.contracts.messages import NOBODYS, ORIGIN
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import events
from bot.core.events import Event
from bot.core.memory import in_plain_words
from bot.core.removal import Gone, message_without, redacted
from bot.llm import blocks

LENGTH = frozenset({"max_tokens", "model_context_window_exceeded"})
"""Stop reasons of an answer that hit a length limit."""
MOST_WRONG = 3  # Max failed turns that the next request reports to the model
GO_ON = "Continue exactly where you left off. Do not repeat what you already said, and say nothing about the break."
INTERRUPTED = "Interrupted: the turn was stopped while this ran. It may or may not have taken effect."


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One API message. `seq` is its event's number. `sources` are the ids of the requests whose text the message contains.
    `cut` are the ids of its tool calls that did not arrive completely.
    """

    seq: int
    message: Message
    sources: tuple[str, ...] = ()
    cut: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class KeptTurn:
    """An ended turn. It began at `began` (epoch seconds). Rebuilding it needs all events from number `since` on."""

    id: str
    entries: tuple[ContextEntry, ...]
    began: float
    since: int
    sources: frozenset[str] = field(init=False)
    """Ids of the requests (messages of people) that the turn answered."""

    def __post_init__(self) -> None:
        found = frozenset({self.id}.union(*[one.sources for one in self.entries]))
        object.__setattr__(self, "sources", found)


@dataclass(slots=True)
class RunningTurn:
    id: str
    began: float
    since: int
    entries: tuple[ContextEntry, ...] = ()
    results: dict[str, Json] = field(default_factory=dict)
    """Tool results that have arrived for the last answer, keyed by call id. When all have arrived, they become one message."""
    older: tuple[tuple[int, Message], ...] = ()
    """Older messages that a tool loaded for this turn, oldest first, each with its time in epoch ms."""
    injected: int = 0
    lines: set[str] = field(default_factory=set)
    """Keys of the archive lines that were loaded as older messages."""
    last: events.Answered | None = None
    """The model's newest answer; None if a user message or tool results came after it."""
    answers: list[events.Answered] = field(default_factory=list)
    """All answers of the model. Their token usage is added up."""
    unfinished: int = 0
    """Number of the model's newest answers in a row that were cut off, paused by the provider, or empty."""
    notes: dict[str, bool] = field(default_factory=dict)
    """Notes for the person that came with the model's answers, for example that a fallback model answered. The value is
    True once a message to the person contains the note.
    """

    @property
    def speaks(self) -> bool:
        """Return True if the turn's last message is an answer of the model."""
        return bool(self.entries) and self.entries[-1].message["role"] == "assistant"

    @property
    def words(self) -> str:
        """Return the text of the turn's last answer. An answer that was paused and continued counts as one."""
        said = itertools.takewhile(lambda one: one.message["role"] == "assistant", reversed(self.entries))
        words = "".join(reversed([blocks.plain_text(one.message["content"]) for one in said])).strip()
        return words if text.visible(words) else ""

    @property
    def open_calls(self) -> list[ToolCall]:
        """Return the tool calls of the last answer that have no result."""
        calls = blocks.tool_calls(self.entries[-1].message["content"]) if self.speaks else []
        return [one for one in calls if one.id not in self.results]

    @property
    def paused(self) -> bool:
        """Return True if the provider paused the last answer. The next request must then end with this answer, unchanged."""
        last = self.last
        return self.speaks and last is not None and last.stop_reason == "pause_turn" and not last.continues

    @property
    def tail(self) -> tuple[Message, ...]:
        """Return the user message that must end the next request; () if the request needs no such message. Newer models
        reject a request that ends with assistant text. The message is not stored.
        """
        last = self.last
        if last is None or self.paused or (not self.speaks and last.stop_reason in LENGTH):
            return ()
        words = GO_ON if self.speaks else tags.ANSWER
        return ({"role": "user", "content": [{"type": "text", "text": words}]},)


@dataclass(eq=False)
class AgentContextStore:
    """Holds the messages of ended turns and of the running turn that are sent to a chat's model."""

    max_messages: int
    turns: list[KeptTurn] = field(default_factory=list)
    head: Message | None = None
    """Message at the beginning that replaces all messages dropped from the context, such as a summary."""
    masked: dict[str, str] = field(default_factory=dict)
    """Placeholder texts: the key is the call id of a masked tool result or the artifact id of a masked file."""
    running: RunningTurn | None = None
    frame: events.Framed | None = None
    memory: events.Remembered | None = None
    _stated: dict[str, int] = field(default_factory=dict)
    """Event numbers of the newest frame (prompt, model settings), session memory and head message, keyed by event kind."""
    asked_at: float | None = None  # Time of the last request to the model in epoch seconds
    cached: bool = False  # True if the provider read part of the last request from its cache
    wrong: tuple[str, ...] = ()
    """Reasons why recent turns failed. Requests tell the model these reasons until a turn succeeds."""
    stood_in: str = ""
    """Name of the fallback model that gave the last answer; "" if the chat's own model gave it."""
    left: dict[str, KeptTurn] | None = None
    """Turns that left the context, keyed by id. None once the log has been read."""
    recalled: Mapping[str, KeptTurn] = field(default_factory=dict)
    """Turns of the conversation that the chat is about to resume, keyed by id."""
    _view: tuple[Message, ...] | None = ()

    def __len__(self) -> int:
        return sum(len(turn.entries) for turn in self.turns)

    # ------------------------------------------------------------ views of the messages

    def view(self) -> tuple[Message, ...]:
        """Return the head message and the messages of ended turns, in the form in which they are sent to the model."""
        if self._view is None:
            head = () if self.head is None else (self.head,)
            kept = (entry.message for turn in self.turns for entry in turn.entries)
            self._view = (*head, *(blocks.masked(one, self.masked) for one in kept))
        return self._view

    def current(self) -> list[Message]:
        """Return the messages of the running turn, in the form in which they are sent to the model."""
        entries = self.running.entries if self.running is not None else ()
        return [blocks.masked(entry.message, self.masked) for entry in entries]

    def older(self) -> list[Message]:
        """Return the older messages that tools loaded for the running turn."""
        return [message for _, message in self.running.older] if self.running is not None else []

    def shown(self) -> list[Message]:
        """Return all messages that are sent to the model."""
        return [*self.view(), *self.older(), *self.current()]

    def sources(self) -> frozenset[str]:
        """Return the ids of the requests whose text is in the model's context."""
        running = self.running.entries if self.running is not None else ()
        kept = [*(one.sources for one in self.turns), *(one.sources for one in running)]
        return frozenset[str]().union(*kept)

    @property
    def base(self) -> int | None:
        """Return the number of the oldest event that rebuilding the context needs; None if the context is empty."""
        needed = [self.turns[0].since] if self.turns else []
        needed += [self._stated[events.Cut.kind]] if self.head is not None else ()
        needed += [self._stated[events.Framed.kind]] if self.frame is not None else ()
        needed += [self._stated[events.Remembered.kind]] if self.memory is not None else ()
        return min(needed, default=None)

    @property
    def out_of_reach(self) -> list[events.EventData]:
        """Return the events of prompt and memory that are older than the oldest turn. These events must be appended to the log
        again.
        """
        lasting = [one for one in (self.frame, self.memory) if one is not None]
        return [one for one in lasting if self.turns and self._stated[one.kind] < self.turns[0].since]

    # ------------------------------------------------------------ the fold

    def apply(self, event: Event) -> None:  # noqa: C901, PLR0912 - one `match` over all event kinds
        """Update the context with an event. Ignore events of a turn that is not running."""
        running = self.running
        match data := event.data:
            case events.Cut() | events.SessionMoved():
                self._leave()
                self.head, self._stated[events.Cut.kind] = in_plain_words(data.head), event.seq
                if isinstance(data, events.Cut):
                    self._cut(data)
                else:
                    before = {**(self.left or {}), **self.recalled}
                    self.memory, self.masked, self.wrong, self.recalled = None, dict(data.masked), (), {}
                    self.turns = [
                        replace(before[one], entries=without_thinking(before[one].entries))
                        for one in data.turns
                        if one in before
                    ]
                    self._view = None
            case events.Expired():
                self._expire(data.before)
            case events.Masked():
                self.masked |= data.results
                self._show(self.turns)
            case events.Removed():
                self.remove(Gone.of(data), head=data.head)
            case events.Framed():
                known, self.frame, self._stated[data.kind] = self.frame, data, event.seq
                if known is not None and (known.model, known.prefix) != (data.model, data.prefix):
                    self._show(
                        self.turns
                    )  # thinking is valid only while prompt, tools and model stay the same
            case events.Remembered():
                self.memory, self._stated[data.kind] = data, event.seq
            case _ if running is None or running.id != event.turn:
                pass
            case events.Asked():
                self.asked_at = event.at
            case events.Told():
                running.entries += (ContextEntry(event.seq, data.message, data.sources),)
                running.last = None
            case events.Answered():
                self.cached = data.usage.get("cacheRead", 0) > 0
                self.stood_in = data.model if data.note else ""
                _answer(running, event.seq, data)
            case events.ToolEnded() if data.call in {call.id for call in running.open_calls}:
                running.results[data.call] = data.result
                if not running.open_calls:
                    _add_results(running, event.seq)
            case events.Injected():
                _inject(running, data)
            case events.Queued() if data.form == "reply":
                running.notes = dict.fromkeys(running.notes, True)
            case events.TurnEnded():
                self._end(running, event.seq, data)
            case _:
                pass

    def _end(self, running: RunningTurn, seq: int, data: events.TurnEnded) -> None:
        if calls := running.open_calls:
            for call in calls:
                running.results[call.id] = ToolResult(call.id, INTERRUPTED, failed=True, origin=NOBODYS).block
            _add_results(running, seq)
        self.running = None
        if data.reason:
            self.wrong = (*self.wrong, data.reason)[-MOST_WRONG:]
        elif data.end == "answered":
            self.wrong = ()
        if data.end == "withdrawn" or not running.entries:
            return
        # The loaded older messages are dropped at the end of the turn, so thinking blocks after them are no longer valid.
        entries = without_thinking(running.entries) if running.injected else running.entries
        if running.speaks:  # a provider's tool call that a pause left open will never get a result
            *before, last = entries
            content = last.message["content"]
            if len(left := blocks.without_open_calls(content)) < len(content):
                left = blocks.sayable(left)
                last = replace(last, message={**last.message, "content": left})
            entries = (*before, *([last] if left else []))
        self.turns.append(KeptTurn(running.id, entries, running.began, running.since))
        if self._view is not None:
            self._view += tuple(blocks.masked(entry.message, self.masked) for entry in entries)

    def _leave(self) -> None:
        """Save the current turns in `left`. If a turn is already there, keep the longer version."""
        if self.left is not None:
            for turn in self.turns:
                if turn.id not in self.left or len(turn.entries) >= len(self.left[turn.id].entries):
                    self.left[turn.id] = turn

    def _expire(self, before: int) -> None:
        """Drop everything before this event number. The prompt, model settings and memory stay while any turn is kept."""
        kept = list(itertools.dropwhile(lambda turn: turn.since < before, self.turns))
        old = {kind for kind, seq in self._stated.items() if seq < before}
        if not kept:
            self.memory = None if events.Remembered.kind in old else self.memory
            self.frame = None if events.Framed.kind in old else self.frame
        headless = self.head is not None and events.Cut.kind in old
        if headless or len(kept) < len(self.turns):
            self.head = None if headless else self.head
            self._show(kept)

    def _cut(self, data: events.Cut) -> None:
        if data.reason == "new":
            self.memory, self.wrong = None, ()
        gone = None if data.dropped == "all" else frozenset(data.dropped)
        kept = list[KeptTurn]()
        for turn in self.turns if gone is not None else ():
            if entries := tuple(entry for entry in turn.entries if entry.seq not in (gone or ())):
                kept.append(replace(turn, entries=entries))
        self._show(kept)

    def _show(self, kept: Sequence[KeptTurn]) -> None:
        """Keep only these turns and the running turn. Remove thinking, which is valid only after unchanged messages."""
        self.turns = [replace(turn, entries=without_thinking(turn.entries)) for turn in kept]
        if self.running is not None:
            self.running.entries = without_thinking(self.running.entries)
        entries = (
            entry for turn in (*self.turns, self.running) if turn is not None for entry in turn.entries
        )
        shown = {one for entry in entries for one in blocks.maskable(entry.message)}
        self.masked = {name: words for name, words in self.masked.items() if name in shown}
        self._view = None

    def remove(self, gone: Gone, *, head: bool) -> None:
        """Remove the content that `gone` names. If `head` is True, also remove the head message."""
        self.head = None if head else self.head
        self.turns = [replace(turn, entries=_without(turn.entries, turn.id, gone)) for turn in self.turns]
        if (running := self.running) is not None:
            running.entries = _without(running.entries, running.id, gone)
            # Nothing records from which request an older message comes, so all older messages are redacted.
            running.older = tuple((at, redacted(one)) for at, one in running.older)
        self._view = None

    # ------------------------------------------------------------ messages that may be dropped

    def over_cap(self) -> list[int]:
        """Return the event numbers of messages to drop if there are more than `max_messages`. Drop the oldest turns first,
        until half of `max_messages` is left. If the newest turn alone is too long, drop its oldest API rounds.
        """
        over = len(self.view()) - self.max_messages
        if over <= 0 or not self.turns:
            return []
        dropped = self.oldest(self.turns[:-1], over + self.max_messages // 2)
        left = len(self) - len(dropped)
        for one in api_rounds(self.turns[-1].entries)[:-1] if left > self.max_messages else ():
            if left <= self.max_messages // 2:
                break
            dropped += [entry.seq for entry in one]
            left -= len(one)
        return dropped

    def oldest(self, turns: Sequence[KeptTurn], at_least: int) -> list[int]:
        """Return the event numbers of at least `at_least` messages: all messages of the oldest of these turns."""
        dropped = list[int]()
        for turn in turns:
            if len(dropped) >= at_least:
                break
            dropped += [entry.seq for entry in turn.entries]
        return dropped


def _answer(running: RunningTurn, seq: int, data: events.Answered) -> None:
    kept = running.entries
    if data.continues and running.speaks:
        kept = kept[:-1]  # an answer and its continuation are one message
    running.results, running.last = {}, data
    running.answers.append(data)
    if data.cut or not data.content or data.stop_reason in {*LENGTH, "pause_turn"}:
        running.unfinished += 1
    else:
        running.unfinished = 0
    if data.note:
        running.notes.setdefault(data.note, False)
    if data.content:
        message: Message = {"role": "assistant", "content": list(data.content)}
        if data.origin is not None:
            message |= {ORIGIN: data.origin}
        kept += (ContextEntry(seq, message, cut=frozenset(data.cut)),)
    running.entries = kept


def _add_results(running: RunningTurn, seq: int) -> None:
    calls = blocks.tool_calls(running.entries[-1].message["content"])
    message: Message = {"role": "user", "content": [running.results[call.id] for call in calls]}
    running.entries += (ContextEntry(seq, message),)
    running.results, running.last = {}, None


def _inject(running: RunningTurn, data: events.Injected) -> None:
    if data.kept is not None:
        running.older = running.older[len(running.older) - data.kept :]
    else:
        more = zip(data.times, data.messages, strict=True)
        # The sort is stable, so messages with equal times keep their order.
        running.older = tuple(sorted([*more, *running.older], key=lambda one: one[0]))
    running.injected += len(data.messages)
    running.lines.update(data.lines)
    running.entries = without_thinking(running.entries)


def _without(entries: Iterable[ContextEntry], turn: str, gone: Gone) -> tuple[ContextEntry, ...]:
    found = ((entry, message_without(entry.message, entry.sources, turn, gone)) for entry in entries)
    return tuple(entry if entry.message is left else replace(entry, message=left) for entry, left in found)


def without_thinking(entries: Iterable[ContextEntry]) -> tuple[ContextEntry, ...]:
    """Return the entries with thinking blocks removed. Leave out entries that become empty."""
    return tuple(
        entry if message is entry.message else replace(entry, message=message)
        for entry in entries
        for message in blocks.without_thinking([entry.message])
    )


def api_rounds(entries: Iterable[ContextEntry]) -> list[list[ContextEntry]]:
    """Return a turn's API rounds: each is one answer of the model with the results of its tool calls."""
    found, before = list[list[ContextEntry]](), ""
    for entry in entries:
        role = str(entry.message["role"])
        if role == "assistant" and before != "assistant":
            found.append([])
        if found and (role == "assistant" or entry.message["content"][0].get("type") == "tool_result"):
            found[-1].append(entry)
        before = role
    return found
