"""Base of the loopback servers: an aiohttp application on 127.0.0.1 with recorded calls and faults on command."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from bot.contracts.environment import Clock
from bot.testing.changes import Changes


class _RealClock:
    def now(self) -> float:
        import time

        return time.time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def boottime(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a server: method name, parameters, time (server's clock)."""

    method: str
    params: dict[str, Any]
    at: float
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Fault:
    """A failure of the next matching request. `respond`: answer with status and body, do nothing. `lose`: do
    everything, cut before the answer. `late`: do everything, answer after `seconds` (server's clock).
    `cut`: cut at once. `hang`: never answer. For a `file`: `short` sends half and cuts, `stall` sends
    half and stops, `less` sends half as if complete, `endless` repeats it forever.
    """

    method: str
    action: Literal["respond", "lose", "late", "cut", "hang", "short", "stall", "less", "endless"] = "respond"
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | bytes | dict[str, Any] = ""
    times: int = 1
    seconds: float = 0.0
    spared: int = 0
    """Number of matching requests that succeed first."""

    @property
    def executes(self) -> bool:
        """True if the request is carried out anyway."""
        return self.action in {"lose", "late"}

    @property
    def sends(self) -> bool:
        """True if a file is started anyway."""
        return self.action in {"short", "stall", "less", "endless"}


@dataclass(frozen=True, slots=True)
class ChatCounts:
    """What the bot did in one conversation; `visible` is its number of visible messages."""

    posted: int = 0
    edited: int = 0
    deleted: int = 0
    visible: int = 0


class Loopback(abc.ABC):
    """A server on 127.0.0.1. Subclasses add routes in `routes` and call `self.record` for each request."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or _RealClock()
        self.calls: list[Call] = []
        self.port = 0
        self.sent_bytes = 0
        self.faults: list[Fault] = []
        self._changes = Changes()
        self._runner: web.AppRunner | None = None

    @abc.abstractmethod
    def routes(self, app: web.Application) -> None:
        """Add the server's routes."""

    async def __aenter__(self) -> Any:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen on `port`, or on a free one that later restarts reuse."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        self.routes(app)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port or self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections and stop listening. Idempotent."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def fail(self, method: str, **how: Any) -> None:
        """Let the next request to `method` (or `*`) fail; see `Fault` for the ways."""
        self.faults.append(Fault(method=method, **how))

    def take_fault(self, method: str) -> Fault | None:
        """Return the fault for this request and use it up."""
        for fault in self.faults:
            if fault.method in {method, "*"}:
                if fault.spared:
                    fault.spared -= 1
                    continue
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                return fault
        return None

    async def record(
        self, method: str, params: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        """Remember a request and wake those who wait for it."""
        self.calls.append(Call(method, params, self.clock.now(), dict(headers or {})))
        await self.changed()

    async def changed(self) -> None:
        """Wake everyone who waits for a condition."""
        await self._changes.tell()

    async def until(self, condition: Callable[[], bool], timeout: float = 90.0) -> None:  # noqa: ASYNC109
        """Wait until `condition()` holds; checked after every change of the server's state."""
        await self._changes.until(condition, timeout)

    def called(self, method: str) -> list[Call]:
        """The calls of one method, oldest first."""
        return [call for call in self.calls if call.method == method]

    @staticmethod
    async def broken(request: web.Request, fault: Fault) -> web.StreamResponse:
        """Carry out a fault that precedes the request."""
        if fault.action == "hang":
            await asyncio.Event().wait()
        if fault.action == "respond":
            body = fault.body
            if isinstance(body, dict):
                return web.json_response(body, status=fault.status, headers=fault.headers)
            data = body.encode() if isinstance(body, str) else body
            return web.Response(status=fault.status, headers=fault.headers, body=data)
        return Loopback.drop(request)

    async def answered(
        self, request: web.Request, fault: Fault | None, answer: web.StreamResponse
    ) -> web.StreamResponse:
        """Return the answer of a request that was carried out, as changed by a fault."""
        if fault is None:
            return answer
        if fault.action == "late":
            await self.clock.sleep(fault.seconds)
            return answer
        return self.drop(request)

    async def send_file(
        self, request: web.Request, data: bytes, mime: str, fault: Fault | None
    ) -> web.StreamResponse:
        """Send a file, as changed by a fault. `sent_bytes` counts bytes taken by the client."""
        action = fault.action if fault is not None else ""
        half = data[: len(data) // 2]
        if action in {"", "less"}:
            data = half if action else data
            self.sent_bytes += len(data)
            return web.Response(body=data, content_type=mime)
        answer = web.StreamResponse(headers={"Content-Type": mime})
        if action != "endless":
            answer.content_length = len(data)
        await answer.prepare(request)
        try:
            await self._send(answer, half)
            while action == "endless":
                await self._send(answer, data)
            if action == "stall":
                await asyncio.Event().wait()
        except ConnectionError:
            return answer
        return self.drop(request)

    async def _send(self, answer: web.StreamResponse, data: bytes) -> None:
        await answer.write(data)
        self.sent_bytes += len(data)
        await self.changed()

    @staticmethod
    def drop(request: web.Request) -> web.StreamResponse:
        """Cut the connection without an answer."""
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
