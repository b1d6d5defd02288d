"""HTTP routes of the web channel: the page, the API, and the checks of every request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from string import Template
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import quote

from aiohttp import web
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, NonNegativeInt
from pydantic.alias_generators import to_camel

from bot import errors, text
from bot.contracts.approvals import COMMANDS, EXAMPLES, Act, OpenLoop
from bot.contracts.channel import FILE_PIECE, ChannelDeps, Intake
from bot.contracts.identity import THREAD, ChatKey, UserRef
from bot.contracts.messages import ArchiveLine, Command, Conversation, Inbound
from bot.contracts.model import DEMO, AnsweringModel
from bot.words import CATALOGUES, DEFAULT, Sentence, best_language, names, say, speaking
from channels import approval_buttons
from channels.local import CHAT_ID, command, inbound
from channels.web import guard
from channels.web.files import LARGEST as LARGEST_FILE
from channels.web.files import MOST_FILES, PDF, SENT, ChatFile, ChatFiles, Uploads
from channels.web.guard import PIECE, VISITOR, Guard, Refused, Visitor
from channels.web.live_chats import STREAMS, BrowserStream, LiveChats, WebMessage, event
from channels.web.manifest import FIRST, KEYS, NAME
from channels.web.markdown import nodes

LARGEST = 1_000_000  # Max bytes of a request
STALLED_SECONDS = 60.0  # Timeout in seconds for a browser to accept the next piece of a file
_EARLIER = 100  # Max archived messages that a page gets when it opens
_LISTED = 50  # Max conversations in one response
SETTINGS = frozenset({"model", "effort"})
"""Settings in the page's header. Choosing a value runs the command with the setting's name."""
PRESS = "press"  # Key in a message's target; the value is the id of the button press that the message answers
_RATINGS = frozenset({"good", "bad", "none"})
_LOOP = re.compile(r"[\w.:@+-]{1,300}")  # Pattern of the name of an entry on the board (an open loop)
_FOLDER = Path(__file__).parent / "page"
_KEY = re.compile(r"`([^`]+)`")  # Pattern of the backquoted name of a key, or of a typed word, in a sentence
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
_STREAM = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
_SEALED, _OF_PDF = _OF_FILE + "sandbox", _OF_FILE + "object-src 'self'; style-src 'unsafe-inline'"
"""Content security policies of a file in its own tab. The second policy is for PDFs, because browsers insert their PDF viewer into the tab."""
_KEYS = {404: "web.nothing", 405: "web.not_so", 413: "web.too_large"}
_PAGE = (
    '<!doctype html><html lang="{}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<title>Shipmate</title><link rel="stylesheet" href="/style.css"><body class="told"><main>{}</main></body></html>'
)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


# -- bodies of requests --------------------------------------------------------------------------------------------

_Words = Annotated[str, BeforeValidator(lambda said: text.clean(said) if isinstance(said, str) else said)]
_Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, alias_generator=to_camel)


class _Token(_Body):
    token: Any = None


class _Title(_Body):
    title: str


class _File(_Body):
    """A file to upload, whose bytes follow in pieces. `type` is its MIME type."""

    name: str
    type: str = ""
    size: NonNegativeInt


class _Sent(_Body):
    """A message, an edit or a press. `zone` is the browser's time zone. `client_id` is the id from the browser."""

    client_id: _Id
    conversation: _Id | None = None
    zone: Any = None


class _Message(_Sent):
    text: _Words
    files: list[str] = Field(default=[], max_length=MOST_FILES)


class _Press(_Sent):
    """A press of the button `choice`. `of` is the id of the question, turn, message or open loop that the button belongs
    to. For a choice in the page's header, `of` is the chosen value.
    """

    choice: str
    of: str = Field(default="", max_length=300)


_BodyT = TypeVar("_BodyT", bound=_Body)


async def _body(request: web.Request, kind: type[_BodyT]) -> _BodyT:
    try:
        return kind.model_validate(json.loads(await request.read()))
    except (ValueError, RecursionError):
        raise Refused(400, "web.unreadable") from None


