"""Runs Shipmate with a tracer of function calls: `python -m tests.bench.traced FILE run --dir DIR`.

SIGUSR1 starts the tracer; SIGUSR2 stops it and writes the counts to FILE as one JSON object: the calls of each function of `bot`
and `channels`, the moves between their files (calls from one file into another), and the number of calls of all Python functions,
including library functions.

A callback or coroutine that the event loop resumes counts as a call from the event loop.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections import Counter
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
        self._functions: Counter[str] = Counter()
        self._moves: Counter[str] = Counter()
        self._calls = 0
        self._on = False

    def listen(self) -> None:
        """Handle both signals on the running event loop. Threads started before the first signal are traced too."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._start)
        loop.add_signal_handler(signal.SIGUSR2, self._stop)
        threading.setprofile(self._called)

    def _start(self) -> None:
        self._functions.clear()
        self._moves.clear()
        self._calls = 0
        self._on = True
        sys.setprofile(self._called)

    def _stop(self) -> None:
        self._on = False
        sys.setprofile(None)
        found = {"calls": self._calls, "functions": self._functions, "moves": self._moves}
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
        self._functions[f"{name.removeprefix(ROOT)}:{frame.f_code.co_qualname}"] += 1
        outer = frame.f_back
        while outer is not None and not outer.f_code.co_filename.startswith(OURS):
            outer = outer.f_back
        caller = outer.f_code.co_filename if outer is not None else ""
        if caller != name:
            self._moves[f"{caller.removeprefix(ROOT)}:{name.removeprefix(ROOT)}"] += 1


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
