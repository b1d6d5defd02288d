"""Measures how fast a long chat is indexed, searched and read: `python -m tests.bench.recall_speed 100000 1000000`."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine, HistoryQuery
from bot.core.archive_files import ChatStore
from bot.core.sqlite_log import SqliteLog
from bot.features.search import Search
from bot.storage import jsonl
from bot.storage.jsonl import file_name
from bot.system import SystemClock, SystemDisk
from bot.testing.log import MemoryLog
from bot.tools.context import RecallQuery
from tests import talk as chats

KEY = ChatKey.parse("web:chat:1")
START = 1_600_000_000_000
QUESTIONS = 200
QUICK, ORDINARY, FULL = (2_000,), (100_000,), (100_000, 1_000_000)
"""Numbers of lines of the measured chats, by size of the run."""
FILE_LINES = 500
"""Lines of an archive file after many years of rotation."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Times for a chat with `lines` lines: a rebuild in seconds, everything else in milliseconds (p50 and
    p95). `computing` is CPU time, which is more reliable on a busy machine. `literal` is a search for an
    exact word.
    """

    lines: int
    rebuild: float
    rebuild_computing: float
    search: tuple[float, float]
    computing: tuple[float, float]
    literal: tuple[float, float]
    window: tuple[float, float]
    megabytes: float


class Talk:
    """Generates words with a natural frequency distribution, and lines of such words, from a fixed seed."""

    def __init__(self, words: int = 30_000) -> None:
        self._rng = random.Random(7)
        syllables = [first + second for first in "bcdfglmnprst" for second in "aeiou"]
        self._words = ["".join(self._rng.choices(syllables, k=self._rng.randint(1, 4))) for _ in range(words)]
        self._often = list(accumulate(1 / (rank + 8) for rank in range(words)))

    def said(self, count: int) -> str:
        return " ".join(self._rng.choices(self._words, cum_weights=self._often, k=count))

    def line(self, number: int, ts: int) -> ArchiveLine:
        return ArchiveLine(
            ts=ts,
            channel="web",
            chat_id="1",
            chat_key=KEY,
            user_id="1",
            message_id=f"{number}",
            role="assistant" if number % 2 else "user",
            text=self.said(self._rng.choice((5, 8, 12, 20, 40))),
        )

    def question(self) -> str:
        """Return a question of two, four or eight words; about one in eight questions contains a time."""
        words = self.said(self._rng.choice((2, 4, 8)))
        return f"{words} last month" if self._rng.random() < 1 / 8 else words

    def pause(self) -> int:
        return self._rng.choice((5_000, 20_000, 60_000, 60_000, 7_200_000))


async def fill(folder: Path, log: SqliteLog, talk: Talk, lines: int) -> int:
    """Write a chat as it is after many rotations, and its log; return the time of the last line."""
    folder.mkdir(parents=True)
    said = chats.Talk(log)
    ts, waiting, files = START, list[bytes](), 0
    for number in range(lines):
        ts += talk.pause()
        line = talk.line(number, ts)
        said.say(line)
        waiting.append(jsonl.dumps(line.model_dump(by_alias=True, exclude_none=True)))
        if len(waiting) == FILE_LINES and lines - number > FILE_LINES:
            files += 1
            (folder / f"{file_name(KEY)}.archive-{files}.jsonl").write_bytes(b"".join(waiting))
            waiting.clear()
            await log.committed()
    (folder / f"{file_name(KEY)}.jsonl").write_bytes(b"".join(waiting))
    await log.committed()
    return ts


async def measured(root: Path, lines: int) -> Speed:
    """Measure a chat with `lines` lines in a new folder."""
    talk, folder, path = Talk(), root / "chats", root / "index.db"
    log = SqliteLog(root / "log.db", clock=SystemClock(), log=MemoryLog())
    now = await fill(folder, log, talk, lines)
    archive = ChatStore(folder, disk=SystemDisk(), log=MemoryLog())
    searched = Search(path, log, clock=SystemClock(), log=MemoryLog(), wait=None)
    began, computed = time.perf_counter(), time.process_time()
    searched.exporter.start()
    await searched.caught_up()
    rebuild, rebuild_computing = time.perf_counter() - began, time.process_time() - computed
    size = path.stat().st_size / 1e6
    questions = [talk.question() for _ in range(QUESTIONS)]
    try:
        asked: list[Callable[[], Awaitable[object]]] = [
            lambda words=words: searched.recall([KEY], RecallQuery((words,), now))  # type: ignore[misc]
            for words in questions
        ]
        search, computing = await _times(asked)
        words = [HistoryQuery(keyword=talk.said(1)) for _ in range(60)]
        literal, _ = await _times([lambda query=query: archive.search(KEY, query) for query in words])  # type: ignore[misc]
        newest = HistoryQuery(limit=30)
        window, _ = await _times([lambda: archive.search(KEY, newest)] * 40)
    finally:
        await searched.exporter.close()
        await log.close()
    return Speed(lines, rebuild, rebuild_computing, search, computing, literal, window, size)


async def _times(calls: list[Callable[[], Awaitable[object]]]) -> tuple[tuple[float, float], ...]:
    """Return the wall-clock times and the CPU times of the calls."""
    await calls[0]()  # the first call opens files and is not measured
    times: tuple[list[float], ...] = [], []
    for call in calls:
        began = time.perf_counter(), time.process_time()
        await call()
        for found, then, now in zip(times, began, (time.perf_counter(), time.process_time()), strict=True):
            found.append((now - then) * 1000)
    return tuple((found[len(found) // 2], found[len(found) * 95 // 100]) for found in map(sorted, times))


def told(speed: Speed) -> str:
    """Return a line of the report."""
    pairs = (
        ("search", speed.search),
        ("of it computing", speed.computing),
        ("a word as it stands", speed.literal),
        ("tail window", speed.window),
    )
    found = "; ".join(f"{name} {p50:.1f} ms (p95 {p95:.1f})" for name, (p50, p95) in pairs)
    return f"{speed.lines:,} lines: rebuild {speed.rebuild:.1f} s ({speed.rebuild_computing:.1f} computing), index {speed.megabytes:.0f} MB; {found}"


def main() -> None:
    for lines in map(int, sys.argv[1:] or ["20000"]):
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as root:
            sys.stdout.write(told(asyncio.run(measured(Path(root), lines))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
