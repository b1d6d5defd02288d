"""HTTP routes of the web channel: the page, the API, and the checks that every request must pass first."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from string import Template
from typing import Any, TypeVar
from urllib.parse import quote

from aiohttp import web

from bot import errors, text
from bot.contracts.approvals import CHOICES as ANSWERS
from bot.contracts.approvals import EXAMPLES, ShownQuestion
from bot.contracts.archive import ArchiveLine
from bot.contracts.channel import FILE_PIECE, ChannelDeps, Intake
from bot.contracts.conversations import Conversation
from bot.contracts.identity import THREAD, ChatKey, UserRef
from bot.contracts.inbound import Attachment
from bot.contracts.model import DEMO, AnsweringModel
from bot.contracts.waiting import OpenLoop
from bot.words import CATALOGUES, DEFAULT, best_language, names, say, speaking
from channels.local import CHAT_ID, command
from channels.web import presses, state
from channels.web.chat_files import PDF, ChatFile, ChatFiles
from channels.web.guard import Guard, LoginThrottle, Visitor
from channels.web.live_chats import STREAMS, BrowserStream, LiveChats, WebMessage, event
from channels.web.markdown import nodes
from channels.web.presses import CLIENT_ID
from channels.web.settings import FIRST, KEYS, NAME
from channels.web.uploads import LARGEST as LARGEST_FILE
from channels.web.uploads import MOST_FILES, Uploads

T = TypeVar("T")
LARGEST = 1_000_000
"""Max bytes of a request."""
STALLED_SECONDS = 60.0
"""Timeout in seconds for a browser to read the next piece of a file."""
_EARLIER = 100
"""Max archive lines that a page shows when it opens."""
_LISTED = 50
"""Max conversations of a response."""
_VISITOR = web.RequestKey("visitor", Visitor)
_SENTENCE = web.ResponseKey("sentence", str)
"""Key of an error response that holds the sentence for the person."""
_FOLDER = Path(__file__).parent / "page"
_KEY = re.compile(r"`([^`]+)`")
"""Keys and typed words in a sentence of the page."""
_BELOW = ("afresh", "again", "renew", "good", "good_label", "bad", "bad_label")
"""Further words on buttons."""
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_CSP = "Content-Security-Policy"
_HEADERS = {
    _CSP: "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
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
_OF_FILE = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
_SEALED, _OF_PDF = _OF_FILE + "sandbox", _OF_FILE + "object-src 'self'; style-src 'unsafe-inline'"
"""Policies of a file that is opened alone. Browsers embed their own viewer in the page of a PDF."""
_JSON, _PIECE, _FILES = "application/json", "application/octet-stream", "/api/files/"
_KEYS = {404: "web.nothing", 405: "web.not_so", 413: "web.too_large"}
_PAGE = (
    '<!doctype html><html lang="{}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<title>Shipmate</title><link rel="stylesheet" href="/style.css"><body class="told"><main>{}</main></body></html>'
)


class WebRoutes:
    def __init__(
        self,
        guard: Guard,
        chats: LiveChats,
        *,
        sent_files: ChatFiles,
        uploads: Uploads,
        around: ChannelDeps,
        intake: Intake,
        most: int,
    ) -> None:
        self._guard, self._chats, self._around, self._intake = guard, chats, around, intake
        self._sent_files, self._uploads = sent_files, uploads
        self._most = most
        """Max open event streams of all chats."""
        self._streams = Counter[str]()
        """Number of open event streams by person."""
        self._throttle = LoginThrottle(around.clock)
        self._paused = False
        self._files = {
            path.name: (path.read_bytes(), _TYPES[path.suffix])
            for path in sorted(_FOLDER.iterdir())
            if path.suffix in _TYPES
        }
        self._spoken = {code: self._in_language(code) for code in CATALOGUES}

    def _in_language(self, code: str) -> dict[str, tuple[bytes, str]]:
        """Return the files of the page that contain words, in one language."""
        with speaking(code):
            words = {name: say(f"page.{name}") for name in names("page")}
            labels = {choice: say(f"buttons.{choice}") for choice in (*ANSWERS, "each", *_BELOW)}
            starters = [say(f"start.{example}") for example in EXAMPLES]
        page, kind = self._files["index.html"]
        marked = {name: _marked(said) for name, said in words.items()}
        html = Template(page.decode("utf-8")).substitute(marked, language=code)
        script = f"export const words = {json.dumps(words | labels | {'starters': starters})};\n"
        return {
            "index.html": (html.encode("utf-8"), kind),
            "words.js": (script.encode("ascii"), _TYPES[".js"]),
        }

    def pause(self) -> None:
        """Refuse messages and files. Open pages still receive answers."""
        self._paused = True

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST, middlewares=[self._check])
        app.on_response_prepare.append(self._finish)
        app.router.add_get("/", self._file)
        app.router.add_get("/{name:[a-z]+[.][a-z]+}", self._file)
        # A HEAD request, such as one for a link preview, must not use up the link.
        app.router.add_get("/open/{key}", self._open, allow_head=False)
        app.router.add_post("/login", self._login)
        app.router.add_get("/api/info", self._info)
        app.router.add_post("/api/messages", self._message)
        app.router.add_post("/api/messages/{id}", self._edit)
        app.router.add_post("/api/presses", self._press)
        app.router.add_get("/api/events", self._events)
        app.router.add_get("/api/files/{id}", self._file_of_chat)
        app.router.add_get("/api/conversations", self._list)
        app.router.add_get("/api/waiting", self._waiting)
        app.router.add_post("/api/conversations/{id}", self._rename)
        app.router.add_post("/api/files", self._begin_file)
        app.router.add_post("/api/files/{id}", self._add_piece)
        app.router.add_delete("/api/files/{id}", self._remove_file)
        return app

    # -- every request ---------------------------------------------------------------------------------------

    @web.middleware
    async def _check(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        response = await self._answer(request, handler)
        if _navigates(request) and (sentence := response.get(_SENTENCE)):
            return self._error_page(request, response, sentence)
        return response

    @staticmethod
    def _error_page(request: web.Request, response: web.StreamResponse, sentence: str) -> web.Response:
        """Return an error page for a person: the sentence, and a link to the chat if this browser may use the chat."""
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
        instead = self._refused(request) or self._redirected(request)
        if instead is not None:
            return instead
        try:
            response = await handler(request)
        except errors.StorageError as failure:
            response = _unwritten(request, failure)
        except OSError as failure:
            response = _unwritten(request, errors.StorageError(f"a file cannot be kept ({failure.strerror})"))
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

    def _redirected(self, request: web.Request) -> web.Response | None:
        """Return a redirect to this server's own host name, or to the same address so that the browser sends
        its cookie. Return None if no redirect is needed.
        """
        visitor = request[_VISITOR]
        if request.method == "GET" and (better := self._guard.better(request, visitor)) is not None:
            return web.Response(status=303, headers={"Location": better})
        if visitor.fresh and request.path.startswith("/open/") and _from_elsewhere(request):
            with speaking(_language(request) or DEFAULT):
                link = f'<p><a href="">{escape(say("web.go_on"))}</a></p>'
            return web.Response(text=_page(request, link), content_type="text/html", headers={"Refresh": "0"})
        return None

    def _welcome(self, request: web.Request, response: web.StreamResponse) -> None:
        """Give a browser its cookie, but not in the response with the page itself. A browser that follows a
        link of another site to the page withholds its cookie, and a new cookie would replace the old one.
        """
        visitor = request[_VISITOR]
        if request.path.startswith("/api/") and visitor.fresh and visitor.admitted:
            self._guard.give_cookie(request, response, visitor)

    @staticmethod
    async def _finish(_: web.Request, response: web.StreamResponse) -> None:
        own = {_CSP: response.headers[_CSP]} if _CSP in response.headers else {}
        response.headers.update(_HEADERS | own)

    # -- the page --------------------------------------------------------------------------------------------

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "index.html")
        found = self._spoken[_language(request) or DEFAULT].get(name) or self._files.get(name)
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found[0], content_type=found[1], charset="utf-8")

    async def _open(self, request: web.Request) -> web.Response:
        """Open a one-time link, which makes the browser an operator's browser. The redirect removes the key
        from the address. If the link was used before, an operator's browser is still sent to the chat.
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
        person = KEYS.encode({"chat": visitor.user})
        self._chats.tell(person, event("reload", {}))
        self._chats.tell(person, None)  # the open streams were authorised by the former cookie
        return self._welcomed(request, replace(visitor, appointed=True))

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
        model = await self._model(_conversation(request, request.query.get("conversation")))
        return web.json_response({"name": self._around.name, "model": model.name, "operator": operator})

    async def _model(self, key: ChatKey) -> AnsweringModel:
        try:
            return await self._intake.model(key, UserRef(NAME, key.chat_id))
        except errors.StorageError:
            return AnsweringModel()

    async def _message(self, request: web.Request) -> web.Response:
        body = await _body(request)
        words, key = body.get("text"), body.get("clientId")
        names = body.get("files", [])
        if not isinstance(words, str) or not isinstance(key, str) or CLIENT_ID.fullmatch(key) is None:
            return _error(400, "A message needs a text and a clientId of 1 to 64 letters, digits, _ and -.")
        if not _are_ids(names):
            return _refusal(request, 400, "web.unreadable")
        words = text.clean(words)
        if not words.strip() and not names:
            return _refusal(request, 400, "local.empty")
        if self._paused:
            return _refusal(request, 503, "local.closing", {"Retry-After": "5"})
        chat, conversation = request[_VISITOR].user, _conversation(request, body.get("conversation"))
        found = [await self._uploads.attachment(chat, name) for name in names]
        files = tuple(one for one in found if one is not None)
        if len(files) < len(found):
            return _refusal(request, 410, "web.file_gone")
        shown = await asyncio.to_thread(self._shown, files)
        # The message gets its number first: the answer to a command may be sent before `accept` returns, and must be below it.
        number = self._chats.number()
        inbound = KEYS.inbound(
            conversation,
            key,
            words,
            user=chat,
            now=self._around.clock.now(),
            language=_language(request),
            zone=body.get("zone"),
            files=files,
        )
        taken = await self._intake.accept(inbound)
        if taken:
            message = WebMessage(number, key, "user", "message", words, inbound.ts, files=shown)
            self._chats.say(conversation, message)
        return web.json_response({"id": key, "taken": taken}, status=202)

    def _shown(self, files: Sequence[Attachment]) -> list[ChatFile]:
        return [self._uploads.shown(one.ref, one.name, one.size) for one in files]

    # -- conversations ---------------------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        """Return a page of the person's conversations, the last spoken in first, after the conversation `before`."""
        before = request.query.get("before")
        found = await self._intake.conversations(
            _conversation(request, None),
            query=request.query.get("q", ""),
            after=None if before is None else _conversation(request, before),
            limit=_LISTED + 1,
        )
        listed = [self._entry(one) for one in found[:_LISTED]]
        return web.json_response({"conversations": listed, "more": len(found) > _LISTED})

    async def _waiting(self, request: web.Request) -> web.Response:
        """Return the board of what waits, as the person sees it."""
        loops = await self._intake.board(UserRef(NAME, request[_VISITOR].user))
        with speaking(_language(request) or DEFAULT):
            return web.json_response({"loops": [_loop(one, request[_VISITOR].user) for one in loops]})

    async def _rename(self, request: web.Request) -> web.Response:
        """Name a conversation. An empty title restores the first words."""
        chat, title = _conversation(request, request.match_info["id"]), (await _body(request)).get("title")
        if not isinstance(title, str):
            raise web.HTTPBadRequest
        if await self._intake.conversation(chat) is None:
            raise web.HTTPNotFound
        await self._intake.rename(chat, title, UserRef(NAME, chat.chat_id))
        renamed = await self._intake.conversation(chat)
        if renamed is None:
            raise web.HTTPNotFound
        self._chats.tell(chat.chat, event("conversation", self._entry(renamed)))
        return web.json_response(self._entry(renamed))

    def _entry(self, one: Conversation) -> dict[str, Any]:
        """Return an entry of the list of conversations as a browser receives it."""
        live = self._chats.chats.get(one.chat_key)
        return {
            "id": one.chat_key.thread or FIRST,
            "title": one.title,
            "ts": int(one.at * 1000),
            "working": live is not None and live.working,
        }

    # -- what a person does with a message -------------------------------------------------------------------

    async def _press(self, request: web.Request) -> web.Response:
        """Take in the press of a button. The page shows the outcome where the button is."""
        body = await _body(request)
        chat = _conversation(request, body.get("conversation"))
        press = presses.read(body, chat, now=self._around.clock.now(), language=_language(request))
        if press is None:
            return _refusal(request, 400, "web.unreadable")
        if self._paused:
            return _refusal(request, 503, "local.closing", {"Retry-After": "5"})
        taken = await self._intake.accept(press)
        if taken and press.rating is not None:
            self._chats.rate(chat, press.answers or "", press.rating)
        return web.json_response({"taken": taken}, status=202)

    async def _edit(self, request: web.Request) -> web.Response:
        """Replace the words of the person's last message, so that it is answered again."""
        body, id_ = await _body(request), request.match_info["id"]
        words, key = body.get("text"), body.get("clientId")
        if not isinstance(words, str) or not isinstance(key, str) or CLIENT_ID.fullmatch(key) is None:
            return _refusal(request, 400, "web.unreadable")
        words, chat = text.clean(words), _conversation(request, body.get("conversation"))
        if self._paused:
            return _refusal(request, 503, "local.closing", {"Retry-After": "5"})
        last = await self._last_said(chat)
        if last.get("id") != id_ or command(str(last["text"])) is not None:
            return _refusal(request, 409, "web.not_last")
        if not words.strip() and not last.get("files"):
            return _refusal(request, 400, "local.empty")
        if await self._intake.acts(chat):
            return _refusal(request, 409, "web.acting")
        found = [
            await self._uploads.attachment(chat.chat_id, one["id"])
            for one in last.get("files", ())
            if one["id"]
        ]
        files = tuple(one for one in found if one is not None)
        edit = presses.edited(
            id_,
            key,
            words,
            chat,
            files=files,
            now=self._around.clock.now(),
            language=_language(request),
            zone=body.get("zone"),
        )
        taken = await self._intake.accept(edit)
        if taken:
            shown = await asyncio.to_thread(self._shown, files)
            number = self._chats.number()
            said = WebMessage(number, id_, "user", "message", words, edit.ts, files=shown)
            self._chats.change(chat, said)
        return web.json_response({"taken": taken}, status=202)

    async def _last_said(self, chat: ChatKey) -> dict[str, Any]:
        """Return the last message of the person as a browser receives it; {} if there is none."""
        earlier = [line for line in await self._intake.recent(chat, _EARLIER) if line.role == "user"]
        lines = await asyncio.to_thread(lambda: [self._line(line, n) for n, line in enumerate(earlier)])
        said = [one for one in self._chats.chat(chat).said if one.role == "user"]
        return next(reversed(_merge(lines, said)), {})

    # -- files -----------------------------------------------------------------------------------------------

    async def _begin_file(self, request: web.Request) -> web.Response:
        """Begin a file of the next message. The bytes follow in pieces."""
        body = await _body(request)
        name, kind, size = body.get("name"), body.get("type", ""), body.get("size")
        if not (isinstance(name, str) and isinstance(kind, str) and type(size) is int and size >= 0):
            return _refusal(request, 400, "web.unreadable")
        if size > LARGEST_FILE:
            return _refusal(request, 413, "web.file_too_large", size=LARGEST_FILE // 1_000_000)
        if self._paused:
            return _refusal(request, 503, "local.closing", {"Retry-After": "5"})
        id_ = await self._uploads.begin(request[_VISITOR].user, name, kind, size)
        return web.json_response({"id": id_}, status=201)

    async def _add_piece(self, request: web.Request) -> web.Response:
        """Append the bytes of a file that begin at offset `at`."""
        id_, at, data = request.match_info["id"], request.query.get("at", ""), await request.read()
        chat = request[_VISITOR].user
        upload = self._uploads.under_way(chat, id_)
        if upload is None:
            # If the response to the last piece was lost, the file may be complete already.
            kept = await self._uploads.attachment(chat, id_)
            if kept is None:
                return _refusal(request, 404, "web.file_gone")
            return await self._whole(kept)
        if at != str(upload.have) or upload.writing.locked():
            return web.json_response({"have": upload.have}, status=409)
        if upload.have + len(data) > upload.size:
            return _refusal(request, 400, "web.unreadable")
        whole = await self._uploads.add(id_, upload, data)
        kept = await self._uploads.attachment(chat, id_) if whole else None
        if kept is None:
            return web.json_response({"have": upload.have, "whole": whole})
        return await self._whole(kept)

    async def _whole(self, kept: Attachment) -> web.Response:
        """Tell a browser of a complete file, as the page shows it."""
        (shown,) = await asyncio.to_thread(self._shown, [kept])
        return web.json_response({"have": kept.size, "whole": True, "file": shown.json()})

    async def _remove_file(self, request: web.Request) -> web.Response:
        """Remove a file that the person has removed from the message."""
        await self._uploads.remove(request[_VISITOR].user, request.match_info["id"])
        return web.Response(status=204)

    async def _file_of_chat(self, request: web.Request) -> web.StreamResponse:
        """Return a file that was sent to, or uploaded in, any conversation of this browser. The browser may display
        pictures and PDFs. It must download any other file and never display it, since the content is untrusted.
        """
        key, name = KEYS.encode({"chat": request[_VISITOR].user}), request.match_info["id"]
        found = await asyncio.to_thread(
            lambda: self._sent_files.open(key, name) or self._uploads.received.open(key, name)
        )
        if found is None:
            raise web.HTTPNotFound
        sent, _, file = found
        how = "inline" if sent.type else "attachment"
        disposition = f"{how}; filename*=UTF-8''{quote(sent.name, safe='')}"
        policy = _OF_PDF if sent.type == PDF else _SEALED
        response = web.StreamResponse(headers={"Content-Disposition": disposition, _CSP: policy})
        response.content_type, response.content_length = sent.type or _PIECE, sent.size
        self._welcome(request, response)
        try:
            await response.prepare(request)
            while request.method == "GET" and (piece := await asyncio.to_thread(file.read, FILE_PIECE)):
                async with asyncio.timeout(STALLED_SECONDS):
                    await response.write(piece)
        except ConnectionError:
            pass  # the browser has disconnected
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        finally:
            file.close()
        return response

    # -- events ----------------------------------------------------------------------------------------------

    async def _events(self, request: web.Request) -> web.StreamResponse:
        chat: str = request[_VISITOR].user
        key = _conversation(request, request.query.get("conversation"))
        if self._streams[chat] >= STREAMS or self._streams.total() >= self._most:
            return _refusal(request, 503, "web.too_many", {"Retry-After": "30"})
        self._streams[chat] += 1  # before the first await, so that concurrent requests are counted
        try:
            return await self._stream(request, key)
        finally:
            self._streams[chat] -= 1
            if not self._streams[chat]:
                del self._streams[chat]

    async def _stream(self, request: web.Request, key: ChatKey) -> web.StreamResponse:
        earlier = await self._kept("its history", self._intake.recent(key, _EARLIER), [])
        since = earlier[0].ts / 1000 if len(earlier) == _EARLIER else 0.0
        person = UserRef(NAME, key.chat_id)
        asked = await self._kept("its questions", self._intake.questions(key, person, since), [])
        ratings = await self._kept("its ratings", self._intake.ratings(key, since), {})
        lines, questions = await asyncio.to_thread(
            lambda: (
                [self._line(line, n) for n, line in enumerate(earlier)],
                [_question(one) for one in asked],
            )
        )
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        self._welcome(request, response)
        await response.prepare(request)
        transport = request.transport
        stream = BrowserStream(transport.abort if transport is not None else lambda: None)
        live = self._chats.chat(key)
        for one in questions:
            if one.is_open:
                self._chats.ask(key, one)
        lines += [one.json() for one in questions if not one.is_open]
        # There is no await from here to the loop, so no message is lost between the history and the stream.
        opening = self._chats.missed(key, request.headers.get("Last-Event-ID", ""))
        if opening is None:
            opening = self._chats.history(_merge(lines, list(live.said)))
        stream.push(b"retry: 2000\n\n" + opening)
        if ratings:
            stream.push(event("ratings", ratings))
        stream.push(event("working", {"working": live.working}))
        live.streams.append(stream)
        model = AnsweringModel()
        try:
            while (chunk := await stream.next()) is not None:
                await response.write(chunk)
                # A command or a new configuration may have changed the model.
                if (answers := await self._model(key)) != model:
                    model = answers
                    told = {**asdict(model), "model": model.name, "demo": model.name == DEMO}
                    await response.write(event("model", told))
        except ConnectionError:
            pass  # the browser has disconnected
        finally:
            live.streams.remove(stream)
        return response

    def _line(self, line: ArchiveLine, number: int) -> dict[str, Any]:
        """Return an archive line as a browser receives it."""
        user = line.role == "user"
        told: dict[str, Any] = {
            "id": line.message_id or f"{line.ts}-{number}",
            "n": 0,
            "role": line.role,
            "kind": "message" if user else "reply",
            "text": line.text,
            "ts": line.ts,
            "turn": str((line.meta or {}).get("requestId", "")),
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
        files = [one[0].json() for name in names if (one := self._sent_files.find(line.chat_key.chat, name))]
        return told | {"nodes": nodes(line.text)} | ({"files": files} if files else {})

    async def _kept(self, what: str, kept: Awaitable[T], instead: T) -> T:
        try:
            return await kept
        except errors.StorageError as failure:
            self._around.log.write(
                "channel", f"The page opens without {what}.", level="warn", cause=str(failure)
            )
            return instead


def _question(asked: ShownQuestion) -> WebMessage:
    """Return the message of a question that may be older than this process."""
    formed = nodes(asked.text)
    return WebMessage(
        0, asked.id, "assistant", "notice", asked.text, asked.ts, formed, asked.buttons, restored=True
    )


def _merge(earlier: list[dict[str, Any]], said: list[WebMessage]) -> list[dict[str, Any]]:
    """Return the messages of the archive, followed by the messages of the live chat. The live chat has every
    message since its first one. A message that was asked or answered again is shown once: the person's
    where it first was, the answer where it is newest.
    """
    known = {message.id for message in said}
    since = next((message.ts for message in said if not message.restored), math.inf)
    before = dict[str, dict[str, Any]]()
    for line in sorted(earlier, key=lambda line: int(line["ts"])):
        if line["role"] == "assistant":
            before.pop(line["id"], None)
        if line["role"] in {"user", "assistant"} and line["ts"] < since and line["id"] not in known:
            before.setdefault(line["id"], line)
    return [*before.values(), *(message.json() for message in said)]


def _conversation(request: web.Request, id_: object) -> ChatKey:
    """Return the chatKey of a conversation of this browser: its first conversation, or the one with this id.
    Raises `HTTPBadRequest`.
    """
    first = KEYS.encode({"chat": request[_VISITOR].user})
    if id_ is None or id_ == FIRST:
        return first
    if not isinstance(id_, str) or CHAT_ID.fullmatch(id_) is None:
        raise web.HTTPBadRequest
    return ChatKey(NAME, first.chat_id, id_)


def _loop(loop: OpenLoop, user: str) -> dict[str, Any]:
    """Return an open loop as a browser receives it, with the conversation in which it is if that is the person's own."""
    key, who = loop.chat_key, UserRef(NAME, user)
    own = key is not None and (key.channel, key.chat_id) == (NAME, user) and key.kind == THREAD
    return {
        "kind": loop.kind,
        "label": say(f"waiting.kind_{loop.kind}"),
        "id": loop.id,
        "what": loop.what.replace("`", ""),
        "why": loop.why,
        "detail": loop.detail,
        "state": say(f"jobs.state_{loop.state}") if loop.state else "",
        "since": loop.since,
        "due": loop.due,
        "who": "" if loop.person in {None, who} else loop.name or str(loop.person),
        "conversation": (key.thread or FIRST) if own and key is not None else None,
        "acts": [{"act": act, "label": say(f"buttons.{act}")} for act in loop.acts],
    }


async def _body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object of a request. Raises `HTTPBadRequest`."""
    raw = await request.read()
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest
    return body


def _navigates(request: web.Request) -> bool:
    """Return True if the browser will show the response as a page. Browsers send `Sec-Fetch-Dest` only in
    secure contexts; without it, `Accept` decides.
    """
    told = request.headers.get("Sec-Fetch-Dest")
    return told == "document" if told is not None else "text/html" in request.headers.get("Accept", "")


def _from_elsewhere(request: web.Request) -> bool:
    """Return True if a browser may have withheld its cookie (SameSite=Strict), as it does after a link or
    redirect of another site. A cookie that is set now would replace the withheld one. A reload by a page
    of this server sends the cookie.
    """
    headers = request.headers
    return headers.get("Sec-Fetch-Dest") == "document" and headers.get("Sec-Fetch-Site") != "same-origin"


def _language(request: web.Request) -> str | None:
    """Return the language that a browser prefers among those with a catalogue; None if the browser names no
    language.
    """
    return best_language(request.headers.get("Accept-Language", ""))


def _marked(sentence: str) -> str:
    """Return a sentence as HTML, with `keys` as <kbd>."""
    return _KEY.sub(r"<kbd>\1</kbd>", escape(sentence))


def _page(request: web.Request, html: str) -> str:
    return _PAGE.format(_language(request) or DEFAULT, html)


def _refusal(
    request: web.Request, status: int, key: str, headers: dict[str, str] | None = None, **values: object
) -> web.Response:
    """Return an error response with a sentence of the catalogue, in the browser's language."""
    with speaking(_language(request) or DEFAULT):
        return _error(status, say(key, **values), headers)


def _are_ids(names: object) -> bool:
    """Return True for a valid list of file ids."""
    return (
        isinstance(names, list)
        and len(names) <= MOST_FILES
        and all(isinstance(one, str) for one in names)
        and len(set(names)) == len(names)
    )


def _unwritten(request: web.Request, failure: errors.StorageError) -> web.Response:
    with speaking(_language(request) or DEFAULT):
        return _error(503, failure.person, {"Retry-After": "5"})


def _error(status: int, sentence: str, headers: dict[str, str] | None = None) -> web.Response:
    response = web.json_response({"error": sentence}, status=status, headers=headers)
    response[_SENTENCE] = sentence
    return response
