"""The dashboard's address: `/healthz` and `/readyz`."""

from __future__ import annotations

import asyncio
import errno
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from bot import errors

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Part:
    """How one part of the gateway is. `detail` is for operators; `heard` is the age in seconds of its last sign. Without
    one that is not `needed` the gateway is ready all the same.
    """

    ok: bool
    detail: str = ""
    heard: float | None = None
    needed: bool = True


class Dashboard:
    """Serves the state of `parts`, asked afresh for each request. Loopback, or behind a token. `holder` gives the pid
    of whoever listens on a port already.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str | None,
        parts: Callable[[], Mapping[str, Part]],
        holder: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        self._host = host
        self._port = port
        self._token = token
        self._parts = parts
        self._holder = holder
        self._runner: web.AppRunner | None = None
        self.address = ""
        if not is_loopback(host) and not token:
            raise errors.ConfigError(
                f"dashboard.host: found {host}, which others can reach; expected a loopback address, or "
                "dashboard.token beside it; set one of them"
            )

    async def start(self) -> None:
        """Listen. Raises `errors.TryLater` where the port is taken."""
        app = web.Application(middlewares=[self._guarded], client_max_size=64 * 1024)
        app.router.add_get("/", _index)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError as error:
            await runner.cleanup()
            pid = (
                await asyncio.to_thread(self._holder, self._port) if error.errno == errno.EADDRINUSE else None
            )
            by = f" by process {pid}" if pid else ""
            raise errors.TryLater(
                f"dashboard.port: {self._port} on {self._host} cannot be used{by} ({error.strerror}); stop what "
                "holds it, set another port, or set dashboard.enabled to false"
            ) from error
        self._runner = runner
        port = runner.addresses[0][1]
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.address = f"http://{shown}:{port}"

    async def stop(self) -> None:
        """Stop listening. Safe to call twice and without `start`."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_loopback(self._host) and _host_of(request) not in _LOCAL_NAMES:
            # A page elsewhere may point a name of its own at this machine (DNS rebinding).
            return web.json_response({"error": "unknown host"}, status=403)
        if request.path != "/healthz" and not self._knows(request):
            return web.json_response({"error": "a token is needed"}, status=401)
        response = await handler(request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    def _knows(self, request: web.Request) -> bool:
        return not self._token or _carries(request, self._token)

    async def _healthz(self, request: web.Request) -> web.Response:
        """Alive is what can answer: 200 in any case, and what is in trouble by name. Why is for operators alone."""
        trouble = {name: part.detail for name, part in self._parts().items() if not part.ok}
        if not trouble:
            return web.json_response({"status": "ok"})
        shown = trouble if self._knows(request) else dict.fromkeys(trouble, "")
        return web.json_response({"status": "degraded", "trouble": shown})

    async def _readyz(self, _: web.Request) -> web.Response:
        parts = self._parts()
        ready = all(part.ok for part in parts.values() if part.needed)
        body = {
            "ready": ready,
            "parts": {
                name: {"ok": part.ok, "detail": part.detail, "heardSecondsAgo": part.heard}
                for name, part in parts.items()
            },
        }
        return web.json_response(body, status=200 if ready else 503)


async def _index(_: web.Request) -> web.Response:
    return web.Response(
        text="Shipmate\n\n/healthz  whether the process is alive, and what is in trouble\n/readyz   how each part of it is\n"
    )


def _host_of(request: web.Request) -> str:
    host = request.host
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _carries(request: web.Request, token: str) -> bool:
    given = request.headers.get("Authorization", "")
    return hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {token}".encode())


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
