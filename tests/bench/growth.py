"""A gateway with a past: killed with much unfinished and started again, and the cost of a message by how much there is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bot.history.transcript.store import Transcript

from bot.contracts.base import Role
from bot.contracts.identity import ChatKey
from bot.contracts.transcript import Event, MessageEvent, TranscriptLine, TurnEnd, TurnStart
from bot.core import file_names
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.testing.log import MemoryLog
from tests.bench import starts
from tests.bench.gateway import SETTLE, Times
from tests.bench.programs import Program, Shipmate, Unanswered
from tests.bench.servers import Board, TimedModel

PATIENCE = 300.0
WARM_UP = 5
INDEX_SECONDS = 11.0
"""Seconds after a start within which the search index begins to catch up."""
QUIET = 0.02
"""Share of a processor below which a program has nothing to do…"""
CALM = 3
"""… as often in a row: on a busy machine it may have to wait for its turn."""
FEW = 10
ROUNDS = 4
PER_FILE = 500
_TURNS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Size:
    """Chats and lines of the archive of a gateway that is killed with so many turns `unfinished`; the turns of a long chat, the
    number of chats on disk, and messages of each round, for what a message costs.
    """

    chats: int
    lines: int
    unfinished: int
    turns: int
    on_disk: int
    messages: int


QUICK = Size(20, 200, 5, 20, 20, 3)
SHORT = Size(1_000, 50_000, 100, 1_000, 5_000, 15)
FULL = Size(10_000, 1_000_000, 500, 10_000, 100_000, 25)


@dataclass(frozen=True, slots=True)
class Restart:
    """Seconds from the start of the process until it polls, and from then until the last unfinished turn is answered."""

    ready: float
    answered: float


async def restart(folder: Path, size: Size) -> Restart:
    """Raises `Unanswered`, also where a message is answered twice."""
    board = Board()
    model = TimedModel(board)
    program = Shipmate(folder / "restart", board, first_chat=7_000_000)
    await model.start()
    try:
        await program.start(model)
        model.thinking = PATIENCE
        flights = [program.telegram.ask(chat) for chat in program.new_chats(size.unfinished)]
        await _confirmed(program)
        await program.kill()
        model.thinking = 0.0
        for number in range(size.chats):
            _archive(program.home, f"telegram:chat:{8_000_000 + number}", size.lines // size.chats)
        began = time.perf_counter()
        await program.launch()
        ready = time.perf_counter() - began
        await program.landed(flights, PATIENCE)
        answered = time.perf_counter() - began - ready
        await asyncio.sleep(SETTLE)  # a second answer would come now
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
    """Wait until the platform knows that everything was taken."""
    async with asyncio.timeout(PATIENCE):
        while len(program.telegram.updates):  # noqa: ASYNC110 - another process takes them
            await asyncio.sleep(0.05)


@dataclass(slots=True)
class Cost:
    """Milliseconds of each message, and of CPU a message in each round."""

    times: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


async def by_turns(folder: Path, size: Size) -> list[Cost]:
    """Two chats of one gateway in turn: one of many turns, and one of ten."""
    board = Board()
    model = TimedModel(board)
    program = Shipmate(folder / "turns", board, first_chat=9_000_000)
    long, short = program.new_chats(2)
    for chat, turns in ((long, size.turns), (short, FEW)):
        await told(program.home, f"telegram:chat:{chat}", turns)
    await model.start()
    try:
        await program.start(model)
        return await _in_turn([(program, long), (program, short)], size.messages)
    finally:
        await program.stop()
        await model.stop()


async def by_chats(folder: Path, size: Size) -> list[Cost]:
    """Two gateways in turn: one with many chats on disk, and one with ten."""
    board = Board()
    model = TimedModel(board)
    programs = []
    for number, chats in enumerate((size.on_disk, FEW)):
        program = Shipmate(folder / f"chats-{chats}", board, first_chat=10_000_000 + number)
        for one in range(chats):
            _archive(program.home, f"telegram:chat:{11_000_000 + one}", 2)
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
    """Wait until a program has nothing more to do: what it finds on disk is indexed a while after its start."""
    if program.cpu() is None:
        return
    await asyncio.sleep(INDEX_SECONDS)
    async with asyncio.timeout(PATIENCE):
        calm = 0
        while calm < CALM:
            before = program.cpu() or 0.0
            await asyncio.sleep(SETTLE)
            calm = calm + 1 if (program.cpu() or 0.0) - before <= QUIET * SETTLE else 0


def _archive(home: Path, key: str, lines: int) -> None:
    """The archive of a chat, in files as the product splits it."""
    name, folder = file_names.encode(key), home / "chats"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number, first in enumerate(range(0, lines, PER_FILE), 1):
        last = first + PER_FILE >= lines
        file = folder / (f"{name}.jsonl" if last else f"{name}.archive-{number}.jsonl")
        file.write_bytes(b"".join(starts.line(key, at) for at in range(first, min(first + PER_FILE, lines))))


async def told(home: Path, key: str, turns: int) -> None:
    """A chat of so many plain turns: its archive and its transcript."""
    _archive(home, key, 2 * turns)
    ids, clock = UlidSource(), SystemClock()
    transcript = Transcript(home / "transcripts", disk=SystemDisk(), ids=ids, clock=clock, log=MemoryLog())
    chat = ChatKey.parse(key)
    for first in range(0, turns, _TURNS_AT_ONCE):
        batch = [line for _ in range(min(_TURNS_AT_ONCE, turns - first)) for line in _turn(chat, ids)]
        await transcript.append(chat, batch)
    await transcript.close()


def _turn(chat: ChatKey, ids: UlidSource) -> Iterator[TranscriptLine]:
    request_id = ids.ulid()
    said: list[tuple[Role, str]] = [
        ("user", "What is the number that we spoke about? 几个字"),
        ("assistant", "It is 42, as ever, and a few more words about it. " * 4),
    ]
    events: list[Event] = [TurnStart()]
    events += [
        MessageEvent(role=role, message={"role": role, "content": [{"type": "text", "text": words}]})
        for role, words in said
    ]
    for event in (*events, TurnEnd(status="done")):
        yield TranscriptLine(uuid=ids.ulid(), ts=1, event=event, chat_key=chat, request_id=request_id)
