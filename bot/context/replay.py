"""Filling a store again: from the transcript, or from the archive where that is missing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from bot.context.checkpoint import Checkpoint, rebuilt
from bot.context.store import AgentContextStore, RunningTurn
from bot.contracts.archive import ArchiveKey, ArchiveLine
from bot.contracts.base import Message
from bot.contracts.provenance import ANYBODYS, ORIGIN
from bot.contracts.transcript import (
    Boundary,
    Mask,
    MessageEvent,
    TranscriptLine,
    TurnEnd,
    TurnStart,
    messages,
)
from bot.core import blocks, prompt
from bot.core.repair import call_ids, mended_entries


def replay(store: AgentContextStore, lines: Sequence[TranscriptLine], base: Checkpoint | None = None) -> int:
    """Apply the lines of a transcript, in order; turns that are not valid are mended (`bot.core.repair`). With a `base`
    the store begins from that boundary, and before it stand lines of the turn that was running.

    Returns how many were since the last boundary that says so: what was thought after one of them is bound to what is
    not there any more, and has to go.

    A turn counts from its end on. One that has none was cut off by a crash: it runs still.
    """
    mended, calls = 0, set[str]()
    known = said(lines)
    for line in lines:
        event, running = line.event, store.running
        if isinstance(event, TurnEnd) and running is not None and running.request_id == line.request_id:
            mended += event.status != "withdrawn" and _mend(running, calls)
        carry_out(store, line, known, base)
        if isinstance(event, Boundary | Mask):
            lost = _without_beginning(store)
            # What is gone may be called so again: it makes no difference whether anybody looked that far back.
            calls = call_ids(store.messages()) if isinstance(event, Boundary) else calls
            mended = lost + (0 if event.reason == "repair" else mended)
            if running is not None and event.reason == "repair":
                _mend(running, set(calls), goes_on=True)
    return mended + (_mend(store.running, calls, goes_on=True) if store.running is not None else 0)


def _mend(turn: RunningTurn, calls: set[str], *, goes_on: bool = False) -> bool:
    """Make the messages of a turn valid; whether they were not. `calls` were made in turns before it."""
    before, turn.entries = turn.entries, mended_entries(turn.entries, calls, running=goes_on)
    return bool(turn.entries != before)


def carry_out(
    store: AgentContextStore,
    line: TranscriptLine,
    known: Mapping[str, MessageEvent],
    base: Checkpoint | None = None,
) -> None:
    """Apply a line, as a session of these messages (`said`) tells it."""
    store.apply(line)
    if isinstance(line.event, Boundary) and line.event.restored:
        base = base or rebuilt(line, known)
    if base is not None and line.uuid == base.uuid:
        base.restore(store)


def said(lines: Iterable[TranscriptLine]) -> dict[str, MessageEvent]:
    """The messages of a session by uuid, where one of its lines brings some back; else {}."""
    lines = list(lines)
    restores = any(isinstance(line.event, Boundary) and line.event.restored for line in lines)
    return messages(lines) if restores else {}


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
        elif isinstance(event, MessageEvent) and event.role == "user":
            joined += event.sources
    return ends


def from_archive(
    lines: Sequence[ArchiveLine], max_messages: int, nonce: str
) -> list[tuple[str, list[MessageEvent]]]:
    """Plain turns from what was said, each with its requestId: it begins with a message of a person. Newest first into
    half the cap.
    """
    turns: list[tuple[str, list[MessageEvent]]] = []
    for line in lines:
        if not line.text.strip() or line.role not in {"user", "assistant"}:
            continue
        # Words of a person stand behind a tag, so that what they look like says nothing.
        content, key = prompt.loaded(line, nonce)["content"], ArchiveKey.of(line, line.chat_key)
        if line.role == "user":
            message: Message = {"role": "user", "content": content}
            turns.append((line.request_id, [MessageEvent(role="user", message=message, adopted=key)]))
        elif turns:
            # What the bot had in view then is not known.
            message = {"role": "assistant", "content": content[1:], ORIGIN: ANYBODYS.packed()}
            turns[-1][1].append(MessageEvent(role="assistant", message=message, adopted=key))
    room = max_messages // 2
    first = len(turns)
    while first > 0 and len(turns[first - 1][1]) <= room:
        first -= 1
        room -= len(turns[first][1])
    return turns[first:]
