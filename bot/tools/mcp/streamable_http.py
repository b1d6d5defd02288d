"""Transport to a remote MCP server (streamable HTTP), at the one address in ship.json."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

LARGEST = 8 * 2**20
"""Bytes of one answer, or of one event of a stream."""
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 300.0


@contextlib.asynccontextmanager
async def address(url: str, headers: Mapping[str, str]) -> AsyncIterator[TransportStreams]:
    """Talk with a server for the block. Redirects leave its origin never, our headers neither; no proxy of the environment
    is asked, and what is packed or too large is refused.
    """
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = LARGEST
            async for piece in self._inner:
                left -= len(piece)
                if left < 0:
                    raise httpx2.ReadError(f"an answer of more than {LARGEST:,} bytes")
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Guarded(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                await response.aclose()
                raise httpx2.ReadError("a packed answer, which was not asked for")
            if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
                response.stream = Bounded(response.stream)
            return response

    limits = httpx2.Timeout(CONNECT_SECONDS, read=SILENCE_SECONDS)
    sent = {**headers, "accept-encoding": "identity"}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=limits, trust_env=False, transport=Guarded()) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LARGEST) as streams,
    ):
        yield streams
