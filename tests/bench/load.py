"""Runs many chats for a long time. Every message must be answered exactly once; memory and overhead are compared with the
plain script.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench import figures
from tests.bench.gateway import SETTLE, Times
from tests.bench.programs import Program, Unanswered
from tests.bench.servers import TimedModel

AT_ONCE = 64
THINKING = (0.2, 2.0)


@dataclass(slots=True)
class Load:
    """Results of one program: the times, and the memory in megabytes at the start and after each round."""

    times: Times = field(default_factory=Times)
    resident: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Size:
    """Number of chats, and number of messages in each chat. A chat never has two messages at once."""

    chats: int
    messages: int

    @property
    def total(self) -> int:
        return self.chats * self.messages


SHORT, FULL, QUICK = Size(200, 5), Size(1_000, 20), Size(70, 2)


async def load(programs: Sequence[Program], model: TimedModel, size: Size) -> list[Load]:
    """Run rounds in which every chat sends one message, with at most 64 messages at once."""
    model.thinking, model.longest = THINKING
    loads = [Load() for _ in programs]
    chats = [program.new_chats(size.chats) for program in programs]
    for program, found in zip(programs, loads, strict=True):
        _weigh(program, found)
    for _ in range(size.messages):
        for program, mine, found in zip(programs, chats, loads, strict=True):
            await _round(program, mine, found)
            _weigh(program, found)
    model.longest = 0.0
    await asyncio.sleep(SETTLE)  # a wrong second answer would arrive during this pause
    for program, mine in zip(programs, chats, strict=True):
        check(program.name, {chat: len(program.telegram.visible(chat)) for chat in mine}, size.messages)
    return loads


@dataclass(slots=True)
class Rush:
    """For each round of a program whose model answers at once: messages per second, and CPU milliseconds per message."""

    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


async def rush(programs: Sequence[Program], model: TimedModel, size: Size) -> list[Rush]:
    """Run rounds in which every chat sends one message as soon as one of the places for waiting messages is free."""
    model.thinking, model.longest = 0.0, 0.0
    found = [Rush() for _ in programs]
    chats = [program.new_chats(size.chats) for program in programs]
    for _ in range(size.messages):
        for program, mine, one in zip(programs, chats, found, strict=True):
            before, began = program.cpu(), time.perf_counter()
            await _round(program, mine, Load())
            one.rates.append(len(mine) / (time.perf_counter() - began))
            if before is not None and (after := program.cpu()) is not None:
                one.cpu.append((after - before) * 1000 / len(mine))
    return found


async def _round(program: Program, chats: Sequence[int], found: Load) -> None:
    waiting = deque(chats)

    async def talk() -> None:
        while waiting:
            (flight,) = await program.answered([waiting.popleft()])
            found.times.add(flight)

    await asyncio.gather(*(talk() for _ in range(AT_ONCE)))


def _weigh(program: Program, found: Load) -> None:
    if (taken := program.resident()) is not None:
        found.resident.append(taken)


def check(name: str, answers: dict[int, int], wanted: int) -> None:
    """Raise `Unanswered` if a chat has more or fewer than `wanted` answers."""
    wrong = sorted(chat for chat, count in answers.items() if count != wanted)
    if wrong:
        chat = wrong[0]
        raise Unanswered(
            f"{name} answered {answers[chat]} times in chat {chat}, not {wanted}; {len(wrong)} such chats"
        )


def growth(resident: Sequence[float], chats: int) -> float:
    """Return the memory growth in kilobytes per message, over the later half of the rounds."""
    later = resident[len(resident) // 2 :]
    rounds = len(later) - 1
    return figures.slope(list(range(len(later))), later) * 1_000 / chats if rounds else 0.0
