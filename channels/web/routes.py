"""HTTP routes of the web channel: the page, the API, and the checks of every request."""

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
from typing import Any, TypeVar, cast
from urllib.parse import quote

from aiohttp import web

from bot import errors, text
from bot.contracts.approvals import CHOICES as ANSWERS
from bot.contracts.approvals import EXAMPLES, ShownQuestion
from bot.contracts.archive import ArchiveLine, Conversation
from bot.contracts.channel import FILE_PIECE, ChannelDeps, Intake
from bot.contracts.identity import THREAD, ChatKey, UserRef
from bot.contracts.inbound import Attachment, Command, Inbound
from bot.contracts.model import DEMO, AnsweringModel
from bot.contracts.waiting import COMMANDS, Act, OpenLoop
from bot.words import CATALOGUES, DEFAULT, best_language, names, say, speaking
from channels import approval_buttons
from channels.local import CHAT_ID, command
from channels.web import guard
from channels.web.files import LARGEST as LARGEST_FILE
from channels.web.files import MOST_FILES, PDF, ChatFile, ChatFiles, Uploads
from channels.web.guard import Guard, Visitor
from channels.web.live_chats import STREAMS, BrowserStream, LiveChats, WebMessage, event
from channels.web.manifest import FIRST, KEYS, NAME
from channels.web.markdown import nodes

T = TypeVar("T")
LARGEST = 1_000_000  # Max bytes of a request
STALLED_SECONDS = 60.0  # Timeout in seconds for a browser to accept the next piece of a file
_EARLIER = 100  # Max archive lines on a page that opens
_LISTED = 50  # Max conversations in one response
_VISITOR = web.RequestKey("visitor", Visitor)
_SENTENCE = web.ResponseKey("sentence", str)
"""Key of an error response under which the sentence for the person is stored."""
SETTINGS = frozenset({"model", "effort"})
"""Settings in the page's header. A choice runs the command of the same name."""
PRESS = "press"  # Key in a message's target; the value is the id of the button press that the message answers
_RATINGS = frozenset({"good", "bad", "none"})
_LONGEST_NAME = 300
_LOOP = re.compile(r"[\w.:@+-]{1,300}")  # Pattern of the name of an entry on the board (an open loop)
_FOLDER = Path(__file__).parent / "page"
_KEY = re.compile(r"`([^`]+)`")  # Pattern of a key or typed word in a sentence
_BELOW = (
    "afresh",
    "again",
    "renew",
    "good",
    "good_label",
    "bad",
    "bad_label",
)  # Keys of further sentences on buttons
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
"""Content security policies of a file in a tab of its own. For a PDF, browsers add their viewer to the page."""
_JSON, _PIECE, _FILES = "application/json", "application/octet-stream", "/api/files/"
_KEYS = {404: "web.nothing", 405: "web.not_so", 413: "web.too_large"}
_PAGE = (
    '<!doctype html><html lang="{}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<title>Shipmate</title><link rel="stylesheet" href="/style.css"><body class="told"><main>{}</main></body></html>'
)


