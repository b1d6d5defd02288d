"""PostgreSQL beside the embedded journal: `python -m tests.bench.cluster`. Both in turn in one run, so that drift cancels."""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import sys
import tempfile
from pathlib import Path

from bot.testing.anthropic import AnthropicServer
from tests import postgres
from tests.bench import load
from tests.bench.programs import Shipmate
from tests.bench.servers import Board, Flight, TimedModel

A_SECOND = 50
CHATS = 200
ROUNDS = 3
RUSH = load.Size(200, 4)


class OnPostgres(Shipmate):
    """The one process that leads on a database."""

    def __init__(self, root: Path, board: Board, *, first_chat: int, url: str) -> None:
        super().__init__(root, board, first_chat=first_chat)
        self._url = url

    def prepare(self, model: AnthropicServer) -> None:
        super().prepare(model)
        path = self._root / "ship.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config["engine"] = {"kind": "postgresql", "databaseUrl": self._url}
        path.write_text(json.dumps(config), encoding="utf-8")


async def steady(program: Shipmate, chats: list[int]) -> list[float]:
    """Milliseconds that each message takes, of `A_SECOND` messages a second."""
    flights: list[Flight] = []
    for chat in chats:
        flights.append(program.telegram.ask(chat))
        await asyncio.sleep(1 / A_SECOND)
    await program.landed(flights)
    return [(flight.inbound + flight.outbound) * 1000 for flight in flights]


async def measure(folder: Path, url: str) -> None:
    board = Board()
    model = TimedModel(board)
    programs = (
        Shipmate(folder / "embedded", board, first_chat=1_000_000),
        OnPostgres(folder / "postgresql", board, first_chat=2_000_000, url=url),
    )
    await model.start()
    try:
        for program in programs:
            await program.start(model)
        chats = [program.new_chats(CHATS) for program in programs]
        took: list[list[float]] = [[], []]
        for number in range(ROUNDS + 1):
            for program, mine, found in zip(programs, chats, took, strict=True):
                one = await steady(program, mine)
                found.extend(one if number else [])  # the first is for warmth
        rushes = await load.rush(programs, model, RUSH)
    finally:
        for program in programs:
            await program.stop()
        await model.stop()
    for share in (50, 95):
        here, there = (statistics.quantiles(one, n=100)[share - 1] for one in took)
        _say(f"p{share} at {A_SECOND} a second: {here:.1f} and {there:.1f} ms, {there - here:+.1f} ms")
    here, there = (statistics.median(one.rates) for one in rushes)
    _say(f"messages a second: {here:.0f} and {there:.0f}, {there / here:.2f} of it")


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")


def main() -> None:
    if postgres.programs() is None:
        sys.exit(postgres.MISSING)
    logging.disable(logging.WARNING)
    server = postgres.Postgres(durable=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(Path(folder), server.url()))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
