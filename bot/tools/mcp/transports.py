"""Transports to MCP servers: to one that runs as a process, one message a line through its stdin and stdout, and to one at an address
(streamable HTTP).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.contracts.environment import off_loop
from bot.telemetry import redaction
from bot.tools import processes
from bot.tools.mcp.tool import mended

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


def inherited_environment() -> dict[str, str]:
    """The part of our environment that a server gets."""
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


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
            async with asyncio.timeout(GRACE):
                await watch.exited.wait()
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
                message = jsonrpc_message_adapter.validate_json(await _mended(raw), by_name=False)
            except OverflowError as error:
                why = f"it wrote {error}"
                break
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


LARGEST = 8 * 2**20
"""Bytes of one answer, or of one event of a stream."""
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 300.0


async def _mended(line: bytes) -> bytes:
    """A message, or a line of a stream of them, mended; others go on while it is long."""
    data = b"data:" if line.startswith(b"data:") else b""
    return data + await off_loop(len(line), redaction.LONG, lambda: mended(line.removeprefix(data)))


@contextlib.asynccontextmanager
async def address(url: str, headers: Mapping[str, str]) -> AsyncIterator[TransportStreams]:
    """Talk with a server for the block. Redirects leave its origin never, our headers neither; no proxy of the environment
    is asked, and what is packed or too large is refused.
    """
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, inner: Any, *, events: bool) -> None:
            self._inner = inner
            self._events = events

        async def __aiter__(self) -> AsyncIterator[bytes]:
            rest = b""
            async for piece in self._inner:
                rest += piece
                if self._events:
                    *lines, rest = rest.split(b"\n")
                    for line in lines:
                        yield await _mended(line) + b"\n"
                if len(rest) > LARGEST:
                    raise httpx2.ReadError(f"an answer of more than {LARGEST:,} bytes")
            yield await _mended(rest)

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Guarded(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                await response.aclose()
                raise httpx2.ReadError("a packed answer, which was not asked for")
            kind = response.headers.get("content-type", "").lower()
            response.stream = Bounded(response.stream, events=kind.startswith("text/event-stream"))
            return response

    limits = httpx2.Timeout(CONNECT_SECONDS, read=SILENCE_SECONDS)
    sent = {**headers, "accept-encoding": "identity"}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=limits, trust_env=False, transport=Guarded()) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LARGEST) as streams,
    ):
        yield streams
