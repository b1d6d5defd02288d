"""An ordinary MCP server, written with the library. `python friendly.py FOLDER` uses stdin and stdout."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel


class People(BaseModel):
    people: int


def build(folder: Path) -> MCPServer:
    server = MCPServer("friendly")

    @server.tool(description="Add two numbers.", annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool(description="あいさつをする。Say hello to somebody.")
    def greet(name: str) -> str:
        return f"こんにちは、{name} 👋"

    @server.tool(description="What the environment holds.")
    def environment() -> str:
        return json.dumps(dict(os.environ))

    @server.tool(description="Very many lines.")
    def lines(count: int) -> str:
        return "\n".join(f"line {number}" for number in range(count))

    @server.tool(description="Fails.")
    def fail() -> str:
        raise ToolError("the printer is out of paper")

    @server.tool(description="Waits for ever, and writes down that it was cancelled.")
    async def wait() -> str:
        (folder / "began").write_text("")
        try:
            await anyio.sleep_forever()
        finally:
            (folder / "cancelled").write_text("")
        return ""

    @server.tool(description="A tool more.")
    async def grow(ctx: Context[Any]) -> str:
        def grown() -> str:
            return "I am new."

        server.add_tool(grown, name="grown", description="New here.")
        await ctx.session.send_tool_list_changed()
        return "done"

    @server.tool(description="Books a table; asks how many people come.")
    async def book(ctx: Context[Any]) -> str:
        asked = await ctx.elicit("How many people? [the *plan*](https://example.org/plan)", People)
        return (
            f"booked for {asked.data.people}" if asked.action == "accept" else f"not booked: {asked.action}"
        )

    return server


if __name__ == "__main__":
    build(Path(sys.argv[1])).run("stdio")
