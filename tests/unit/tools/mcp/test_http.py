"""MCP servers over HTTP: a real one of the library, and hand-written ones that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot import errors
from bot.testing.clock import FakeClock
from tests.unit.tools.mcp.conftest import Rig, Start, served, until
from tests.unit.tools.mcp.friendly import build

Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


class Elsewhere:
    """A server without the library. `calls` answers `tools/call`, and the received requests are kept."""

    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.calls: Answer | None = None
        self.first: Answer | None = None
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/mcp", self._handle)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url("/mcp"))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        if request.method != "POST":
            return web.Response(status=405)
        asked = await request.json()
        if self.first is not None:
            return await self.first(request, asked)
        method = asked.get("method")
        if method == "initialize":
            info = {"name": "x", "version": "0"}
            version = asked["params"]["protocolVersion"]
            return said(
                asked, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            )
        if method == "tools/list":
            return said(asked, {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]})
        if method == "tools/call" and self.calls is not None:
            return await self.calls(request, asked)
        return web.Response(status=202)


def said(asked: dict[str, Any], result: dict[str, Any]) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": result})


@pytest.fixture
async def elsewhere() -> AsyncIterator[Elsewhere]:
    made = Elsewhere()
    await made.server.start_server()
    yield made
    await made.server.close()


async def test_a_real_one_gives_its_tools_and_runs_them(start: Start, tmp_path: Path) -> None:
    server = build(tmp_path)
    async with served(server.streamable_http_app()) as url:
        rig = await start(far={"url": url})
        assert rig["far"].state == "ready", rig["far"].trouble
        assert await rig.call("mcp__far__add", a=20, b=22) == "42"
        with pytest.raises(errors.ToolError, match="out of paper"):
            await rig.call("mcp__far__fail")
        calling = asyncio.create_task(rig.call("mcp__far__wait"))
        await until((tmp_path / "began").exists)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await until((tmp_path / "cancelled").exists)
        await rig.call("mcp__far__grow")
        await until(lambda: rig.all.get("mcp__far__grown"))
        await rig.all.close()


async def test_our_headers_go_to_the_named_address_alone(start: Start, elsewhere: Elsewhere) -> None:
    other = Elsewhere()
    await other.server.start_server()

    async def away(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(other.url)

    rig = await start(
        FakeClock(), far={"url": elsewhere.url, "headers": {"Authorization": "Bearer hidden-token"}}
    )
    assert rig["far"].state == "ready", rig["far"].trouble
    assert {one.headers["Authorization"] for one in elsewhere.seen} == {"Bearer hidden-token"}
    elsewhere.calls = away
    with pytest.raises(errors.ToolError):
        await rig.call("mcp__far__say")
    assert other.seen == []
    await other.server.close()


async def test_no_proxy_of_the_environment_is_asked(
    start: Start, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    rig = await start(FakeClock(), far={"url": elsewhere.url})
    assert rig["far"].state == "ready", rig["far"].trouble


async def large(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return said(asked, {"content": [{"type": "text", "text": "x" * 9_000_000}]})


async def packed(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    answer = said(asked, {"content": []})
    answer.enable_compression(web.ContentCoding.gzip)
    return answer


async def page(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.Response(text="<html>Sign in</html>", content_type="text/html")


async def broken(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.Response(body=b'{"jsonrpc": "2.0", "id": \xff', content_type="application/json")


async def fails(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.Response(status=500, text="secret-secret-secret")


async def cut(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "100"})
    await answer.prepare(request)
    await answer.write(b"{")
    assert request.transport is not None
    request.transport.close()
    return answer


async def ends(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    return web.Response(text=": working\n\n", content_type="text/event-stream")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (large, ""),
        (packed, ""),
        (page, ""),
        (broken, ""),
        (fails, ""),
        (cut, ""),
        (ends, "may have taken effect"),
    ],
)
async def test_what_is_no_answer_fails_the_call_and_nothing_else(
    start: Start, elsewhere: Elsewhere, answer: Answer, told: str
) -> None:
    clock = FakeClock()
    rig = await start(clock, far={"url": elsewhere.url, "timeoutMs": 5_000})
    elsewhere.calls = answer
    with pytest.raises(errors.ToolError) as caught:
        await rig.call("mcp__far__say")
    assert "secret-secret" not in str(caught.value)
    assert told in str(caught.value)
    elsewhere.calls = lambda _, asked: _good(asked)
    async with asyncio.timeout(90):
        while (words := await _tried(rig)) != "good":
            await clock.advance(2)
            assert words is None


async def _tried(rig: Rig) -> str | None:
    try:
        return await rig.call("mcp__far__say")
    except errors.ToolError:
        return None


async def _good(asked: dict[str, Any]) -> web.StreamResponse:
    return said(asked, {"content": [{"type": "text", "text": "good"}]})


async def test_one_that_goes_away_is_down_and_comes_back(start: Start, elsewhere: Elsewhere) -> None:
    clock = FakeClock()
    rig = await start(clock, far={"url": elsewhere.url, "timeoutMs": 5_000})

    async def gone(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    elsewhere.first = gone
    with pytest.raises(errors.ToolError, match="was lost"):
        await rig.call("mcp__far__say")
    await until(lambda: rig["far"].state == "down")
    elsewhere.first = None
    for _ in range(4):
        await clock.advance(300)
        await asyncio.sleep(0)
    await until(lambda: rig["far"].state == "ready")


async def test_nobody_there_is_told(start: Start) -> None:
    rig = await start(FakeClock(), far={"url": "http://127.0.0.1:1/mcp"})
    assert rig["far"].state == "down"
    assert rig["far"].trouble == "All connection attempts failed"
