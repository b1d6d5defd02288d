"""Counts the files, functions, moves between files, and calls for one plain message: `python -m
tests.bench.path`. `--files` prints the file names.

The measured message is the third of its chat on Telegram, so imports, prompts and cache filling do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from pathlib import Path

from bot.contracts.base import Json
from tests.bench.programs import Shipmate, Unanswered
from tests.bench.servers import Board, TimedModel

WARM = 2
SETTLE_SECONDS = 1.5
"""Interval in seconds after the answer that still counts as part of the message: the end of the turn, the
archive and the index.
"""
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


async def traced(folder: Path) -> Json:
    """Return the tracer's counts. Raises `Unanswered`."""
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
        program.signal(signal.SIGUSR1)
        await program.answered(chat)
        await asyncio.sleep(SETTLE_SECONDS)
        program.signal(signal.SIGUSR2)
        async with asyncio.timeout(WAIT_SECONDS):
            while not program.file.exists():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise Unanswered("the tracer wrote nothing") from None
    finally:
        await program.stop()
        await model.stop()
    found: Json = json.loads(program.file.read_text(encoding="utf-8"))
    return found


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="name the files, with the calls into each")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(traced(Path(folder)))
    counts = ", ".join(f"{found[name]:,} {name}" for name in ("files", "functions", "moves", "calls"))
    _say(f"one plain message: {counts}")
    if asked.files:
        for name, calls in sorted(found["by_file"].items(), key=lambda one: -one[1]):
            _say(f"{calls:>6}  {name}")


if __name__ == "__main__":
    main()
