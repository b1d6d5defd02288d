"""Failpoints: tests make operations of a process on its disk, event log and channels fail."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from bot import errors
from bot.contracts.environment import Disk
from bot.testing.disk import Failure, FaultyDisk, due, kill

VARIABLE = "SHIPMATE_FAULTS"
"""Name of the environment variable that holds the faults for `bot.testing.run`."""
Seam = Literal["disk", "log", "channel"]
Seen = Callable[[Seam, str, str], None]

CHANNEL = frozenset({"send", "edit"})


@dataclass(slots=True)
class Fault:
    """A fault of `times` (None: all) operations of `kind`, beginning with the `at`-th. `seam`
    says if these operations use the disk, the log or a channel. The kind `*` means any operation. On the disk,
    `write` means any operation that changes something, and only files whose name contains `named` are affected.

    `when` is `before` (the operation does nothing), `torn` (it stops in the middle; disk and log only) or `after`
    (it is complete). The fault then raises an error (`error` is the name of an errno) or ends the process.
    """

    seam: Seam
    kind: str = "*"
    at: int = 1
    when: Literal["before", "torn", "after"] = "before"
    then: Literal["error", "kill"] = "kill"
    error: str = "EIO"
    times: int | None = 1
    named: str = ""


class Faults:
    """Wraps the disk, the event log and the channels of one process so that each can fail. `die` is the function
    that ends the process. `seen` is called for every operation.
    """

    def __init__(
        self, faults: Iterable[Fault] = (), *, die: Callable[[], None] = kill, seen: Seen | None = None
    ) -> None:
        self._die = die
        self._seen = seen
        self._lock = threading.Lock()
        self.faults: list[Fault] = []
        self._disks: list[FaultyDisk] = []
        self._early: list[Fault] = []
        for fault in faults:
            self.arm(fault)

    def arm(self, fault: Fault) -> None:
        """Arm a fault. `Fault.at` counts the operations of the fault's kind after this call."""
        if fault.seam in {"channel", "log"}:
            self.faults.append(fault)
            return
        self._early.append(fault)
        for disk in self._disks:
            disk.fail(_failure(fault))

    def mend(self) -> None:
        self.faults.clear()
        self._early.clear()
        for disk in self._disks:
            disk.mend()

    def disk(self, inner: Disk) -> FaultyDisk:
        seen = self._seen
        made = FaultyDisk(
            inner, die=self._die, seen=(lambda kind, name: seen("disk", kind, name)) if seen else None
        )
        for fault in self._early:
            made.fail(_failure(fault))
        self._disks.append(made)
        return made

    def channel(self, inner: Any) -> Any:
        return _FaultyChannel(inner, self)

    def event_log(self, inner: Any) -> Any:
        return _FaultyLog(inner, self)

    def reach(self, kind: str, seam: Seam = "channel") -> Fault | None:
        """Count an operation. Return the fault that must hit the operation; None if the operation must succeed."""
        if self._seen is not None:
            self._seen(seam, kind, "")
        with self._lock:
            return due(self.faults, lambda fault: fault.seam == seam and fault.kind in {kind, "*"})

    def carry_out(self, fault: Fault, raised: type[Exception] = errors.DeliveryUncertain) -> None:
        if fault.then == "kill":
            self._die()
        raise raised(f"injected: {fault.error}")


class _FaultyChannel:
    """A channel whose sends and edits can fail."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner, self._faults = inner, faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in CHANNEL:
            return found

        async def watched(*args: Any, **more: Any) -> Any:
            fault = self._faults.reach(name)
            if fault is not None and fault.when != "after":
                self._faults.carry_out(fault)
            result = await found(*args, **more)
            if fault is not None:
                self._faults.carry_out(fault)
            return result

        return watched


class _FaultyLog:
    """A `bot.core.event_log.EventLog` whose appends (kind `append`) and transactions (kind `commit`) can fail."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner, self._faults = inner, faults
        self._session = inner._writing_session  # noqa: SLF001 - the one place where all transactions begin
        inner._writing_session = self._commit  # noqa: SLF001

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, entries: Any) -> None:
        fault = self._faults.reach("append", "log")
        if fault is not None and fault.when != "after":
            self._faults.carry_out(fault)
        self._inner.append(entries)
        if fault is not None:
            self._faults.carry_out(fault)

    @contextmanager
    def _commit(self) -> Iterator[Any]:
        fault, refusal = self._faults.reach("commit", "log"), self._inner.refusals[0]
        if fault is not None and fault.when == "before":
            self._faults.carry_out(fault, refusal)
        with self._session() as db:
            yield db
            if fault is not None and fault.when == "torn":
                self._faults.carry_out(fault, refusal)
        if fault is not None:
            self._faults.carry_out(fault, refusal)


def _failure(fault: Fault) -> Failure:
    return Failure(
        kind=fault.kind,  # type: ignore[arg-type]
        at=fault.at,
        times=fault.times,
        when=fault.when,
        then=fault.then,
        error=getattr(errno, fault.error),
        named=fault.named,
    )
