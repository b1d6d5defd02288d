"""`AgentContextStore`: the short-term history of one conversation, capped, cut between turns.

It keeps whole turns and what the view of them derives from: the summary that stands for what was compacted away, and
the words that stand for old tool results; and the turn that runs, or that a crash cut off. It changes by `apply` alone,
by an event of the transcript. A live turn and the replay of a transcript apply the same events, so that a store that was
filled again after a restart is the store that was lost, byte for byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bot.context import deletions
from bot.contracts.archive import ArchiveKey
from bot.contracts.base import Message
from bot.contracts.transcript import (
    UNCHANGED,
    Boundary,
    Injection,
    Mask,
    MessageEvent,
    TranscriptLine,
    TurnEnd,
    TurnStart,
)
from bot.core import blocks, quotes, removal
from bot.core.compaction import api_rounds
from bot.core.repair import Entry, without_thinking


@dataclass(frozen=True, slots=True)
class Turn:
    """Everything from one inbound to its reply. `sources` are the requestIds of the inbound it answered."""

    request_id: str
    sources: tuple[str, ...]
    entries: tuple[Entry, ...]
    began: int | None = None
    """The time at which it began (ms); None where that is not known."""

    @property
    def named(self) -> list[tuple[str, Message]]:
        """Its messages by their uuids."""
        return [(entry.uuid, entry.message) for entry in self.entries]


class InjectedMessage(NamedTuple):
    """A message of older turns that is shown before the running one."""

    ts: int
    message: Message
    key: ArchiveKey | None
    """The line that it is; None where that was not noted."""


@dataclass(slots=True)
class RunningTurn:
    """The turn that has begun and not ended, as far as its lines tell. Which tool calls ran is in the journal."""

    request_id: str
    sources: tuple[str, ...]
    entries: tuple[Entry, ...] = ()
    last: MessageEvent | None = None
    """The facts that were noted with the last of its messages."""
    on_file: set[str] = field(default_factory=set)
    """The uuids of all its messages, also where a longer one took their place."""
    written: tuple[str, ...] = ()
    """The ids in the outbox of what it has said."""
    before: tuple[str, ...] = ()
    """The same when something joined it last."""
    older: tuple[InjectedMessage, ...] = ()
    """Older messages in view, in time order."""
    injected: int = 0
    """The number of those that were ever loaded."""
    keys: set[ArchiveKey] = field(default_factory=set)
    """The lines that they were."""
    began: int | None = None
    """The time at which it began (ms)."""

    def say(self, uuid: str, said: MessageEvent) -> None:
        """Add a message. One that stands `instead` of the last takes its place: an answer that went on is one message."""
        kept = self.entries
        if said.instead is not None and kept and kept[-1].uuid == said.instead:
            kept = kept[:-1]
        self.entries = (*kept, Entry.of(uuid, said))
        if said.adopted is not None and len(self.entries) == 1:
            self.began = said.adopted.ts
        self.last = said
        self.on_file.add(uuid)
        self.written += said.written
        if said.sources:
            self.sources += said.sources
            self.before = self.written

    def inject(self, event: Injection) -> None:
        """Show older messages, or only the newest of them. What stands behind them loses its thinking."""
        if event.kept is not None:
            self.older = self.older[len(self.older) - event.kept :]
        else:
            keys = event.keys or (None,) * len(event.messages)
            more = map(InjectedMessage, event.ts, event.messages, keys)
            # Stable, and what is loaded later is as a rule older: lines of one moment keep their order.
            self.older = tuple(sorted([*more, *self.older], key=lambda one: one.ts))
        self.injected += len(event.messages)
        self.keys.update(event.keys)
        self.entries = without_thinking(self.entries)

    def redact_older(self, gone: deletions.Deletions | None) -> None:
        """Take what was removed meanwhile out of the older messages in view; None where nobody can say what was: they go."""
        if gone is None:
            self.older = ()
            return
        self.older = tuple(
            one._replace(message=removal.redacted(one.message)) if gone.names_line(one.key) else one
            for one in self.older
        )

    def change(self, event: Boundary | Mask) -> None:
        """Follow a change of what stands before its messages, or of one of them."""
        if isinstance(event, Mask):
            own = {one for entry in self.entries for one in blocks.maskable(entry.message)}
            found = bool(event.results.keys() - own)
            self.entries = stripped_behind(self.entries, event.results, found=found)[0]
        else:
            self.entries = without_thinking(with_redactions(self.entries, event.blank, event.unquoted))


class AgentContextStore:
    """The history of one chatKey as whole turns, at most `max_messages` API messages between turns."""

    def __init__(self, max_messages: int) -> None:
        self._max = max_messages
        self._low_water = max(1, max_messages // 2)
        self.turns: list[Turn] = []
        self.head: Message | None = None
        """The message that stands for what was compacted away."""
        self.masked: dict[str, str] = {}
        """Masks in place of tool results, by id of the call."""
        self.running: RunningTurn | None = None
        self._current: list[Message] | None = None
        self._shown: list[Message] | None = []
        self._view: tuple[Message, ...] | None = ()

    def __len__(self) -> int:
        """Number of messages kept."""
        return sum(len(turn.entries) for turn in self.turns)

    def messages(self) -> list[Message]:
        """The kept messages, oldest first: the whole of them, whatever is shown."""
        return [entry.message for turn in self.turns for entry in turn.entries]

    @property
    def newest(self) -> str | None:
        """The uuid of the newest entry of the history."""
        return self.turns[-1].entries[-1].uuid if self.turns else None

    def view(self) -> tuple[Message, ...]:
        """Return the messages in view: the summary, then the rest with their masks. Grows at its end, between changes."""
        if self._shown is None:
            self._shown = [] if self.head is None else [self.head]
            self._shown += [blocks.masked(message, self.masked) for message in self.messages()]
            self._view = None
        if self._view is None:
            self._view = tuple(self._shown)
        return self._view

    def current(self) -> list[Message]:
        """Return the messages of the running turn in view, without those of older turns; [] if none runs."""
        if self._current is None:
            entries = self.running.entries if self.running is not None else ()
            self._current = [blocks.masked(entry.message, self.masked) for entry in entries]
        return list(self._current)

    def older(self) -> list[Message]:
        """Return the messages of older turns that the running one has loaded."""
        return [one.message for one in self.running.older] if self.running is not None else []

    def apply(self, line: TranscriptLine) -> None:
        """Carry out a line of the transcript. Those of a turn that does not run change nothing."""
        event, running = line.event, self.running
        if isinstance(event, TurnStart):
            request_id = line.request_id or ""
            self.running = RunningTurn(request_id, (request_id,), began=line.ts or None)
            self._current = None
        elif isinstance(event, Boundary | Mask):
            self.change(event)
        elif running is None or running.request_id != line.request_id:
            return
        elif isinstance(event, MessageEvent):
            running.say(line.uuid, event)
            if self._current is not None and event.instead is None:
                self._current.append(event.message)
            else:
                self._current = None
        elif isinstance(event, Injection):
            self._current = None
            running.inject(event)
        elif isinstance(event, TurnEnd):
            self.running = self._current = None
            if event.status != "withdrawn":
                turn = Turn(running.request_id, running.sources, running.entries, running.began)
                # Its view had older messages that now are gone.
                self.commit(_stripped(turn) if running.injected else turn)

    def sources(self) -> set[str]:
        """The requestIds of every inbound whose turn is kept."""
        return {source for turn in self.turns for source in turn.sources}

    def adopted(self) -> set[ArchiveKey | None]:
        """The lines of the archive that its messages were taken from, those of the running turn too."""
        running = self.running.entries if self.running is not None else ()
        return {entry.adopted for entry in itertools.chain(running, *(turn.entries for turn in self.turns))}

    def commit(self, turn: Turn) -> None:
        """Append a finished turn."""
        if turn.entries:
            self.turns.append(turn)
            if self._shown is not None:
                # A long replay looks at none of the views in between.
                self._shown += [blocks.masked(entry.message, self.masked) for entry in turn.entries]
                self._view = None

    def over_cap(self) -> list[str]:
        """Return the uuids to drop now that the cap is passed, oldest first; [] if it is not.

        Whole turns go, in one batch, as long as half the cap stays. Where that is not enough, the next turn loses its oldest
        API rounds, never what the person said.
        """
        over = len(self.view()) - self._max
        spare = len(self) - self._low_water
        dropped: list[str] = []
        for turn in self.turns if over > 0 else ():
            if len(dropped) + len(turn.entries) > spare:
                if len(dropped) < over:
                    dropped += _oldest_rounds(turn, spare - len(dropped))
                break
            dropped += [entry.uuid for entry in turn.entries]
        return dropped

    def oldest_half(self) -> list[str]:
        """The uuids of the oldest half, on whole-turn borders: at least one turn, [] where there is none."""
        dropped: list[str] = []
        for turn in self.turns:
            if 2 * len(dropped) >= len(self):
                break
            dropped += [entry.uuid for entry in turn.entries]
        return dropped

    def drop(self, uuids: Iterable[str]) -> None:
        """Carry out a boundary: the entries go, and with them every thinking block that stood behind them."""
        gone = frozenset(uuids)
        kept = []
        for turn in self.turns:
            for entry in turn.entries:
                if _goes(entry, gone):
                    self._unmask(entry.message)
            entries = tuple(entry for entry in turn.entries if not _goes(entry, gone))
            if entries:
                kept.append(_stripped(replace(turn, entries=entries)))
        self.turns = kept
        self._shown = None

    def change(self, event: Boundary | Mask) -> None:
        """Carry out a change of the history, and of the running turn behind it."""
        self._current = None
        if self.running is not None:
            self.running.change(event)
        if isinstance(event, Mask):
            self.mask(event.results)
            return
        if event.blank or event.unquoted:
            self.redact(event.blank, event.unquoted)
        if event.dropped == "all":
            self.clear()
        elif event.head is not UNCHANGED:
            self.compact(event.dropped, event.head)
        else:
            self.drop(event.dropped)

    def redact(self, uuids: Collection[str], unquoted: Collection[str] = ()) -> None:
        """Take what was said out of these entries, and what is quoted of messages with these ids; they stay where they
        are.
        """
        self.turns = [
            replace(turn, entries=with_redactions(turn.entries, uuids, unquoted)) for turn in self.turns
        ]
        self._shown = None

    def compact(self, uuids: Iterable[str], head: Message | None) -> None:
        """Carry out a boundary with a summary: the entries go, and `head` stands for them and for the one before."""
        self.head = head
        self.drop(uuids)

    def mask(self, words: Mapping[str, str]) -> bool:
        """Show `words` in place of tool results, by id of the call, from now on. Thinking that stands behind the first
        of them goes. Whether one of them is in the store: all that comes after it stands behind it then.
        """
        self.masked |= words
        found = False
        for at, turn in enumerate(self.turns):
            entries, here = stripped_behind(turn.entries, words, found=found)
            self.turns[at] = replace(turn, entries=entries)
            found = found or here
        self._shown = None
        return found

    def clear(self) -> None:
        """Forget everything; transcript and archive keep it."""
        self.turns = []
        self.head = None
        self.masked = {}
        self._shown = None

    def restore(self, turns: Iterable[Turn], head: Message | None, masked: Mapping[str, str]) -> None:
        """Hold just this; none of the turns keeps the thinking that it had."""
        self.turns, self.masked = list(turns), dict(masked)
        self.compact((), head)

    def reset(self) -> None:
        """Begin as a new store."""
        self.clear()
        self.running = self._current = None

    def _unmask(self, message: Message) -> None:
        for one in blocks.maskable(message):
            self.masked.pop(one, None)


def _goes(entry: Entry, gone: Container[str]) -> bool:
    """Results that were mended go with their calls: they were not known when that was written."""
    return entry.uuid in gone or (entry.calls is not None and entry.calls in gone)


def _oldest_rounds(turn: Turn, most: int) -> list[str]:
    """The oldest API rounds of a turn, so many messages of them at the most. The last one stays: it is the answer."""
    dropped: list[str] = []
    for one in api_rounds(turn.named)[:-1]:
        if len(dropped) + len(one) > most:
            break
        dropped += [uuid for uuid, _ in one]
    return dropped


def with_redactions(
    entries: Iterable[Entry], uuids: Collection[str], ids: Collection[str] = ()
) -> tuple[Entry, ...]:
    """The entries, those with these uuids without what was said in them, and none with what is quoted of these ids."""
    gone, hidden = frozenset(uuids), frozenset(ids)
    found = []
    for one in entries:
        if one.uuid in gone:
            message = removal.without(one.message)  # it quotes nothing any more
            found.append(replace(one, message=message, redacted=True, unquoted=frozenset()))
        elif quoted := quotes.ids(one.message) & hidden:
            message = deletions.unquoted(one.message, quoted)
            found.append(replace(one, message=message, unquoted=one.unquoted | quoted))
        else:
            found.append(one)
    return tuple(found)


def stripped_behind(
    entries: Iterable[Entry], calls: Container[str], *, found: bool = False
) -> tuple[tuple[Entry, ...], bool]:
    """The entries without the thinking that stands behind the first result of these calls, or without any where that
    was `found` before; and whether it is found now.
    """
    kept: list[Entry] = []
    for entry in entries:
        kept += without_thinking([entry]) if found else [entry]
        found = found or any(one in calls for one in blocks.maskable(entry.message))
    return tuple(kept), found


def _stripped(turn: Turn) -> Turn:
    return replace(turn, entries=without_thinking(turn.entries))


def summed_up(turn: Turn, lines: Sequence[TranscriptLine], covers: str | None) -> bool:
    """True if a summary may tell of this turn, by the lines of its session. The memory, where that took a summary's place,
    knows what was said up to the entry that it `covers`.
    """
    own = {entry.uuid for entry in turn.entries}
    first = next((at for at, line in enumerate(lines) if line.uuid in own), len(lines))
    told = (line.event for line in lines[first:] if isinstance(line.event, Boundary))
    made = (one for one in told if one.head is not UNCHANGED and not one.again)
    return any(one.how != "memory" or covers in own for one in made)
