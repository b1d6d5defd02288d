"""Counts the files, functions, moves between files, and calls that one plain message needs: `python -m tests.bench.path`. `--files`
prints the file names.

The measured message is the third of its chat on Telegram, so imports, prompts and cache filling do not count. What the
gateway calls in a longer period without a message is subtracted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import NamedTuple

from bot.contracts.base import Json
from tests.bench.programs import Shipmate, Unanswered
from tests.bench.servers import Board, TimedModel

WARM = 2
SETTLE_SECONDS = 1.5
"""Seconds after the answer for which calls still count. In this time the turn ends, and archive and index are updated."""
IDLE_PERIODS = 4
"""Length of the period without a message, in multiples of `SETTLE_SECONDS`. In it, each periodic task of the gateway runs."""
WAIT_SECONDS = 20.0


class Traced(Shipmate):
    """`shipmate run` under the tracer."""

    def __init__(self, root: Path, board: Board, file: Path) -> None:
        super().__init__(root, board, first_chat=1_000_000)
        self.command[:1] = ["tests.bench.traced", str(file)]
        self.file = file

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


class Count(NamedTuple):
    files: Counter[str]
    """Number of calls, keyed by file."""
    functions: Counter[str]
    moves: Counter[str]
    calls: int


async def traced(folder: Path) -> Count:
    """Trace one message. Raises `Unanswered`."""
    board = Board()
    model = TimedModel(board)
    await model.start()
    program = Traced(folder / "shipmate", board, folder / "traced.json")
    try:
        await program.start(model)
        chat = program.new_chats(1)
        for _ in range(WARM):
            await program.answered(chat)
        await asyncio.sleep(SETTLE_SECONDS)
        idle = await _counted(program, asyncio.sleep((IDLE_PERIODS - 1) * SETTLE_SECONDS))
        found = await _counted(program, program.answered(chat))
    except TimeoutError:
        raise Unanswered("the tracer wrote nothing") from None
    finally:
        await program.stop()
        await model.stop()
    functions: Counter[str] = Counter(found["functions"]) - Counter(idle["functions"])
    moves: Counter[str] = Counter(found["moves"]) - Counter(idle["moves"])
    files: Counter[str] = Counter()
    for name, calls in functions.items():
        files[name.partition(":")[0]] += calls
    return Count(files, functions, moves, found["calls"] - idle["calls"] // IDLE_PERIODS)


async def _counted(program: Traced, work: Awaitable[object]) -> Json:
    """Return what the tracer counts during `work` and `SETTLE_SECONDS` after it."""
    program.signal(signal.SIGUSR1)
    await work
    await asyncio.sleep(SETTLE_SECONDS)
    program.signal(signal.SIGUSR2)
    async with asyncio.timeout(WAIT_SECONDS):
        while not program.file.exists():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
    found: Json = json.loads(program.file.read_text(encoding="utf-8"))
    program.file.unlink()
    return found


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="name the files, with the calls into each")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(traced(Path(folder)))
    _say(
        f"one plain message: {len(found.files)} files, {len(found.functions)} functions, "
        f"{found.moves.total():,} moves, {found.calls:,} calls"
    )
    if asked.files:
        for name, calls in found.files.most_common():
            _say(f"{calls:>6}  {name}")


if __name__ == "__main__":
    main()
