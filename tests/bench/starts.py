"""Measures start times, and the cost of a long past: many chats, and a long archive."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from bot.contracts.archive import HistoryQuery
from bot.contracts.base import Json
from bot.core.archive_files import ChatStore
from bot.storage import file_names
from bot.system import SystemDisk
from bot.testing.log import MemoryLog
from tests.bench import past
from tests.bench.programs import COMPILED, ROOT, START_SECONDS, Unanswered
from tests.bench.rooms import Line

TIMES = 3
PER_FILE = 500  # lines of one archive file: half of the number at which a chat's file is split


@dataclass(frozen=True, slots=True)
class Past:
    """Number of chats, and number of lines in one of the chats."""

    chats: int
    lines: int


SHORT, FULL, QUICK = Past(5_000, 50_000), Past(100_000, 1_000_000), Past(100, 1_000)


async def starts() -> list[Line]:
    """Measure the start of the command line beside the start of the Python interpreter."""
    bare = await _quickest(lambda: _run("-c", "pass"))
    version = await _quickest(lambda: _run("-m", "bot", "--version"))
    usage = await _quickest(lambda: _run("-m", "bot", "--help"))
    beside = "python -c pass"
    return [Line("shipmate --version", version, bare, beside), Line("shipmate --help", usage, bare, beside)]


async def with_past(folder: Path, size: Past) -> list[Line]:
    """Measure a gateway with many chats on disk beside one with none, and a chat with many lines."""
    new, old = folder / "new", folder / "old"
    for home in (new, old):
        _configure(home)
    await past.write(old / ".ship", {f"telegram:chat:{number}": 1 for number in range(size.chats)})
    archive = folder / "archive"
    await asyncio.to_thread(write_archive, archive, size.chats)
    store = ChatStore(archive, disk=SystemDisk(), log=MemoryLog())
    listed = await _timed(store.chats())
    ready = await _quickest(lambda: _ready(new))
    lines = [
        Line(f"ready, {size.chats:,} chats", await _quickest(lambda: _ready(old)), ready, "a new folder"),
        Line(f"list of {size.chats:,} chats", listed, _reading(archive), "reading the files"),
    ]
    return [*lines, *await _long_chat(folder / "long", size.lines)]


async def _long_chat(folder: Path, lines: int) -> list[Line]:
    key = "telegram:chat:1"
    await asyncio.to_thread(write_long, folder, key, lines)
    store = ChatStore(folder, disk=SystemDisk(), log=MemoryLog())
    reading = _reading(folder)

    def search(**query: object) -> Callable[[], Awaitable[float]]:
        return lambda: _timed(store.search(key, HistoryQuery(limit=30, **query)))  # type: ignore[arg-type]

    newest = await _quickest(search(after=lines - 100))
    return [
        Line(f"newest of {lines:,} lines", newest, reading, "reading the files"),
        Line(
            f"a word in {lines:,} lines",
            await _quickest(search(keyword="number 7")),
            reading,
            "reading the files",
        ),
    ]


async def _quickest(measure: Callable[[], Awaitable[float]]) -> float:
    return min([await measure() for _ in range(TIMES)])


async def _timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1000


async def _run(*arguments: str) -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
        env=os.environ | COMPILED,
    )
    if await process.wait():
        raise Unanswered(f"python {' '.join(arguments)} failed")
    return (time.perf_counter() - began) * 1000


async def _ready(root: Path) -> float:
    """Measure the time from the start of the process to its "ready" line."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bot",
        "run",
        "--dir",
        str(root),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))}
        | COMPILED,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            while line := await process.stdout.readline():
                if line.startswith(b"ready"):
                    return (time.perf_counter() - began) * 1000
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()
    raise Unanswered(f"shipmate did not get ready within {START_SECONDS:.0f} s")


def _configure(home: Path) -> None:
    home.mkdir(parents=True)
    config = {
        "channels": {name: {"enabled": False} for name in ("telegram", "slack", "web")},
        "dashboard": {"enabled": False},
    }
    (home / "ship.json").write_text(json.dumps(config), encoding="utf-8")


def write_archive(folder: Path, count: int) -> None:
    """Write an archive with `count` chats of two lines each."""
    folder.mkdir(mode=0o700)
    for number in range(count):
        key = f"telegram:chat:{number}"
        raw = line(key, 2 * number) + line(key, 2 * number + 1)
        (folder / f"{file_names.encode(key)}.jsonl").write_bytes(raw)


def write_long(folder: Path, key: str, lines: int) -> None:
    folder.mkdir()
    name = file_names.encode(key)
    for number, first in enumerate(range(0, lines, PER_FILE), 1):
        last = first + PER_FILE >= lines
        file = folder / (f"{name}.jsonl" if last else f"{name}.archive-{number}.jsonl")
        file.write_bytes(b"".join(line(key, at) for at in range(first, min(first + PER_FILE, lines))))


def line(key: str, number: int) -> bytes:
    """Return one archive line as JSON."""
    fields: Json = {
        "v": 1,
        "ts": number,
        "channel": "telegram",
        "chatId": key.rpartition(":")[2],
        "chatKey": key,
        "userId": "7",
        "messageId": f"{number}",
        "role": "user" if number % 2 == 0 else "assistant",
        "text": f"Some words of ordinary length, 几个字, about the number {number}. " * 2,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _reading(folder: Path) -> float:
    """Return the milliseconds to read every file of a folder, the fastest of three runs."""
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        for path in folder.glob("*.jsonl"):
            path.read_bytes()
        took.append((time.perf_counter() - began) * 1000)
    return min(took)
