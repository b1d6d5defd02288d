"""Filling a store again: from the transcript, or from the archive where that is missing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bot.context import blocks, deletions, prompt
from bot.context.checkpoint import Checkpoint, rebuilt
from bot.context.deletions import Line
from bot.context.repair import call_ids, mended_entries
from bot.context.store import AgentContextStore, Entry, Turn, stripped_behind, without_thinking
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json, Message

RESTORED = "restored"
"""In the data of a boundary: what it leaves (`bot.context.checkpoint`) is just what it names, whatever there was: something
that had gone is back, or what was never looked at has gone too.
"""
CHANGES = frozenset({"boundary", "mask"})
"""Lines that change what is shown of the history, whatever turn they stand in."""
TurnStatus = Literal["done", "failed", "stopped", "withdrawn"]


def replay(store: AgentContextStore, lines: Iterable[Line], base: Checkpoint | None = None) -> int:
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
    lines = list(lines)
    known = said(lines)
    for line in lines:
        data = line.data or {}
        if line.type == "turn_start":
            turn = Turn(line.request_id or "", (line.request_id or "",), ())
            injected = False
        elif line.type in CHANGES:
            carry_out(store, line, known, base)
            lost = _without_beginning(store)
            # What is gone may be called so again: it makes no difference whether anybody looked that far back.
            calls = call_ids(store.messages()) if line.type == "boundary" else calls
            mended = lost + (0 if data.get("reason") == "repair" else mended)
            if turn is not None:
                turn = Turn(turn.request_id, turn.sources, _changed(turn.entries, line, calls))
        elif turn is None or line.request_id != turn.request_id:
            continue
        elif line.type in {"user", "assistant"} and line.message is not None:
            turn = _longer(turn, line.uuid, line.message, data)
        elif line.type == "injection":
            injected = True
            turn = Turn(turn.request_id, turn.sources, behind(turn.entries, line.type, data))
        elif line.type == "turn_end":
            if data.get("status") != "withdrawn":
                entries = mended_entries(turn.entries, calls)
                mended += entries != turn.entries
                store.commit(Turn(turn.request_id, turn.sources, entries), strip_thinking=injected)
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
    store: AgentContextStore, line: Line, known: Mapping[str, Message], base: Checkpoint | None = None
) -> None:
    """Carry out a line that changes the history, as a session of these messages (`said`) tells it."""
    base = base or _restored(line, known)
    if base is not None and line.uuid == base.uuid:
        base.restore(store)
    else:
        apply_change(store, line.type, line.data or {})


def said(lines: Sequence[Line]) -> dict[str, Message]:
    """The messages of a session by uuid, where one of its lines brings some back; else {}."""
    if not any(line.type == "boundary" and (line.data or {}).get(RESTORED) for line in lines):
        return {}
    return {line.uuid: line.message for line in lines if line.message is not None}


def _restored(line: Line, known: Mapping[str, Message]) -> Checkpoint | None:
    """What a boundary leaves that brings something back, of what was said before it."""
    data = line.data or {}
    return rebuilt(line.uuid, data, known) if data.get(RESTORED) else None


def _longer(turn: Turn, uuid: str, message: Message, data: Json) -> Turn:
    more = tuple(data.get("sources", ()))
    return Turn(turn.request_id, turn.sources + more, (*_kept(turn.entries, data), Entry(uuid, message)))


@dataclass(slots=True)
class CutOff:
    """A turn that a crash cut off, as far as its lines tell.

    `entries` are its messages and `facts` what was noted with the last of them (`stopReason`, `cut`, `sources`,
    `continued`); `on_file` are the uuids of all that were written, also where a longer one took their place; `loaded`
    are the injected older turns with their times and keys; `written` are the ids in the outbox of what the turn has said,
    `before` of what it had said when something joined it last. Which tool calls ran is in the journal.
    """

    request_id: str
    sources: tuple[str, ...]
    entries: tuple[Entry, ...] = ()
    on_file: set[str] = field(default_factory=set)
    facts: Json = field(default_factory=dict)
    loaded: list[Json] = field(default_factory=list)
    written: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    def take(self, line: Line) -> None:
        """Carry out one line of the turn."""
        data = line.data or {}
        if line.type in {"user", "assistant"} and line.message is not None:
            self.written += tuple(data.get("written", ()))
            if "sources" in data:
                self.sources += tuple(data["sources"])
                self.before = self.written
            self.entries = (*_kept(self.entries, data), Entry(line.uuid, line.message))
            self.on_file.add(line.uuid)
            self.facts = data
        elif line.type == "injection" or line.type in CHANGES:
            if line.type == "injection":
                self.loaded.append(data)
            self.entries = _changed(self.entries, line, ())


def cut_off_turn(lines: Iterable[Line]) -> CutOff | None:
    """The turn that has a beginning and no end, the last one; None where every turn has ended."""
    turn: CutOff | None = None
    for line in lines:
        if line.type == "turn_start":
            turn = CutOff(line.request_id or "", (line.request_id or "",))
        elif line.type == "turn_end":
            turn = None
        elif turn is not None and (line.type in CHANGES or line.request_id == turn.request_id):
            turn.take(line)
    if turn is not None:
        turn.entries = mended_entries(turn.entries, running=True)
    return turn


def ended(lines: Iterable[Line]) -> dict[str, Json]:
    """Return the end of each turn, by requestId. Messages that joined a turn end with it; owed words belong to the first."""
    ends: dict[str, Json] = {}
    joined: list[str] = []
    for line in lines:
        data = line.data or {}
        if line.type == "turn_start":
            joined = []
        elif line.type == "turn_end" and line.request_id:
            ends |= {source: {"status": data.get("status", "done")} for source in joined}
            ends[line.request_id] = data
        elif line.type == "user":
            joined += data.get("sources", ())
    return ends


def _changed(entries: tuple[Entry, ...], line: Line, calls: Iterable[str]) -> tuple[Entry, ...]:
    """The messages of a turn in which a line changes what stands before them. `calls` were made in turns before it."""
    data = line.data or {}
    kept = behind(entries, line.type, data)
    return mended_entries(kept, set(calls), running=True) if data.get("reason") == "repair" else kept


def _kept(entries: tuple[Entry, ...], data: Json) -> tuple[Entry, ...]:
    """The messages before one that may stand `instead` of the last of them: an answer that went on is one message."""
    instead = data.get("instead")
    return entries[:-1] if instead is not None and entries and entries[-1].uuid == instead else entries


def apply_change(store: AgentContextStore, kind: str, data: Json) -> None:
    """Carry out a line that changes what is shown of the history.

    A boundary is `{"reason": …, "dropped": "all" | [uuid, …], "blank"?: [uuid, …], "unquoted"?: [id, …],
    "head"?: message | null, "restored"?: true}`; without `head` the summary stays as it is, what is blank stays without what was said in
    it, and what quotes messages with these ids without their words. A mask is
    `{"reason": …, "results": {id of the call: words}}`.
    """
    dropped = data.get("dropped", ())
    if data.get("blank") or data.get("unquoted"):
        store.redact(data.get("blank", ()), data.get("unquoted", ()))
    if kind == "mask":
        store.mask(data.get("results", {}))
    elif dropped == "all":
        store.clear()
    elif "head" in data:
        store.compact(dropped, data["head"])
    else:
        store.drop(dropped)


def behind(entries: Sequence[Entry], kind: str, data: Json) -> tuple[Entry, ...]:
    """The messages of the running turn once a line has changed what stands before them, or one of them."""
    if kind == "mask":
        calls = set(data.get("results", {}))
        own = {call for entry in entries for call in blocks.result_ids(entry.message)}
        return stripped_behind(entries, calls, found=bool(calls - own))[0]
    return without_thinking(
        deletions.with_redactions(entries, data.get("blank", ()), data.get("unquoted", ()))
    )


def loaded(before: Sequence[tuple[int, Message]], data: Json) -> list[tuple[int, Message]]:
    """The injected older turns, with their times, once a line of an injection was carried out: more of them, in time
    order, or only the newest.
    """
    if "kept" in data:
        return list(before[len(before) - data["kept"] :])
    # Stable, and what is loaded later is as a rule older: lines of one moment keep their order.
    more = zip(map(int, data["ts"]), data["messages"], strict=True)
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
