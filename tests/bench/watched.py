"""Runs Shipmate with a watch on its event loop: `python -m tests.bench.watched FILE run --dir DIR`.

Each long block of the event loop after `ready` is written to FILE as one line of JSON. The line has the
wall-clock and CPU milliseconds, the number of waits for something other than a processor, the callback that ran,
and the place in the code where a second thread saw it. (asyncio's debug mode also reports names, but makes
everything several times slower.)
"""

from __future__ import annotations

import asyncio.events
import json
import resource
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import bot.app
import bot.cli

WORTH_TELLING = 0.02
LOOK_EVERY = 0.01


class Watch:
    """Times every callback of the event loop."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._main = threading.get_ident()
        self._begun = 0.0
        self._seen = ""
        self.ready = False
        self._run = asyncio.events.Handle._run

    def start(self) -> None:
        watch = self

        def timed(handle: asyncio.events.Handle) -> None:
            watch._seen = ""
            watch._begun = begun = time.perf_counter()
            burnt, waits = time.thread_time(), _waits()
            ready = watch.ready
            watch._run(handle)
            took = time.perf_counter() - begun
            watch._begun = 0.0
            if took > WORTH_TELLING and ready:
                watch._tell(handle, took, time.thread_time() - burnt, _waits() - waits)

        asyncio.events.Handle._run = timed  # type: ignore[assignment, method-assign]
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_EVERY):
            if self._begun and time.perf_counter() - self._begun > WORTH_TELLING and not self._seen:
                self._seen = _where(sys._current_frames().get(self._main))

    def _tell(self, handle: asyncio.events.Handle, took: float, burnt: float, waits: int) -> None:
        told = {
            "wall": took * 1000,
            "cpu": burnt * 1000,
            "waits": waits,
            "what": f"{handle!r}"[:300],
            "where": self._seen,
        }
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def _waits() -> int:
    """Return how often this thread has waited for something other than a processor."""
    if not hasattr(resource, "RUSAGE_THREAD"):
        return int(time.perf_counter_ns())
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _where(frame: FrameType | None) -> str:
    frames = traceback.extract_stack(frame)[-12:]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))


def main() -> None:
    """Run the command line under the watch."""
    watch = Watch(Path(sys.argv.pop(1)))
    tell = bot.app.ready_line

    def ready_line(*args: Any) -> str:
        watch.ready = True
        return tell(*args)

    vars(bot.app)["ready_line"] = ready_line
    watch.start()
    bot.cli.main()


if __name__ == "__main__":
    main()
