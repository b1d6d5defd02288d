"""Measures a gateway as a process: its memory, its first reply after a start, and the CPU time of a streamed delta."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import past
from tests.bench.gateway import SETTLE
from tests.bench.programs import OnSlack, Plain, Program, Shipmate, Unanswered
from tests.bench.servers import Board, TimedModel

AT_ONCE = 50
STARTS = 3
DELTAS = 1_000
DELTA = 4
"""Characters of a delta, about as many as in a token."""
STREAMS = 20
STREAM_ROUNDS = 3
TURNS = 30


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a gateway that is connected to both platforms, in megabytes: `idle` before any message,
    `first` after the first message, `many` after many chats.

    `per_chat` is in kilobytes, over the later half of the chats. `back` is the time in milliseconds until an
    evicted chat is loaded again.
    """

    idle: float
    first: float
    many: float
    per_chat: float
    back: float


async def memory(folder: Path, chats: int) -> Memory:
    board = Board()
    model = TimedModel(board)
    program = OnSlack(folder / "memory", board, first_chat=5_000_000)
    await model.start()
    try:
        await program.start(model)
        await asyncio.sleep(SETTLE)
        idle = _resident(program)
        await program.answered(program.new_chats(1))
        await asyncio.sleep(SETTLE)
        found = [idle, _resident(program)]
        for _ in range(2):
            for begin in range(0, chats // 2, AT_ONCE):
                await program.answered(program.new_chats(min(AT_ONCE, chats // 2 - begin)))
            await asyncio.sleep(SETTLE)
            found.append(_resident(program))
    finally:
        await program.stop()
        await model.stop()
    back = await _back(folder / "evicted")
    per_chat = (found[3] - found[2]) * 1_000 / (chats // 2)
    return Memory(found[0], found[1], found[3], per_chat, back)


async def _back(home: Path) -> float:
    """Return the milliseconds to load a chat of 30 turns from the log."""
    key = "telegram:chat:1"
    await past.write(home, {key: TURNS})
    return (await past.back(home, key)).took


def _resident(program: Program) -> float:
    taken = program.resident()
    if taken is None:
        raise Unanswered("this system does not tell what a process takes")
    return taken


@dataclass(slots=True)
class First:
    """For each start of a program: milliseconds until its first reply, and milliseconds of CPU time."""

    whole: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)


async def first_replies(folder: Path, starts: int = STARTS) -> list[First]:
    """Measure the first reply after a start, with a message that already waits at the platform."""
    board = Board()
    model = TimedModel(board)
    found = [First(), First()]
    await model.start()
    try:
        for number in range(starts):
            chats = 6_000_000 + 1_000 * number
            programs: Sequence[Program] = (
                Shipmate(folder / f"first-{number}", board, first_chat=chats),
                Plain(board, first_chat=chats + 500),
            )
            for program, one in zip(programs, found, strict=True):
                await _first(program, model, one)
    finally:
        await model.stop()
    return found


async def _first(program: Program, model: TimedModel, found: First) -> None:
    await program.platform(model)
    try:
        flight = program.telegram.ask(program.new_chats(1)[0])
        began = time.perf_counter()
        await program.launch()
        await program.landed([flight])
        found.whole.append((time.perf_counter() - began) * 1_000)
        if (cpu := program.cpu()) is not None:
            found.cpu.append(cpu * 1_000)
        await asyncio.sleep(SETTLE)
        if (taken := program.resident()) is not None:
            found.resident.append(taken)
    finally:
        await program.stop()


async def streaming(program: Program, model: TimedModel, deltas: int = DELTAS) -> list[float]:
    """Return the microseconds of CPU time per delta, from the model to the channel."""
    said, chunk = model.words, model.chunk
    model.thinking = model.longest = 0.0
    model.words = ("Some words. " * deltas)[: deltas * DELTA]
    chats = program.new_chats(STREAMS)
    await program.answered(chats)
    found = []
    try:
        for _ in range(STREAM_ROUNDS):
            spent = []
            for one in (len(model.words), DELTA):
                model.chunk = one
                await asyncio.sleep(SETTLE)
                before = program.cpu()
                await program.answered(chats)
                await asyncio.sleep(SETTLE)
                if before is None or (after := program.cpu()) is None:
                    return []
                spent.append(after - before)
            found.append((spent[1] - spent[0]) * 1e6 / (STREAMS * (deltas - 1)))
    finally:
        model.words, model.chunk = said, chunk
    return found
