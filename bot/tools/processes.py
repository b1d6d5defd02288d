"""One command from its start to its end: its output bounded, its time limited, nothing of it left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KEPT = 512 * 1024
"""Bytes of each output that are kept of its beginning, and as many of its end."""
LAST_WORDS = 2.0
"""Seconds for what an ended command has still to say."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `status` is negative where a signal ended it; `late`: it was stopped at its limit."""

    status: int
    stdout: str
    stderr: str
    late: bool = False


class _Output:
    """Beginning and end of what a command prints."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._held = 0
        self._lost = 0

    def add(self, piece: bytes) -> None:
        room = KEPT - len(self._head)
        self._head += piece[:room]
        if rest := piece[room:] if room > 0 else piece:
            self._tail.append(rest)
            self._held += len(rest)
        while self._held > KEPT:
            over = self._held - KEPT
            first = self._tail.popleft()
            if len(first) > over:
                self._tail.appendleft(first[over:])
            gone = min(len(first), over)
            self._held -= gone
            self._lost += gone

    def words(self) -> str:
        tail = b"".join(self._tail)
        between = f"\n[… {self._lost} bytes left out …]\n".encode() if self._lost else b""
        return _ESCAPES.sub("", (bytes(self._head) + between + tail).decode("utf-8", "replace"))


class _Watch(asyncio.SubprocessProtocol):
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


async def run(words: Sequence[str], *, folder: Path, environment: Mapping[str, str], seconds: float) -> Ended:
    """Run a command with nothing to read, in a group of its own, which is killed when it ends, when its time is over
    and when nobody waits for it any more. Raises OSError where it cannot be started.
    """
    transport, watch = await asyncio.get_running_loop().subprocess_exec(
        _Watch,
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
    )
    late = False
    try:
        try:
            async with asyncio.timeout(seconds):
                await watch.exited.wait()
        except TimeoutError:
            late = True
        _kill(transport.get_pid())
        # Whoever left its group may hold the pipes open; that is not waited for.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(watch.silent.wait(), LAST_WORDS)
    finally:
        _kill(transport.get_pid())
        transport.close()
    status = transport.get_returncode()
    return Ended(
        -signal.SIGKILL if status is None else status,
        watch.outputs[1].words(),
        watch.outputs[2].words(),
        late,
    )


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
