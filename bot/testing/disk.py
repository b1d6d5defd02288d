"""A disk that fails when it is told to, around a real one."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bot.contracts.environment import Disk, OpenFile
from bot.testing.due import due

Kind = Literal[
    "append", "sync", "read", "replace", "rename", "truncate", "remove", "size", "names", "write", "*"
]
When = Literal["before", "torn", "after"]
Then = Literal["error", "exit", "kill"]

WRITES = frozenset({"append", "sync", "replace", "rename", "truncate", "remove"})


@dataclass(slots=True)
class Failure:
    """The `at`-th operation of `kind` (`write` stands for every one that changes something, `*` for all) fails.

    `before` it has done anything, `torn` in its middle (half of the bytes are written), or `after` it has done
    everything, like an fsync that fails. `then` says how: OSError with `error`, SystemExit, or kill -9 on this
    process. `times` failures in a row; None: for ever.
    """

    kind: Kind = "write"
    at: int = 1
    times: int | None = 1
    when: When = "before"
    then: Then = "error"
    error: int = errno.ENOSPC
    named: str = ""
    """Only files whose name holds this."""

    def matches(self, kind: str, path: Path) -> bool:
        if self.named not in path.name:
            return False
        return self.kind in {kind, "*"} or (self.kind == "write" and kind in WRITES)


def kill() -> None:
    """End this process as kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyDisk:
    """`contracts.environment.Disk` around another one. `done` lists the operations that were begun, as (kind, file name), of
    which `seen` hears at once; `die` is what a failure with `kill` does.
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
        """Arm a failure; operations are counted from now on."""
        self._failures.append(failure)

    def mend(self) -> None:
        """Everything works again."""
        self._failures.clear()

    @property
    def writes(self) -> int:
        """How many operations that change something were begun."""
        return sum(kind in WRITES for kind, _ in self.done)

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        failure = self._due("append", path)
        if failure is None:
            self._inner.append(path, data, sync=sync)
            return
        if failure.when != "before":
            self._inner.append(path, data[: len(data) // 2] if failure.when == "torn" else data)
        self._carry_out(failure, path)

    def sync(self, path: Path) -> None:
        failure = self._due("sync", path)
        if failure is None or failure.when == "after":
            self._inner.sync(path)
        if failure is not None:
            self._carry_out(failure, path)

    def replace(self, path: Path, data: bytes) -> None:
        failure = self._due("replace", path)
        if failure is None or failure.when == "after":
            self._inner.replace(path, data)
        elif failure.when == "torn":
            self._inner.append(path.with_name(".torn.tmp"), data[: len(data) // 2])
        if failure is not None:
            self._carry_out(failure, path)

    def rename(self, source: Path, target: Path) -> None:
        failure = self._due("rename", source)
        if failure is None or failure.when == "after":
            self._inner.rename(source, target)
        if failure is not None:
            self._carry_out(failure, source)

    def truncate(self, path: Path, size: int) -> None:
        failure = self._due("truncate", path)
        if failure is None or failure.when == "after":
            self._inner.truncate(path, size)
        if failure is not None:
            self._carry_out(failure, path)

    def remove(self, path: Path) -> None:
        failure = self._due("remove", path)
        if failure is None or failure.when == "after":
            self._inner.remove(path)
        if failure is not None:
            self._carry_out(failure, path)

    def read(self, path: Path) -> bytes:
        failure = self._due("read", path)
        if failure is not None:
            self._carry_out(failure, path)
        return self._inner.read(path)

    def open(self, path: Path) -> OpenFile:
        """Counts as a read; what was opened does not fail later."""
        failure = self._due("read", path)
        if failure is not None:
            self._carry_out(failure, path)
        return self._inner.open(path)

    def size(self, path: Path) -> int:
        failure = self._due("size", path)
        if failure is not None:
            self._carry_out(failure, path)
        return self._inner.size(path)

    def names(self, folder: Path) -> list[str]:
        failure = self._due("names", folder)
        if failure is not None:
            self._carry_out(failure, folder)
        return self._inner.names(folder)

    def _due(self, kind: str, path: Path) -> Failure | None:
        if self._seen is not None:
            self._seen(kind, path.name)
        with self._lock:
            self.done.append((kind, path.name))
            return due(self._failures, lambda failure: failure.matches(kind, path))

    def _carry_out(self, failure: Failure, path: Path) -> None:
        if failure.then == "kill":
            self._die()
        if failure.then == "exit":
            raise SystemExit(1)
        raise OSError(failure.error, os.strerror(failure.error), str(path))
