"""Measures a gateway with a long past: the restart after a kill with many unfinished turns, and the cost per message with much and
with little stored data.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import past
from tests.bench.gateway import SETTLE, Times
from tests.bench.programs import Program, Shipmate, Unanswered
from tests.bench.servers import Board, TimedModel

PATIENCE = 300.0
EXPORTS_PATIENCE = 1_800.0
WARM_UP = 5
EXPORT_SECONDS = 11.0
"""Interval in seconds after a start within which the exports of the log begin to catch up."""
QUIET = 0.02
"""Max share of one processor that an idle program uses."""
CALM = 3
"""Number of consecutive idle measurements after which a program counts as idle. On a busy machine, one idle
measurement can mean that the program waits for a processor.
"""
FEW = 10
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of the measurements. The killed gateway has `chats` chats with `each` turns and some
    `unfinished` turns. The cost per message is measured with a chat of `turns` turns, with `on_disk`
    chats, and with `messages` messages in each round.
    """

    chats: int
    each: int
    unfinished: int
    turns: int
    on_disk: int
    messages: int


QUICK = Size(20, 5, 5, 20, 20, 3)
SHORT = Size(1_000, 5, 100, 1_000, 5_000, 15)
FULL = Size(10_000, 5, 500, 10_000, 100_000, 25)


@dataclass(frozen=True, slots=True)
class Restart:
    """Seconds from the start of the process until it polls, and from then until the last unfinished turn is
    answered.
    """

    ready: float
    answered: float


async def restart(folder: Path, size: Size) -> Restart:
    """Kill a gateway with unfinished turns and start it again."""
    board = Board()
    model = TimedModel(board)
    program = Shipmate(folder / "restart", board, first_chat=7_000_000)
    await past.write(program.home, _chats(size.chats, size.each))
    await model.start()
    try:
        await program.start(model)
        await _quiet(program)
        model.thinking = PATIENCE
        flights = [program.telegram.ask(chat) for chat in program.new_chats(size.unfinished)]
        await _confirmed(program)
        await program.kill()
        model.thinking = 0.0
        began = time.perf_counter()
        await program.launch()
        ready = time.perf_counter() - began
        await program.landed(flights, PATIENCE)
        answered = time.perf_counter() - began - ready
        await asyncio.sleep(SETTLE)  # a wrong second answer would arrive during this pause
        counts = [len(program.telegram.visible(7_000_000 + number)) for number in range(size.unfinished)]
        if set(counts) != {1}:
            raise Unanswered(
                f"after a kill, chats were answered {min(counts)} to {max(counts)} times, not once"
            )
    finally:
        await program.stop()
        await model.stop()
    return Restart(ready, answered)


async def _confirmed(program: Program) -> None:
    """Wait until the program has confirmed all updates to the platform."""
    async with asyncio.timeout(PATIENCE):
        while len(program.telegram.updates):  # noqa: ASYNC110 - another process takes them
            await asyncio.sleep(0.05)


@dataclass(slots=True)
class Cost:
    """Time per message, and CPU time per message in each round, both in milliseconds."""

    times: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


async def by_turns(folder: Path, size: Size) -> list[Cost]:
    """Measure two chats of one gateway alternately: one chat with many turns, and one with ten."""
    board = Board()
    model = TimedModel(board)
    program = Shipmate(folder / "turns", board, first_chat=9_000_000)
    long, short = program.new_chats(2)
    await past.write(program.home, {f"telegram:chat:{long}": size.turns, f"telegram:chat:{short}": FEW})
    await model.start()
    try:
        await program.start(model)
        return await _in_turn([(program, long), (program, short)], size.messages)
    finally:
        await program.stop()
        await model.stop()


async def by_chats(folder: Path, size: Size) -> list[Cost]:
    """Measure two gateways alternately: one with many chats on disk, and one with ten."""
    board = Board()
    model = TimedModel(board)
    programs = []
    for number, chats in enumerate((size.on_disk, FEW)):
        program = Shipmate(folder / f"chats-{chats}", board, first_chat=10_000_000 + number)
        await past.write(program.home, _chats(chats, 1))
        programs.append(program)
    await model.start()
    try:
        for program in programs:
            await program.start(model)
        return await _in_turn([(program, program.new_chats(1)[0]) for program in programs], size.messages)
    finally:
        for program in programs:
            await program.stop()
        await model.stop()


async def _in_turn(places: list[tuple[Program, int]], messages: int) -> list[Cost]:
    found = [Cost() for _ in places]
    for program, chat in places:
        for _ in range(WARM_UP):
            await program.answered([chat])
        await _quiet(program)
    for _ in range(ROUNDS):
        for (program, chat), cost in zip(places, found, strict=True):
            before, times = program.cpu(), Times()
            for _ in range(messages):
                (flight,) = await program.answered([chat])
                times.add(flight)
            await asyncio.sleep(SETTLE)
            cost.times += times.total
            if before is not None and (after := program.cpu()) is not None:
                cost.cpu.append((after - before) * 1_000 / messages)
    return found


async def _quiet(program: Program) -> None:
    """Wait until a program is idle. After its start, a program first exports the events in its log."""
    if program.cpu() is None:
        return
    await asyncio.sleep(EXPORT_SECONDS)
    async with asyncio.timeout(EXPORTS_PATIENCE):
        calm = 0
        while calm < CALM:
            before = program.cpu() or 0.0
            await asyncio.sleep(SETTLE)
            calm = calm + 1 if (program.cpu() or 0.0) - before <= QUIET * SETTLE else 0


def _chats(count: int, turns: int) -> dict[str, int]:
    return {f"telegram:chat:{11_000_000 + number}": turns for number in range(count)}
