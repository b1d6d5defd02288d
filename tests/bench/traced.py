"""Runs Shipmate with a tracer of function calls: `python -m tests.bench.traced FILE run --dir DIR`.

SIGUSR1 starts the tracer; SIGUSR2 writes the counts to FILE as one JSON object. The object counts the files
of `bot` and `channels` that were called, the functions that were called, and the moves (calls from one file
into another). It also counts all calls of Python functions, including those of libraries.

A callback or coroutine that the event loop resumes counts as a call from the event loop.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import bot
import bot.app
import bot.cli

ROOT = f"{Path(bot.__file__).parents[1]}/"
OURS = (f"{ROOT}bot/", f"{ROOT}channels/")


class Tracer:
    """Counts calls on all threads while the tracer is on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._files: set[str] = set()
        self._functions: set[tuple[str, str]] = set()
        self._moves: dict[tuple[str, str], int] = {}
        self._calls = 0
        self._on = False

    def listen(self) -> None:
        """Handle both signals on the running event loop. Threads started before the first signal are traced too."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._start)
        loop.add_signal_handler(signal.SIGUSR2, self._stop)
        threading.setprofile(self._called)

    def _start(self) -> None:
        self._on = True
        sys.setprofile(self._called)

    def _stop(self) -> None:
        self._on = False
        sys.setprofile(None)
        moves = sum(count for (caller, called), count in self._moves.items() if caller != called)
        found = {
            "files": len(self._files),
            "functions": len(self._functions),
            "moves": moves,
            "calls": self._calls,
            "by_file": {
                name: sum(count for (_, called), count in self._moves.items() if called == name)
                for name in sorted(self._files)
            },
        }
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps(found), encoding="utf-8")
        partial.replace(self._file)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not self._on:
            return
        self._calls += 1
        name = frame.f_code.co_filename
        if not name.startswith(OURS):
            return
        self._files.add(name.removeprefix(ROOT))
        self._functions.add((name, frame.f_code.co_qualname))
        outer = frame.f_back
        while outer is not None and not outer.f_code.co_filename.startswith(OURS):
            outer = outer.f_back
        caller = outer.f_code.co_filename if outer is not None else ""
        move = caller.removeprefix(ROOT), name.removeprefix(ROOT)
        self._moves[move] = self._moves.get(move, 0) + 1


def main() -> None:
    """Run the command line under the tracer."""
    tracer = Tracer(Path(sys.argv.pop(1)))
    tell = bot.app.ready_line

    def ready_line(*args: object) -> str:
        tracer.listen()
        return tell(*args)  # type: ignore[arg-type]

    vars(bot.app)["ready_line"] = ready_line
    bot.cli.main()


if __name__ == "__main__":
    main()
