"""Measures the gateway's overhead against the plain script, with one chat and with many chats. The programs alternate (A B A B), so
that slow changes of the machine's speed affect both equally.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot.contracts.base import Json
from tests.bench.programs import Program, Shipmate
from tests.bench.servers import Board, Flight, TimedModel

PAIRS = 150
WARM_UP = 10
ONE_CHAT_THINKING = 0.1
CROWD = 200
CROWD_THINKING = 1.0
ROUNDS = 4
BREATH = 0.05
"""Interval in seconds between two messages of one chat, so that work after a reply does not count as cost of
the next message.
"""
SETTLE = 1.5


@dataclass(slots=True)
class Times:
    """Times of one program in milliseconds."""

    inbound: list[float] = field(default_factory=list)
    outbound: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)

    def add(self, flight: Flight) -> None:
        self.inbound.append(flight.inbound * 1000)
        self.outbound.append(flight.outbound * 1000)
        self.total.append((flight.inbound + flight.outbound) * 1000)


async def one_chat(programs: list[Program], model: TimedModel, pairs: int = PAIRS) -> list[Times]:
    """Send one message after the other to each program, in one chat per program; return the times of each program."""
    model.thinking = ONE_CHAT_THINKING
    times = [Times() for _ in programs]
    chats = [program.new_chats(1) for program in programs]
    for number in range(WARM_UP + pairs):
        for program, chat, found in zip(programs, chats, times, strict=True):
            (flight,) = await program.answered(chat)
            await asyncio.sleep(BREATH)
            if number >= WARM_UP:
                found.add(flight)
    return times


@dataclass(slots=True)
class Crowd:
    """Results by round, in ms: `whole` is the time from the first message to the last answer, `cpu` the CPU
    time per message. The chats are new in the first round.
    """

    whole: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    times: Times = field(default_factory=Times)


async def crowd(programs: list[Program], model: TimedModel, rounds: int = ROUNDS) -> list[Crowd]:
    """Send a message in all chats at once, for several rounds; return the results of each program."""
    model.thinking = CROWD_THINKING
    found = [Crowd() for _ in programs]
    chats = [program.new_chats(CROWD) for program in programs]
    for _ in range(rounds):
        for program, mine, result in zip(programs, chats, found, strict=True):
            before = program.cpu()
            flights = await program.answered(mine)
            await asyncio.sleep(SETTLE)
            result.whole.append((max(f.sent for f in flights) - flights[0].pushed) * 1000)
            if before is not None and (after := program.cpu()) is not None:
                result.cpu.append((after - before) * 1000 / CROWD)
            for flight in flights:
                result.times.add(flight)
    return found


async def by_tool(program: Program, model: TimedModel, count: int = 40) -> Times:
    """Measure Shipmate's usual way to answer: the reply is sent through `chat_send`, and a second model call ends the turn."""
    model.thinking = ONE_CHAT_THINKING
    model.by_tool = True
    times = Times()
    chat = program.new_chats(1)
    for number in range(WARM_UP + count):
        (flight,) = await program.answered(chat)
        await asyncio.sleep(ONE_CHAT_THINKING + 3 * BREATH)
        if number >= WARM_UP:
            times.add(flight)
    model.by_tool = False
    return times


async def watched(folder: Path, long_answers: Sequence[str]) -> list[Json]:
    """Return what blocked the event loop of a Shipmate that answers a crowd of new chats, the same chats
    again, and then very long answers.
    """
    board = Board()
    model = TimedModel(board)
    model.thinking = 0.2
    report = folder / "blocks.jsonl"
    program = Shipmate(folder / "home", board, first_chat=3_000_000, watch=report)
    await model.start()
    try:
        await program.start(model)
        chats = program.new_chats(CROWD)
        for _ in range(2):
            await program.answered(chats)
            await asyncio.sleep(SETTLE)
        for words in long_answers:
            model.words = words
            await program.answered(program.new_chats(1))
            await asyncio.sleep(SETTLE)
    finally:
        await program.stop()
        await model.stop()
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    return [json.loads(line) for line in lines]
