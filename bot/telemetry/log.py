"""The operator's log, `.ship/logs/<YYYY-MM-DD>.jsonl`, written by a thread of its own so that no caller waits."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from bot import text
from bot.contracts.base import Level
from bot.contracts.environment import Clock, Disk, Ids
from bot.contracts.identity import ChatKey
from bot.contracts.log_kinds import NULLABLE
from bot.normalize import Bounds, normalize_to_size, plain_details, to_camel
from bot.sizes import size_of
from bot.telemetry import context
from bot.telemetry.redaction import LogRedactor

LOGGED = Bounds(depth=21, items=5_000, properties=5_000, values=5_000, null=None)
"""Strings stay whole: what is secret in them has to be replaced before they may be cut."""
MAX_LINE_BYTES = 64 * 1024
MAX_PAYLOAD_BYTES = 32 * 1024 * 1024
"""For a line with a whole payload, which operators ask for by `SMA_LOG_LLM_PAYLOAD`: as large as a request."""
KEEP_DAYS = 30
MAX_BYTES = 1_000 * 2**20
"""Of all files together."""
SETTLED = timedelta(hours=1)
"""After its end a day has all its lines."""
PIECE = 256 * 1024
"""Bytes that are compressed at once; the interpreter's lock is free meanwhile."""
PART_BYTES = 64 * 1024 * 1024
"""A day that grows over this goes on in `<day>.2.jsonl`, `<day>.3.jsonl`, …"""
CAPACITY = 10_000  # lines that may wait for the disk
MOST_BYTES = 48 * 1024 * 1024  # of lines that wait
LINGER = 0.03
"""Seconds for which the first line waits for more: a turn writes many at once, and each wake of the writer's
thread would stop the one that answers people.
"""

PACKED = ".gz"

Line = dict[str, Any]


