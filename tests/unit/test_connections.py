"""Who makes room where there are too many connections."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import cast

import pytest
from aiohttp import web

from bot.connections import HEAD_SECONDS, Connection, Connections
from bot.system import SystemClock
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog


class Held:
    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


def come(connections: Connections, count: int, address: str = "127.0.0.1") -> list[Held]:
    made = [Held() for _ in range(count)]
    for one in made:
        connections.made(cast("Connection", one), address)
    return made


async def test_the_one_that_has_been_quiet_the_longest_makes_room(clock: FakeClock, log: MemoryLog) -> None:
    connections = Connections(4, clock=clock, log=log)
    first = come(connections, 4)
    connections.busy(cast("Connection", first[0]))
    later = come(connections, 2)
    assert [one.aborted for one in (*first, *later)] == [False, True, True, False, False, False]
    assert len(log.of("connections")) == 1
    await clock.advance(60)
    come(connections, 1)
    said = log.of("connections")
    assert [line.details["cut"] for line in said] == [1, 2]


async def test_where_all_are_at_work_the_new_one_goes(clock: FakeClock, log: MemoryLog) -> None:
    connections = Connections(2, clock=clock, log=log)
    first = come(connections, 2)
    for one in first:
        connections.busy(cast("Connection", one))
    connections.quiet(cast("Connection", first[1]))
    connections.busy(cast("Connection", first[1]))
    (new,) = come(connections, 1)
    assert [one.aborted for one in (*first, new)] == [False, False, True]


async def test_one_network_elsewhere_has_a_quarter(clock: FakeClock, log: MemoryLog) -> None:
    connections = Connections(8, clock=clock, log=log)
    others = come(connections, 1, "192.0.2.1")
    crowd = [come(connections, 1, f"2001:db8::{number}")[0] for number in range(4)]
    assert [one.aborted for one in (*others, *crowd)] == [False, True, True, False, False]
    mapped = come(connections, 3, "::ffff:127.0.0.1")
    assert not any(one.aborted for one in mapped)


async def test_quiet_ones_are_cut_in_time(clock: FakeClock, log: MemoryLog) -> None:
    connections = Connections(8, clock=clock, log=log)
    (quiet, busy, asks) = come(connections, 3)
    connections.busy(cast("Connection", busy))
    await clock.advance(HEAD_SECONDS - 1)
    connections.quiet(cast("Connection", asks))
    await clock.advance(1)
    connections.sweep()
    assert [one.aborted for one in (quiet, busy, asks)] == [True, False, False]
    connections.lost(cast("Connection", quiet))
    connections.quiet(cast("Connection", quiet))
    connections.sweep()


async def read_it(request: web.Request) -> web.Response:
    return web.Response(text=await request.text())


async def test_who_does_not_say_what_they_want_is_cut(clock: FakeClock, log: MemoryLog) -> None:
    server = Connections(8, clock=clock, log=log, body_seconds=0.01).server()
    app = web.Application()
    app.router.add_post("/", read_it)
    port = await server.start(app, "127.0.0.1", 0, grace=0)
    try:
        head, first = await asyncio.open_connection("127.0.0.1", port)
        first.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        body, second = await asyncio.open_connection("127.0.0.1", port)
        second.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{")
        async with asyncio.timeout(90):
            assert b" 408 " in await body.readline()
            await clock.advance(HEAD_SECONDS)
            with contextlib.suppress(ConnectionError):
                assert await head.read() == b""
        for writer in (first, second):
            writer.close()
    finally:
        await server.stop()


@pytest.mark.parametrize("steps", range(12))
async def test_a_start_that_is_cancelled_leaves_no_port_that_listens(
    clock: FakeClock, log: MemoryLog, steps: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Connections(8, clock=clock, log=log).server()
    starting = asyncio.create_task(server.start(web.Application(), "127.0.0.1", port, grace=0))
    for _ in range(steps):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    if starting.cancelled():
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
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
    port = await server.start(app, "127.0.0.1", 0, grace=1.0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
    finally:
        await server.stop()
    assert not caplog.records
    assert not log.entries
