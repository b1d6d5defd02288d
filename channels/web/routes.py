"""HTTP routes of the web channel: its page, its API, and the checks that every request passes first."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from string import Template
from typing import Any, TypeVar
from urllib.parse import quote

from aiohttp import web

from bot import errors, text
from bot.contracts.approvals import CHOICES as ANSWERS
from bot.contracts.archive import ArchiveLine
from bot.contracts.channel import FILE_PIECE, ChannelDeps, Intake
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Attachment
from bot.contracts.model import DEMO
from bot.words import CATALOGUES, DEFAULT, best_language, names, say, speaking
from channels.local import zone_of
from channels.web import state
from channels.web.chat_files import ChatFiles
from channels.web.guard import Guard, LoginThrottle, Visitor
from channels.web.live_chats import STREAMS, BrowserStream, LiveChats, WebMessage, event
from channels.web.markdown import nodes
from channels.web.settings import KEYS, NAME
from channels.web.uploads import LARGEST as LARGEST_FILE
from channels.web.uploads import MOST_FILES, Uploads

T = TypeVar("T")
LARGEST = 1_000_000
"""Bytes of one request."""
STALLED_SECONDS = 60.0
"""After which a browser that takes nothing of a file is given up."""
_EARLIER = 100
"""Lines of the archive that a page shows when it opens."""
_CLIENT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VISITOR = web.RequestKey("visitor", Visitor)
_SENTENCE = web.ResponseKey("sentence", str)
"""In an answer that says to a person what is wrong."""
_FOLDER = Path(__file__).parent / "page"
_KEY = re.compile(r"`([^`]+)`")
"""Keys and typed words in a sentence of the page."""
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
_JSON, _PIECE, _FILES = "application/json", "application/octet-stream", "/api/files/"
_KEYS = {404: "web.nothing", 405: "web.not_so", 413: "web.too_large"}
_PAGE = (
    '<!doctype html><html lang="{}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<title>Shipmate</title><link rel="stylesheet" href="/style.css"><body class="told"><main>{}</main></body></html>'
)


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a browser: its chat, its key and words, the language and the time zone of the browser, and its files."""

    chat: str
    key: str
    words: str
    language: str | None
    zone: str | None
    files: Sequence[Attachment] = ()


Take = Callable[[Said], Awaitable[bool]]
"""Hands a message to the gateway."""