class WebRoutes:
    def __init__(
        self,
        gatekeeper: Guard,
        chats: LiveChats,
        *,
        sent_files: ChatFiles,
        uploads: Uploads,
        around: ChannelDeps,
        intake: Intake,
        most: int,
    ) -> None:
        self._guard, self._chats, self._around, self._intake = gatekeeper, chats, around, intake
        self._sent_files, self._uploads = sent_files, uploads
        self._most = most  # Max open event streams in all
        self._streams = Counter[str]()  # Number of open event streams of each person
        self._paused = False
        self._files = {
            path.name: (path.read_bytes(), _TYPES[path.suffix])
            for path in sorted(_FOLDER.iterdir())
            if path.suffix in _TYPES
        }
        self._spoken = {code: self._in_language(code) for code in CATALOGUES}

    def _in_language(self, code: str) -> dict[str, tuple[bytes, str]]:
        """Return the page's files that contain sentences, translated to one language."""
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
        """Refuse new messages and files. Open pages continue to receive answers."""
        self._paused = True

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST, middlewares=[self._check])
        app.on_response_prepare.append(self._finish)
        app.add_routes(
            [
                web.get("/", self._file),
                web.get("/{name:[a-z]+[.][a-z]+}", self._file),
                # HEAD is not allowed, because a HEAD request (e.g. for a link preview) would use up the link.
                web.get("/open/{key}", self._open, allow_head=False),
                web.post("/login", self._login),
                web.get("/api/info", self._info),
                web.post("/api/messages", self._message),
                web.post("/api/messages/{id}", self._edit),
                web.post("/api/presses", self._press),
                web.get("/api/events", self._events),
                web.get("/api/files/{id}", self._file_of_chat),
                web.get("/api/conversations", self._list),
                web.get("/api/waiting", self._waiting),
                web.post("/api/conversations/{id}", self._rename),
                web.post("/api/files", self._begin_file),
                web.post("/api/files/{id}", self._add_piece),
                web.delete("/api/files/{id}", self._remove_file),
            ]
        )
        return app

    # -- every request ---------------------------------------------------------------------------------------

    @web.middleware
    async def _check(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        response = await self._answer(request, handler)
        sentence = response.get(_SENTENCE)
        if not sentence or not _navigates(request):
            return response
        # A person who opens an address gets an error page with a link to the chat. A browser without access gets no link.
        words = f"<p>{_marked(sentence)}</p>"
        visitor = request.get(_VISITOR)
        if visitor is not None and visitor.admitted and request.path != "/":
            with speaking(_language(request) or DEFAULT):
                words += f'<p><a href="/">{escape(say("web.open_chat"))}</a></p>'
        kept = {name: response.headers[name] for name in ("Retry-After",) if name in response.headers}
        return web.Response(
            text=_page(request, words), content_type="text/html", status=response.status, headers=kept
        )

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
        except (errors.StorageError, OSError) as failure:
            error = failure
            if isinstance(error, OSError):
                error = errors.StorageError(f"a file cannot be kept ({error.strerror})")
            with speaking(_language(request) or DEFAULT):
                response = _error(503, error.person, {"Retry-After": "5"})
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
        """Return a redirect to this server's own host name if it is needed. If the browser may have withheld its cookie,
        return a page that loads the address again. Otherwise return None.
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
        """Give a new browser its cookie, in a response of the API and not of the page. A browser that follows another site's
        link to the page withholds its cookie, and a new cookie would replace the withheld one.
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
        """Open a one-time link, which makes the browser an operator. The redirect removes the key from the address bar. If
        the link is used already, redirect only a browser that is an operator.
        """
        if "Sec-Purpose" in request.headers:
            return _refusal(request, 503, "web.ahead")
        visitor, key = request[_VISITOR], request.match_info["key"]
        if not await asyncio.to_thread(guard.redeem, self._around.home, key):
            if visitor.appointed:
                return self._to_chat(request, visitor)
            return _refusal(request, 410, "web.opened")
        try:
            await self._around.appoint(UserRef(NAME, visitor.user))
        except errors.StorageError:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(guard.put_back, self._around.home, key)
            raise
        person = KEYS.encode({"chat": visitor.user})
        self._chats.tell(person, event("reload", {}))
        self._chats.tell(person, None)  # these event streams were opened with the former cookie's rights
        return self._to_chat(request, replace(visitor, appointed=True))

    def _to_chat(self, request: web.Request, visitor: Visitor) -> web.Response:
        response = web.Response(status=303, headers={"Location": "/"})
        self._guard.give_cookie(request, response, visitor)
        return response

    async def _login(self, request: web.Request) -> web.Response:
        if not self._guard.wants_token:
            raise web.HTTPNotFound
        token = (await _body(request)).get("token")
        if not isinstance(token, str) or not await self._guard.fits(request, token):
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

    def _inbound(
        self,
        request: web.Request,
        body: dict[str, Any],
        key: str,
        words: str,
        files: tuple[Attachment, ...] = (),
    ) -> Inbound:
        chat = _conversation(request, body.get("conversation"))
        now, language, zone = self._around.clock.now(), _language(request), body.get("zone")
        return KEYS.inbound(
            chat, key, words, user=chat.chat_id, now=now, language=language, zone=zone, files=files
        )

    async def _message(self, request: web.Request) -> web.Response:
        body = await _body(request)
        (words, key), ids = _said(body), body.get("files", [])
        valid = isinstance(ids, list) and len(ids) <= MOST_FILES and all(isinstance(id_, str) for id_ in ids)
        if not valid or len(set(ids)) < len(ids):
            return _refusal(request, 400, "web.unreadable")
        if not words.strip() and not ids:
            return _refusal(request, 400, "local.empty")
        if self._paused:
            return _closing(request)
        user = request[_VISITOR].user
        found = [await asyncio.to_thread(self._uploads.attachment, user, id_) for id_ in ids]
        files = tuple(one for one in found if one is not None)
        if len(files) < len(found):
            return _refusal(request, 410, "web.file_gone")
        shown = await asyncio.to_thread(self._shown, files)
        # Take the number before `accept`: a command's answer may be sent before `accept` returns, and needs a higher number.
        number = self._chats.number()
        inbound = self._inbound(request, body, key, words, files)
        taken = await self._intake.accept(inbound)
        if taken:
            message = WebMessage(number, key, "user", "message", words, inbound.ts, files=shown)
            self._chats.say(inbound.chat_key, message)
        return web.json_response({"id": key, "taken": taken}, status=202)

    def _shown(self, files: Sequence[Attachment]) -> list[ChatFile]:
        return [self._uploads.shown(one.ref, one.name, one.size) for one in files]

    # -- conversations ---------------------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        """Return the person's conversations that follow `before` in the list, the most recently active first."""
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
        loops = await self._intake.board(UserRef(NAME, request[_VISITOR].user))
        with speaking(_language(request) or DEFAULT):
            return web.json_response({"loops": [_loop(one, request[_VISITOR].user) for one in loops]})

    async def _rename(self, request: web.Request) -> web.Response:
        """Rename a conversation. With an empty title, its first words become the title again."""
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
        live = self._chats.chats.get(one.chat_key)
        return {
            "id": one.chat_key.thread or FIRST,
            "title": one.title,
            "ts": int(one.at * 1000),
            "working": live is not None and live.working,
        }

    # -- buttons, ratings and edits --------------------------------------------------------------------------

    async def _press(self, request: web.Request) -> web.Response:
        """Accept a button press, a rating or Stop. A press never appears as a message.

        `choice` names the button. `of` is the id of the question, turn, message or open loop that the button belongs to. For
        a choice in the page's header, `of` is the chosen value.
        """
        body = await _body(request)
        choice, of, key = body.get("choice"), body.get("of", ""), _key(body)
        if not isinstance(choice, str) or not isinstance(of, str) or len(of) > _LONGEST_NAME:
            raise web.HTTPBadRequest
        press = self._inbound(request, body, f"{PRESS}:{key}", "")
        facts: dict[str, Any] = {"message_id": None, "addressed": "command"}
        facts["target"] = {**press.target, PRESS: key}
        if choice == "stop":
            facts["kind"] = "stop"
        elif choice in _RATINGS and of:
            facts |= {"kind": "rating", "answers": of, "rating": choice}
        else:
            facts["command"] = _command(choice, of)
        if self._paused:
            return _closing(request)
        press = press.model_copy(update=facts)
        taken = await self._intake.accept(press)
        if taken and press.rating is not None:
            # Also tells the person's other tabs. A browser that reconnects gets all ratings.
            self._chats.chat(press.chat_key).tell(event("ratings", {of: press.rating}))
        return web.json_response({"taken": taken}, status=202)

    async def _edit(self, request: web.Request) -> web.Response:
        """Replace the text of the person's last message, and answer it again. The new text is never run as a command."""
        body, id_ = await _body(request), request.match_info["id"]
        words, key = _said(body)
        chat = _conversation(request, body.get("conversation"))
        if self._paused:
            return _closing(request)
        last = await self._last_said(chat)
        if last.get("id") != id_ or command(str(last["text"])) is not None:
            return _refusal(request, 409, "web.not_last")
        ids = [one["id"] for one in last.get("files", ()) if one["id"]]
        if not words.strip() and not last.get("files"):
            return _refusal(request, 400, "local.empty")
        if await self._intake.acts(chat):
            return _refusal(request, 409, "web.acting")
        found = [await asyncio.to_thread(self._uploads.attachment, chat.chat_id, one) for one in ids]
        files = tuple(one for one in found if one is not None)
        edit = self._inbound(request, body, f"edit:{key}", words, files)
        facts = {"kind": "edit", "message_id": id_, "command": None, "renews": ""}
        taken = await self._intake.accept(edit.model_copy(update=facts))
        if taken:
            shown = await asyncio.to_thread(self._shown, files)
            said = WebMessage(self._chats.number(), id_, "user", "message", words, edit.ts, files=shown)
            self._chats.change(chat, said)
        return web.json_response({"taken": taken}, status=202)

    async def _last_said(self, chat: ChatKey) -> dict[str, Any]:
        earlier = [line for line in await self._intake.recent(chat, _EARLIER) if line.role == "user"]
        lines = await asyncio.to_thread(lambda: [self._line(line, n) for n, line in enumerate(earlier)])
        said = [one for one in self._chats.chat(chat).said if one.role == "user"]
        return next(reversed(_merge(lines, said)), {})

    # -- files -----------------------------------------------------------------------------------------------

    async def _begin_file(self, request: web.Request) -> web.Response:
        """Begin the upload of a file for the next message. The bytes follow in pieces."""
        body = await _body(request)
        name, kind, size = body.get("name"), body.get("type", ""), body.get("size")
        if not (isinstance(name, str) and isinstance(kind, str) and type(size) is int and size >= 0):
            return _refusal(request, 400, "web.unreadable")
        if size > LARGEST_FILE:
            return _refusal(request, 413, "web.file_too_large", size=LARGEST_FILE // 1_000_000)
        if self._paused:
            return _closing(request)
        id_ = await asyncio.to_thread(self._uploads.begin, request[_VISITOR].user, name, kind, size)
        return web.json_response({"id": id_}, status=201)

    async def _add_piece(self, request: web.Request) -> web.Response:
        user, id_, data = request[_VISITOR].user, request.match_info["id"], await request.read()
        at = int(at) if (at := request.query.get("at", "")).isdecimal() else -1
        try:
            have = await asyncio.to_thread(self._uploads.add, user, id_, at, data)
        except ValueError:
            return _refusal(request, 400, "web.unreadable")
        kept = await asyncio.to_thread(self._uploads.attachment, user, id_)
        if kept is not None:  # also if the last piece comes twice because its response was lost
            (shown,) = await asyncio.to_thread(self._shown, [kept])
            return web.json_response({"have": kept.size, "whole": True, "file": shown.json()})
        if have is None:
            return _refusal(request, 404, "web.file_gone")
        status = 200 if have == at + len(data) else 409
        return web.json_response({"have": have, "whole": False}, status=status)

    async def _remove_file(self, request: web.Request) -> web.Response:
        await asyncio.to_thread(self._uploads.remove, request[_VISITOR].user, request.match_info["id"])
        return web.Response(status=204)

    async def _file_of_chat(self, request: web.Request) -> web.StreamResponse:
        """Return a file of any conversation of this browser. Pictures and PDFs may be displayed. Other files are untrusted,
        so the browser must download them.
        """
        key, name = KEYS.encode({"chat": request[_VISITOR].user}), request.match_info["id"]
        found = await asyncio.to_thread(
            lambda: self._sent_files.open(key, name) or self._uploads.open(key, name)
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
        self._streams[chat] += 1  # before the first await, so that concurrent requests see it
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
            if one.buttons is not None and one.buttons.question_id:
                self._chats.ask(key, one)
            else:  # the question is decided already
                lines.append(one.json())
        # From here to the loop there is no await, so no message can be lost between history and stream.
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
                # A command or a new configuration may have changed the model in the meantime.
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
    formed = nodes(asked.text)
    return WebMessage(
        0, asked.id, "assistant", "notice", asked.text, asked.ts, formed, asked.buttons, restored=True
    )


def _merge(earlier: list[dict[str, Any]], said: list[WebMessage]) -> list[dict[str, Any]]:
    """Return the archived messages, then those of the live chat, which has all messages since its first one. A message that
    was asked or answered again appears once: a person's message at its first place, a message of the bot at its newest place.
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
    """Return the chatKey of this browser's conversation with this id; None means the first one. Raises `HTTPBadRequest`."""
    first = KEYS.encode({"chat": request[_VISITOR].user})
    if id_ is None or id_ == FIRST:
        return first
    if not isinstance(id_, str) or CHAT_ID.fullmatch(id_) is None:
        raise web.HTTPBadRequest
    return ChatKey(NAME, first.chat_id, id_)


def _loop(loop: OpenLoop, user: str) -> dict[str, Any]:
    """Return an open loop as JSON. Name its conversation only if it is one of the person's own."""
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
    raw = await request.read()
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest
    return body


def _key(body: dict[str, Any]) -> str:
    """Return the `clientId` of a request: 1 to 64 letters, digits, `_` and `-`. Raises `HTTPBadRequest`."""
    key = body.get("clientId")
    if not isinstance(key, str) or CHAT_ID.fullmatch(key) is None:
        raise web.HTTPBadRequest
    return key


def _said(body: dict[str, Any]) -> tuple[str, str]:
    """Return a message's text and its `clientId`. Raises `HTTPBadRequest`."""
    words = body.get("text")
    if not isinstance(words, str):
        raise web.HTTPBadRequest
    return text.clean(words), _key(body)


def _command(choice: str, of: str) -> Command:
    """Return the command of a button. The command itself checks the person's rights. Raises `HTTPBadRequest`."""
    if choice in SETTINGS:
        return Command(name=choice, args=of.strip())
    if (found := approval_buttons.pressed(choice, of)) is not None:
        return found
    name, args = COMMANDS.get(cast("Act", choice), ("", ""))
    if not name or _LOOP.fullmatch(of) is None:
        raise web.HTTPBadRequest
    return Command(name=name, args=args.format(of))


def _navigates(request: web.Request) -> bool:
    """Return True if the browser will show the response as a page. `Sec-Fetch-Dest` says so, but browsers send it only in
    secure contexts. Without it, `Accept` decides.
    """
    told = request.headers.get("Sec-Fetch-Dest")
    return told == "document" if told is not None else "text/html" in request.headers.get("Accept", "")


def _from_elsewhere(request: web.Request) -> bool:
    """Return True if the browser may have withheld its cookie (SameSite=Strict), as it does when another site caused the
    request. A cookie set now would replace the withheld one. When the page reloads itself, the browser sends the cookie.
    """
    headers = request.headers
    return headers.get("Sec-Fetch-Dest") == "document" and headers.get("Sec-Fetch-Site") != "same-origin"


def _language(request: web.Request) -> str | None:
    """Return the language that the browser prefers, of those with a catalogue. Return None if it names no language."""
    return best_language(request.headers.get("Accept-Language", ""))


def _marked(sentence: str) -> str:
    """Return a sentence as HTML, in which `words` in backquotes become <kbd>."""
    return _KEY.sub(r"<kbd>\1</kbd>", escape(sentence))


def _page(request: web.Request, html: str) -> str:
    return _PAGE.format(_language(request) or DEFAULT, html)


def _refusal(
    request: web.Request, status: int, key: str, headers: dict[str, str] | None = None, **values: object
) -> web.Response:
    with speaking(_language(request) or DEFAULT):
        return _error(status, say(key, **values), headers)


def _closing(request: web.Request) -> web.Response:
    return _refusal(request, 503, "local.closing", {"Retry-After": "5"})


def _error(status: int, sentence: str, headers: dict[str, str] | None = None) -> web.Response:
    response = web.json_response({"error": sentence}, status=status, headers=headers)
    response[_SENTENCE] = sentence
    return response
