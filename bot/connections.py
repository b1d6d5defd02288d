"""Limits the connections of the HTTP servers: their number, and the time one may take for a request.

All servers of the process share one limit. Where it is reached, the connection that has been quiet the longest makes room
for the new one: a browser that asks at once is answered, however many hold a place without asking.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http import HttpProcessingError

from bot.contracts.environment import Clock, Log

HEAD_SECONDS = 10.0
"""Seconds a client gets for the head of a request, and a connection between two of them."""
BODY_SECONDS = 15.0
LAST_PORT = 65_535
_LOOK_SECONDS = 1.0
_SAY_SECONDS = 60.0
_TOO_SLOW = "The request took too long to arrive."
_BROKEN = "The request is broken."

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Connections:
    """The connections of all servers, at most `most`, and of one network elsewhere a quarter of that. Half of them may be
    at work for long (`streams`), so that there is always room to ask.
    """

    def __init__(self, most: int, *, clock: Clock, log: Log, body_seconds: float = BODY_SECONDS) -> None:
        self.most = most
        self.body_seconds = body_seconds
        self.streams = most // 2
        self._clock = clock
        self._log = log
        self._all: dict[Connection, str] = {}
        self._quiet: OrderedDict[Connection, float] = OrderedDict()
        self._networks: Counter[str] = Counter()
        self._cut = 0
        self._logged_at: float | None = None

    def server(self) -> HttpServer:
        """A server, not yet started."""
        return HttpServer(self)

    def made(self, connection: Connection, address: str) -> None:
        network = _network(address)
        self._all[connection] = network
        self._networks[network] += 1
        self.quiet(connection)
        shared = network != "" and self._networks[network] > max(1, self.most // 4)
        if len(self._all) > self.most or shared:
            victim = next((one for one in self._quiet if not shared or self._all[one] == network), connection)
            self._note(len(self._all))
            self.lost(victim)
            victim.abort()

    def lost(self, connection: Connection) -> None:
        network = self._all.pop(connection, None)
        self._quiet.pop(connection, None)
        if network is not None:
            self._networks[network] -= 1
            if not self._networks[network]:
                del self._networks[network]

    def quiet(self, connection: Connection, seconds: float = HEAD_SECONDS) -> None:
        """It has asked for nothing yet, from now on, and has so many seconds to do so."""
        if connection in self._all:
            self._quiet[connection] = self._clock.monotonic() + seconds
            self._quiet.move_to_end(connection)

    def busy(self, connection: Connection) -> None:
        self._quiet.pop(connection, None)

    def sweep(self) -> None:
        """Cut those that have been quiet for too long."""
        now = self._clock.monotonic()
        for connection in [one for one, until in self._quiet.items() if until <= now]:
            self.lost(connection)
            connection.abort()

    async def look(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.sweep()

    def _note(self, count: int) -> None:
        """Say that there are too many, once a minute and not for each."""
        self._cut += 1
        now = self._clock.monotonic()
        if self._logged_at is None or now - self._logged_at >= _SAY_SECONDS:
            self._log.write(
                "connections",
                "there are too many connections to the pages: those that ask for nothing are cut",
                level="warn",
                open=count,
                most=self.most,
                cut=self._cut,
            )
            self._logged_at, self._cut = now, 0


class Connection(asyncio.Protocol):
    """One connection: aiohttp's own protocol, and a place among all."""

    def __init__(
        self, inner: asyncio.Protocol, connections: Connections, known: dict[object, Connection]
    ) -> None:
        self._inner = inner
        self._connections = connections
        self._known = known
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  it is a TCP connection
        self._transport = transport
        self._known[transport] = self
        self._inner.connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._connections.made(self, peer[0] if peer else "")

    def connection_lost(self, exc: Exception | None) -> None:
        self._known.pop(self._transport, None)
        self._connections.lost(self)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class HttpServer:
    """`contracts.channel.HttpServer` on aiohttp."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._known: dict[object, Connection] = {}
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None

    @property
    def streams(self) -> int:
        """Most long-lived answers at once, over all servers."""
        return self._connections.streams

    async def start(
        self, app: web.Application, host: str, port: int, *, grace: float, nearby: bool = False
    ) -> int:
        """As `contracts.channel.HttpServer.start`."""
        app.middlewares.append(self._whole)
        logging.getLogger("aiohttp.server").addFilter(_worth_a_line)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=grace, keepalive_timeout=HEAD_SECONDS)
        await runner.setup()
        inner = runner.server
        assert inner is not None  # noqa: S101  it was set up
        self._runner, loop = runner, asyncio.get_running_loop()
        try:
            while self._server is None:
                try:
                    # In two steps: what a start that is cancelled has opened is known, and closed.
                    self._server = await loop.create_server(
                        lambda: Connection(inner(), self._connections, self._known),
                        host,
                        port,
                        start_serving=False,
                    )
                except OSError as failure:
                    if not nearby or failure.errno != errno.EADDRINUSE or port >= LAST_PORT:
                        raise
                    port += 1
            await self._server.start_serving()
        except (OSError, asyncio.CancelledError):
            await self.stop()
            raise
        self._looking = asyncio.create_task(self._connections.look())
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Safe to call twice and without `start`."""
        server, self._server = self._server, None
        runner, self._runner = self._runner, None
        looking, self._looking = self._looking, None
        if server is not None:
            server.close()
        if looking is not None:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
        if runner is not None:
            await runner.cleanup()

    @web.middleware
    async def _whole(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The handler gets a request that has arrived whole."""
        connection = self._known.get(request.transport)
        if connection is None:
            return await handler(request)  # It has gone already.
        if request.can_read_body:
            self._connections.quiet(connection, self._connections.body_seconds + HEAD_SECONDS)
            try:
                async with asyncio.timeout(self._connections.body_seconds):
                    await request.read()
            except web.RequestPayloadError:
                broken = web.json_response({"error": _BROKEN}, status=400)
                broken.force_close()
                return broken
            except TimeoutError:
                slow = web.json_response({"error": _TOO_SLOW}, status=408)
                slow.force_close()
                return slow
        self._connections.busy(connection)
        try:
            return await handler(request)
        finally:
            self._connections.quiet(connection)


def _worth_a_line(record: logging.LogRecord) -> bool:
    """False of a request that is malformed: anyone can send as many as they like."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (HttpProcessingError, web.RequestPayloadError))


def _network(address: str) -> str:
    """The network of an address, as the unit of limits: one IPv4 address, or the /64 of IPv6; "" for this machine,
    where an address tells no users apart.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    if parsed.is_loopback:
        return ""
    return str(ipaddress.ip_network((parsed, 32 if parsed.version == 4 else 64), strict=False))
