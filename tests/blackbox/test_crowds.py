"""More connections than file descriptors: half-open requests, slow bodies and event streams, while people talk to the bot."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.blackbox.conftest import PERSON, World, eventually

HALF_OPEN, SLOW_BODIES, STREAMS = 250, 50, 200
FILES = 512
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
BODY = b"POST /api/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
STREAM = b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def many_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * (HALF_OPEN + STREAMS):
        pytest.skip(f"the test itself needs more files than the {hard} it may have")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 10_000) if hard > 0 else 10_000, hard))


class Crowd:
    """Open connections that send only the beginning of a request."""

    def __init__(self, address: str) -> None:
        target = urlsplit(address)
        self._host, self._port = target.hostname, target.port
        self.writers: list[asyncio.StreamWriter] = []
        self.answers: list[asyncio.StreamReader] = []

    async def come(self, words: bytes, count: int) -> None:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(self._host, self._port)
            writer.write(words)
            self.writers.append(writer)
            self.answers.append(reader)

    async def leave(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def crowd(address: str) -> AsyncIterator[Crowd]:
    made = Crowd(address)
    try:
        yield made
    finally:
        await made.leave()


async def start(world: World, files: int) -> tuple[str, str]:
    """Return the addresses of page and dashboard of a Shipmate with this limit of open files."""
    world.config["dashboard"] = {"port": 0}
    world.process.module = ["tests.limited", "RLIMIT_NOFILE", f"{files}", f"{files}", "bot"]
    await world.start("telegram", "web")
    page, dashboard = world.process.ready_line.split()[-2:]
    return page, dashboard


@pytest.mark.usefixtures("many_files")
async def test_half_open_requests_and_streams_without_end_leave_room_for_everybody_else(world: World) -> None:
    """The pages answer again after the half-open connections are closed. Other connections stay open."""
    page, dashboard = await start(world, FILES)
    async with crowd(page) as first, crowd(dashboard) as second:
        await first.come(STREAM, STREAMS)
        await first.come(HEAD, HALF_OPEN)
        await first.come(BODY, SLOW_BODIES)
        await second.come(HEAD, HALF_OPEN // 10)
        for number in range(3):
            await world.ask(f"message {number}", number + 1)
        async with aiohttp.ClientSession() as session:
            for address in (f"{page}/api/info", f"{dashboard}/readyz"):
                await _answered(session, address)
            body = {"text": "/whoami", "clientId": "m1"}
            async with session.post(f"{page}/api/messages", json=body) as answer:
                assert answer.status == 202
        said = [line for line in world.log() if line["kind"] == "connections"]
        assert [(line["level"], line["details"]["most"]) for line in said] == [("warn", (FILES - 256) // 2)]
        troubles = [line for line in world.log() if "Too many open files" in str(line)]
        assert troubles == []
    assert len(world.texts(PERSON)) == 3


async def _answered(session: aiohttp.ClientSession, address: str) -> None:
    """Repeat the request until there is an answer, for at most 90 s."""
    async with asyncio.timeout(90):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(address) as answer:
                    assert answer.status == 200, await answer.text()
                    return
            await asyncio.sleep(0.5)


@pytest.mark.torture
async def test_who_does_not_say_what_they_want_is_cut(world: World) -> None:
    page, _ = await start(world, FILES)
    async with crowd(page) as slow:
        await slow.come(HEAD, 1)
        await slow.come(BODY, 1)
        async with asyncio.timeout(90):
            head, body = await asyncio.gather(*(_ending(reader) for reader in slow.answers))
        assert head == b""
        assert b" 408 " in body


async def _ending(reader: asyncio.StreamReader) -> bytes:
    """Return all bytes until the connection ends."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(4096):
            said += piece
    return said


async def test_the_soft_limit_is_raised_to_the_hard_one(world: World) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    world.process.module = ["tests.limited", "RLIMIT_NOFILE", "300", f"{hard}", "bot"]
    await world.start("telegram")
    limits = f"/proc/{world.process.pid}/limits"
    await eventually(lambda: bool(_open_files(limits)))
    soft = _open_files(limits)
    assert soft == (min(hard, 65_536) if hard > 0 else 65_536)


def _open_files(path: str) -> int:
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123
            (line,) = [one for one in file if one.startswith("Max open files")]
    except FileNotFoundError:
        pytest.skip("this system does not tell the limits of a process")
    return int(line.split()[3])
