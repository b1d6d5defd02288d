"""Gateway overhead beside the plain script: one chat, many chats, in pairs A B A B so that drift cancels."""

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
"""Seconds between two messages of one chat: what a program does after its reply is not the next one's cost."""
SETTLE = 1.5


@dataclass(slots=True)
class Times:
    """Milliseconds of one program."""

    inbound: list[float] = field(default_factory=list)
    outbound: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)

    def add(self, flight: Flight) -> None:
        self.inbound.append(flight.inbound * 1000)
        self.outbound.append(flight.outbound * 1000)
        self.total.append((flight.inbound + flight.outbound) * 1000)


async def one_chat(programs: list[Program], model: TimedModel, pairs: int = PAIRS) -> list[Times]:
    """One message after the other, each program in one chat of its own."""
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
    """Of each round: `whole`, from the first question to the last answer, and `cpu`, processor time a message,
    both in ms. The first round is with new chats.
    """

    whole: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    times: Times = field(default_factory=Times)


async def crowd(programs: list[Program], model: TimedModel, rounds: int = ROUNDS) -> list[Crowd]:
    """Everybody at once, several times: chats that are new in the first round and known in the others."""
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
    """Shipmate's own way: the reply goes through `chat_send`, and a second call ends the turn."""
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
    """What kept the loop of a Shipmate of its own: a crowd of new chats, the same again, very long answers."""
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
