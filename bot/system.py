"""The real clock, disk and ids. Other modules get these objects as arguments."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import random
import re
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bot import file_access
from bot.contracts.environment import Clock

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Id of a monotonic clock that also counts the time in which the machine is suspended. On Linux, CLOCK_MONOTONIC does
not count this time, but CLOCK_BOOTTIME does.
"""


class SystemClock:
    """Implements `contracts.environment.Clock` with the machine's own time."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class JumpSafeClock:
    """Returns the time of day without forward jumps of the system clock. A jump would make approvals expire early."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.now() - clock.monotonic()

    def now(self) -> float:
        return min(self._clock.now(), self._began + self._clock.monotonic())


ULID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ULID = re.compile(rf"[{ULID_DIGITS}]{{26}}")
_PAIRS = [high + low for high in ULID_DIGITS for low in ULID_DIGITS]


def ulid_of(number: int) -> str:
    """Return the ULID (github.com/ulid/spec) of a number: 48 bits of milliseconds and 80 random bits."""
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])


def ulid_number(digits: str) -> int | None:
    """Return the number of a ULID, or of the beginning of a ULID; None if the text has other characters."""
    number = 0
    for digit in digits:
        value = ULID_DIGITS.find(digit)
        if value < 0:
            return None
        number = number << 5 | value
    return number


def ulid_time(ulid: str) -> float:
    """Return the creation time of a ULID in epoch seconds; 0.0 if the text is not a ULID."""
    return (ulid_number(ulid[:10]) or 0) / 1000


def _secure_numbers() -> Iterator[int]:
    """Yield random numbers of 80 bits. Many are drawn at once, because each system call lets other threads run first."""
    while True:
        drawn = os.urandom(4_000)
        for at in range(0, len(drawn), 10):
            yield int.from_bytes(drawn[at : at + 10], "big")


class UlidSource:
    """Implements `contracts.environment.Ids` with ULIDs. Each ULID is greater than the previous one."""

    def __init__(self, clock: Clock | None = None, rng: random.Random | None = None) -> None:
        self._clock = clock or SystemClock()
        self._numbers = _secure_numbers() if rng is None else iter(lambda: rng.getrandbits(80), None)
        self._last = 0
        self._lock = threading.Lock()

    def after(self, ulid: str) -> None:
        number = ulid_number(ulid)
        if number is None:
            return  # not a ULID
        with self._lock:
            self._last = max(self._last, number & (1 << 128) - 1)

    def ulid(self) -> str:
        with self._lock:
            fresh = int(self._clock.now() * 1000) << 80 | next(self._numbers)
            # Ids must grow even if the clock stops or is set back.
            self._last = number = max(fresh, self._last + 1)
        return ulid_of(number)


def read_link(path: str) -> str | None:
    """Return the target of a symbolic link; None if no link can be read at the path."""
    try:
        return os.readlink(path)  # noqa: PTH115 - the text itself, which a Path would normalise
    except OSError:
        return None


def _opened(path: Path, flags: int) -> int:
    """Open a regular file. Refuse pipes, which would block, and devices, which might have effects."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    try:
        file_access.must_be_regular(os.fstat(handle), str(path))
    except OSError:
        os.close(handle)
        raise
    return handle


class SystemDisk:
    """Implements `contracts.environment.Disk` with the machine's own file system."""

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        new = sync and not path.exists()
        how = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            handle = _opened(path, how)
        except FileNotFoundError:
            handle = _opened(self._made(path, sync=sync), how)
        try:
            if new:
                # Without this sync, a power failure could lose the new file's name.
                _fsync(path.parent)
            _write(handle, data)
            if sync:
                os.fdatasync(handle) if hasattr(os, "fdatasync") else os.fsync(handle)
        finally:
            os.close(handle)

    def sync(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            _fsync(path)

    def read(self, path: Path) -> bytes:
        with self.open(path) as file:
            return file.read()

    def open(self, path: Path) -> BinaryIO:
        try:
            return os.fdopen(_opened(path, os.O_RDONLY), "rb")
        except FileNotFoundError:
            return io.BytesIO()

    def replace(self, path: Path, data: bytes) -> None:
        scratch = self._made(path).with_name(f".{secrets.token_hex(6)}.tmp")
        try:
            handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                _write(handle, data)
                os.fsync(handle)
            finally:
                os.close(handle)
            self.rename(scratch, path)
        except OSError:
            scratch.unlink(missing_ok=True)
            raise

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)
        _fsync(target.parent)

    def truncate(self, path: Path, size: int) -> None:
        os.truncate(path, size)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def size(self, path: Path) -> int:
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0

    def names(self, folder: Path) -> list[str]:
        try:
            return sorted(entry.name for entry in folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    @staticmethod
    def _made(path: Path, *, sync: bool = True) -> Path:
        if not path.parent.is_dir():
            missing = [folder for folder in path.parents if not folder.is_dir()]
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in missing if sync else ():
                _fsync(folder.parent)
        return path


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _fsync(path: Path) -> None:
    """Fsync a file or folder. Skip a file that this user cannot read."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
