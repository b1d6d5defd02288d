"""The server side of the fake Bot API: it accepts requests, serves the long poll and implements the methods."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.testing import telegram_rules as rules
from bot.testing import telegram_world as world
from bot.testing.loopback import Loopback
from bot.testing.telegram_webhook import WebhookPoster

TEST_TOKEN = "4242:test-token"
CONTESTED = (
    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
)
FILE_LIMIT = 20 * 1024 * 1024
UPLOAD_LIMIT = 50 * 1024 * 1024
CAPTION_LIMIT = 1024
FILE_SECONDS = 3600.0
"""Seconds for which a file path returned by `getFile` stays valid."""
DRAFT_SECONDS = 30.0
"""Timeout in seconds of a draft, if no message follows it."""
_BUDGETED = frozenset(
    {
        "sendMessage",
        "sendMessageDraft",
        "sendDocument",
        "editMessageText",
        "deleteMessage",
        "sendChatAction",
        "setMessageReaction",
    }
)
_VERBS = ("_answer_", "_delete_", "_edit_", "_get_", "_send_", "_set_")
"""Prefixes of the methods in `Service` that implement Bot API methods."""


class Service(Loopback):
    """Implements the Bot API for one bot."""

    def __init__(self, *, clock: Clock | None = None, limits: bool = False) -> None:
        super().__init__(clock=clock)
        self.token = TEST_TOKEN
        self.me: Json = {
            **world.person(
                int(self.token.partition(":")[0]), name="Shipmate", username="shipmate_bot", is_bot=True
            ),
            "can_join_groups": True,
            "can_read_all_group_messages": False,
            "supports_inline_queries": False,
        }
        self.limits = limits
        self.updates = world.Updates(self.clock)
        self.commands: dict[tuple[str, str], list[Json]] = {}
        """Command menus by scope and language. A scope is a type such as `default`, or `chat 1001` for one chat.
        The language "" means all other languages.
        """
        self.descriptions: dict[tuple[str, str], str] = {}
        """Descriptions of the bot. The key is the kind (`description` or `short_description`) and the language."""
        self.hook = WebhookPoster(self.clock, self.updates, self.changed)
        self.chats: dict[int, world.Chat] = {}
        self.callbacks: set[str] = set()
        self.polls: dict[int, web.Request] = {}
        self.files: dict[str, bytes] = {}
        self.paths: dict[str, float] = {}
        self.poll: asyncio.Future[bool] | None = None
        self._background: set[asyncio.Future[None]] = set()
        methods = [name for name in vars(Service) if name.startswith(_VERBS)]
        self._methods: dict[str, Callable[[rules.Args], Awaitable[Any]]] = {
            name.replace("_", ""): getattr(self, name) for name in methods
        }

    def chat(self, chat_id: int, chat_type: str | None = None) -> world.Chat:
        """Return the chat with this id; create the chat if it is new."""
        kind = chat_type or ("private" if chat_id > 0 else "supergroup")
        return self.chats.setdefault(chat_id, world.Chat(chat_id, kind))

    def _message(self, chat: world.Chat, who: Json, number: int) -> Json:
        return {"message_id": number, "from": who, "chat": chat.json(), "date": int(self.clock.now())}

    def wake(self) -> None:
        self._end_poll(delivered=True)
        self.hook.wake()
        task = asyncio.ensure_future(self.changed())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def stop(self) -> None:
        self._end_poll(delivered=True)
        await self.hook.stop()
        await super().stop()

    def _end_poll(self, *, delivered: bool) -> None:
        """End the open poll. Answer it with the waiting updates if `delivered`, otherwise with a conflict error."""
        if self.poll is not None and not self.poll.done():
            self.poll.set_result(delivered)

    # -- requests --------------------------------------------------------------------------------------------

    def routes(self, app: web.Application) -> None:
        app.router.add_get("/file/bot{token}/{path:.+}", self._file)
        app.router.add_route("*", "/bot{token}/{method}", self._request)

    async def _request(self, request: web.Request) -> web.StreamResponse:
        try:
            params = await _params(request)
        except ValueError:
            return _refused(rules.bad("can't parse request parameters"))
        method = request.match_info["method"]
        await self.record(method, params, request.headers)
        fault = self.take_fault(method)
        if fault is not None and not fault.executes:
            return await self.broken(request, fault)
        try:
            self._check_token(request.match_info["token"])
            call = self._methods.get(method.lower())
            if call is None:
                raise rules.Refused(404, "Not Found")
            args = rules.Args(params)
            if method in _BUDGETED:
                self._check_budget(args)
            if method == "getUpdates":
                self.polls[id(request)] = request
            answer = web.json_response({"ok": True, "result": await call(args)})
        except rules.Refused as refused:
            answer = _refused(refused)
        finally:
            self.polls.pop(id(request), None)
        await self.changed()
        return await self.answered(request, fault, answer)

    def _check_token(self, token: str) -> None:
        if token == self.token:
            return
        if re.fullmatch(r"\d+:[\w-]+", token):
            raise rules.Refused(401, "Unauthorized")
        raise rules.Refused(404, "Not Found")

    def _check_budget(self, args: rules.Args) -> None:
        chat = self._chat_of(args)
        wait = chat.spend(self.clock.now()) if self.limits else 0
        if wait:
            raise rules.Refused(429, f"Too Many Requests: retry after {wait}", retry_after=wait)

    def _chat_of(self, args: rules.Args) -> world.Chat:
        if not args.has("chat_id"):
            raise rules.bad("chat_id is empty")
        wanted = args.text("chat_id")
        chat = next((chat for chat in self.chats.values() if str(chat.id) == wanted), None)
        if chat is None:
            raise rules.bad("chat not found")
        if chat.gone is not None:
            raise rules.Refused(403, chat.gone)
        if chat.moved_to is not None:
            description = "Bad Request: group chat was upgraded to a supergroup chat"
            raise rules.Refused(400, description, migrate_to_chat_id=chat.moved_to)
        return chat

    async def _file(self, request: web.Request) -> web.StreamResponse:
        """Serve a file if `getFile` returned the file's path within the last hour."""
        path = request.match_info["path"]
        await self.record("file", {"path": path}, request.headers)
        fault = self.take_fault("file")
        if fault is not None and not fault.sends:
            return await self.broken(request, fault)
        data = self.files.get(path.removeprefix("documents/"))
        late = self.clock.now() > self.paths.get(path, 0.0)
        if request.match_info["token"] != self.token or data is None or late:
            return _refused(rules.Refused(404, "Not Found"))
        return await self.send_file(request, data, "application/octet-stream", fault)

    # -- methods ---------------------------------------------------------------------------------------------

    async def _get_me(self, _: rules.Args) -> Json:
        return self.me

    async def _get_updates(self, args: rules.Args) -> list[Any]:
        if self.hook.url:
            raise rules.Refused(
                409,
                "Conflict: can't use getUpdates method while webhook is active; "
                "use deleteWebhook to delete the webhook first",
            )
        limit = min(100, max(1, args.integer("limit", 100)))
        timeout = min(50, max(0, args.integer("timeout")))
        if args.has("allowed_updates"):
            self.updates.allowed = tuple(map(str, args.items("allowed_updates")))
        self.updates.confirm(args.integer("offset"))
        if timeout and not len(self.updates):
            await self._long_poll(timeout)
        return self.updates.first(limit)

    async def _long_poll(self, timeout: float) -> None:  # noqa: ASYNC109
        self._end_poll(delivered=False)
        mine = self.poll = asyncio.get_running_loop().create_future()
        timer = asyncio.ensure_future(self.clock.sleep(timeout))
        try:
            await asyncio.wait({mine, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if mine.done() and not mine.result():
            raise rules.Refused(409, CONTESTED)

    async def _set_webhook(self, args: rules.Args) -> bool:
        url = args.text("url")
        parts, secret = urlsplit(url), args.text("secret_token") if args.has("secret_token") else ""
        if url and parts.scheme != "https" and parts.hostname != "127.0.0.1":
            raise rules.bad("bad webhook: An HTTPS URL must be provided for webhook")
        if not re.fullmatch(r"[A-Za-z0-9_-]{0,256}", secret):
            raise rules.bad("secret token contains unallowed characters")
        if args.has("allowed_updates"):
            self.updates.allowed = tuple(map(str, args.items("allowed_updates")))
        if args.flag("drop_pending_updates"):
            self.updates.clear()
        if (url, secret) != (self.hook.url, self.hook.secret):
            self.hook.url, self.hook.secret, self.hook.error = url, secret, ""
        self._end_poll(delivered=False)
        self.hook.wake()
        return True

    async def _delete_webhook(self, args: rules.Args) -> bool:
        self.hook.url = ""
        if args.flag("drop_pending_updates"):
            self.updates.clear()
        return True

    async def _get_webhook_info(self, _: rules.Args) -> Json:
        return {
            "url": self.hook.url,
            "has_custom_certificate": False,
            "pending_update_count": len(self.updates),
        } | (
            {"last_error_date": int(self.hook.failed_at), "last_error_message": self.hook.error}
            if self.hook.error
            else {}
        )

    async def _send_message(self, args: rules.Args) -> Json:
        chat = self._chat_of(args)
        self._check_rights(chat)
        text, entities = _text_of(args)
        message = self._message(chat, self.me, chat.last_id + 1) | {"text": text}
        if entities:
            message["entities"] = entities
        if args.has("reply_markup"):
            message["reply_markup"] = rules.checked_keyboard(args.mapping("reply_markup"))
        self._check_place(chat, args, message)
        chat.previews[message["message_id"]] = _previewed(args, text, entities)
        return _posted(chat, message)

    async def _send_document(self, args: rules.Args) -> Json:
        chat = self._chat_of(args)
        self._check_rights(chat, "can_send_documents", "documents")
        upload = args.upload("document")
        data = upload.data
        if len(data) > UPLOAD_LIMIT:
            raise rules.Refused(413, "Request Entity Too Large")
        if not data:
            raise rules.bad("file must be non-empty")
        file_id = f"sent-{len(self.files) + 1}"
        message = self._message(chat, self.me, chat.last_id + 1)
        message |= world.media_fields("document", file_id, len(data), upload.filename, upload.content_type)
        if args.has("caption"):
            caption, spans = rules.checked_text(
                args.text("caption"), args.items("caption_entities"), CAPTION_LIMIT
            )
            message |= {"caption": caption} | ({"caption_entities": spans} if spans else {})
        self._check_place(chat, args, message)
        self.files[file_id] = data
        return _posted(chat, message)

    async def _send_message_draft(self, args: rules.Args) -> bool:
        chat = self._chat_of(args)
        if chat.kind != "private":
            raise rules.bad("drafts can be sent to private chats only")
        if not args.integer("draft_id"):
            raise rules.bad("draft_id must be non-zero")
        text, _ = _text_of(args)
        self._check_place(chat, args, {})
        chat.drafts[args.integer("draft_id")] = (text, self.clock.now() + DRAFT_SECONDS)
        return True

    def _check_rights(
        self, chat: world.Chat, right: str = "can_send_messages", what: str = "text messages"
    ) -> None:
        standing = chat.members.get(self.me["id"])
        if standing in {"left", "kicked"}:
            raise rules.Refused(403, "Forbidden: bot is not a member of the supergroup chat")
        if standing == "restricted" and not chat.rights.get(right):
            raise rules.bad(f"not enough rights to send {what} to the chat")

    def _check_place(self, chat: world.Chat, args: rules.Args, message: Json) -> None:
        if args.has("message_thread_id"):
            thread_id = args.integer("message_thread_id")
            if thread_id not in chat.topics:
                raise rules.bad("message thread not found")
            message |= {"message_thread_id": thread_id, "is_topic_message": True}
        reply = args.mapping("reply_parameters")
        answered = chat.messages.get(reply.get("message_id", 0))
        if answered is not None:
            message["reply_to_message"] = {k: v for k, v in answered.items() if k != "reply_to_message"}
        elif reply and not reply.get("allow_sending_without_reply"):
            raise rules.bad("message to be replied not found")

    async def _edit_message_text(self, args: rules.Args) -> Json:
        chat = self._chat_of(args)
        old = self._own(chat, args, "edit")
        text, entities = _text_of(args)
        content = {"text": text, "entities": entities}
        keyboard = args.mapping("reply_markup") if args.has("reply_markup") else None
        same = all(old.get(name, []) == one for name, one in content.items())
        if same and keyboard == old.get("reply_markup"):
            raise rules.bad(
                "message is not modified: specified new message content and reply markup are exactly "
                "the same as a current content and reply markup of the message"
            )
        message = {**old, **content, "edit_date": int(self.clock.now())}
        message.pop("reply_markup", None)  # an edit without buttons removes the old buttons
        if keyboard is not None:
            message["reply_markup"] = rules.checked_keyboard(keyboard)
        chat.messages[message["message_id"]] = message
        chat.previews[message["message_id"]] = _previewed(args, text, entities)
        chat.tally = replace(chat.tally, edited=chat.tally.edited + 1)
        return message

    async def _delete_message(self, args: rules.Args) -> bool:
        chat = self._chat_of(args)
        del chat.messages[self._own(chat, args, "delete")["message_id"]]
        chat.tally = replace(chat.tally, deleted=chat.tally.deleted + 1)
        return True

    def _own(self, chat: world.Chat, args: rules.Args, what: str) -> Json:
        message = chat.messages.get(args.integer("message_id"))
        if message is None:
            raise rules.bad(f"message to {what} not found")
        if message["from"]["id"] != self.me["id"]:
            raise rules.bad(f"message can't be {what.rstrip('e')}ed")
        return message

    async def _send_chat_action(self, args: rules.Args) -> bool:
        chat = self._chat_of(args)
        if args.text("action") != "typing":
            raise rules.bad("wrong parameter action in request")
        if args.has("message_thread_id") and args.integer("message_thread_id") not in chat.topics:
            raise rules.bad("message thread not found")
        return True

    async def _set_message_reaction(self, args: rules.Args) -> bool:
        chat, number = self._chat_of(args), args.integer("message_id")
        if number not in chat.messages:
            raise rules.bad("message to react not found")
        emoji = [one.get("emoji") for one in args.items("reaction") if isinstance(one, dict)]
        if len(emoji) > 1 or not {"👀"}.issuperset(emoji):
            raise rules.bad("REACTION_INVALID")
        chat.reactions[number, self.me["id"]] = tuple(map(str, emoji))
        return True

    async def _set_my_commands(self, args: rules.Args) -> bool:
        commands = args.items("commands")
        for command in commands:
            known = isinstance(command, dict) and re.fullmatch(
                r"[a-z0-9_]{1,32}", str(command.get("command"))
            )
            if not known or not 1 <= len(str(command.get("description", ""))) <= 256:
                raise rules.bad("BOT_COMMAND_INVALID")
        scope = args.mapping("scope") or {"type": "default"}
        language = self._language(args)
        if scope.get("type") == "chat":
            if scope.get("chat_id") not in self.chats:
                raise rules.bad("chat not found")
            self.commands[f"chat {scope['chat_id']}", language] = commands
            return True
        if scope.get("type") not in rules.SCOPES:
            raise rules.bad("can't parse BotCommandScope: unsupported type specified")
        self.commands[scope["type"], language] = commands
        return True

    @staticmethod
    def _language(args: rules.Args) -> str:
        code = args.text("language_code")
        if re.fullmatch(r"([a-z]{2})?", code) is None:
            raise rules.bad("language code invalid")
        return code

    async def _set_my_description(self, args: rules.Args) -> bool:
        return self._described(args, "description", 512)

    async def _set_my_short_description(self, args: rules.Args) -> bool:
        return self._described(args, "short_description", 120)

    def _described(self, args: rules.Args, name: str, most: int) -> bool:
        words = args.text(name)
        if len(words) > most:
            raise rules.bad(f"{name.replace('_', ' ')} is too long")
        self.descriptions[name, self._language(args)] = words
        return True

    async def _get_file(self, args: rules.Args) -> Json:
        file_id = args.text("file_id").removesuffix("-small")
        if file_id not in self.files:
            raise rules.bad("invalid file_id")
        size = len(self.files[file_id])
        if size > FILE_LIMIT:
            raise rules.bad("file is too big")
        path = f"documents/{file_id}"
        self.paths[path] = self.clock.now() + FILE_SECONDS
        return {"file_id": file_id, "file_unique_id": f"u{file_id}", "file_size": size, "file_path": path}

    async def _get_chat_member(self, args: rules.Args) -> Json:
        chat, user = self._chat_of(args), args.integer("user_id")
        status = chat.members.get(user, "left")
        more: Json = {"is_anonymous": False} if status == "creator" else {}
        if status in {"restricted", "administrator"}:
            more = {
                **dict.fromkeys(rules.RIGHTS[status], False),
                **(chat.rights if user == self.me["id"] else {}),
            }
        who = self.me if user == self.me["id"] else world.person(user)
        return {"status": status, "user": who, **more}

    async def _answer_callback_query(self, args: rules.Args) -> bool:
        if args.text("callback_query_id") not in self.callbacks:
            raise rules.bad("query is too old and response timeout expired or query ID is invalid")
        if rules.units(args.text("text")) > 200:
            raise rules.bad("MESSAGE_TOO_LONG")
        return True


async def _params(request: web.Request) -> dict[str, Any]:
    params: dict[str, Any] = dict(request.query)
    if request.content_type == "application/json":
        body = await request.json()
        if not isinstance(body, dict):
            raise ValueError("an object is expected")
        return params | body
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            with value.file:
                params[name] = rules.Upload(value.filename, value.content_type, value.file.read())
        else:
            params[name] = value
    return params


def _posted(chat: world.Chat, message: Json) -> Json:
    """Add a message of the bot to a chat, and remove the chat's drafts."""
    chat.messages[chat.next_id()] = message
    chat.tally = replace(chat.tally, posted=chat.tally.posted + 1)
    chat.drafts.clear()
    return message


def _refused(refused: rules.Refused) -> web.Response:
    return web.json_response(refused.body(), status=refused.code)


def _text_of(args: rules.Args) -> tuple[str, list[Json]]:
    if args.has("parse_mode"):
        raise rules.bad("unsupported parse_mode")
    return rules.checked_text(args.text("text"), args.items("entities"))


def _previewed(args: rules.Args, text: str, entities: list[Json]) -> bool:
    disabled = args.mapping("link_preview_options").get("is_disabled") is True
    return not disabled and world.links(text, entities)
