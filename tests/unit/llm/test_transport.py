"""Requests over the network: invalid responses, unknown host names, proxies, and the hosts that get the key."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.llm.client import AnthropicModel
from bot.system import SystemClock
from bot.testing.anthropic import KEY, AnthropicServer
from tests.unit.llm.asking import reply_of

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
PROXIES = ("NO_PROXY", "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY")


@contextlib.asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[int]:
    handling: set[asyncio.Task[None]] = set()

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handling.add(task)
        try:
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await handler(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async with await asyncio.start_server(handled, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for task in handling:
            task.cancel()
        await asyncio.gather(*handling, return_exceptions=True)


@contextlib.asynccontextmanager
async def asking(url: str, *, connect: float = 2.0) -> AsyncIterator[AnthropicModel]:
    model = AnthropicModel(api_key=KEY, base_url=url, clock=SystemClock(), connect=connect, idle=1.0)
    try:
        async with asyncio.timeout(90):
            yield model
    finally:
        await model.close()


@pytest.mark.parametrize(
    "answer",
    [
        STREAM + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\nno chunk\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncon",
        b"",
    ],
)
@pytest.mark.parametrize("closes", [False, True])
async def test_an_answer_that_breaks_the_protocol_ends_in_time(answer: bytes, *, closes: bool) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if not closes:
            await reader.read()
            await asyncio.Event().wait()
        writer.close()

    async with listening(handler) as port, asking(f"http://127.0.0.1:{port}") as model:
        with pytest.raises(errors.StreamBroken):
            await reply_of(model)


async def test_an_address_that_speaks_no_tls_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    bare(monkeypatch)
    async with listening(handler) as port, asking(f"https://127.0.0.1:{port}") as model:
        with pytest.raises(errors.ModelUnreachable, match="the TLS handshake failed: "):
            await reply_of(model)


async def test_a_name_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    bare(monkeypatch)
    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", hangs)
    async with asking("http://model.example.org", connect=0.2) as model:
        with pytest.raises(errors.ModelUnreachable):
            await reply_of(model)


def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all proxies from the environment."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def everywhere(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Resolve every host name to this port of this machine."""

    async def resolved(_: Any, host: Any, wanted: int, **__: Any) -> list[Any]:
        there = port if "example" in str(host) else wanted
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", there))]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", resolved)


@pytest.mark.parametrize("name", ["ALL_PROXY", "HTTP_PROXY"])
async def test_nothing_goes_past_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen: dict[str, list[bytes]] = {"proxy": [], "target": []}

    def noting(who: str) -> Handler:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen[who].append(await reader.read(100))
            writer.close()

        return handler

    bare(monkeypatch)
    async with listening(noting("proxy")) as proxy, listening(noting("target")) as target:
        everywhere(monkeypatch, target)
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        async with asking(f"http://model.example.org:{target}") as model:
            with pytest.raises(errors.ModelError):
                await reply_of(model)
    assert seen["proxy"]
    assert seen["target"] == []


async def test_what_a_netrc_says_of_the_host_is_not_sent(
    server: AnthropicServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("default login me password secret-of-another\n", encoding="utf-8")
    bare(monkeypatch)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    port = int(server.url.rpartition(":")[2])
    everywhere(monkeypatch, port)
    async with asking(f"http://model.example.org:{port}") as model:
        await reply_of(model)
    assert len(server.requests) == 1


async def test_a_name_and_a_password_in_the_address_are_a_header(server: AnthropicServer) -> None:
    async with asking(server.url.replace("http://", "http://me:pass@")) as model:
        await reply_of(model)
    assert len(server.requests) == 1