class JsonlLog:
    """`contracts.environment.Log` on disk. `write` only copies and queues; under pressure debug lines go first, and the
    log says how many it dropped. A disk that fails is told of once on stderr and never to the caller. `observers` get every
    line at once, not redacted, in the thread that writes it, be it dropped or not; they are quick and raise nothing.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        disk: Disk,
        ids: Ids,
        redact: LogRedactor | None = None,
        keep_days: int = KEEP_DAYS,
        max_bytes: int = MAX_BYTES,
        capacity: int = CAPACITY,
        part_bytes: int = PART_BYTES,
        complain: Callable[[str], object] | None = None,
        observers: Sequence[Callable[[Line], object]] = (),
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._ids = ids
        self._redact = redact or LogRedactor()
        self.observers = list(observers)
        self._keep = timedelta(keep_days)
        self._max_bytes = max_bytes
        self._capacity = capacity
        self._writer = _Writer(folder, disk, part_bytes, complain or _complain)
        self._disk = disk
        self._wake = threading.Condition()
        # Debug lines wait apart, so that they can be dropped first; ids bring both back into order.
        self._waiting: deque[Line] = deque()
        self._debug: deque[Line] = deque()
        self.bytes_pending = 0
        self._dropped = 0
        self.lost = 0
        """Lines that were dropped, or refused by the disk, since the start."""
        self._queued = 0
        self._written = 0
        self._asleep = False
        self._hurried = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="shipmate-log", daemon=True)
        self._thread.start()

    def write(
        self,
        kind: str,
        message: str,
        *,
        level: Level = "info",
        duration: float | None = None,
        chat_key: ChatKey | None = None,
        request_id: str | None = None,
        **details: Any,
    ) -> None:
        running = context.current()
        if running.task is not None:
            details.setdefault("task", running.task)
        line = self._line(kind, message, level, details)
        step = details.get("step", running.step)
        key = chat_key or running.chat_key
        where: Line = {
            "duration": None if duration is None else round(float(duration), 3),
            "chatKey": None if key is None else str(key),
            "requestId": request_id or running.request_id,
            "step": step if isinstance(step, int) else None,
        }
        line |= {key: value for key, value in where.items() if value is not None}
        for observe in self.observers:
            observe(line)
        with self._wake:
            if not self._closed and self._admit(line, level):
                self._queued += 1
                if self._asleep:
                    self._wake.notify_all()

    def _line(self, kind: str, message: str, level: Level, extra: dict[str, Any]) -> Line:
        return {
            "id": self._ids.ulid(),
            "timestamp": _timestamp(self._clock.now()),
            "type": level,
            "level": level,
            "kind": kind,
            "message": message,
            # A copy that the caller's later changes do not reach: containers copied, strings shared.
            "details": plain_details(
                {
                    key: value
                    for key, value in extra.items()
                    if key != "step" and (value is not None or (kind, to_camel(key)) in NULLABLE)
                },
                LOGGED,
            ),
        }

    def _admit(self, line: Line, level: Level) -> bool:
        size = size_of(line)
        while self._full(size):
            self._dropped += 1
            self.lost += 1
            if level == "debug" or not self._debug:
                return False
            self.bytes_pending -= size_of(self._debug.popleft())
            self._written += 1  # dropped counts as dealt with
        self.bytes_pending += size
        (self._debug if level == "debug" else self._waiting).append(line)
        return True

    def _full(self, size: int) -> bool:
        waiting = len(self._waiting) + len(self._debug)
        return waiting >= self._capacity or (waiting > 0 and self.bytes_pending + size > MOST_BYTES)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._gather()
                batch = sorted((*self._waiting, *self._debug), key=lambda line: str(line["id"]))
                self._waiting.clear()
                self._debug.clear()
                self.bytes_pending = 0
                dropped, self._dropped = self._dropped, 0
                closing = self._closed
            if dropped:
                batch.append(self._line("log", f"dropped {dropped} lines", "warn", {"dropped": dropped}))
            lost = self._writer.append([(_day(line), self._rendered(line)) for line in batch])
            with self._wake:
                if lost:
                    # The line that told of those dropped before was the last one of this batch.
                    self._dropped += lost + max(0, dropped - 1)
                    self.lost += max(0, lost - bool(dropped))
                self._written += len(batch) - bool(dropped)
                self._wake.notify_all()
            if closing:
                return

    def _rendered(self, line: Line) -> bytes:
        """A line as bytes. Nothing in it ends the log: one that cannot be written leaves its kind, and why."""
        try:
            return render(line, self._redact)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
            told = {"kind": "log", "message": f"a line of the kind {line['kind']} could not be written"}
            kept = {key: line[key] for key in ("id", "timestamp", "type", "level")}
            return _dump(kept | told | {"details": {"cause": type(error).__name__}})

    def _gather(self) -> None:
        """Wait for a line, then a moment for more, unless a flush is waiting."""
        self._asleep = True
        self._wake.wait_for(lambda: self._waiting or self._debug or self._closed)
        self._asleep = False
        self._wake.wait_for(lambda: self._hurried or self._closed, timeout=LINGER)
        self._hurried = False

    def flush(self, seconds: float = 5.0) -> bool:
        """Wait until everything written before is on disk (or given up); False where that takes too long."""
        with self._wake:
            target = self._queued
            self._hurried = True
            self._wake.notify_all()
            return self._wake.wait_for(
                lambda: self._written >= target or not self._thread.is_alive(), timeout=seconds
            )

    def close(self) -> None:
        """Write what waits and stop. Lines written afterwards are ignored. Safe to call twice."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self._thread.join(timeout=5.0)

    def sweep(self) -> int:
        """Compress the files of past days, then remove those that are too old and the oldest of what is too much; counts those
        that were removed. Blocking; raises nothing.
        """
        now = datetime.fromtimestamp(self._clock.now(), UTC)
        for day, _, path in day_files(self._folder, self._disk):
            if now.date() - day <= self._keep and day < (now - SETTLED).date() and path.suffix != PACKED:
                self._try(self._pack, path)
        files = day_files(self._folder, self._disk)
        sizes = [self._disk.size(path) for _, _, path in files]
        left, gone = sum(sizes), 0
        for (day, _, path), size in zip(files, sizes, strict=True):
            if now.date() - day > self._keep or (left > self._max_bytes and not self._writer.writes(path)):
                gone += self._try(self._remove, path)
                left -= size
        return gone

    def _try(self, work: Callable[[Path], None], path: Path) -> bool:
        try:
            work(path)
        except OSError as error:
            self.write("log", "an old log file stays as it is", level="warn", cause=str(error))
            return False
        return True

    def _remove(self, path: Path) -> None:
        # A file that a crash left in both forms goes in both, the packed one first: alone it would count again.
        if path.suffix != PACKED:
            self._disk.remove(packed(path))
        self._disk.remove(path)

    def _pack(self, path: Path) -> None:
        """Compress a file. Until it is gone it counts, and the compressed one beside it does not."""
        packer = zlib.compressobj(wbits=zlib.MAX_WBITS + 16)
        with closing(self._disk.open(path)) as file:
            pieces = [packer.compress(file.read(at, PIECE)) for at in range(0, file.size, PIECE)]
        self._disk.replace(packed(path), b"".join([*pieces, packer.flush()]))
        self._writer.let_go(path, file.size)


