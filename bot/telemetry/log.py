"""The operator's log, `.ship/logs/<YYYY-MM-DD>.jsonl`, and the context variables that give its lines the ids of the running
turn. A separate thread writes the log, so that callers do not wait for the disk.
"""

from __future__ import annotations

import io
import itertools
import json
import logging
import re
import sys
import threading
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path, PurePath
from typing import Any

from pydantic.alias_generators import to_camel as _to_camel
from pydantic_core import to_jsonable_python

from bot import text
from bot.contracts.base import Level
from bot.contracts.environment import Clock, Disk, Ids, Log
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.log_kinds import NULLABLE
from bot.telemetry.redaction import LogRedactor

MAX_LINE_BYTES = 64 * 1024
MAX_PAYLOAD_BYTES = 32 * 1024 * 1024
"""Max bytes of a log line that contains a whole model request (`SMA_LOG_LLM_PAYLOAD`). Model requests themselves have the same
limit.
"""
LIMITS = (1_000_000, 100_000, 30_000, 10_000, 3_000, 1_000, 300)
"""Max characters of each string in a line that is too long. The limits are tried in order until the line fits."""
SETTLE_TIME = timedelta(hours=1)
"""Time after midnight (UTC) during which lines of the previous day may still be written."""
PIECE = 256 * 1024
"""Number of bytes that are compressed at a time, so that other threads can run in between."""
LINGER = 0.03
"""Seconds for which the writer thread waits for more lines before it writes. A turn writes many lines at once, and each
wake-up of the writer delays the thread that answers people.
"""
PACKED = ".gz"
TALKATIVE = ("httpx", "httpx2", "httpcore", "httpcore2", "slack_sdk", "slack_bolt", "telegram")
"""Libraries that log addresses with a token at the level INFO."""

_OBJECT = 64  # Number of bytes assumed for a value that is no text, without its parts
to_camel = lru_cache(maxsize=4_096)(_to_camel)
Line = dict[str, Any]

# ------------------------------------------------------------ context variables of the running turn


@dataclass(frozen=True, slots=True)
class Running:
    chat_key: ChatKey | None = None
    request_id: str | None = None
    step: int | None = None
    task: str | None = None
    """Id of the task that a subagent is running."""
    person: UserRef | None = None
    """Person whose message started the turn."""


_running: ContextVar[Running] = ContextVar("running", default=Running())  # noqa: B039 (frozen)


def current() -> Running:
    return _running.get()


def person() -> str | None:
    """Return the person whose message started the running turn, as `channel:id`; None outside a turn."""
    found = _running.get().person
    return None if found is None else str(found)


waiting_for_model: ContextVar[Callable[[float], AbstractContextManager[object]]] = ContextVar(
    "waiting_for_model", default=nullcontext
)
"""Function that returns a context manager, which callers keep open while a model is unavailable. Entering it may notify the
person. The argument is the time in seconds for which the model has not answered so far.
"""


def turn_scope(
    *, chat_key: ChatKey | None = None, request_id: str | None = None, person: UserRef | None = None
) -> AbstractContextManager[None]:
    """Add the turn's ids to everything that is logged inside the context, also by asyncio tasks that are started inside it."""
    return running_scope(Running(chat_key, request_id, person=person))


@contextmanager
def running_scope(running: Running) -> Iterator[None]:
    """Add the ids in `running`, a changed copy of `current()`, to everything that is logged inside the context."""
    token = _running.set(running)
    try:
        yield
    finally:
        _running.reset(token)


# ------------------------------------------------------------ the log


