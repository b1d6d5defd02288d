"""What it costs to bring a chat with a long session back into memory: called by the bench, not collected as a test."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bot.agent.ledger import Ledger
from bot.context import checkpoint, replay
from bot.context.store import AgentContextStore
from bot.contracts.base import Json, Role
from bot.contracts.identity import ChatKey
from bot.contracts.transcript import (
    Boundary,
    Event,
    LastingFacts,
    MessageEvent,
    TranscriptLine,
    TurnEnd,
    TurnStart,
)
from bot.history.transcript.store import Transcript
from bot.sizes import size_of
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.testing.log import MemoryLog

KEY = ChatKey.parse("telegram:chat:1")
SIZE = 150_000_000
BEFORE = 0.84
"""The part of the file that stands before its newest boundary."""
WORDS = "Some words of a tool's result, 几个字, and a few more. " * 160
KEPT_TURNS = 10


@dataclass(frozen=True, slots=True)
class Back:
    """`seconds` until the store holds what it held, `whole` by all lines; megabytes of what is kept and of the peak."""

    seconds: float
    whole: float
    kept: float
    peak: float


async def session_back(folder: Path, size: int = SIZE, *, most: int = 1_000_000, cut: bool = True) -> Back:
    """A session of this size, most of it before its newest boundary, from the disk into a store of `most` messages; not
    `cut`, it has no boundary.
    """
    ids, disk = UlidSource(), SystemDisk()
    transcript = Transcript(folder, disk=disk, ids=ids, clock=SystemClock(), log=MemoryLog())
    for lines in _batches(ids, size, cut=not cut):
        await transcript.append(KEY, lines)

    try:
        begun = time.perf_counter()
        store = await filled(transcript, KEY, most)
        seconds = time.perf_counter() - begun
        view = store.view()
        begun = time.perf_counter()
        same = (await filled(transcript, KEY, most, whole=True)).view() == view
        whole = time.perf_counter() - begun
        if not same:
            raise AssertionError("the store is another one than by all lines")
        kept = size_of(store.messages())
        del store, view
        tracemalloc.start()
        await filled(transcript, KEY, most)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    finally:
        await transcript.close()
    return Back(seconds, whole, kept / 1e6, peak / 1e6)


async def filled(
    transcript: Transcript, key: ChatKey, most: int, *, whole: bool = False
) -> AgentContextStore:
    """The store of a chat from its transcript."""
    ledger = Ledger(key, transcript, ids=UlidSource(), clock=SystemClock(), log=MemoryLog())
    store, loaded, base = AgentContextStore(most), await ledger.load(whole=whole), None
    if loaded.base is not None:
        base = checkpoint.rebuilt(loaded.base, loaded.messages)
    replay.replay(store, loaded.lines, base)
    if over := store.over_cap():
        store.drop(over)
    return store


def _batches(ids: UlidSource, size: int, *, cut: bool) -> Iterator[list[TranscriptLine]]:
    """Turns with a large result each; unless it is `cut` already, one boundary in the middle leaves the last of those
    before it.
    """
    store = AgentContextStore(1_000_000)
    written = 0
    while written < size:
        batch: list[TranscriptLine] = []
        for _ in range(50):
            batch += _turn(ids)
        if not cut:
            replay.replay(store, batch)
        written += sum(len(str(line.message or "").encode()) for line in batch)
        if not cut and written >= size * BEFORE:
            cut = True
            gone = [entry.uuid for turn in store.turns[:-KEPT_TURNS] for entry in turn.entries]
            change = Boundary(dropped=tuple(gone))
            store.drop(gone)
            kept = checkpoint.kept(store, change, LastingFacts(), None)
            batch.append(_line(ids, replace(change, kept=kept), None))
        yield batch


def _turn(ids: UlidSource) -> list[TranscriptLine]:
    request_id = ids.ulid()
    begin = _line(ids, TurnStart(), request_id)
    call = {"type": "tool_use", "id": f"t{request_id}", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": WORDS}
    said: list[tuple[Role, list[Json]]] = [
        ("user", [{"type": "text", "text": "What is it?"}]),
        ("assistant", [call]),
        ("user", [result]),
        ("assistant", [{"type": "text", "text": "It is this. " * 20}]),
    ]
    messages = [
        _line(ids, MessageEvent(role=role, message={"role": role, "content": content}), request_id)
        for role, content in said
    ]
    end = _line(ids, TurnEnd(status="done"), request_id)
    return [begin, *messages, end]


def _line(ids: UlidSource, event: Event, request_id: str | None) -> TranscriptLine:
    return TranscriptLine(uuid=ids.ulid(), ts=1, event=event, chat_key=KEY, request_id=request_id)
