"""Transports to MCP servers: stdio of a child process, and streamable HTTP. Unlike the SDK's transports,
these limit the size of messages and repair messages (`tool.mended`).
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

LONGEST = 8 * 2**20
"""Max bytes of one message, HTTP response or event."""
MOST_NOISE = 200
"""Max lines on stdout that are not messages. Some servers print logs to stdout."""
GRACE = 0.3
"""Timeout in seconds for a server to exit after its stdin is closed, and once more after SIGTERM."""
INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Environment variables that a server inherits from the gateway. None of these variables contains a secret."""

Tell = Callable[[str], object]


def inherited_environment() -> dict[str, str]:
    """Return the environment variables that a server inherits."""
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


class _Streams(processes.ExitWatch, asyncio.subprocess.SubprocessStreamProtocol):
    """The streams of messages from and to a server."""

    def __init__(self) -> None:
        super().__init__(limit=LONGEST, loop=asyncio.get_running_loop())


@contextlib.asynccontextmanager
async def process(
    words: Sequence[str], *, folder: Path, env: Mapping[str, str], said: Tell, ended: Tell
) -> AsyncIterator[TransportStreams]:
    """Run a server process during the block. `said` receives the process's stderr; `ended` is called with
    the reason when its stdout ends. After the block, the whole process group is killed. Raises OSError if
    the process cannot be started.
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
                # The last message may be a cancellation, so wait until it is sent.
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
        why = "it was closed"
    except ValueError:
        why = f"it wrote a line of more than {LONGEST:,} bytes"
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
            return  # The process has exited; `_hear` reports that.


async def _listen(watch: _Streams, said: Tell) -> None:
    assert watch.stderr is not None  # noqa: S101 - it was asked for
    while piece := await watch.stderr.read(4_096):
        said(piece.decode("utf-8", "replace"))


CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 300.0


async def _mended(line: bytes) -> bytes:
    """Return a repaired message, or a repaired line of an event stream. Long input is parsed off the event loop."""
    data = b"data:" if line.startswith(b"data:") else b""
    return data + await off_loop(len(line), redaction.LONG, lambda: mended(line.removeprefix(data)))


@contextlib.asynccontextmanager
async def address(url: str, headers: Mapping[str, str]) -> AsyncIterator[TransportStreams]:
    """Connect to a server over HTTP during the block. Redirects to another origin are not followed, proxies
    from the environment are not used, and compressed or too large responses are rejected.
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
                if len(rest) > LONGEST:
                    raise httpx2.ReadError(f"an answer of more than {LONGEST:,} bytes")
            yield await _mended(rest)

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Guarded(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                await response.aclose()
                raise httpx2.ReadError("a compressed answer, which was not asked for")
            kind = response.headers.get("content-type", "").lower()
            response.stream = Bounded(response.stream, events=kind.startswith("text/event-stream"))
            return response

    limits = httpx2.Timeout(CONNECT_SECONDS, read=SILENCE_SECONDS)
    sent = {**headers, "accept-encoding": "identity"}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=limits, trust_env=False, transport=Guarded()) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LONGEST) as streams,
    ):
        yield streams
