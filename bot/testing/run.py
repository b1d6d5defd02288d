"""Runs a gateway whose disk, event log and channels can fail, and whose clock tests can move:

    python -m bot.testing.run --dir DIR [--clock PATH] [--trace PATH] [--speed N --since EPOCH]

The command starts the same gateway as `shipmate run`. The variable `SHIPMATE_FAULTS` holds a JSON list of
`faults.Fault`s. Each operation that such a fault could hit writes one line to the trace file.

The clock listens on the Unix socket PATH for lines of JSON: `{"jump": seconds}` moves the wall clock,
`{"pass": seconds}` lets time pass. With `--speed`, N seconds pass in each real second, and the timeouts of network
calls shrink by the same factor. All processes with the same `--since` and `--speed` show the same time of day.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from datetime import datetime, tzinfo
from pathlib import Path

from apscheduler.schedulers import base

from bot import app, errors, system
from bot.contracts.environment import Clock
from bot.core.services import Environment
from bot.testing.clock import FastClock, SteeredClock
from bot.testing.faults import VARIABLE, Fault, Faults, Seam, Seen


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gateway; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bot.testing.run")
    parser.add_argument("--dir", type=Path, default=Path())
    parser.add_argument("--clock", type=Path)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--since", type=float, default=0.0)
    given = parser.parse_args(arguments)
    expected = [Fault(**fault) for fault in json.loads(os.environ.get(VARIABLE, "[]"))]
    faults = Faults(expected, seen=None if given.trace is None else tracing(given.trace))
    try:
        return asyncio.run(_run(given.dir, faults, given.clock, given.speed, given.since))
    except errors.ShipmateError as error:
        sys.stderr.write(f"shipmate: {error}\n")
        return error.exit_code


async def _run(root: Path, faults: Faults, address: Path | None, speed: float, since: float) -> int:
    real = system.SystemClock()
    clock = SteeredClock(real if speed == 1.0 else FastClock(real, speed, since))
    environment = Environment(
        clock=clock,
        disk=faults.disk(system.SystemDisk()),
        ids=system.UlidSource(clock),
        wrap_channel=faults.channel,
        wrap_log=faults.event_log,
        pace=1 / speed,
    )
    if address is None:
        return await app.run(root, environment)
    vars(base)["datetime"] = _datetime(
        clock
    )  # APScheduler reads the time through this name, not through our clock
    server = await asyncio.start_unix_server(lambda *ends: steer(clock, *ends), address)
    async with server:
        return await app.run(root, environment)


def _datetime(clock: Clock) -> type[datetime]:
    class Steered(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(clock.now(), tz)

    return Steered


async def steer(clock: SteeredClock, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        command = json.loads(line)
        clock.jump(command.get("jump", 0))
        clock.advance(command.get("pass", 0))
        writer.write(json.dumps({"now": clock.now()}).encode() + b"\n")
        await writer.drain()
    writer.close()


def tracing(path: Path) -> Seen:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def seen(seam: Seam, kind: str, name: str) -> None:
        os.write(handle, json.dumps([seam, kind, name]).encode() + b"\n")

    return seen


if __name__ == "__main__":
    sys.exit(main())
