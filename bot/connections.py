"""HTTP servers of the process. They share a limit of open connections, and limit the time for the head and
the body of a request.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http import HttpProcessingError

from bot.contracts.environment import Clock, Log

HEAD_SECONDS = 10.0
"""Timeout in seconds for a request's head, including the next request on an open connection."""
BODY_SECONDS = 15.0
"""Timeout in seconds for a request's body."""
LAST_PORT = 65_535
_LOG_SECONDS = 60.0
"""Min interval in seconds between two warnings about refused connections. Anybody can cause such a warning."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Connections:
    """Limits the open connections of all servers together to `most`. Half of the connections may be long-
    lived answers (`streams`).
    """

    def __init__(self, most: int, *, clock: Clock, log: Log) -> None:
        self.most = most
        self.streams = most // 2
        self.servers: list[web.Server] = []
        self._clock = clock
        self._log = log
        self._logged_at: float | None = None

    def server(self) -> HttpServer:
        """Return a new server that is not started yet."""
        return HttpServer(self)

    @property
    def count(self) -> int:
        """Return the number of open connections."""
        return sum(len(server.connections) for server in self.servers)

    def accept(self, server: web.Server) -> asyncio.Protocol:
        """Return the protocol for a new connection. If there are too many connections, the protocol closes
        the connection at once.
        """
        if (count := self.count) < self.most:
            return server()
        now = self._clock.monotonic()
        if self._logged_at is None or now - self._logged_at >= _LOG_SECONDS:
            self._log.write(
                "connections",
                "there are too many connections to the pages: new ones are refused",
                level="warn",
                open=count,
                most=self.most,
            )
            self._logged_at = now
        return _Refused()


class _Refused(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class HttpServer:
    """Implements `contracts.channel.HttpServer` with aiohttp."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    @property
    def streams(self) -> int:
        """Return the max number of simultaneous long-lived answers, over all servers."""
        return self._connections.streams

    async def start(
        self, app: web.Application, host: str, port: int, *, grace: float, nearby: bool = False
    ) -> int:
        """See `contracts.channel.HttpServer.start`."""
        app.middlewares.append(_read_body)
        logging.getLogger("aiohttp.server").addFilter(_worth_a_line)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=grace, keepalive_timeout=HEAD_SECONDS)
        await runner.setup()
        inner = runner.server
        assert inner is not None  # noqa: S101  `setup` has created it
        self._runner, loop = runner, asyncio.get_running_loop()
        self._connections.servers.append(inner)
        try:
            while self._server is None:
                try:
                    # Opening and serving are two steps, so that a cancelled start can close the opened socket.
                    self._server = await loop.create_server(
                        lambda: self._connections.accept(inner), host, port, start_serving=False
                    )
                except OSError as failure:
                    if not nearby or failure.errno != errno.EADDRINUSE or port >= LAST_PORT:
                        raise
                    port += 1
            await self._server.start_serving()
        except (OSError, asyncio.CancelledError):
            await self.stop()
            raise
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop the server. Can be called twice, and without `start`."""
        server, self._server = self._server, None
        runner, self._runner = self._runner, None
        if server is not None:
            server.close()
        if runner is not None:
            if runner.server is not None:
                self._connections.servers.remove(runner.server)
            await runner.cleanup()


@web.middleware
async def _read_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Pass a request on once its whole body has arrived."""
    if not request.can_read_body:
        return await handler(request)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            await request.read()
    except web.RequestPayloadError:
        refusal = web.json_response({"error": "The request is broken."}, status=400)
    except TimeoutError:
        refusal = web.json_response({"error": "The request took too long to arrive."}, status=408)
    else:
        return await handler(request)
    refusal.force_close()
    return refusal


def _worth_a_line(record: logging.LogRecord) -> bool:
    """Return False if the log record is about a malformed request. Anybody can send any number of malformed
    requests.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (HttpProcessingError, web.RequestPayloadError))
