"""Transport to an MCP server that runs as a process: one message a line, through its stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.tools import processes

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

LONGEST_LINE = 8 * 2**20
"""Bytes of one message."""
MOST_NOISE = 200
"""Lines that are no message, before a server counts as broken: some print what they do."""
GRACE = 0.3
"""Seconds for a server to end by itself, and as many after it was told to."""
INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""All that a server gets of our environment: no secret is among it."""

Tell = Callable[[str], object]


def environment(ours: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server: a few facts, and what was named for it."""
    return {name: ours[name] for name in INHERITED if name in ours} | dict(own)


class _Streams(processes.ExitWatch, asyncio.subprocess.SubprocessStreamProtocol):
    """The streams of a server."""

    def __init__(self) -> None:
        super().__init__(limit=LONGEST_LINE, loop=asyncio.get_running_loop())


@contextlib.asynccontextmanager
async def process(
    words: Sequence[str], *, folder: Path, env: Mapping[str, str], said: Tell, ended: Tell
) -> AsyncIterator[TransportStreams]:
    """Run a server for the block. `said` gets what it writes to stderr, `ended` why it can be heard no more. Of its whole
    group nothing is left afterwards. Raises OSError where it cannot be started.
    """
    import anyio

    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    heard, read = anyio.create_memory_object_stream[Any](0)
    write, spoken = anyio.create_memory_object_stream[Any](0)
    tasks: list[asyncio.Task[None]] = []
    try:
        async with processes.running(_Streams, words, cwd=folder, env=dict(env), **pipes) as (
            transport,
            watch,
        ):
            tasks += [
                asyncio.create_task(_hear(watch, heard, ended)),
                asyncio.create_task(_speak(watch, spoken)),
                asyncio.create_task(_listen(watch, said)),
            ]
            try:
                yield read, write
            finally:
                write.close()
                # What was said last still goes out: it may be that a call is cancelled.
                await asyncio.wait(tasks[1:2], timeout=GRACE)
                await _end(transport, watch)
    finally:
        for task in tasks:
            task.cancel()
        for stream in (heard, read, write, spoken):
            stream.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end(transport: asyncio.SubprocessTransport, watch: _Streams) -> None:
    if watch.stdin is not None:
        watch.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(watch.exited.wait(), GRACE)
            return
        processes.signal_group(transport.get_pid(), number)


async def _hear(watch: _Streams, heard: MemoryObjectSendStream[SessionMessage], ended: Tell) -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    assert watch.stdout is not None  # noqa: S101 - it was asked for
    noise, why = 0, "it ended"
    try:
        while raw := await watch.stdout.readline():
            try:
                message = jsonrpc_message_adapter.validate_json(raw, by_name=False)
            except ValueError:
                noise += 1
                if noise > MOST_NOISE:
                    why = "what it writes is no protocol"
                    break
                continue
            await heard.send(SessionMessage(message))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        why = "it was let go"
    except ValueError:
        why = f"it wrote a line of more than {LONGEST_LINE:,} bytes"
    finally:
        heard.close()
        ended(why)


async def _speak(watch: _Streams, spoken: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert watch.stdin is not None  # noqa: S101 - it was asked for
    async for message in spoken:
        raw = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            watch.stdin.write(raw.encode() + b"\n")
            await watch.stdin.drain()
        except OSError:
            return  # It has ended, which `_hear` tells.


async def _listen(watch: _Streams, said: Tell) -> None:
    assert watch.stderr is not None  # noqa: S101 - it was asked for
    while piece := await watch.stderr.read(4_096):
        said(piece.decode("utf-8", "replace"))
