"""HTTP servers of the process. They share a limit of open connections. The head and the body of a request have time
limits. This module also finds the owners of ports and connections on Linux.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import resource
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from aiohttp import web
from aiohttp.http import HttpProcessingError

from bot import errors
from bot.contracts.environment import Clock, Log

HEAD_SECONDS = 10.0
"""Timeout in seconds for receiving a request's head. It also applies to the next request on an open connection."""
BODY_SECONDS = 15.0
"""Timeout in seconds for a request's body."""
MOST_FILES = 65_536
"""Max value to which the limit of open files is raised. With a higher limit, some programs that the process starts take
long, because they loop over all possible descriptors.
"""
_RESERVED_FILES = 256
"""Number of descriptors that are reserved for channels, tools and files."""
_MOST_CONNECTIONS = 2_048
_LOG_SECONDS = 60.0
"""Min interval in seconds between two warnings about refused connections. Anybody can cause such warnings."""
_LISTEN = "0A"  # code of the state TCP_LISTEN in /proc/net/tcp
PROC = Path("/proc")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Address = tuple[str, int]
"""Host and port of one end of a connection."""


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit or `MOST_FILES`, whichever is lower. Failures are ignored."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def max_connections() -> int:
    """Return the max number of connections: half of the descriptors that are not reserved."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST_FILES if soft == resource.RLIM_INFINITY else soft
    return max(8, min(_MOST_CONNECTIONS, (files - _RESERVED_FILES) // 2))


class Connections:
    """Limits the open connections of all servers together to `most`. Long-lived responses (`streams`) may use half of
    these connections.
    """

    def __init__(self, most: int, *, clock: Clock, log: Log) -> None:
        self.most = most
        self.streams = most // 2
        self.servers: list[web.Server] = []
        self._clock = clock
        self._log = log
        self._silent_until = 0.0

    def server(self) -> HttpServer:
        """Return a new server that is not started yet."""
        return HttpServer(self)

    def accept(self, server: web.Server) -> asyncio.Protocol:
        """Return the protocol for a new connection. If too many are open, the protocol closes it at once."""
        count = sum(len(one.connections) for one in self.servers)
        if count < self.most:
            return server()
        if (now := self._clock.monotonic()) >= self._silent_until:
            self._silent_until = now + _LOG_SECONDS
            words = "there are too many connections to the pages: new ones are refused"
            self._log.write("connections", words, level="warn", open=count, most=self.most)
        return _Refused()


class _Refused(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class HttpServer:
    """Implements `contracts.channel.HttpServer` with aiohttp."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.streams = connections.streams
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def start(
        self, app: web.Application, host: str, port: int, *, key: str, grace: float, nearby: bool = False
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
                    self._server = await loop.create_server(
                        lambda: self._connections.accept(inner), host, port
                    )
                except OSError as failure:
                    if not nearby or failure.errno != errno.EADDRINUSE:
                        raise await _port_error(f"{key}.port", host, port, failure) from failure
                    port += 1
        except (errors.ShipmateError, asyncio.CancelledError):
            await self.stop()
            raise
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop the server. It may be called twice, and without `start`."""
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
    """Call the handler after the whole body of the request has arrived."""
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
    """Return False if a log record reports a malformed request, because anybody can send any number of such requests."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (HttpProcessingError, web.RequestPayloadError))


async def _port_error(key: str, host: str, port: int, failure: OSError) -> errors.ShipmateError:
    where = f"{key}: {port} on {host}"
    if failure.errno != errno.EADDRINUSE:
        return errors.ConfigError(f"{where} cannot be listened on ({failure.strerror}); set another one")
    pid = await asyncio.to_thread(port_owner, port)
    by = f" by process {pid}" if pid else ""
    return errors.Unavailable(
        f"{where} is in use{by}; stop it, or set {key} to another one (0 takes a free one)"
    )


def port_owner(port: int) -> int | None:
    """Return the pid of the process that listens on a TCP port; None if it cannot be found out."""
    sockets = {
        f"socket:[{inode}]"
        for near, _, state, _, inode in _tcp_table()
        if state == _LISTEN and near.endswith(f":{port:04X}")
    }
    with contextlib.suppress(OSError):
        for link in PROC.glob("[0-9]*/fd/*") if sockets else ():
            # Files of other users' processes, and of processes that have just ended, are unreadable.
            with contextlib.suppress(OSError):
                if str(link.readlink()) in sockets:
                    return int(link.parent.parent.name)
    return None


def user_of(near: Address, far: Address) -> int | None:
    """Return the uid of the program at the far end of a local TCP connection. Return None if the program is on another
    machine or in another network namespace, and on systems other than Linux.
    """
    ends = {(_hex(far, mapped=mapped), _hex(near, mapped=mapped)) for mapped in (False, True)}
    found = (
        int(uid)
        for one, other, state, uid, inode in _tcp_table()
        if (one, other) in ends
        and state != _LISTEN
        and inode != "0"  # inode 0: the program has closed the socket
    )
    return next(found, None)


def _tcp_table() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield local address, remote address, state, uid and inode of each TCP socket (proc_net_tcp)."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for row in (PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                columns = row.split()
                yield columns[1], columns[2], columns[3], columns[7], columns[9]


def _hex(address: Address, *, mapped: bool) -> str:
    """Return an address as /proc/net/tcp writes it: words of four bytes, in the machine's byte order."""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    if isinstance(host, ipaddress.IPv6Address):
        host = host.ipv4_mapped or host
    if mapped and isinstance(host, ipaddress.IPv4Address):
        host = ipaddress.IPv6Address(f"::ffff:{host}")
    words = (int.from_bytes(host.packed[at : at + 4], sys.byteorder) for at in range(0, len(host.packed), 4))
    return f"{''.join(f'{word:08X}' for word in words)}:{address[1]:04X}"