class JsonlLog:
    """Implements `contracts.environment.Log` on disk. `write` only copies and queues a line. If the queue is
    full, lines are dropped and counted.

    A disk failure is reported once on stderr, never to the caller. `observers` receive every line immediately and unredacted,
    even if the line is dropped later. Observers run in the caller's thread, so they must be quick and raise nothing.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        disk: Disk,
        ids: Ids,
        redact: LogRedactor | None = None,
        keep_days: int = 30,
        max_bytes: int = 1_000 * 2**20,
        max_pending: int = 48 * 2**20,
        part_bytes: int = 64 * 2**20,
        observers: Sequence[Callable[[Line], object]] = (),
    ) -> None:
        """Start the writer thread. `max_bytes` limits all log files together, `max_pending` the bytes of lines that wait
        to be written. After `part_bytes` a day's log continues in `<day>.2.jsonl`, `<day>.3.jsonl`, …
        """
        self._folder, self._clock, self._disk, self._ids = folder, clock, disk, ids
        self._redact = redact or LogRedactor()
        self.observers = list(observers)
        self._keep, self._max_bytes = timedelta(keep_days), max_bytes
        self._max_pending, self._part_bytes = max_pending, part_bytes
        self._wake = threading.Condition()
        self._pending: list[Line] = []
        self._pending_bytes = 0
        self.lost = 0
        """Number of lines since the start that were dropped or could not be written to the disk."""
        self._reported = 0
        """Number of lost lines that the log itself has already reported."""
        self._queued = self._written = 0
        self._flush_now = self._closed = False
        self._current: Path | None = None
        """File to which lines are appended."""
        self._sound = True
        """False after a disk failure, until a line is written again."""
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
        running = _running.get()
        if running.task is not None:
            details.setdefault("task", running.task)
        step = details.pop("step", running.step)
        key = chat_key or running.chat_key
        where: Line = {
            "duration": None if duration is None else round(float(duration), 3),
            "chatKey": None if key is None else str(key),
            "requestId": request_id or running.request_id,
            "step": step if isinstance(step, int) else None,
        }
        line = self._line(kind, message, level, details)
        line |= {key: value for key, value in where.items() if value is not None}
        for observe in self.observers:
            observe(line)
        with self._wake:
            size = size_of(line)
            if self._closed:
                return
            if self._pending_bytes + size > self._max_pending:
                self.lost += 1
                return
            self._pending.append(line)
            self._pending_bytes += size
            self._queued += 1
            if len(self._pending) == 1:
                self._wake.notify_all()

    def _line(self, kind: str, message: str, level: Level, details: dict[str, Any]) -> Line:
        now = datetime.fromtimestamp(self._clock.now(), UTC)
        return {
            "id": self._ids.ulid(),
            "timestamp": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "type": level,
            "level": level,
            "kind": kind,
            "message": message,
            # Containers are copied, so that the caller can change them afterwards. Strings are shortened later, because
            # secrets in them must be replaced before anything is cut.
            "details": {
                name: json_copy(value)
                for key, value in details.items()
                if (name := to_camel(key)) and (value is not None or (kind, name) in NULLABLE)
            },
        }

    def _run(self) -> None:
        ends = False
        while not ends:
            with self._wake:
                self._wake.wait_for(lambda: self._pending or self._closed)
                self._wake.wait_for(lambda: self._flush_now or self._closed, timeout=LINGER)
                batch, self._pending = self._pending, []
                self._pending_bytes, self._flush_now = 0, False
                ends, count, unreported = self._closed, len(batch), self.lost - self._reported
            if unreported:
                notice = {"dropped": unreported}
                batch.append(self._line("log", f"dropped {unreported} lines", "warn", notice))
            lost = self._append(list(map(self._rendered, batch)))
            with self._wake:
                self._reported += 0 if lost else unreported
                self.lost += min(lost, count)
                self._written += count
                self._wake.notify_all()

    def _rendered(self, line: Line) -> tuple[str, bytes]:
        """Return the day of a line, and the line as bytes. If the line cannot be rendered, return another line that has only
        the kind and the error.
        """
        day = str(line["timestamp"])[:10]
        try:
            return day, render(line, self._redact)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
            failed = {"kind": "log", "message": f"a line of the kind {line['kind']} could not be written"}
            kept = {key: line[key] for key in ("id", "timestamp", "type", "level")}
            return day, _dump(kept | failed | {"details": {"cause": type(error).__name__}})

    def _append(self, lines: Sequence[tuple[str, bytes]]) -> int:
        """Write lines, each given as (day, bytes). Return the number of lines that could not be written."""
        lost = 0
        for day, group in itertools.groupby(lines, key=lambda line: line[0]):
            data = [line for _, line in group]
            try:
                path = self._file_of(day)
                # A killed process or a full disk may have left an incomplete line, so a line break is added first.
                with self._disk.open(path) as file:
                    file.seek(max(0, file.seek(0, io.SEEK_END) - 1))
                    torn = file.read(1) not in {b"", b"\n"}
                self._disk.append(path, b"\n" * torn + b"".join(data))
                self._sound = True
            except OSError as error:
                if self._sound:
                    words = f"shipmate: the log cannot be written: {error.strerror or error}"
                    print(words, file=sys.stderr)  # noqa: T201 (the log itself cannot be written)
                self._sound = False
                lost += len(data)
        return lost

    def _file_of(self, day: str) -> Path:
        """Return the file to which lines of a day are appended."""
        path = self._current
        if path is None or not path.name.startswith(day):
            parts = [path for when, _, path in day_files(self._folder, self._disk) if when.isoformat() == day]
            path = parts[-1] if parts else self._folder / f"{day}.jsonl"
        if path.suffix == PACKED or self._disk.size(path) >= self._part_bytes:
            number = (_split_name(path.name) or (0, 1))[1] + 1
            path = self._folder / f"{day}.{number}.jsonl"
        self._current = path
        return path

    def flush(self, seconds: float = 5.0) -> bool:
        """Wait until all lines written so far are on disk or lost. Return False after a timeout."""
        with self._wake:
            target, self._flush_now = self._queued, True
            self._wake.notify_all()
            return self._wake.wait_for(
                lambda: self._written >= target or not self._thread.is_alive(), timeout=seconds
            )

    def close(self) -> None:
        """Write the pending lines and stop the writer thread. Later lines are ignored. Can be called twice."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self._thread.join(timeout=5.0)

    def sweep(self) -> int:
        """Compress the files of past days, delete files that are too old, then delete the oldest files until
        the size limit is met. Return the number of deleted files. Blocking; raises nothing.
        """
        now = datetime.fromtimestamp(self._clock.now(), UTC)
        for day, _, path in day_files(self._folder, self._disk):
            if now.date() - day <= self._keep and day < (now - SETTLE_TIME).date() and path.suffix != PACKED:
                self._try(self._pack, path)
        files = [(day, path, self._disk.size(path)) for day, _, path in day_files(self._folder, self._disk)]
        left, gone = sum(size for _, _, size in files), 0
        for day, path, size in files:
            if now.date() - day > self._keep or (left > self._max_bytes and path != self._current):
                gone += self._try(self._disk.remove, path)
                left -= size
        return gone

    def _pack(self, path: Path) -> None:
        """Compress a log file and delete the original. While both files exist, readers use the original."""
        if path == self._current:
            return
        packer = zlib.compressobj(wbits=zlib.MAX_WBITS + 16)
        with self._disk.open(path) as file:
            pieces = [packer.compress(piece) for piece in iter(lambda: file.read(PIECE), b"")]
        self._disk.replace(path.with_name(path.name + PACKED), b"".join([*pieces, packer.flush()]))
        self._disk.remove(path)

    def _try(self, work: Callable[[Path], None], path: Path) -> bool:
        try:
            work(path)
        except OSError as error:
            words = "an old log file cannot be compressed or deleted"
            self.write("log", words, level="warn", cause=str(error))
            return False
        return True


