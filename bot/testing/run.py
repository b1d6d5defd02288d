"""The gateway with an environment that can fail:

    python -m bot.testing.run --dir DIR [--clock PATH] [--trace PATH] [--speed N --since EPOCH]

It is what `shipmate run` starts; only its disk, the log of its chats, its channels and clock are wrapped. `SHIPMATE_FAULTS` holds a
JSON list of `faults.Fault`s. Every operation that could have failed is a line of the trace. The clock listens on a
Unix socket for lines of JSON: `{"jump": seconds}` sets the time of day, `{"pass": seconds}` lets time go by. With
`--speed` N seconds go by in one, network calls get as much less of the machine's time, and every process that is given
the same `--since` shows the same time of day.
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

from bot import app, errors, services, system
from bot.contracts.environment import Clock
from bot.testing.clock import FastClock, SteeredClock
from bot.testing.faults import VARIABLE, Fault, Faults, Seam, Seen


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of the gateway."""
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
    environment = services.Environment(
        clock=clock,
        disk=faults.disk(system.SystemDisk()),
        ids=system.UlidSource(clock),
        channel=faults.channel,
        event_log=faults.event_log,
        pace=1 / speed,
    )
    if address is None:
        return await app.run(root, environment)
    vars(base)["datetime"] = _datetime(clock)  # APScheduler goes by a clock of its own
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
