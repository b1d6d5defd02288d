"""Base class of the fake servers: an aiohttp application on 127.0.0.1 that records calls and fails on command."""

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
    """A request to a server. `at` is the time by the server's clock (epoch seconds)."""

    method: str
    params: dict[str, Any]
    at: float
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Fault:
    """A failure of the next `times` requests to `method`.

    `respond` answers with `status` and `body`, and does not execute the request. `lose` executes the request and
    cuts the connection before the answer. `late` executes the request and answers after `seconds` of the server's
    clock. `cut` cuts the connection at once. `hang` never answers.

    Faults of downloads (method `file`): `short` sends half of the file and cuts the connection. `stall` sends half of the file,
    then nothing. `less` sends half of the file and claims that this half is the whole file. `endless` repeats the
    file forever.
    """

    method: str
    action: Literal["respond", "lose", "late", "cut", "hang", "short", "stall", "less", "endless"] = "respond"
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | bytes | dict[str, Any] = ""
    times: int = 1
    seconds: float = 0.0
    spared: int = 0
    """Number of matching requests that succeed before the first request fails."""

    @property
    def executes(self) -> bool:
        """True if the server executes the request despite the fault."""
        return self.action in {"lose", "late"}

    @property
    def sends(self) -> bool:
        """True if the server sends part of the file despite the fault."""
        return self.action in {"short", "stall", "less", "endless"}


@dataclass(frozen=True, slots=True)
class ChatCounts:
    """Numbers of messages that the bot posted, edited and deleted in one conversation. `visible` is the number of messages that
    people see now.
    """

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
        """Add the server's routes to the application."""

    async def __aenter__(self) -> Any:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen on `port`. Without `port`, the first start chooses a free port, and later starts use the same port again."""
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
        """Make the next request to `method` (`*`: any method) fail. `Fault` describes the kinds of failure."""
        self.faults.append(Fault(method=method, **how))

    def take_fault(self, method: str) -> Fault | None:
        """Return the fault for this request and count its use; None if the request succeeds."""
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
        """Record a request and wake all tasks that wait for a condition."""
        self.calls.append(Call(method, params, self.clock.now(), dict(headers or {})))
        await self.changed()

    async def changed(self) -> None:
        """Wake all tasks that wait for a condition."""
        await self._changes.tell()

    async def until(self, condition: Callable[[], bool], timeout: float = 90.0) -> None:  # noqa: ASYNC109
        """Wait until `condition()` holds. The condition is checked after every change of the server's state."""
        await self._changes.until(condition, timeout)

    def called(self, method: str) -> list[Call]:
        """Return the calls of one method, oldest first."""
        return [call for call in self.calls if call.method == method]

    @staticmethod
    async def broken(request: web.Request, fault: Fault) -> web.StreamResponse:
        """Answer a request that is not executed because of the fault."""
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
        """Return the answer to an executed request. A fault delays the answer or cuts the connection."""
        if fault is None:
            return answer
        if fault.action == "late":
            await self.clock.sleep(fault.seconds)
            return answer
        return self.drop(request)

    async def send_file(
        self, request: web.Request, data: bytes, mime: str, fault: Fault | None
    ) -> web.StreamResponse:
        """Send a file as the fault demands. `sent_bytes` counts the bytes that were written to the client."""
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
