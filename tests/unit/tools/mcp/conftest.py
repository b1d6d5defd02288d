"""MCP servers as processes and over HTTP, and the client that connects to them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bot.config.ship_file import Mcp
from bot.contracts.identity import ChatKey
from bot.contracts.tools import Pictured
from bot.system import SystemClock
from bot.testing.log import MemoryLog
from bot.tools.context import Ask, ToolExecutionContext, tool_scope
from bot.tools.mcp.servers import McpServers, Server

HERE = Path(__file__).parent


class Rig:
    """The MCP servers of one project. `clock` determines when they are restarted."""

    def __init__(self, root: Path, clock: Any, **servers: dict[str, Any]) -> None:
        self.log = MemoryLog()
        self.person: Ask | None = None
        """Answers the servers' questions; None if nobody is there."""
        self.all = McpServers(
            Mcp.model_validate({"servers": servers}, strict=False),
            ask=self.ask,
            root=root,
            clock=clock,
            log=self.log,
            redact=lambda words: words.replace("secret-secret-secret", "[hidden]"),
        )

    async def ask(self, *question: Any) -> str | None:
        return await self.person(*question) if self.person is not None else None

    def __getitem__(self, name: str) -> Server:
        return self.all.servers[name]

    async def call(self, name: str, /, **arguments: Any) -> str:
        """Call a tool as the dispatcher does, and return the text for the model."""
        tool = self.all.get(name)
        assert tool is not None, list(self.all.offers())
        turn = ToolExecutionContext(ChatKey("web", "1"), "R1", None, None, None)
        with tool_scope(turn):
            result = await tool.run(tool.input.model_validate(arguments))
        assert isinstance(result, Pictured)
        return result.words


def friendly(**more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(HERE / "friendly.py"), "./"], **more}


def raw(mode: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(HERE / "raw.py"), mode, "."], **more}


Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Return a function that starts servers and waits until each is ready or has failed."""
    made: list[Rig] = []

    async def begun(clock: Any = None, **servers: dict[str, Any]) -> Rig:
        rig = Rig(tmp_path, clock or SystemClock(), **servers)
        made.append(rig)
        rig.all.start()
        async with asyncio.timeout(60):
            await asyncio.gather(*(server.settled.wait() for server in rig.all.servers.values()))
        return rig

    yield begun
    for rig in made:
        await rig.all.close()


async def until(true: Callable[[], Any]) -> None:
    """Poll a condition that no event reports."""
    async with asyncio.timeout(90):
        while not true():  # noqa: ASYNC110 - what another process does tells nobody here
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serve an application over HTTP on a free port. Yield its address."""
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_config=None, lifespan="on", timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started or task.done())
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await task