def render(line: Line, redact: LogRedactor) -> bytes:
    """Return a line as bytes. The line is first redacted. If the line exceeds the size limit, its longest strings are
    shortened. If that is not enough, the details are left out.
    """
    # Secrets are rare, so one search covers all strings. If this search finds a secret, each string is searched by itself.
    clean: Line = text.deep(line, redact) if redact.finds(text.strings(line)) else line
    data = _dump(clean)
    most = MAX_PAYLOAD_BYTES if "payload" in clean["details"] else MAX_LINE_BYTES
    if len(data) <= most:
        return data
    left_out = {"details": {"leftOut": f"{len(data):,} bytes"}}
    for kept, limit in (*((clean, limit) for limit in LIMITS), (clean | left_out, LIMITS[-1])):
        data = _dump(text.deep(kept, partial(text.shorten_middle, limit=limit)))
        if len(data) <= most:
            return data
    return _dump(left_out)


def _dump(line: Line) -> bytes:
    dumped = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    return text.one_line(text.clean(dumped)).encode() + b"\n"


def day_files(folder: Path, disk: Disk) -> list[tuple[date, int, Path]]:
    """Return the log files of a folder in order of time, as (day, part, path); the first part is 1. If a
    file exists compressed and uncompressed, only the uncompressed file is listed.
    """
    try:
        names = sorted(disk.names(folder), reverse=True)
    except OSError:
        return []
    split = {found: folder / name for name in names if (found := _split_name(name)) is not None}
    return sorted((*found, path) for found, path in split.items())