class WebRoutes:
    def __init__(
        self,
        guard: Guard,
        rooms: LiveChats,
        *,
        sent_files: ChatFiles,
        uploads: Uploads,
        around: ChannelDeps,
        take: Take,
        most: int,
    ) -> None:
        self._guard, self._chats, self._around, self._take = guard, rooms, around, take
        self._sent_files, self._uploads = sent_files, uploads
        self._kept_files = (sent_files, uploads.received)
        self._most = most
        self._places = Counter[str]()
        self._throttle = LoginThrottle(around.clock)
        self._intake: Intake
        self._takes = True
        """True while messages are taken in."""
        self._files = {
            path.name: (path.read_bytes(), _TYPES[path.suffix])
            for path in sorted(_FOLDER.iterdir())
            if path.suffix in _TYPES
        }
        self._spoken = {code: self._in_language(code) for code in CATALOGUES}

    def _in_language(self, code: str) -> dict[str, tuple[bytes, str]]:
        """The files of the page that have words in them."""
        with speaking(code):
            words = {name: say(f"page.{name}") for name in names("page")}
            labels = {choice: say(f"buttons.{choice}") for choice in (*ANSWERS, "each", "afresh", "again")}
        page, kind = self._files["index.html"]
        marked = {name: _marked(said) for name, said in words.items()}
        html = Template(page.decode("utf-8")).substitute(marked, language=code)
        script = f"export const words = {json.dumps(words | labels)};\n"
        return {
            "index.html": (html.encode("utf-8"), kind),
            "words.js": (script.encode("ascii"), _TYPES[".js"]),
        }

    def refuse_messages(self) -> None:
        """No message is taken in from now on; open pages go on hearing."""
        self._takes = False

    def app(self, intake: Intake) -> web.Application:
        self._intake = intake
        app = web.Application(client_max_size=LARGEST, middlewares=[self._check])
        app.on_response_prepare.append(self._finish)
        app.router.add_get("/", self._file)
        app.router.add_get("/{name:[a-z]+[.][a-z]+}", self._file)
        # A HEAD, as previews of links ask, must not use up what works once.
        app.router.add_get("/open/{key}", self._open, allow_head=False)
        app.router.add_get("/move/{key}", self._move, allow_head=False)
        app.router.add_post("/login", self._login)
        app.router.add_get("/api/info", self._info)
        app.router.add_post("/api/messages", self._message)
        app.router.add_get("/api/events", self._events)
        app.router.add_get("/api/files/{id}", self._file_of_chat)
        app.router.add_post("/api/files", self._begin_file)
        app.router.add_post("/api/files/{id}", self._piece)
        app.router.add_delete("/api/files/{id}", self._remove_file)
        return app

    # -- every request ---------------------------------------------------------------------------------------

    @web.middleware
    async def _check(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        response = await self._answer(request, handler)
        if _navigates(request) and (sentence := response.get(_SENTENCE)):
            return self._told(request, response, sentence)
        return response

    @staticmethod
    def _told(request: web.Request, response: web.StreamResponse, sentence: str) -> web.Response:
        """The page with a sentence that says what is wrong, and the way to the chat where this browser may use it."""
        words = f"<p>{_marked(sentence)}</p>"
        visitor = request.get(_VISITOR)
        if visitor is not None and visitor.admitted and request.path != "/":
            with speaking(_language(request) or DEFAULT):
                words += f'<p><a href="/">{escape(say("web.open_chat"))}</a></p>'
        told = web.Response(text=_page(request, words), content_type="text/html", status=response.status)
        if "Retry-After" in response.headers:
            told.headers["Retry-After"] = response.headers["Retry-After"]
        return told

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not self._guard.knows_host(request):
            return _refusal(request, 403, "web.not_mine")
        request[_VISITOR] = await self._guard.visitor(request)
        for look in (self._refused, self._led):
            if (instead := look(request)) is not None:
                return instead
        try:
            response = await handler(request)
        except errors.StorageError as failure:
            return _unwritten(request, failure)
        except web.HTTPException as failure:
            return _refusal(request, failure.status, _KEYS.get(failure.status, "web.unreadable"))
        if not response.prepared:
            self._welcome(request, response)
        return response

    def _refused(self, request: web.Request) -> web.Response | None:
        api = request.path.startswith("/api/")
        if (api or request.method != "GET") and not self._guard.same_origin(request):
            return _error(403, "Requests of other sites are refused.")
        piece = request.path.startswith(_FILES)
        if request.method == "POST" and request.content_type != (_PIECE if piece else _JSON):
            return _error(415, f"Send {_PIECE if piece else _JSON}.")
        if request[_VISITOR].admitted or request.path.startswith("/open/"):
            return None
        if not self._guard.wants_token:
            return _refusal(request, 403, "web.not_yours")
        return _refusal(request, 401, "web.log_in_first") if api else None

    def _led(self, request: web.Request) -> web.Response | None:
        """A redirect to the better address, or to the same once more so that the cookie is kept; None where neither is
        needed.
        """
        visitor = request[_VISITOR]
        if request.method == "GET" and (better := self._guard.better(request, visitor)) is not None:
            return web.Response(status=303, headers={"Location": better})
        if visitor.fresh and request.path.startswith(("/open/", "/move/")) and _from_elsewhere(request):
            with speaking(_language(request) or DEFAULT):
                link = f'<p><a href="">{escape(say("web.go_on"))}</a></p>'
            return web.Response(text=_page(request, link), content_type="text/html", headers={"Refresh": "0"})
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
        name = request.match_info.get("name", "index.html")
        found = self._spoken[_language(request) or DEFAULT].get(name) or self._files.get(name)
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found[0], content_type=found[1], charset="utf-8")

    async def _open(self, request: web.Request) -> web.Response:
        """A link that works once makes this browser an operator's. Its key is gone from the address at once. A browser that has
        opened one gets to the chat by any.
        """
        if "Sec-Purpose" in request.headers:
            return _refusal(request, 503, "web.ahead")
        visitor, key = request[_VISITOR], request.match_info["key"]
        if not await asyncio.to_thread(state.redeem, self._around.home, key):
            if visitor.appointed:
                return self._welcomed(request, visitor)
            return _refusal(request, 410, "web.opened")
        try:
            await self._around.appoint(UserRef(NAME, visitor.user))
        except errors.StorageError:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(state.put_back, self._around.home, key)
            raise
        room = self._chats.room(visitor.user)
        room.tell(event("reload", {}))
        # They come again with the new cookie; whoever has the one of before does not.
        room.end()
        return self._welcomed(request, replace(visitor, appointed=True))

    async def _move(self, request: web.Request) -> web.Response:
        """A browser that was known under a name which others share has the same chat under the own one."""
        visitor = request[_VISITOR]
        key = request.match_info["key"]
        return self._welcomed(request, self._guard.moved(key, visitor) if visitor.fresh else visitor)

    def _welcomed(self, request: web.Request, visitor: Visitor) -> web.Response:
        response = web.Response(status=303, headers={"Location": "/"})
        self._guard.give_cookie(request, response, visitor)
        return response

    async def _login(self, request: web.Request) -> web.Response:
        if not self._guard.wants_token:
            raise web.HTTPNotFound
        token = (await _body(request)).get("token")
        address = request.remote or ""
        await self._throttle.turn(address, lambda: request.transport is not None)
        if not isinstance(token, str) or not self._guard.fits(token):
            self._throttle.failed(address)
            return _refusal(request, 401, "web.wrong_token")
        response = web.Response(status=204)
        self._guard.give_cookie(request, response, request[_VISITOR])
        return response

    # -- the API ---------------------------------------------------------------------------------------------

    async def _info(self, request: web.Request) -> web.Response:
        operator = UserRef(NAME, request[_VISITOR].user) in self._around.operators
        model = await self._model(KEYS.encode({"chat": request[_VISITOR].user}))
        return web.json_response({"name": self._around.name, "model": model, "operator": operator})

    async def _model(self, key: ChatKey) -> str:
        try:
            return await self._intake.model(key)
        except errors.StorageError:
            return ""

    async def _message(self, request: web.Request) -> web.Response:
        body = await _body(request)
        words, key = body.get("text"), body.get("clientId")
        names = body.get("files", [])
        if not isinstance(words, str) or not isinstance(key, str) or _CLIENT_ID.fullmatch(key) is None:
            return _error(400, "A message needs a text and a clientId of 1 to 64 letters, digits, _ and -.")
        if not _are_ids(names):
            return _refusal(request, 400, "web.unreadable")
        words = text.clean(words)
        if not words.strip() and not names:
            return _refusal(request, 400, "local.empty")
        if not self._takes:
            return _refusal(request, 503, "local.closing", {"Retry-After": "5"})
        zone = zone_of(body.get("zone"))
        return await self._said(
            request, Said(request[_VISITOR].user, key, words, _language(request), zone), names
        )

    async def _said(self, request: web.Request, said: Said, names: Sequence[str]) -> web.Response:
        """Take in a message with the files of these ids."""
        try:
            found = [await self._uploads.attachment(said.chat, name) for name in names]
            files = [one for one in found if one is not None]
            if len(files) < len(found):
                return _refusal(request, 410, "web.file_gone")
            taken = await self._take(replace(said, files=files))
        except OSError as failure:
            return _unwritten(request, _refused_by_disk(failure))
        except errors.StorageError as failure:
            return _unwritten(request, failure)
        return web.json_response({"id": said.key, "taken": taken}, status=202)

    async def _begin_file(self, request: web.Request) -> web.Response:
        """A file of the next message: its bytes come in pieces."""
        body = await _body(request)
        name, kind, size = body.get("name"), body.get("type", ""), body.get("size")
        if not (isinstance(name, str) and isinstance(kind, str) and type(size) is int and size >= 0):
            return _refusal(request, 400, "web.unreadable")
        if size > LARGEST_FILE:
            return _refusal(request, 413, "web.file_too_large", size=LARGEST_FILE // 1_000_000)
        if not self._takes:
            return _refusal(request, 503, "local.closing", {"Retry-After": "5"})
        try:
            id_ = await self._uploads.begin(request[_VISITOR].user, name, kind, size)
        except OSError as failure:
            return _unwritten(request, _refused_by_disk(failure))
        return web.json_response({"id": id_}, status=201)

    async def _piece(self, request: web.Request) -> web.Response:
        """The next bytes of a file, from `at` on."""
        id_, at, data = request.match_info["id"], request.query.get("at", ""), await request.read()
        chat = request[_VISITOR].user
        upload = self._uploads.under_way(chat, id_)
        if upload is None:
            return await self._whole(request, chat, id_)
        if at != str(upload.have) or upload.writing.locked():
            return web.json_response({"have": upload.have}, status=409)
        if upload.have + len(data) > upload.size:
            return _refusal(request, 400, "web.unreadable")
        try:
            whole = await self._uploads.add(id_, upload, data)
        except OSError as failure:
            return _unwritten(request, _refused_by_disk(failure))
        return web.json_response({"have": upload.have, "whole": whole})

    async def _whole(self, request: web.Request, chat: str, id_: str) -> web.Response:
        """The answer to a piece of a file that is not under way: it is whole where the answer to its last one was lost."""
        try:
            kept = await self._uploads.attachment(chat, id_)
        except OSError as failure:
            return _unwritten(request, _refused_by_disk(failure))
        if kept is None:
            return _refusal(request, 404, "web.file_gone")
        return web.json_response({"have": kept.size, "whole": True})

    async def _remove_file(self, request: web.Request) -> web.Response:
        """A file that its person has taken out of the message again."""
        try:
            await self._uploads.remove(request[_VISITOR].user, request.match_info["id"])
        except OSError as failure:
            return _unwritten(request, _refused_by_disk(failure))
        return web.Response(status=204)

    async def _file_of_chat(self, request: web.Request) -> web.StreamResponse:
        """A file that this browser's chat was sent, or was given. It is saved, never shown: what is in it is nobody's page. A piece is read once the
        browser has taken the one before.
        """
        key = KEYS.encode({"chat": request[_VISITOR].user})
        found = await asyncio.to_thread(
            lambda: next(
                (one for files in self._kept_files if (one := files.open(key, request.match_info["id"]))),
                None,
            )
        )
        if found is None:
            raise web.HTTPNotFound
        sent, file = found
        name = f"attachment; filename*=UTF-8''{quote(sent.name, safe='')}"
        response = web.StreamResponse(headers={"Content-Disposition": name})
        response.content_type, response.content_length = "application/octet-stream", sent.size
        self._welcome(request, response)
        try:
            await response.prepare(request)
            while request.method == "GET" and (piece := await asyncio.to_thread(file.read, FILE_PIECE)):
                async with asyncio.timeout(STALLED_SECONDS):
                    await response.write(piece)
        except ConnectionError:
            pass  # The browser went away.
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        finally:
            file.close()
        return response

    async def _events(self, request: web.Request) -> web.StreamResponse:
        chat: str = request[_VISITOR].user
        if self._places[chat] >= STREAMS or self._places.total() >= self._most:
            return _refusal(request, 503, "web.too_many", {"Retry-After": "30"})
        self._places[chat] += (
            1  # Before anything is awaited: a thousand that come at once share the places too.
        )
        try:
            return await self._stream(request, chat)
        finally:
            self._places[chat] -= 1
            if not self._places[chat]:
                del self._places[chat]

    async def _stream(self, request: web.Request, chat: str) -> web.StreamResponse:
        key = KEYS.encode({"chat": chat})
        earlier = await self._kept("its history", self._intake.recent(key, _EARLIER))
        waiting = await self._kept("what waits in it", self._intake.questions(key, UserRef(NAME, chat)))
        lines, questions = await asyncio.to_thread(
            lambda: (
                [self._line(line, n) for n, line in enumerate(earlier)],
                [nodes(one.text) for one in waiting],
            )
        )
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        self._welcome(request, response)
        await response.prepare(request)
        transport = request.transport
        stream = BrowserStream(transport.abort if transport is not None else lambda: None)
        room = self._chats.room(chat)
        for asked, formed in zip(waiting, questions, strict=True):
            self._chats.ask(chat, asked, formed)
        # From here to the loop nothing is awaited: no message falls between what is known and what comes.
        opening = self._chats.missed(chat, request.headers.get("Last-Event-ID", ""))
        if opening is None:
            opening = self._chats.history(_merge(lines, list(room.said)))
        stream.push(b"retry: 2000\n\n" + opening)
        stream.push(event("working", {"working": room.working}))
        room.streams.append(stream)
        model = ""
        try:
            while (chunk := await stream.next()) is not None:
                await response.write(chunk)
                # A command or a new configuration may have chosen another one.
                if (answers := await self._model(key)) != model:
                    model = answers
                    await response.write(event("model", {"model": model, "demo": model == DEMO}))
        except ConnectionError:
            pass  # The browser went away; it is told what it missed when it comes back.
        finally:
            room.streams.remove(stream)
        return response

    def _line(self, line: ArchiveLine, number: int) -> dict[str, Any]:
        """A line of the archive as browsers get it."""
        user = line.role == "user"
        told: dict[str, Any] = {
            "id": line.message_id or f"{line.ts}-{number}",
            "n": 0,
            "role": line.role,
            "kind": "message" if user else "reply",
            "text": line.text,
            "ts": line.ts,
        }
        if user:
            came = (line.meta or {}).get("attachments")
            shown = [
                self._uploads.shown(one.get("ref"), one.get("name"), one.get("size")).json()
                for one in (came if isinstance(came, list) else ())
                if isinstance(one, dict)
            ]
            return told | ({"files": shown} if shown else {})
        names = map(str, (line.meta or {}).get("messageIds", ()))
        files = [one.json() for name in names if (one := self._sent_files.find(line.chat_key, name))]
        return told | {"nodes": nodes(line.text)} | ({"files": files} if files else {})

    async def _kept(self, what: str, kept: Awaitable[list[T]]) -> list[T]:
        try:
            return await kept
        except errors.StorageError as failure:
            self._around.log.write(
                "channel", f"The page opens without {what}.", level="warn", cause=str(failure)
            )
            return []


def _merge(earlier: list[dict[str, Any]], said: list[WebMessage]) -> list[dict[str, Any]]:
    """Archive and room as one: the room knows everything since its first message, the archive what was before."""
    known = {message.id for message in said}
    since = next((message.ts for message in said if not message.restored), math.inf)
    before = [
        line
        for line in earlier
        if line["role"] in {"user", "assistant"} and line["ts"] < since and line["id"] not in known
    ]
    return before + [message.json() for message in said]


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


def _navigates(request: web.Request) -> bool:
    """True if the browser will show the answer as a page. Browsers tell so at addresses that they count as safe; elsewhere, and
    from older ones, it shows in that they ask for a page.
    """
    told = request.headers.get("Sec-Fetch-Dest")
    return told == "document" if told is not None else "text/html" in request.headers.get("Accept", "")


def _from_elsewhere(request: web.Request) -> bool:
    """True if a browser may have withheld its cookie, as it does after a link or redirect of another site. A cookie set
    now would replace its own; a page of ours that asks once more gets the real one.
    """
    headers = request.headers
    return headers.get("Sec-Fetch-Dest") == "document" and headers.get("Sec-Fetch-Site") != "same-origin"


def _language(request: web.Request) -> str | None:
    """The language that a browser likes best of those that have a catalogue; None where it names no language."""
    return best_language(request.headers.get("Accept-Language", ""))


def _marked(sentence: str) -> str:
    """A sentence as markup, with what is typed in it set apart."""
    return _KEY.sub(r"<kbd>\1</kbd>", escape(sentence))


def _page(request: web.Request, html: str) -> str:
    return _PAGE.format(_language(request) or DEFAULT, html)


def _refusal(
    request: web.Request, status: int, key: str, headers: dict[str, str] | None = None, **values: object
) -> web.Response:
    """An answer that says to a person what is wrong, by the key of a sentence."""
    with speaking(_language(request) or DEFAULT):
        return _error(status, say(key, **values), headers)


def _are_ids(names: object) -> bool:
    """True of what can be the files of a message."""
    return (
        isinstance(names, list)
        and len(names) <= MOST_FILES
        and all(isinstance(one, str) for one in names)
        and len(set(names)) == len(names)
    )


def _refused_by_disk(failure: OSError) -> errors.StorageError:
    return errors.StorageError(f"a file cannot be kept ({failure.strerror})")


def _unwritten(request: web.Request, failure: errors.StorageError) -> web.Response:
    with speaking(_language(request) or DEFAULT):
        return _error(503, failure.person, {"Retry-After": "5"})


def _error(status: int, sentence: str, headers: dict[str, str] | None = None) -> web.Response:
    response = web.json_response({"error": sentence}, status=status, headers=headers)
    response[_SENTENCE] = sentence
    return response
