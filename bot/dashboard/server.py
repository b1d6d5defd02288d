"""The dashboard's HTTP server. It serves the console, `/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus

from aiohttp import web

from bot import http_server
from bot.config import ship_file as config
from bot.contracts.channel import PROXY_HEADERS, HttpServer, is_loopback
from bot.contracts.environment import Clock
from bot.dashboard.console import Console, PartHealth
from bot.dashboard.metrics import Metrics

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_KNOWN = web.RequestKey("known", bool)
_STATUS = ("/healthz", "/readyz")
"""Paths that show the status to everybody, and details to authenticated callers."""
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(eq=False)
class Dashboard:
    """Serves the console, `/healthz`, `/readyz` and `/metrics`.

    Only authenticated callers see the console, the metrics and the details of `parts`. If a token is set, a caller
    must send the token; a browser asks for the token as a password. Without a token, only the user who started
    Shipmate is authenticated. Other callers see only whether the process is alive and ready.
    """

    settings: config.Dashboard
    parts: Callable[[], Mapping[str, PartHealth]]
    metrics: Metrics
    console: Console | None
    _: KW_ONLY
    clock: Clock
    server: HttpServer
    _watching: asyncio.Task[None] | None = None
    address: str = ""

    async def start(self) -> None:
        """Start to listen. Raises `errors.Unavailable` if the port is taken."""
        app = web.Application(middlewares=[self._guarded], client_max_size=64 * 1024)
        if self.console is not None:
            self.console.add_to(app)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._scraped)
        where = self.settings
        nearby = "port" not in where.model_fields_set
        port = await self.server.start(app, where.host, where.port, key="dashboard", grace=0.5, nearby=nearby)
        shown = f"[{where.host}]" if ":" in where.host else where.host
        self.address = f"http://{shown}:{port}"
        self._watching = asyncio.create_task(self.metrics.watch_loop(self.clock), name="loop lag")

    async def stop(self) -> None:
        """Stop listening. Can be called twice, and without `start`."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self.server.stop()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_loopback(self.settings.host) and request.url.host not in _LOCAL_NAMES:
            # A foreign host name may resolve to this machine (DNS rebinding), so unknown names are refused.
            return _refusal(403, "unknown host")
        if not _same_site(request):
            return _refusal(403, "asked for by another site's page")
        request[_KNOWN] = await self._knows(request)
        if request.path not in _STATUS and not request[_KNOWN]:
            if not self.settings.token:
                words = "this is for the user who started Shipmate; others need a token: set dashboard.token, and send it"
                return _refusal(401, words)
            ask = {"WWW-Authenticate": 'Basic realm="Shipmate", charset="UTF-8"'}
            return _refusal(401, "a token is needed: give it as the password", ask)
        try:
            response = await handler(request)
        except web.HTTPError as failure:
            words = "there is no such page" if failure.status == HTTPStatus.NOT_FOUND else failure.reason
            response = _refusal(failure.status, words)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    async def _knows(self, request: web.Request) -> bool:
        if self.settings.token:
            return _carries(request, self.settings.token)
        ends = [request.get_extra_info(end) for end in ("sockname", "peername")]
        if not all(ends) or any(name in request.headers for name in PROXY_HEADERS):
            return False
        return await asyncio.to_thread(http_server.user_of, *(end[:2] for end in ends)) == os.getuid()

    async def _healthz(self, request: web.Request) -> web.Response:
        """Return status 200 and the names of failing parts. Only operators see details."""
        trouble = {name: part.detail for name, part in self.parts().items() if not part.ok}
        if not trouble:
            return web.json_response({"status": "ok"})
        shown = trouble if request[_KNOWN] else dict.fromkeys(trouble, "")
        return web.json_response({"status": "degraded", "trouble": shown})

    async def _readyz(self, request: web.Request) -> web.Response:
        parts = self.parts()
        ready = all(part.ok for part in parts.values() if part.needed)
        body: dict[str, object] = {"ready": ready}
        if request[_KNOWN]:
            body["parts"] = {
                name: {"ok": part.ok, "detail": part.detail, "heardSecondsAgo": part.heard}
                for name, part in parts.items()
            }
        return web.json_response(body, status=200 if ready else 503)

    async def _scraped(self, request: web.Request) -> web.Response:
        page, content_type = self.metrics.render(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type})


def _refusal(status: int, words: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(text=f"{words[:1].upper()}{words[1:]}.\n", status=status, headers=headers)


def _same_site(request: web.Request) -> bool:
    """Return False if a page of another site made the request. A person may follow a link from another site, but a request that
    changes something must come from a page of this server.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if request.method in {"GET", "HEAD"}:
        allowed = {None, "none", "same-origin"}
        return site in allowed or request.headers.get("Sec-Fetch-Dest") == "document"
    # Behind a proxy that ends TLS, the browser uses https.
    own = {f"http://{request.host}", f"https://{request.host}"}
    return site in {None, "same-origin"} and request.headers.get("Origin") in own


def _carries(request: web.Request, token: str) -> bool:
    """Return True if the request has the token, as a bearer token or as a password with any user name."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme not in {"Bearer", "Basic"}:
        return False
    if scheme == "Basic":
        with contextlib.suppress(ValueError):
            given = base64.b64decode(given, validate=True).decode("utf-8", "replace").partition(":")[2]
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
