"""The HTTP side of the web channel: its page, its API, and what every request must pass first."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from bot import errors, text
from bot.contracts import ArchiveLine, Intake, Surroundings
from channels.web.guard import Guard, Tries, Visitor
from channels.web.rooms import STREAMS, Rooms, Stream, event
from channels.web.settings import KEYS

LARGEST = 1_000_000
"""Bytes of one request."""
_EARLIER = 100
"""Lines of the archive that a page shows when it opens."""
_ALL_STREAMS = 1000
_CLIENT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VISITOR = web.RequestKey("visitor", Visitor)
_FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Server": "Shipmate",
}
_SENTENCES = {
    404: "There is nothing here.",
    405: "That cannot be done here.",
    413: "That message is too large: the most is 1 MB.",
}

Take = Callable[[str, str, str], Awaitable[bool]]
"""Hands chat, key and text of a message to the gateway."""


class Pages:
    def __init__(self, guard: Guard, rooms: Rooms, around: Surroundings, take: Take) -> None:
        self._guard, self._rooms, self._around, self._take = guard, rooms, around, take
        self._tries = Tries(around.clock)
        self._intake: Intake
        self.open = True
        """Whether messages are taken in."""
        self._files = {
            path.name: (path.read_bytes(), _TYPES[path.suffix])
            for path in sorted(_FOLDER.iterdir())
            if path.suffix in _TYPES
        }

    def app(self, intake: Intake) -> web.Application:
        self._intake = intake
        app = web.Application(client_max_size=LARGEST, middlewares=[self._check])
        app.on_response_prepare.append(self._finish)
        app.router.add_get("/", self._file)
        app.router.add_get("/{name:[a-z]+[.][a-z]+}", self._file)
        app.router.add_post("/login", self._login)
        app.router.add_get("/api/info", self._info)
        app.router.add_post("/api/messages", self._message)
        app.router.add_get("/api/events", self._events)
        return app

    # -- every request ---------------------------------------------------------------------------------------

    @web.middleware
    async def _check(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        request[_VISITOR] = self._guard.visitor(request)
        refused = self._refused(request)
        if refused is not None:
            return refused
        try:
            response = await handler(request)
        except web.HTTPException as failure:
            return _error(failure.status, _SENTENCES.get(failure.status, "That request cannot be read."))
        if not response.prepared:
            self._welcome(request, response)
        return response

    def _refused(self, request: web.Request) -> web.Response | None:
        if not self._guard.knows_host(request):
            return _error(403, "This address is not one of mine.")
        api = request.path.startswith("/api/")
        if (api or request.method != "GET") and not self._guard.same_origin(request):
            return _error(403, "Requests of other sites are refused.")
        if request.method == "POST" and request.content_type != "application/json":
            return _error(415, "Send JSON, as application/json.")
        if api and not request[_VISITOR].admitted:
            return _error(401, "Log in first.")
        return None

    def _welcome(self, request: web.Request, response: web.StreamResponse) -> None:
        """Give a browser its cookie. Not with the page itself: a browser that follows a link of another site
        to it keeps its cookie back, and would get a new one in place of its own.
        """
        visitor = request[_VISITOR]
        if request.path.startswith("/api/") and visitor.fresh and visitor.admitted:
            self._guard.give_cookie(request, response, visitor)

    @staticmethod
    async def _finish(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)

    # -- the page --------------------------------------------------------------------------------------------

    async def _file(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info.get("name", "index.html"))
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found[0], content_type=found[1], charset="utf-8")

    async def _login(self, request: web.Request) -> web.Response:
        if not self._guard.wants_token:
            raise web.HTTPNotFound
        address = request.remote or ""
        if (wait := self._tries.wait(address)) > 0:
            headers = {"Retry-After": str(math.ceil(wait))}
            return _error(429, "Too many tries. Wait a minute.", headers)
        token = (await _body(request)).get("token")
        if not isinstance(token, str) or not self._guard.fits(token):
            self._tries.failed(address)
            return _error(401, "That is not the token.")
        response = web.Response(status=204)
        self._guard.give_cookie(request, response, request[_VISITOR])
        return response

    # -- the API ---------------------------------------------------------------------------------------------

    async def _info(self, _: web.Request) -> web.Response:
        return web.json_response({"name": self._around.name, "model": self._around.model})

    async def _message(self, request: web.Request) -> web.Response:
        body = await _body(request)
        words, key = body.get("text"), body.get("clientId")
        if not isinstance(words, str) or not isinstance(key, str) or _CLIENT_ID.fullmatch(key) is None:
            return _error(400, "A message needs a text and a clientId of 1 to 64 letters, digits, _ and -.")
        words = text.clean(words)
        if not words.strip():
            return _error(400, "The message is empty.")
        if not self.open:
            return _error(503, "Shipmate is shutting down and takes no new messages.", {"Retry-After": "5"})
        try:
            taken = await self._take(request[_VISITOR].user, key, words)
        except errors.StorageError as failure:
            return _error(503, failure.person, {"Retry-After": "5"})
        return web.json_response({"id": key, "taken": taken}, status=202)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        chat: str = request[_VISITOR].user
        if len(self._rooms.room(chat).streams) >= STREAMS or len(self._rooms.everyone()) >= _ALL_STREAMS:
            return _error(503, "Too many pages are open.", {"Retry-After": "30"})
        earlier = await self._earlier(chat)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        self._welcome(request, response)
        await response.prepare(request)
        transport = request.transport
        stream = Stream(transport.abort if transport is not None else lambda: None)
        room = self._rooms.room(chat)
        # From here to the loop nothing is awaited: no message falls between what is known and what comes.
        opening = self._rooms.missed(chat, request.headers.get("Last-Event-ID", ""))
        if opening is None:
            opening = self._rooms.history(_merge(earlier, [said.json() for said in room.said]))
        stream.push(b"retry: 2000\n\n" + opening)
        stream.push(event("working", {"working": room.working}))
        room.streams.append(stream)
        try:
            while (chunk := await stream.next()) is not None:
                await response.write(chunk)
        except ConnectionError:
            pass  # The browser went away; it is told what it missed when it comes back.
        finally:
            room.streams.remove(stream)
        return response

    async def _earlier(self, chat: str) -> list[ArchiveLine]:
        try:
            return await self._intake.recent(KEYS.encode({"chat": chat}), _EARLIER)
        except errors.StorageError as failure:
            self._around.log.write(
                "error", "The page opens without its history.", level="warn", cause=str(failure)
            )
            return []


def _merge(earlier: list[ArchiveLine], said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Archive and room as one: the room knows everything since its first message, the archive what was before."""
    known = {message["id"] for message in said}
    since = said[0]["ts"] if said else math.inf
    before = [
        {
            "id": line.message_id or f"{line.ts}-{number}",
            "n": 0,
            "role": line.role,
            "kind": "message" if line.role == "user" else "reply",
            "text": line.text,
            "ts": line.ts,
        }
        for number, line in enumerate(earlier)
        if line.role in {"user", "assistant"} and line.ts < since and line.message_id not in known
    ]
    return before + said


async def _body(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request; raises HTTPBadRequest where it is none."""
    raw = await request.read()
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest
    return body


def _error(status: int, sentence: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": sentence}, status=status, headers=headers)