def _split_name(name: str) -> tuple[date, int] | None:
    """Return the day and part of a log file; None for the name of another file."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:\.(\d+))?\.jsonl(?:\.gz)?", name)
    try:
        return (date.fromisoformat(found[1]), int(found[2] or 1)) if found is not None else None
    except ValueError:
        return None


class LogHandler(logging.Handler):
    def __init__(self, log: Log, *, messages: bool) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "error" if record.levelno >= logging.ERROR else "warn"
        extra: dict[str, Any] = {"logger": record.name, "where": f"{record.module}:{record.lineno}"}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            extra["error"] = describe(error) if self._messages else type(error).__name__
            frames = traceback.extract_tb(error.__traceback__)[-6:]
            extra["frames"] = [f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames]
        # A library's warning may quote a person's message. If messages are not logged, the warning's text is left out.
        words = f"{record.name} reports a {record.levelname.lower()}"
        if self._messages:
            try:
                words = record.getMessage()
            except (TypeError, ValueError, KeyError):
                words = str(record.msg)
        self._log.write("library", words, level=level, **extra)


@contextmanager
def bridged(log: Log, *, messages: bool = True) -> Iterator[None]:
    """Inside this context, write the warnings and errors of libraries as log lines of kind `library`. If `messages` is
    False, leave out the text of their messages.
    """
    root = logging.getLogger()
    handler = LogHandler(log, messages=messages)
    before = {name: logging.getLogger(name).level for name in TALKATIVE}
    root.addHandler(handler)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
        root.removeHandler(handler)


# ------------------------------------------------------------ values in log lines


def size_of(value: Any) -> int:
    """Return the approximate number of bytes that a JSON value takes in memory. This is fast even if the strings are long."""
    total = 0
    found = [value]
    for item in found:  # the list grows during the loop
        kind = type(item)
        if kind is str or kind is bytes:
            total += sys.getsizeof(item)
            continue
        total += _OBJECT
        if kind is dict:
            found += item
            found += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            found += item
    return total


def describe(error: BaseException) -> str:
    """Return the type and text of an error and of up to four of the error's causes."""
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(parts) < 5:
        # Arguments of other types are not converted to text, because that may fail.
        words = " ".join(
            f"{arg}" if isinstance(arg, str | int | float) else f"<{type(arg).__name__}>"
            for arg in cause.args
        )
        if isinstance(cause, OSError) and isinstance(cause.filename, str):
            words = f"{words} ({cause.filename})"
        parts.append(f"{type(cause).__name__}: {words}" if words else type(cause).__name__)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return " ← ".join(parts)


def json_copy(value: Any) -> Any:
    """Return a copy of a value as JSON. NaN becomes None, and an object that JSON cannot represent becomes its type in
    brackets. A value that contains itself or is nested too deeply is replaced as a whole. Strings are not copied.
    """
    try:
        return to_jsonable_python(value, inf_nan_mode="null", fallback=_replaced)
    except (ValueError, RecursionError):
        return _replaced(value)


def _replaced(value: Any) -> str:
    if isinstance(value, BaseException):
        return describe(value)
    return str(value) if isinstance(value, PurePath) else f"[{type(value).__name__}]"
