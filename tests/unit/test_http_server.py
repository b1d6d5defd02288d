"""Connection limits of the HTTP servers, and owners of ports and connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from bot import http_server
from bot.http_server import Connections
from bot.system import SystemClock
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@contextlib.asynccontextmanager
async def request(port: int) -> AsyncIterator[bytes]:
    """Send a request on a connection that stays open inside the block. Yield the first line of the response, or
    nothing.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await reader.readline()
        yield answer
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_one_cap_bounds_the_connections_of_all_servers(clock: FakeClock, log: MemoryLog) -> None:
    connections = Connections(2, clock=clock, log=log)
    servers = [connections.server() for _ in range(2)]
    first, second = [await one.start(web.Application(), "127.0.0.1", 0, key="x", grace=0) for one in servers]
    async with asyncio.timeout(90), request(first) as one:
        async with request(second) as two:
            assert b" 404 " in one
            assert b" 404 " in two
            for _ in range(2):
                async with request(second) as refused:
                    assert refused == b""
            assert [line.details["open"] for line in log.of("connections")] == [2], "once a minute"
            await clock.advance(60)
            async with request(first) as refused:
                assert refused == b""
            assert len(log.of("connections")) == 2
        answer = b""
        while not answer:  # the server may not have noticed the closed connection yet
            async with request(second) as answer:
                pass
    for server in servers:
        await server.stop()
    assert not connections.servers


async def read_it(request: web.Request) -> web.Response:
    return web.Response(text=await request.text())


async def test_a_request_that_does_not_arrive_in_time_is_cut(
    clock: FakeClock, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.http_server.HEAD_SECONDS", 0.1)
    monkeypatch.setattr("bot.http_server.BODY_SECONDS", 0.01)
    server = Connections(8, clock=clock, log=log).server()
    app = web.Application()
    app.router.add_post("/", read_it)
    port = await server.start(app, "127.0.0.1", 0, key="x", grace=0)
    try:
        head, first = await asyncio.open_connection("127.0.0.1", port)
        first.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        body, second = await asyncio.open_connection("127.0.0.1", port)
        second.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{")
        async with asyncio.timeout(90):
            assert b" 408 " in await body.readline()
            with contextlib.suppress(ConnectionError):
                assert await head.read() == b""
        for writer in (first, second):
            writer.close()
    finally:
        await server.stop()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\njunk",
    ],
)
async def test_a_malformed_request_is_refused_without_a_line(
    log: MemoryLog, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_post("/", answer)
    server = Connections(10, clock=SystemClock(), log=log).server()
    port = await server.start(app, "127.0.0.1", 0, key="x", grace=1.0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
    finally:
        await server.stop()
    assert not caplog.records
    assert not log.entries


@pytest.mark.parametrize(("files", "most"), [(1024, 384), (256, 8), (64, 8), (65_536, 2_048)])
def test_connections_get_half_of_the_free_descriptors(
    monkeypatch: pytest.MonkeyPatch, files: int, most: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (files, files))
    assert http_server.max_connections() == most


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system does not report sockets")
def test_the_owner_of_a_port_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert http_server.port_owner(port) == os.getpid()
    assert http_server.port_owner(port) is None
    monkeypatch.setattr(http_server, "PROC", tmp_path)
    assert http_server.port_owner(port) is None


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system does not report sockets")
@pytest.mark.parametrize(
    ("listen", "connect"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1"), ("127.0.0.1", "::ffff:127.0.0.1")],
)
def test_the_user_at_the_other_end_of_a_connection_is_known(listen: str, connect: str) -> None:
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    with (
        socket.create_server((listen, 0), family=family, dualstack_ipv6=listen == "::") as server,
        socket.create_connection((connect, server.getsockname()[1])),
    ):
        near, far = server.accept()
        with near:
            assert http_server.user_of(near.getsockname()[:2], far[:2]) == os.getuid()
            assert http_server.user_of(far[:2], far[:2]) is None