class _Writer:
    """Appends lines to the file of their day. Used by the log's thread alone."""

    def __init__(self, folder: Path, disk: Disk, part_bytes: int, complain: Callable[[str], object]) -> None:
        self._folder = folder
        self._disk = disk
        self._part_bytes = part_bytes
        self._complain = complain
        self._failing = False
        self._path: Path | None = None
        self._sound = False
        self._lock = threading.Lock()

    def writes(self, path: Path) -> bool:
        """True if lines go to this file."""
        return path == self._path

    def let_go(self, path: Path, size: int) -> None:
        """Remove a file of which the first `size` bytes are kept elsewhere, unless there is more by now."""
        with self._lock:
            if path != self._path and self._disk.size(path) == size:
                self._disk.remove(path)

    def append(self, lines: Sequence[tuple[str, bytes]]) -> int:
        """Write lines of (day, bytes); returns how many were lost."""
        with self._lock:
            days = itertools.groupby(lines, key=lambda line: line[0])
            return sum(self._append(day, [data for _, data in group]) for day, group in days)

    def _append(self, day: str, group: list[bytes]) -> int:
        try:
            path = self._part(day)
            data = b"".join(group)
            self._disk.append(path, data if self._whole(path) else b"\n" + data)
        except OSError as error:
            self._sound = False
            if not self._failing:
                self._failing = True
                self._complain(f"shipmate: the log cannot be written: {error.strerror or error}")
            return len(group)
        self._sound = True
        self._failing = False
        return 0

    def _part(self, day: str) -> Path:
        path = self._path
        if path is None or not path.name.startswith(day):
            parts = [path for when, _, path in day_files(self._folder, self._disk) if when.isoformat() == day]
            path = parts[-1] if parts else self._folder / f"{day}.jsonl"
        if path.suffix == PACKED or self._disk.size(path) >= self._part_bytes:
            number = _split_name(path.name)
            path = self._folder / f"{day}.{(number[1] if number else 1) + 1}.jsonl"
        if path != self._path:
            self._path = path
            self._sound = False
        return path

    def _whole(self, path: Path) -> bool:
        # A process that died, or a disk that was full, may have left half a line behind.
        if self._sound:
            return True
        with closing(self._disk.open(path)) as file:
            return not file.size or file.read(file.size - 1, 1) == b"\n"


def render(line: Line, redact: LogRedactor) -> bytes:
    """One line as bytes: redacted first, then cut down to size, the longest strings before all else."""
    # A hit is rare: looked for in all strings at once, and only where there is one in each of them.
    clean: Line = text.deep(line, redact) if redact.finds(text.strings(line)) else line
    data = _dump(clean)
    most = MAX_PAYLOAD_BYTES if "payload" in clean["details"] else MAX_LINE_BYTES
    if len(data) <= most:
        return data
    small = normalize_to_size(
        text.deep(clean, text.clean), most - 100, replace(LOGGED, depth=LOGGED.depth + 1)
    )
    if not isinstance(small["details"], dict):
        small["details"] = {"leftOut": f"{len(data):,} bytes"}
    return _dump(small)


def _dump(line: Line) -> bytes:
    dumped = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    return text.one_line(text.clean(dumped)).encode() + b"\n"


def day_files(folder: Path, disk: Disk) -> list[tuple[date, int, Path]]:
    """The log files of a folder in the order of time: day, part (from 1), path. Of one that is there in both forms, the one that
    is not compressed.
    """
    try:
        names = sorted(disk.names(folder), reverse=True)
    except OSError:
        return []
    split = {found: folder / name for name in names if (found := _split_name(name)) is not None}
    return sorted((*found, path) for found, path in split.items())


def packed(path: Path) -> Path:
    """The name of a file that is compressed."""
    return path.with_name(path.name + PACKED)


def _split_name(name: str) -> tuple[date, int] | None:
    stem, dot, suffix = name.removesuffix(PACKED).partition(".")
    part, _, end = suffix.rpartition(".")
    if not dot or end != "jsonl" or (part and not part.isdecimal()):
        return None
    try:
        return date.fromisoformat(stem), int(part or 1)
    except ValueError:
        return None


def _timestamp(seconds: float) -> str:
    whole, micro = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_second(whole)}.{micro // 1_000:03}Z"


@lru_cache(2)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")


def _day(line: Line) -> str:
    return str(line["timestamp"])[:10]


def _complain(words: str) -> None:
    print(words, file=sys.stderr)  # noqa: T201 (the log itself cannot be written)
