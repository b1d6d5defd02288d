"""A disk for tests: it uses a real disk, and fails on command."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, NoReturn, Protocol, TypeVar

from bot.contracts.environment import Disk

Kind = Literal[
    "append", "sync", "read", "replace", "rename", "truncate", "remove", "size", "names", "write", "*"
]
When = Literal["before", "torn", "after"]
Then = Literal["error", "exit", "kill"]

WRITES = frozenset({"append", "sync", "replace", "rename", "truncate", "remove"})


class Countdown(Protocol):
    """Selects the matching operations that fail: `times` (None: all) operations, beginning with the `at`-th."""

    at: int
    times: int | None


FailureT = TypeVar("FailureT", bound=Countdown)
R = TypeVar("R")


def due(armed: list[FailureT], matches: Callable[[FailureT], bool]) -> FailureT | None:
    """Count one operation. Return the failure that the operation must have; None if the operation succeeds."""
    for failure in armed:
        if not matches(failure):
            continue
        failure.at -= 1
        if failure.at > 0:
            continue
        if failure.times is not None:
            failure.times -= 1
            if failure.times <= 0:
                armed.remove(failure)
        return failure
    return None


@dataclass(slots=True)
class Failure:
    """A failure of `times` (None: all) disk operations of `kind`, beginning with the `at`-th.
    The kind `write` means any operation that changes something, and `*` any operation.

    `when` is `before` (the operation does nothing), `torn` (it writes half of the bytes) or `after` (it is
    complete but reports a failure, like a failed fsync). `then` chooses between an OSError with the number
    `error`, SystemExit, and SIGKILL of this process.
    """

    kind: Kind = "write"
    at: int = 1
    times: int | None = 1
    when: When = "before"
    then: Then = "error"
    error: int = errno.ENOSPC
    named: str = ""
    """Only operations on files whose name contains this text fail."""

    def matches(self, kind: str, path: Path) -> bool:
        if self.named not in path.name:
            return False
        return self.kind in {kind, "*"} or (self.kind == "write" and kind in WRITES)


def kill() -> None:
    """End this process with SIGKILL, as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyDisk:
    """A `contracts.environment.Disk` that uses another disk and can fail. `done` lists the started operations as
    (kind, file name). `seen` is called for each operation. `die` is called if a failure's `then` is `kill`.
    """

    def __init__(
        self, inner: Disk, *, die: Callable[[], None] = kill, seen: Callable[[str, str], None] | None = None
    ) -> None:
        self._inner = inner
        self._die = die
        self._seen = seen
        self._failures: list[Failure] = []
        self._lock = threading.Lock()
        self.done: list[tuple[str, str]] = []

    def fail(self, failure: Failure) -> None:
        """Arm a failure. `Failure.at` counts the matching operations after this call."""
        self._failures.append(failure)

    def mend(self) -> None:
        self._failures.clear()

    @property
    def writes(self) -> int:
        """Number of started operations that change something."""
        return sum(kind in WRITES for kind, _ in self.done)

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        failure = self._due("append", path)
        if failure is None:
            self._inner.append(path, data, sync=sync)
            return
        if failure.when != "before":
            self._inner.append(path, data[: len(data) // 2] if failure.when == "torn" else data)
        self._carry_out(failure, path)

    def replace(self, path: Path, data: bytes) -> None:
        failure = self._due("replace", path)
        if failure is None or failure.when == "after":
            self._inner.replace(path, data)
        elif failure.when == "torn":
            self._inner.append(path.with_name(".torn.tmp"), data[: len(data) // 2])
        if failure is not None:
            self._carry_out(failure, path)

    def sync(self, path: Path) -> None:
        self._operate("sync", path, lambda: self._inner.sync(path))

    def rename(self, source: Path, target: Path) -> None:
        self._operate("rename", source, lambda: self._inner.rename(source, target))

    def truncate(self, path: Path, size: int) -> None:
        self._operate("truncate", path, lambda: self._inner.truncate(path, size))

    def remove(self, path: Path) -> None:
        self._operate("remove", path, lambda: self._inner.remove(path))

    def read(self, path: Path) -> bytes:
        return self._operate("read", path, lambda: self._inner.read(path))

    def open(self, path: Path) -> BinaryIO:
        """Open a file. Opening counts as a read; later reads of the open file do not fail."""
        return self._operate("read", path, lambda: self._inner.open(path))

    def size(self, path: Path) -> int:
        return self._operate("size", path, lambda: self._inner.size(path))

    def names(self, folder: Path) -> list[str]:
        return self._operate("names", folder, lambda: self._inner.names(folder))

    def _operate(self, kind: str, path: Path, operate: Callable[[], R]) -> R:
        failure = self._due(kind, path)
        if failure is not None:
            if failure.when == "after" and kind in WRITES:
                operate()
            self._carry_out(failure, path)
        return operate()

    def _due(self, kind: str, path: Path) -> Failure | None:
        if self._seen is not None:
            self._seen(kind, path.name)
        with self._lock:
            self.done.append((kind, path.name))
            return due(self._failures, lambda failure: failure.matches(kind, path))

    def _carry_out(self, failure: Failure, path: Path) -> NoReturn:
        if failure.then == "kill":
            self._die()
        if failure.then == "exit":
            raise SystemExit(1)
        raise OSError(failure.error, os.strerror(failure.error), str(path))
