"""Sends the provider's library's requests with aiohttp: with less than half the CPU of the library's own transport."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import aiohttp
import httpx2

MOST = 1_000
"""Connections at once."""
KEEP_SECONDS = 30.0
"""An idle connection is kept for so long, so that a conversation does not begin with a new one at every message."""

_NOT_CONNECTED = (
    aiohttp.ClientConnectorError,
    aiohttp.InvalidURL,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientProxyConnectionError,
    aiohttp.ClientHttpProxyError,
)


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """`httpx2.AsyncBaseTransport` over one pool of aiohttp's. Raises `httpx2.TransportError`s alone."""

    def __init__(self, tls: ssl.SSLContext, *, trust_env: bool) -> None:
        self._tls = tls
        self._trust_env = trust_env
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MOST, keepalive_timeout=KEEP_SECONDS, ssl=self._tls),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=self._trust_env,
            )
        waits = request.extensions.get("timeout", {})
        try:
            async with asyncio.timeout(waits.get("write")):
                answer = await self._session.request(
                    request.method,
                    str(request.url),
                    headers=[
                        (name.decode("ascii"), value.decode("latin-1")) for name, value in request.headers.raw
                    ],
                    data=await request.aread() or None,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(
                        total=None,
                        connect=waits.get("pool"),
                        sock_connect=waits.get("connect"),
                        sock_read=waits.get("read"),
                    ),
                )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _failure(error) from error
        return httpx2.Response(answer.status, headers=list(answer.raw_headers), stream=_Body(answer))

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class _Body(httpx2.AsyncByteStream):
    """The body of an answer as it comes. Closed before its end, its connection is not used again."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._answer.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error) from error

    async def aclose(self) -> None:
        self._answer.close()


def _failure(error: Exception) -> httpx2.TransportError:
    """The library's name for what went wrong: whether it is sure that nothing was sent, or that it took too long."""
    said = type(error).__name__
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return httpx2.ConnectTimeout(said)
    if isinstance(error, _NOT_CONNECTED):
        return httpx2.ConnectError(said)
    if isinstance(error, TimeoutError):
        return httpx2.ReadTimeout(said)
    return httpx2.ReadError(said)
