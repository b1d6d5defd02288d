"""The configured MCP servers and their connections. Each server is started, and restarted after failures. The server's tools
are listed and called. The gateway's start does not wait for servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bot import errors, text
from bot.config.ship_file import Mcp, McpServer
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Log, Redact
from bot.contracts.tools import Pictured, Tool
from bot.tools.context import Ask, progress
from bot.tools.dispatch import ToolCatalog, ToolOffer
from bot.tools.mcp import definitions, transports
from bot.tools.mcp.definitions import ServerTool
from bot.tools.mcp.elicitation import Elicitations
from bot.tools.permissions.protected_code import protected_code

if TYPE_CHECKING:
    from mcp import Client

START_SECONDS = 30.0  # Timeout in seconds for connecting to a server and listing its tools
LONGEST_PAUSE = 300.0
SOUND_SECONDS = 60.0
"""After a connection that lasted at least this many seconds, the pauses between restarts begin short again."""
MOST_TOOLS = 500
MOST_PAGES = 50
MOST_HUNG = 3
"""Max consecutive calls without an answer. After this number of calls, the connection is closed."""
LOOK_SECONDS = 10.0  # Timeout in seconds of the check whether a server still answers after a failed call
LAST_WORDS = 2_000  # Max characters of a server's stderr kept for operators


class ServerLost(errors.ShipmateError):
    """Raised when the connection to a server has ended. The message gives the reason."""


@dataclass(eq=False)
class Server:
    """One MCP server, which is connected while `run` runs. While the connection is down, the model still sees the server's
    tools, but calls fail.
    """

    name: str
    settings: McpServer
    _: KW_ONLY
    ask: Ask | None
    root: Path
    clock: Clock
    log: Log
    redact: Redact
    state: Literal["starting", "ready", "down"] = "starting"
    trouble: str = ""
    """Reason why the server is down, for operators; "" while it works."""
    tools: Mapping[str, ServerTool] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is set when the first attempt to start has succeeded or failed."""
    down_since: float | None = None
    """Time (monotonic seconds) at which the connection went down; None while it works."""
    _client: Client | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is set if the server's tools have changed, or if the connection has ended."""
    _ending: str = ""
    """Reason why the connection has ended; "" while it works."""
    _handshake: Literal["legacy", "auto"] = "legacy"
    _stderr: str = ""
    _hung: int = 0

    def __post_init__(self) -> None:
        self.asking = Elicitations(self.name, self.ask, self.log)

    async def run(self) -> None:
        """Keep the server connected until this call is cancelled. The pauses between attempts grow exponentially."""
        failures = 0
        while True:
            began = self.clock.monotonic()
            # The SDK may cancel the task. Only a cancellation of `run` itself ends this loop.
            task = asyncio.create_task(self._connection())
            try:
                await asyncio.wait([task])
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait([task])
            if self.clock.monotonic() - began > SOUND_SECONDS:
                failures = 0
            self._down(None if task.cancelled() else task.exception())
            await self.clock.sleep(min(LONGEST_PAUSE, 2.0**failures))
            failures += 1

    def _down(self, error: BaseException | None) -> None:
        was, self.state = self.state, "down"
        self.down_since = self.clock.monotonic() if self.down_since is None else self.down_since
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        cause = "it ended" if error is None else str(error) or type(error).__name__
        if isinstance(error, OSError):
            cause = errors.connection_reason(error)
        elif isinstance(error, ValueError):  # raised by the SDK for an invalid message
            cause = "it breaks the protocol"
        stderr = " ".join(self._stderr.split())[-300:]
        self.trouble = self.redact(text.preview(cause + (f"; stderr: {stderr}" if stderr else ""), 600))
        self.settled.set()
        self.log.write("mcp", f"the server {self.name} is down", level="warn", cause=self.trouble, was=was)

    def lasting_trouble(self, seconds: float) -> str:
        """Return the failure as text for operators; "" if the server works, or if it failed less than `seconds` ago."""
        lasts = self.down_since is not None and self.clock.monotonic() - self.down_since >= seconds
        return self.trouble if lasts else ""

    # ------------------------------------------------------------ a connection

    async def _connection(self) -> None:
        self._changed.clear()
        self._ending = self._stderr = ""
        self._hung = 0
        # Importing the SDK takes seconds.
        await asyncio.to_thread(importlib.import_module, "mcp")
        from mcp import Client
        from mcp_types import Implementation

        client = Client(
            self._transport(),
            mode=self._handshake,
            message_handler=self._heard,
            client_info=Implementation(name="shipmate", version="1"),
            elicitation_callback=self.asking.elicit,
            cache=None,
        )
        async with contextlib.AsyncExitStack() as stack:
            # Old servers refuse the new handshake, and new servers refuse the old. After a failure, try the other handshake.
            used = self._handshake
            self._handshake = "auto" if used == "legacy" else "legacy"
            async with asyncio.timeout(START_SECONDS):
                await stack.enter_async_context(client)
                await self._list(client)
            self._handshake = used
            self._client, self.state, self.trouble, self.down_since = client, "ready", "", None
            self.settled.set()
            try:
                while True:
                    await self._changed.wait()
                    if self._ending:
                        raise ServerLost(self._ending)
                    self._changed.clear()
                    async with asyncio.timeout(START_SECONDS):
                        await self._list(client)
                    # Tools are listed at most once per second, even if the server announces more changes.
                    await self.clock.sleep(1.0)
            finally:
                self._client = None

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        chosen = self.settings
        async with contextlib.AsyncExitStack() as stack:
            if chosen.url is not None:
                yield await stack.enter_async_context(transports.address(chosen.url, chosen.headers))
                return
            try:
                # npx, uvx and Python run code from the working folder and the folders above it. Because chats may write
                # to the project, the server gets an empty working folder instead.
                temporary = tempfile.TemporaryDirectory(prefix="shipmate-mcp-", ignore_cleanup_errors=True)
                folder = Path(stack.enter_context(temporary))
                words = [chosen.command or "", *chosen.args]
                command, env = await asyncio.to_thread(self._command, words, folder)
                process = transports.process(
                    command, folder=folder, env=env, said=self._said, ended=self._ended
                )
                streams = await stack.enter_async_context(process)
            except (OSError, ValueError) as error:
                raise ServerLost(f"it cannot be started: {error}") from None
            yield streams

    def _command(self, words: list[str], folder: Path) -> tuple[list[str], dict[str, str]]:
        """Return the server's command line and environment. Raises `ServerLost` if a tool or a command could change the
        code that the server runs. This call blocks the thread.
        """
        ours = protected_code(self.root)
        env = transports.fixed_environment(ours, folder) | self.settings.env
        env["PATH"] = ours.fixed(env.get("PATH", os.defpath))
        asked = str(self.root / words[0]) if "/" in words[0] else words[0]
        found = shutil.which(asked, path=env["PATH"])
        if found is None:
            raise ServerLost(f"there is no program {words[0]!r}")
        own = [value for name, value in self.settings.env.items() if name != "PATH"]
        named = (
            words[0]
            if ours.changeable(Path(found))
            else transports.changeable_code(words[1:], own, ours, env)
        )
        if named is not None:
            raise ServerLost(
                f"{named!r} is in the project's folder, where a chat can change what it runs: move it elsewhere"
            )
        return [found, *(transports.placed(self.root, word) for word in words[1:])], env

    def _said(self, words: str) -> None:
        self._stderr = (self._stderr + words)[-LAST_WORDS:]

    def _ended(self, why: str = "it ended") -> None:
        self._ending = why
        self._changed.set()

    async def _heard(self, message: object) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._changed.set()

    async def _list(self, client: Client) -> None:
        from mcp_types import PaginatedRequestParams

        listed, cursor = list[Any](), ""
        for _ in range(MOST_PAGES):
            params = PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await client.session.list_tools(params=params)
            listed += [(tool.meta or {}).get(definitions.RAW) for tool in page.tools]
            if not (cursor := page.next_cursor or ""):
                break
        # Definitions may be long, so they are processed off the event loop.
        tools, left_out = await asyncio.to_thread(self._declared, listed, client.instructions or "")
        shown: dict[str, Any] = {
            "added": sorted(tools.keys() - self.tools.keys())[:20],
            "gone": sorted(self.tools.keys() - tools.keys())[:20],
            "left_out": left_out[:20],
        }
        self.tools, self.left_out = tools, left_out
        level: Literal["warn", "info"] = "warn" if left_out else "info"
        self.log.write("mcp", f"the server {self.name} has {len(tools)} tools", level=level, **shown)

    def _declared(self, listed: list[Any], instructions: str) -> tuple[dict[str, ServerTool], list[str]]:
        """Return the tools that can be declared, by name, and the reasons why the other tools cannot."""
        tools, left_out = dict[str, ServerTool](), list[str]()
        # Redact secrets before the text is cut, because half a secret would not be recognised.
        notes = definitions.lines(self.redact(instructions), definitions.INSTRUCTIONS)
        who = [self.name, self.settings.command, self.settings.args, self.settings.url]
        for tool in listed:
            try:
                offer = definitions.offer(self.name, tool, notes)
                if offer.name in tools or len(tools) >= MOST_TOOLS:
                    full = "there are too many"
                    raise definitions.UndeclarableTool("its name is taken" if offer.name in tools else full)
            except definitions.UndeclarableTool as error:
                name = tool.get("name") if isinstance(tool, dict) else tool
                left_out.append(f"{definitions.line(str(name), 80)}: {error}")
                continue
            whole = [who, [tool.get(key) for key in ("name", "title", "description", "inputSchema")]]
            defined = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
            seconds = self.settings.timeout_ms / 1000 + definitions.LAST_RESORT
            tools[offer.name] = ServerTool(offer, self.call, seconds, defined)
        return tools, left_out

    # ------------------------------------------------------------ calls

    async def call(self, tool: str, arguments: Json) -> Pictured:
        """Call a tool. If this call is cancelled, the server is notified. Raises `errors.ToolError`."""
        client = self._client
        if client is None:
            raise errors.ToolError(
                f"The MCP server {self.name} is not running now; it is started again by itself. Nothing was done. Go on "
                "without it, or try again in a few minutes."
            )
        answer, notes = await self._answer(client, tool, arguments)
        self._hung = 0
        said, *pictures = (part.get("text", part.get("data")) for part in answer["content"])
        words = "\n\n".join(filter(None, (said, *notes)))
        if answer.get("isError"):
            raise errors.ToolError(words or "The tool failed and does not say why.")
        return Pictured(words, pictures)

    async def _answer(self, client: Client, tool: str, arguments: Json) -> tuple[Json, list[str]]:
        """Return the server's result (`definitions.mended`), and notes about questions that nobody answered."""
        import anyio
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, CallToolRequest, CallToolRequestParams, CallToolResult
        from pydantic import ValidationError

        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
        seconds = self.settings.timeout_ms / 1000
        limit, report = asyncio.timeout(seconds), progress.get()

        async def told(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g} / {total:g}" if total else f"{progress:g}"
            report(definitions.line(" · ".join(filter(None, (share, message))), 200))

        try:
            async with limit:
                with self.asking.during(tool, limit, seconds) as unanswered:
                    # `call_tool` is not used, because it would apply the patterns in the server's schema to the answer.
                    answer = await client.session.send_request(
                        request, CallToolResult, progress_callback=told
                    )
        except TimeoutError:
            self._hung += 1
            if self._hung >= MOST_HUNG:
                self._ended(f"{self._hung} calls in a row were not answered in time")
            raise errors.ToolError(
                f"The MCP server {self.name} did not answer within {seconds:g} s; the call was given up and may have taken "
                "effect."
            ) from None
        except (ValidationError, RuntimeError, TypeError) as error:
            self.log.write("mcp", f"{self.name} gave no result", level="warn", cause=text.preview(str(error)))
            raise errors.ToolError(
                f"The MCP server {self.name} answered with something that is no result. It may have taken effect."
            ) from None
        except (MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            # The SDK raises `MCPError` also if an answer breaks off. A server could send the same error code, so test the connection.
            refused = isinstance(error, MCPError) and not (
                error.code == CONNECTION_CLOSED and error.message.startswith("SSE stream ")
            )
            if refused and await self._works(client):
                self._hung = 0
                said = definitions.line(str(error), 1_000)
                raise errors.ToolError(f"The MCP server {self.name} refused: {said}") from None
            raise errors.ToolError(
                f"The connection to the MCP server {self.name} was lost while it worked "
                f"({self._ending or 'its answer broke off'}); it may have taken effect. Look before you try again."
            ) from None
        return answer.model_dump(mode="json", by_alias=True), unanswered

    async def _works(self, client: Client) -> bool:
        """Return True if the connection works after a failed call. Over HTTP, list the tools to find out."""
        if not self._ending and self.settings.url is not None:
            look = asyncio.create_task(self._list(client))
            await asyncio.wait([look], timeout=LOOK_SECONDS)
            if not look.done() or look.cancelled() or look.exception() is not None:
                look.cancel()
                self._ended("it does not answer any more")
        return not self._ending


class McpServers(ToolCatalog):
    """The `tools.dispatch.ToolCatalog` of the MCP servers in ship.json."""

    def __init__(self, settings: Mcp, **environment: Any) -> None:
        """Create the enabled servers. `environment` are keyword arguments of `Server`."""
        self.servers = {
            name: Server(name, one, **environment)
            for name, one in sorted(settings.servers.items())
            if one.enabled
        }
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start connecting to all servers at the same time."""
        self._running = [
            asyncio.create_task(server.run(), name=f"mcp {name}") for name, server in self.servers.items()
        ]

    async def close(self) -> None:
        """Stop all servers. This method may be called twice, and before `start`."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running = []

    def get(self, name: str) -> Tool | None:
        return next((tool for one in self.servers.values() if (tool := one.tools.get(name))), None)

    def offers(self) -> Sequence[ToolOffer]:
        ready = [server for server in self.servers.values() if server.state == "ready"]
        return [tool.offer for server in ready for tool in server.tools.values()]

    def sources(self) -> Mapping[str, str]:
        states = {"down": "not running", "starting": "starting"}
        return {name: states.get(one.state, f"{len(one.tools)} tools") for name, one in self.servers.items()}