class WebRoutes:
    """Serves the page and its API. `app` is called at each start, with the guard and the intake to use from then on."""

    _guard: Guard
    _intake: Intake
    _paused: bool
    _most: int  # Max open event streams of all people together

    def __init__(self, around: ChannelDeps) -> None:
        self._around = around
        self.chats = LiveChats()
        self.sent_files = ChatFiles(around.home, around.disk, SENT)
        self.uploads = Uploads(around.home, around.disk)
        self._streams = Counter[str]()  # Number of open event streams of each person
        files = (path for path in _FOLDER.iterdir() if path.suffix in _TYPES)
        self._files = {path.name: (path.read_bytes(), _TYPES[path.suffix]) for path in files}
        self._spoken = {code: self._in_language(code) for code in CATALOGUES}

    def _in_language(self, code: str) -> dict[str, tuple[bytes, str]]:
        """Return the page's files that contain sentences, translated to one language."""
        with speaking(code):
            words = {name: say(f"page.{name}") for name in names("page")}
            labels = {name: say(f"buttons.{name}") for name in names("buttons")}
            starters = [say(f"start.{example}") for example in EXAMPLES]
        page, kind = self._files["index.html"]
        marked = {name: _marked(said) for name, said in words.items()}
        html = Template(page.decode("utf-8")).substitute(marked, language=code)
        script = f"export const words = {json.dumps(labels | words | {'starters': starters})};\n"
        return {
            "index.html": (html.encode("utf-8"), kind),
            "words.js": (script.encode("ascii"), _TYPES[".js"]),
        }

    def pause(self) -> None:
        """Refuse new messages and files. Open pages continue to receive answers."""
        self._paused = True

    def app(self, gatekeeper: Guard, intake: Intake, *, most: int) -> web.Application:
        self._guard, self._intake, self._most, self._paused = gatekeeper, intake, most, False
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
    async def _check(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            await self._guard.admit(request)
            response = self._redirected(request) or await handler(request)
        except Refused as refused:
            response = _error_page(request, refused)
        except web.HTTPException as failure:
            key = _KEYS.get(failure.status, "web.unreadable")
            response = _error_page(request, Refused(failure.status, key))
        except (errors.StorageError, OSError):
            response = _error_page(request, Refused(503, "", retry=5))
        if not response.prepared and response.status != 403:
            self._welcome(request, response)
        return response

    def _redirected(self, request: web.Request) -> web.Response | None:
        """Return a redirect to this server's own host name if the browser should use that name. If the browser may have
        withheld its cookie, return a page that loads the address again. Otherwise return None.
        """
        visitor = request[VISITOR]
        if request.method == "GET" and (better := self._guard.better(request, visitor)) is not None:
            return web.Response(status=303, headers={"Location": better})
        # If another site caused the request, the browser may have withheld its cookie (SameSite=Strict). A cookie set now would
        # replace the withheld one. When the page reloads itself, the browser sends the cookie.
        headers = request.headers
        away = headers.get("Sec-Fetch-Dest") == "document" and headers.get("Sec-Fetch-Site") != "same-origin"
        if visitor.fresh and request.path.startswith("/open/") and away:
            with speaking(_language(request)):
                return _small_page(
                    request, f'<p><a href="">{escape(say("web.go_on"))}</a></p>', {"Refresh": "0"}
                )
        return None

    def _welcome(self, request: web.Request, response: web.StreamResponse) -> None:
        """Give a new browser its cookie with a response of the API, never with the page itself. A browser that follows
        another site's link to the page withholds its cookie, and a new cookie would replace the withheld one.
        """
        visitor = request[VISITOR]
        if request.path.startswith("/api/") and visitor.fresh and visitor.admitted:
            self._guard.give_cookie(request, response, visitor)

    @staticmethod
    async def _finish(_: web.Request, response: web.StreamResponse) -> None:
        own = {_CSP: response.headers[_CSP]} if _CSP in response.headers else {}
        response.headers.update(_HEADERS | own)

    # -- the page --------------------------------------------------------------------------------------------

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "index.html")
        found = self._spoken[_language(request)].get(name) or self._files.get(name)
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found[0], content_type=found[1], charset="utf-8")

    async def _open(self, request: web.Request) -> web.Response:
        """Open a one-time link: make the browser an operator, and redirect it to the chat, so that the key leaves the address
        bar. Raise `Refused` if the link is used already, unless this browser has opened a link before.
        """
        if "Sec-Purpose" in request.headers:
            raise Refused(503, "web.ahead")
        visitor, key = request[VISITOR], request.match_info["key"]
        if not await asyncio.to_thread(guard.redeem, self._around.home, key):
            if visitor.appointed:
                return self._to_chat(request, visitor)
            raise Refused(410, "web.opened")
        try:
            await self._around.appoint(UserRef(NAME, visitor.user))
        except errors.StorageError:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(guard.put_back, self._around.home, key)
            raise
        person = KEYS.encode({"chat": visitor.user})
        self.chats.tell(person, event("reload", {}))
        self.chats.tell(person, None)  # close the event streams, which have the rights of the former cookie
        return self._to_chat(request, replace(visitor, appointed=True))

    def _to_chat(self, request: web.Request, visitor: Visitor) -> web.Response:
        response = web.Response(status=303, headers={"Location": "/"})
        self._guard.give_cookie(request, response, visitor)
        return response

    async def _login(self, request: web.Request) -> web.Response:
        if not self._guard.wants_token:
            raise web.HTTPNotFound
        token = (await _body(request, _Token)).token
        if not isinstance(token, str) or not await self._guard.fits(request, token):
            raise Refused(401, "web.wrong_token")
        response = web.Response(status=204)
        self._guard.give_cookie(request, response, request[VISITOR])
        return response

    # -- the API ---------------------------------------------------------------------------------------------

    async def _info(self, request: web.Request) -> web.Response:
        person = UserRef(NAME, request[VISITOR].user)
        key = _conversation(request, request.query.get("conversation"))
        name = (await self._intake.model(key, person)).name
        operator = person in self._around.operators
        return web.json_response({"name": self._around.name, "model": name, "operator": operator})

    def _inbound(
        self, request: web.Request, sent: _Sent, key: str, words: str, files: Sequence[ChatFile] = ()
    ) -> Inbound:
        if self._paused:
            raise Refused(503, "local.closing", retry=5)
        chat, now = _conversation(request, sent.conversation), self._around.clock.now()
        language, user = best_language(request.headers.get("Accept-Language", "")), chat.chat_id
        came = tuple(one.attachment(user) for one in files)
        who: Any = {"user": user, "language": language, "zone": sent.zone}
        return inbound(KEYS, chat, key, words, now=now, files=came, **who)

    async def _message(self, request: web.Request) -> web.Response:
        sent = await _body(request, _Message)
        if not sent.text.strip() and not sent.files:
            raise Refused(400, "local.empty")
        user, key, ids = request[VISITOR].user, sent.client_id, dict.fromkeys(sent.files)
        files = [*filter(None, found := await asyncio.to_thread(self.uploads.of_user, user, ids))]
        if None in found:
            raise Refused(410, "web.file_gone")
        said = self._inbound(request, sent, key, sent.text, files)
        # Take the number before `accept`: a command's answer may be sent before `accept` returns, and needs a higher number.
        number = self.chats.number()
        taken = await self._intake.accept(said)
        if taken:
            message = WebMessage(number, key, "user", "message", sent.text, said.ts, files=files)
            self.chats.say(said.chat_key, message)
        return web.json_response({"id": key, "taken": taken}, status=202)

    # -- conversations ---------------------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        """Return a page of the person's conversations, most recently active first. It begins after the conversation `before`."""
        chat, before = _conversation(request, None), request.query.get("before")
        query = request.query.get("q", "")
        after = None if before is None else _conversation(request, before)
        found = await self._intake.conversations(chat, query=query, after=after, limit=_LISTED + 1)
        listed = [self._entry(one) for one in found[:_LISTED]]
        return web.json_response({"conversations": listed, "more": len(found) > _LISTED})

    async def _waiting(self, request: web.Request) -> web.Response:
        loops = await self._intake.board(UserRef(NAME, request[VISITOR].user))
        with speaking(_language(request)):
            return web.json_response({"loops": [_loop(one, request[VISITOR].user) for one in loops]})

    async def _rename(self, request: web.Request) -> web.Response:
        """Rename a conversation. With an empty title, the conversation's first words become the title again."""
        chat, title = _conversation(request, request.match_info["id"]), (await _body(request, _Title)).title
        if await self._intake.conversation(chat) is None:
            raise web.HTTPNotFound
        await self._intake.rename(chat, title, UserRef(NAME, chat.chat_id))
        renamed = await self._intake.conversation(chat)
        if renamed is None:
            raise web.HTTPNotFound
        self.chats.tell(chat.chat, event("conversation", self._entry(renamed)))
        return web.json_response(self._entry(renamed))

    def _entry(self, one: Conversation) -> dict[str, Any]:
        live, id_ = self.chats.chats.get(one.chat_key), one.chat_key.thread or FIRST
        working = live is not None and live.working
        return {"id": id_, "title": one.title, "ts": int(one.at * 1000), "working": working}

    # -- buttons, ratings and edits --------------------------------------------------------------------------

    async def _press(self, request: web.Request) -> web.Response:
        """Accept a button press, a rating or Stop. A press never appears as a message."""
        sent = await _body(request, _Press)
        press = self._inbound(request, sent, f"{PRESS}:{sent.client_id}", "")
        target = {**press.target, PRESS: sent.client_id}
        facts: dict[str, Any] = {"message_id": None, "addressed": "command", "target": target}
        if sent.choice == "stop":
            facts["kind"] = "stop"
        elif sent.choice in _RATINGS and sent.of:
            facts |= {"kind": "rating", "answers": sent.of, "rating": sent.choice}
        else:
            facts["command"] = _command(sent.choice, sent.of)
        press = press.model_copy(update=facts)
        taken = await self._intake.accept(press)
        if taken and press.rating is not None:
            # The event also reaches the person's other tabs. A browser that reconnects gets all ratings.
            self.chats.chat(press.chat_key).tell(event("ratings", {sent.of: press.rating}))
        return web.json_response({"taken": taken}, status=202)

    async def _edit(self, request: web.Request) -> web.Response:
        """Replace the text of the person's last message, so that the bot answers it again. The new text is never run as a command."""
        sent, id_ = await _body(request, _Message), request.match_info["id"]
        edit = self._inbound(request, sent, f"edit:{sent.client_id}", sent.text)
        chat = edit.chat_key
        earlier = [line for line in await self._intake.recent(chat, _EARLIER) if line.role == "user"]
        said = [one for one in self.chats.chat(chat).said if one.role == "user"]
        last = next(reversed(_merge(await self._lines(earlier), said)), None)
        if last is None or last.id != id_ or command(last.text) is not None:
            raise Refused(409, "web.not_last")
        if not sent.text.strip() and not last.files:
            raise Refused(400, "local.empty")
        if await self._intake.acts(chat):
            raise Refused(409, "web.acting")
        user, ids = chat.chat_id, [one.id for one in last.files]
        files = [*filter(None, await asyncio.to_thread(self.uploads.of_user, user, ids))]
        came = tuple(one.attachment(user) for one in files)
        facts = {"kind": "edit", "message_id": id_, "command": None, "renews": "", "attachments": came}
        taken = await self._intake.accept(edit.model_copy(update=facts))
        if taken:
            changed = WebMessage(self.chats.number(), id_, "user", "message", sent.text, edit.ts, files=files)
            self.chats.change(chat, changed)
        return web.json_response({"taken": taken}, status=202)

    # -- files -----------------------------------------------------------------------------------------------

    async def _begin_file(self, request: web.Request) -> web.Response:
        """Begin the upload of a file for the next message. The bytes follow in pieces."""
        file = await _body(request, _File)
        if file.size > LARGEST_FILE:
            raise Refused(413, "web.file_too_large", size=LARGEST_FILE // 1_000_000)
        if self._paused:
            raise Refused(503, "local.closing", retry=5)
        user = request[VISITOR].user
        id_ = await asyncio.to_thread(self.uploads.begin, user, file.name, file.type, file.size)
        return web.json_response({"id": id_}, status=201)

    async def _add_piece(self, request: web.Request) -> web.Response:
        user, id_, data = request[VISITOR].user, request.match_info["id"], await request.read()
        at = int(at) if (at := request.query.get("at", "")).isdecimal() else -1
        try:
            have = await asyncio.to_thread(self.uploads.add, user, id_, at, data)
        except ValueError:
            raise Refused(400, "web.unreadable") from None
        (kept,) = await asyncio.to_thread(self.uploads.of_user, user, [id_])
        if kept is not None:  # the file is complete; the browser may have repeated the last piece
            return web.json_response({"have": kept.size, "whole": True, "file": kept.json()})
        if have is None:
            raise Refused(404, "web.file_gone")
        status = 200 if have == at + len(data) else 409
        return web.json_response({"have": have, "whole": False}, status=status)

    async def _remove_file(self, request: web.Request) -> web.Response:
        await asyncio.to_thread(self.uploads.remove, request[VISITOR].user, request.match_info["id"])
        return web.Response(status=204)

    async def _file_of_chat(self, request: web.Request) -> web.StreamResponse:
        """Return a file of one of the browser's conversations. The browser may display pictures and PDFs, but must download
        other files, which are untrusted.
        """
        key, name = KEYS.encode({"chat": request[VISITOR].user}), request.match_info["id"]
        found = await asyncio.to_thread(
            lambda: self.sent_files.open(key, name) or self.uploads.open(key, name)
        )
        if found is None:
            raise web.HTTPNotFound
        sent, file = found
        how = "inline" if sent.type else "attachment"
        disposition = f"{how}; filename*=UTF-8''{quote(sent.name, safe='')}"
        policy = _OF_PDF if sent.type == PDF else _SEALED
        response = web.StreamResponse(headers={"Content-Disposition": disposition, _CSP: policy})
        response.content_type, response.content_length = sent.type or PIECE, sent.size
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
        chat: str = request[VISITOR].user
        key = _conversation(request, request.query.get("conversation"))
        if self._streams[chat] >= STREAMS or self._streams.total() >= self._most:
            raise Refused(503, "web.too_many", retry=30)
        self._streams[chat] += 1  # before the first await, so that concurrent requests see this stream
        try:
            return await self._stream(request, key)
        finally:
            self._streams[chat] -= 1
            if not self._streams[chat]:
                del self._streams[chat]

    async def _stream(self, request: web.Request, key: ChatKey) -> web.StreamResponse:
        earlier = await self._intake.recent(key, _EARLIER)
        since = earlier[0].ts / 1000 if len(earlier) == _EARLIER else 0.0
        person = UserRef(NAME, key.chat_id)
        asked = await self._intake.questions(key, person, since)
        ratings = await self._intake.ratings(key, since)
        lines = await self._lines(earlier)
        marked_up = await asyncio.to_thread(lambda: [nodes(one.text) for one in asked])
        questions = [
            WebMessage(0, one.id, "assistant", "notice", one.text, one.ts, shown, one.buttons, restored=True)
            for one, shown in zip(asked, marked_up, strict=True)
        ]
        response = web.StreamResponse(headers=_STREAM)
        self._welcome(request, response)
        await response.prepare(request)
        transport = request.transport
        stream = BrowserStream(transport.abort if transport is not None else lambda: None)
        live = self.chats.chat(key)
        for one in questions:
            if one.buttons is not None and one.buttons.question_id:
                self.chats.ask(key, one)
            else:  # the question is decided already
                lines.append(one)
        # From here to the loop there is no await, so no message can be lost between the history and the stream.
        history = [one.json() for one in _merge(lines, live.said)]
        stream.push(b"retry: 2000\n\n" + event("history", {"messages": history}))
        if ratings:
            stream.push(event("ratings", ratings))
        stream.push(event("working", {"working": live.working}))
        live.streams.append(stream)
        model = AnsweringModel()
        try:
            while (chunk := await stream.waiting.get()) is not None:
                await response.write(chunk)
                # If a command or a new configuration has changed the model in the meantime, tell the page.
                if (answers := await self._intake.model(key, person)) != model:
                    model = answers
                    told = {**asdict(model), "model": model.name, "demo": model.name == DEMO}
                    await response.write(event("model", told))
        except (ConnectionError, errors.StorageError):
            pass  # the browser has disconnected, or it will reconnect
        finally:
            live.streams.remove(stream)
        return response

    async def _lines(self, earlier: Sequence[ArchiveLine]) -> list[WebMessage]:
        return await asyncio.to_thread(lambda: [self._line(line, at) for at, line in enumerate(earlier)])

    def _line(self, line: ArchiveLine, number: int) -> WebMessage:
        id_, meta = line.message_id or f"{line.ts}-{number}", line.meta or {}
        turn = str(meta.get("requestId", ""))
        if line.role == "user":
            came = meta.get("attachments")
            facts = [one for one in (came if isinstance(came, list) else ()) if isinstance(one, dict)]
            files = [self.uploads.shown(one.get("ref"), one.get("name"), one.get("size")) for one in facts]
            return WebMessage(0, id_, line.role, "message", line.text, line.ts, files=files, turn=turn)
        chat, ids = line.chat_key.chat, meta.get("messageIds", ())
        files = [*filter(None, (self.sent_files.find(chat, str(one)) for one in ids))]
        shown = nodes(line.text)
        return WebMessage(0, id_, line.role, "reply", line.text, line.ts, shown, files=files, turn=turn)


def _merge(earlier: list[WebMessage], said: Sequence[WebMessage]) -> list[WebMessage]:
    """Return the archived messages (`earlier`) from before the live chat's first message, then the live chat's messages (`said`).
    If the archive has several versions of a message, include only one: of a person's message the first version, of a bot's
    message the last version.
    """
    known = {message.id for message in said}
    since = next((message.ts for message in said if not message.restored), math.inf)
    before = dict[str, WebMessage]()
    for line in sorted(earlier, key=lambda line: line.ts):
        if line.role == "assistant":
            before.pop(line.id, None)
        if line.role in {"user", "assistant"} and line.ts < since and line.id not in known:
            before.setdefault(line.id, line)
    return [*before.values(), *said]


def _small_page(
    request: web.Request, words: str, headers: Mapping[str, str], status: int = 200
) -> web.Response:
    page = _PAGE.format(_language(request), words)
    return web.Response(text=page, content_type="text/html", status=status, headers=headers)


def _error_page(request: web.Request, error: Refused) -> web.Response:
    """Return an error as JSON. A person who opens an address gets a page, with a link to the chat if they have access."""
    headers = {} if error.retry is None else {"Retry-After": str(error.retry)}
    with speaking(_language(request)):
        sentence = str(Sentence(error.key, error.values)) if error.key else errors.StorageError().person
        # Browsers send `Sec-Fetch-Dest` only in secure contexts. Without this header, `Accept` tells if the browser will
        # show the response as a page.
        page = "document" if "text/html" in request.headers.get("Accept", "") else ""
        if request.headers.get("Sec-Fetch-Dest", page) != "document":
            return web.json_response({"error": sentence}, status=error.status, headers=headers)
        words, visitor = f"<p>{_marked(sentence)}</p>", request.get(VISITOR)
        if visitor is not None and visitor.admitted and request.path != "/":
            words += f'<p><a href="/">{escape(say("web.open_chat"))}</a></p>'
    return _small_page(request, words, headers, error.status)


def _conversation(request: web.Request, id_: object) -> ChatKey:
    """Return the chatKey of the browser's conversation `id_`; None means the first conversation. Raises `HTTPBadRequest`."""
    first = KEYS.encode({"chat": request[VISITOR].user})
    if id_ is None or id_ == FIRST:
        return first
    if not isinstance(id_, str) or CHAT_ID.fullmatch(id_) is None:
        raise web.HTTPBadRequest
    return ChatKey(NAME, first.chat_id, id_)


def _loop(loop: OpenLoop, user: str) -> dict[str, Any]:
    """Return an open loop as JSON. Name the loop's conversation only if the conversation belongs to the person."""
    key, who = loop.chat_key, UserRef(NAME, user)
    own = key is not None and (key.channel, key.chat_id) == (NAME, user) and key.kind == THREAD
    facts = {name: getattr(loop, name) for name in ("kind", "id", "why", "detail", "since", "due")}
    return facts | {
        "label": say(f"waiting.kind_{loop.kind}"),
        "what": loop.what.replace("`", ""),
        "state": say(f"jobs.state_{loop.state}") if loop.state else "",
        "who": "" if loop.person in {None, who} else loop.name or str(loop.person),
        "conversation": (key.thread or FIRST) if own and key is not None else None,
        "acts": [{"act": act, "label": say(f"buttons.{act}")} for act in loop.acts],
    }


def _command(choice: str, of: str) -> Command:
    """Return the command of a button. The command itself checks the person's rights. Raises `Refused`."""
    if choice in SETTINGS:
        return Command(name=choice, args=of.strip())
    if (found := approval_buttons.pressed(choice, of)) is not None:
        return found
    name, args = COMMANDS.get(cast("Act", choice), ("", ""))
    if not name or _LOOP.fullmatch(of) is None:
        raise Refused(400, "web.unreadable")
    return Command(name=name, args=args.format(of))


def _language(request: web.Request) -> str:
    return best_language(request.headers.get("Accept-Language", "")) or DEFAULT


def _marked(sentence: str) -> str:
    """Return a sentence as HTML, in which `words` in backquotes become <kbd>."""
    return _KEY.sub(r"<kbd>\1</kbd>", escape(sentence))
