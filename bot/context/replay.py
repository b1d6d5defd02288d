"""Filling a store again: from the transcript, or from the archive where that is missing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.context import blocks, deletions, prompt
from bot.context.checkpoint import Checkpoint, rebuilt
from bot.context.repair import call_ids, mended_entries
from bot.context.store import AgentContextStore, Entry, Turn, stripped_behind, without_thinking
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Message
from bot.contracts.transcript import (
    SAME,
    Boundary,
    Event,
    Injection,
    Mask,
    Said,
    TranscriptLine,
    TurnEnd,
    TurnStart,
    messages,
)


def replay(store: AgentContextStore, lines: Sequence[TranscriptLine], base: Checkpoint | None = None) -> int:
    """Carry out the lines of a transcript, in order; turns that are not valid are mended (`bot.context.repair`).
    With a `base` the store begins from that boundary, and before it stand lines of the turn that was running.

    Returns how many were since the last boundary that says so: what was thought after one of them is bound to what is
    not there any more, and has to go.

    A turn counts from its `turn_end` on: one that has none was cut off by a crash, and its inbound, still in the
    journal, begins it again.
    """
    turn: Turn | None = None
    injected = False
    mended, calls = 0, set[str]()
    known = said(lines)
    for line in lines:
        event = line.event
        if isinstance(event, TurnStart):
            turn = Turn(line.request_id or "", (line.request_id or "",), ())
            injected = False
        elif isinstance(event, Boundary | Mask):
            carry_out(store, line, event, known, base)
            lost = _without_beginning(store)
            # What is gone may be called so again: it makes no difference whether anybody looked that far back.
            calls = call_ids(store.messages()) if isinstance(event, Boundary) else calls
            mended = lost + (0 if event.reason == "repair" else mended)
            if turn is not None:
                turn = replace(turn, entries=_changed(turn.entries, event, calls))
        elif turn is None or line.request_id != turn.request_id:
            continue
        elif isinstance(event, Said):
            entries = (*_kept(turn.entries, event), Entry(line.uuid, event.message))
            turn = Turn(turn.request_id, turn.sources + event.sources, entries)
        elif isinstance(event, Injection):
            injected = True
            turn = replace(turn, entries=behind(turn.entries, event))
        elif isinstance(event, TurnEnd):
            if event.status != "withdrawn":
                entries = mended_entries(turn.entries, calls)
                mended += entries != turn.entries
                store.commit(replace(turn, entries=entries), strip_thinking=injected)
            turn = None
    left = turn.entries if turn is not None else ()
    return mended + (mended_entries(left, calls, running=True) != left)


def _without_beginning(store: AgentContextStore) -> int:
    """Let go of answers whose question went with a summary that is not there any more, as where what an `/undo` brought
    back cannot be read; how many messages these were.
    """
    kept = (entry for turn in store.turns for entry in turn.entries)
    lost = (
        list(itertools.takewhile(lambda entry: not _asks(entry.message), kept)) if store.head is None else []
    )
    if lost:
        store.drop([entry.uuid for entry in lost])
    return len(lost)


def _asks(message: Message) -> bool:
    return bool(message["role"] == "user" and not blocks.is_results(message))


def carry_out(
    store: AgentContextStore,
    line: TranscriptLine,
    event: Boundary | Mask,
    known: Mapping[str, Message],
    base: Checkpoint | None = None,
) -> None:
    """Carry out a line that changes the history, as a session of these messages (`said`) tells it."""
    if isinstance(event, Boundary) and event.restored:
        base = base or rebuilt(line, known)
    if base is not None and line.uuid == base.uuid:
        base.restore(store)
    else:
        apply_change(store, event)


def said(lines: Iterable[TranscriptLine]) -> dict[str, Message]:
    """The messages of a session by uuid, where one of its lines brings some back; else {}."""
    lines = list(lines)
    restores = any(isinstance(line.event, Boundary) and line.event.restored for line in lines)
    return messages(lines) if restores else {}


@dataclass(slots=True)
class CutOff:
    """A turn that a crash cut off, as far as its lines tell.

    `entries` are its messages and `facts` what was noted with the last of them; `on_file` are the uuids of all that were
    written, also where a longer one took their place; `loaded` are the injected older turns with their times and keys;
    `written` are the ids in the outbox of what the turn has said, `before` of what it had said when something joined it
    last. Which tool calls ran is in the journal.
    """

    request_id: str
    sources: tuple[str, ...]
    entries: tuple[Entry, ...] = ()
    on_file: set[str] = field(default_factory=set)
    facts: Said | None = None
    loaded: list[Injection] = field(default_factory=list)
    written: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    def take(self, line: TranscriptLine) -> None:
        """Carry out one line of the turn."""
        event = line.event
        if isinstance(event, Said):
            self.written += event.written
            if event.sources:
                self.sources += event.sources
                self.before = self.written
            self.entries = (*_kept(self.entries, event), Entry(line.uuid, event.message))
            self.on_file.add(line.uuid)
            self.facts = event
        elif isinstance(event, Injection | Boundary | Mask):
            if isinstance(event, Injection):
                self.loaded.append(event)
            self.entries = _changed(self.entries, event, ())


def cut_off_turn(lines: Iterable[TranscriptLine]) -> CutOff | None:
    """The turn that has a beginning and no end, the last one; None where every turn has ended."""
    turn: CutOff | None = None
    for line in lines:
        if isinstance(line.event, TurnStart):
            turn = CutOff(line.request_id or "", (line.request_id or "",))
        elif isinstance(line.event, TurnEnd):
            turn = None
        elif turn is not None and (
            isinstance(line.event, Boundary | Mask) or line.request_id == turn.request_id
        ):
            turn.take(line)
    if turn is not None:
        turn.entries = mended_entries(turn.entries, running=True)
    return turn


def ended(lines: Iterable[TranscriptLine]) -> dict[str, TurnEnd]:
    """Return the end of each turn, by requestId. Messages that joined a turn end with it; owed words belong to the first."""
    ends: dict[str, TurnEnd] = {}
    joined: list[str] = []
    for line in lines:
        event = line.event
        if isinstance(event, TurnStart):
            joined = []
        elif isinstance(event, TurnEnd) and line.request_id:
            ends |= {source: TurnEnd(status=event.status) for source in joined}
            ends[line.request_id] = event
        elif isinstance(event, Said) and event.role == "user":
            joined += event.sources
    return ends


def _changed(
    entries: tuple[Entry, ...], event: Injection | Boundary | Mask, calls: Iterable[str]
) -> tuple[Entry, ...]:
    """The messages of a turn in which a line changes what stands before them. `calls` were made in turns before it."""
    kept = behind(entries, event)
    return mended_entries(kept, set(calls), running=True) if event.reason == "repair" else kept


def _kept(entries: tuple[Entry, ...], said: Said) -> tuple[Entry, ...]:
    """The messages before one that may stand `instead` of the last of them: an answer that went on is one message."""
    return (
        entries[:-1] if said.instead is not None and entries and entries[-1].uuid == said.instead else entries
    )


def apply_change(store: AgentContextStore, event: Boundary | Mask) -> None:
    """Carry out a line that changes what is shown of the history."""
    if isinstance(event, Mask):
        store.mask(event.results)
        return
    if event.blank or event.unquoted:
        store.redact(event.blank, event.unquoted)
    if event.dropped == "all":
        store.clear()
    elif event.head is not SAME:
        store.compact(event.dropped, event.head)
    else:
        store.drop(event.dropped)


def behind(entries: Sequence[Entry], event: Event) -> tuple[Entry, ...]:
    """The messages of the running turn once a line has changed what stands before them, or one of them."""
    if isinstance(event, Mask):
        own = {call for entry in entries for call in blocks.result_ids(entry.message)}
        return stripped_behind(entries, event.results, found=bool(event.results.keys() - own))[0]
    if isinstance(event, Boundary):
        entries = deletions.with_redactions(entries, event.blank, event.unquoted)
    return without_thinking(entries)


def loaded(before: Sequence[tuple[int, Message]], event: Injection) -> list[tuple[int, Message]]:
    """The injected older turns, with their times, once a line of an injection was carried out: more of them, in time
    order, or only the newest.
    """
    if event.kept is not None:
        return list(before[len(before) - event.kept :])
    # Stable, and what is loaded later is as a rule older: lines of one moment keep their order.
    more = zip(event.ts, event.messages, strict=True)
    return sorted([*more, *before], key=lambda pair: pair[0])


def line_key(line: ArchiveLine) -> str:
    """Return the key of an archive line, whoever wrote it and whether it has an id or not."""
    return f"archive:{line.ts}:{line.role}:{line.message_id or line.text}"


def from_archive(
    store: AgentContextStore, lines: Sequence[ArchiveLine], max_messages: int, nonce: str
) -> None:
    """Plain turns from what was said: each begins with a message of a person. Newest first into half the cap.

    The sources of a turn are its requestId and the keys of its lines, since what others wrote has no requestIds.
    """
    turns: list[list[Entry]] = []
    requests: list[str] = []
    for line in lines:
        if not line.text.strip() or line.role not in {"user", "assistant"}:
            continue
        # Words of a person stand behind a tag, so that what they look like says nothing.
        said = prompt.loaded(line, nonce)
        own = said["content"][1:] if line.role == "assistant" else said["content"]
        entry = Entry(line_key(line), {"role": line.role, "content": own})
        if line.role == "user":
            turns.append([entry])
            requests.append(str((line.meta or {}).get("requestId", "")))
        elif turns:
            turns[-1].append(entry)
    room = max_messages // 2
    first = len(turns)
    while first > 0 and len(turns[first - 1]) <= room:
        first -= 1
        room -= len(turns[first])
    for entries, request_id in zip(turns[first:], requests[first:], strict=True):
        keys = [entry.uuid for entry in entries]
        store.commit(Turn(request_id, (request_id, *keys), tuple(entries)))
