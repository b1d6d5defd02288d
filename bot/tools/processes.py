"""Runs one command. The command's output and time are limited. At the end, the command's process group is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEPT = 512 * 1024
"""Max bytes that are kept of the beginning of each output stream. The same number is kept of its end."""
LAST_WORDS = 2.0
"""Timeout in seconds for reading output after the command has ended."""
REAP = 10.0
"""Timeout in seconds for a killed process to exit."""
LOOK = 0.05
"""Interval in seconds between usage checks."""
LimitCheck = Callable[[int], str | None]
"""Function that checks the command with this pid. Returns the exceeded limit as text; None if no limit is exceeded.
This call blocks the thread.
"""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command. `status` is negative if a signal ended the command. `late` means that the command was
    stopped at its time limit. If another limit stopped the command, `over` names that limit.
    """

    status: int
    stdout: str
    stderr: str
    late: bool = False
    over: str | None = None


class _Output:
    """Beginning and end of an output stream."""

    def __init__(self) -> None:
        self._head, self._tail, self._lost = bytearray(), bytearray(), 0

    def add(self, piece: bytes) -> None:
        room = max(0, KEPT - len(self._head))
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * KEPT:
            self._trim()

    def _trim(self) -> None:
        over = max(0, len(self._tail) - KEPT)
        self._lost += over
        del self._tail[:over]

    def words(self) -> str:
        self._trim()
        between = f"\n[… {self._lost} bytes left out …]\n".encode() if self._lost else b""
        return _ESCAPES.sub("", (self._head + between + self._tail).decode("utf-8", "replace"))


class _Outputs(asyncio.SubprocessProtocol):
    """Collects the outputs. `exited` is set when the process ends, even if a child process still has the pipes open.
    `silent` is set when the pipes are closed.
    """

    def __init__(self) -> None:
        self.outputs = {1: _Output(), 2: _Output()}
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.outputs[fd].add(data)

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.silent.set()


async def run(
    words: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    watch: LimitCheck | None = None,
    handles: Sequence[int] = (),
) -> CommandResult:
    """Run a command without input, in its own process group. The group is killed when the command ends, at the time
    limit, when `watch` reports an exceeded limit, or when the caller is cancelled. The command inherits only the
    descriptors in `handles`. Raises OSError if the command cannot be started.
    """
    loop = asyncio.get_running_loop()
    how = {"cwd": folder, "env": dict(environment), "pass_fds": tuple(handles), "start_new_session": True}
    exec_ = loop.subprocess_exec(_Outputs, *words, stdin=asyncio.subprocess.DEVNULL, **how)  # type: ignore[arg-type]
    starting = loop.create_task(exec_)
    # A cancelled caller waits until the process has exited. Otherwise a zombie process would remain.
    cancelled = await _in_spite_of_stops(starting)
    transport, outputs = starting.result()
    late, over, group = False, None, transport.get_pid()
    try:
        if cancelled is None:
            try:
                async with asyncio.timeout(seconds):
                    over = await until_over(outputs.exited, watch, group)
            except TimeoutError:
                late = True
            _kill(group)
            # A process that left the group may keep the pipes open. It is not waited for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    LAST_WORDS
                ):  # `wait_for` of Python 3.11 may swallow a cancellation
                    await outputs.silent.wait()
    finally:
        _kill(group)
        ending = loop.create_task(asyncio.wait([loop.create_task(outputs.exited.wait())], timeout=REAP))
        cancelled = await _in_spite_of_stops(ending) or cancelled
        transport.close()
        if cancelled is not None:
            raise cancelled
    status = transport.get_returncode()
    stdout, stderr = outputs.outputs[1].words(), outputs.outputs[2].words()
    return CommandResult(-signal.SIGKILL if status is None else status, stdout, stderr, late, over)


async def _in_spite_of_stops(task: asyncio.Task[Any]) -> asyncio.CancelledError | None:
    """Wait for the end of a task, even if the caller is cancelled in the meantime. Return the caller's cancellation, or
    None.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as told:
            cancelled = told
    return cancelled


async def until_over(exited: asyncio.Event, watch: LimitCheck | None, pid: int) -> str | None:
    """Wait until a command ends or exceeds a limit. Return the exceeded limit as text; None if the command has ended."""
    while watch is not None and not exited.is_set():
        if (over := await asyncio.to_thread(watch, pid)) is not None and not exited.is_set():
            return over
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await exited.wait()
    await exited.wait()
    return None


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
