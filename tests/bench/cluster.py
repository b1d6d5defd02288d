"""Measures Shipmate with PostgreSQL: `python -m tests.bench.cluster`, or with `--only` some of `latency`,
`throughput` and `failover`.

`latency` compares a message with PostgreSQL and with the embedded log, alternately in one run, so that drift
cancels. `throughput` runs several Shipmates on one server, each with a bot and a schema of its own.
`failover` measures how long nobody answers after the leader is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from tests import postgres
from tests.bench import failover, load
from tests.bench.programs import OnPostgres, Shipmate
from tests.bench.servers import Board, Flight, TimedModel

PARTS = ("latency", "throughput", "failover")
A_SECOND = 50
CHATS = 200
ROUNDS = 3
RUSH = load.Size(200, 4)
TOGETHER = (1, 2, 4)
KILLS = 30


async def steady(program: Shipmate, chats: list[int]) -> list[float]:
    """Send `A_SECOND` messages a second; return the milliseconds that each message takes."""
    flights: list[Flight] = []
    for chat in chats:
        flights.append(program.telegram.ask(chat))
        await asyncio.sleep(1 / A_SECOND)
    await program.landed(flights)
    return [(flight.inbound + flight.outbound) * 1000 for flight in flights]


async def latency(folder: Path, url: str) -> None:
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
                found.extend(one if number else [])  # the first round is a warm-up
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
    here, there = (statistics.median(one.cpu) for one in rushes)
    _say(f"ms of processor time a message: {here:.1f} and {there:.1f}, without the server's")


async def throughput(folder: Path, server: postgres.Postgres) -> None:
    """Measure several Shipmates at the same time, all at full load."""
    for count in TOGETHER:
        board = Board()
        model = TimedModel(board)
        programs = [
            OnPostgres(
                folder / f"{number}of{count}",
                board,
                first_chat=(number + 1) * 1_000_000,
                url=server.schema(f"of{count}n{number}"),
            )
            for number in range(count)
        ]
        await model.start()
        try:
            for program in programs:
                await program.start(model)
            await _busy(programs, model, load.Size(50, 1))  # a warm-up
            commits, served, worked = await _commits(programs, server), server.cpu(), _cpu(programs)
            began = time.perf_counter()
            await _busy(programs, model, RUSH)
            seconds = time.perf_counter() - began
            served, worked = server.cpu() - served, _cpu(programs) - worked
            commits = await _commits(programs, server) - commits
        finally:
            for program in programs:
                await program.stop()
            await model.stop()
        messages = RUSH.total * count
        _say(
            f"{count} at once: {messages / seconds:.0f} messages a second; {commits / seconds:.0f} commits a second, "
            f"{commits / messages:.1f} a message; processor time a message: {served / messages * 1000:.1f} ms of the server, "
            f"{worked / messages * 1000:.1f} ms of Shipmate; a core of the server is full at {messages / served:.0f} a second"
        )


async def _busy(programs: list[OnPostgres], model: TimedModel, size: load.Size) -> None:
    await asyncio.gather(*(load.rush([program], model, size) for program in programs))


def _cpu(programs: list[OnPostgres]) -> float:
    return sum(program.cpu() or 0.0 for program in programs)


async def _commits(programs: list[OnPostgres], server: postgres.Postgres) -> int:
    """Return the number of committed transactions."""
    await asyncio.sleep(1.2)
    await asyncio.gather(*(program.answered(program.new_chats(1)) for program in programs))
    with psycopg.connect(server.url(), autocommit=True) as db:
        row = db.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cluster")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--kills", type=int, default=KILLS)
    given = parser.parse_args()
    if postgres.programs() is None:
        sys.exit(postgres.MISSING)
    logging.disable(logging.WARNING)
    _say(f"{os.cpu_count()} cores, for all of it: server, platform, model and Shipmate")
    parts = given.only
    server = postgres.Postgres(durable=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            if "latency" in parts:
                asyncio.run(latency(Path(folder), server.schema("latency")))
            if "throughput" in parts:
                asyncio.run(throughput(Path(folder), server))
            if "failover" in parts:
                asyncio.run(failover.measure(Path(folder), server.schema("failover"), given.kills, _say))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
