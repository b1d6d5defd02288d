"""Implements the web channel. The chat page sends messages by POST and receives answers as server-sent events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from bot import errors, text
from bot.contracts.channel import ChannelDeps, HttpServer, Intake, MembershipAnswer, is_loopback
from bot.contracts.environment import cancel_all
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Attachment, Outbound, Sent
from channels.local import CHAT_ID, LocalChannel
from channels.web import guard, routes
from channels.web.live_chats import HEARTBEAT, WebMessage, event
from channels.web.manifest import KEYS, NAME, WebSettings
from channels.web.markdown import nodes

T = TypeVar("T")
_OWN = re.compile(r"[0-9A-Z]{26}")  # Form of the first part of the id of each message from the bot
_BEAT = 15.0  # Seconds between heartbeats on an event stream


class WebChannel(LocalChannel[HttpServer]):
    """Implements `contracts.channel.Channel` for browsers."""

    name = NAME

    def __init__(self, settings: WebSettings, around: ChannelDeps) -> None:
        if settings.token is None and not is_loopback(settings.host):
            raise errors.ConfigError(
                f"channels.web.host: {settings.host!r} can be reached from other machines; set "
                "channels.web.token, which people give once to use the page, or use 127.0.0.1"
            )
        super().__init__(around)
        self._settings = settings
        self._routes = routes.WebRoutes(around)
        self._chats = self._routes.chats
        self._beating: asyncio.Task[None] | None = None

    async def start(self, intake: Intake) -> None:
        around, host, port = self._around, self._settings.host, self._settings.port
        gatekeeper = guard.Guard(self._settings, await self._kept(guard.load), around)
        await self._kept(lambda _: self._routes.uploads.drop_parts())
        server = around.serve()
        app = self._routes.app(gatekeeper, intake, most=server.streams)
        # "localhost" may stand for two addresses, and the port may be in use on one of them. So listen on only one address.
        bound = "127.0.0.1" if host.lower() == "localhost" else host
        nearby = "port" not in self._settings.model_fields_set
        port = await server.start(app, bound, port, key=f"channels.{NAME}", grace=1.0, nearby=nearby)
        self._server = server
        self.addresses = (f"http://{guard.for_url(host)}:{port}",)
        await self._kept(lambda home: guard.save_address(home, self.addresses[0]))
        self._beating = asyncio.create_task(self._beat())

    async def invite(self) -> str:
        return await self._kept(guard.create_link)

    async def _kept(self, read: Callable[[Path], T]) -> T:
        try:
            return await asyncio.to_thread(read, self._around.home)
        except OSError as failure:
            raise errors.ConfigError(
                f"channels.web: .ship cannot be written ({failure.strerror}), where the page keeps its key; make room or "
                "make it writable"
            ) from failure

    async def pause(self) -> None:
        self._routes.pause()

    async def stop(self) -> None:
        server, self._server = self._server, None
        if self._beating is not None:
            await cancel_all([self._beating])
        if server is not None:
            for stream in self._chats.everyone():
                stream.push(None)
            await server.stop()

    async def send(self, message: Outbound) -> Sent:
        said = await self._said(message, message.id)
        chat = self._chat(message.target)
        if (press := message.target.get(routes.PRESS)) is not None:
            # Only the browser that pressed the button gets the answer. The answer is no message of the chat, so it is not kept.
            self._chats.chat(chat).tell(event("answer", {"press": press, "text": said.text}))
            return Sent(message.id)
        if message.file is not None:
            try:
                put = self._routes.sent_files.put
                file = await asyncio.to_thread(put, message.chat_key.chat, message.id, message.file)
            except OSError as failure:
                raise errors.FileRefused(f"the disk does not take a file ({failure.strerror})") from failure
            said = replace(said, files=(file,))
        self._chats.say(chat, replace(said, buttons=message.buttons))
        return Sent(message.id)

    async def _said(self, message: Outbound, message_id: str) -> WebMessage:
        words = text.clean(message.text).strip()
        formed = await asyncio.to_thread(nodes, words)
        if self._server is None:
            raise errors.DeliveryFailed("The web chat is closed.")
        number, now, turn = self._chats.number(), int(self._around.clock.now() * 1000), message.request_id
        return WebMessage(number, message_id, "assistant", message.kind, words, now, formed, turn=turn)

    async def edit(self, message: Outbound, message_id: str) -> None:
        if _OWN.match(message_id) is None:
            raise errors.EditRefused("The page shows no such message.")
        said, buttons = await self._said(message, message_id), message.buttons
        # A message without choices has no buttons. If it has a question's id, the question has already been decided.
        if buttons is not None and not buttons.choices and buttons.question_id:
            buttons = None
        self._chats.change(self._chat(message.target), replace(said, buttons=buttons))

    async def delete(self, message: Outbound, message_id: str) -> None:
        self._chats.remove(self._chat(message.target), message_id)

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        self._chats.work(self._chat(target), working=working)

    async def chats_of(self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool) -> MembershipAnswer:
        """Return the browser's own conversations, because a browser is a member of no other conversations."""
        own = KEYS.encode({"chat": user_id}) if direct and CHAT_ID.fullmatch(user_id) else None
        return MembershipAnswer([key for key in chat_keys if key.chat == own])

    def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        if self._server is None:
            raise errors.FileUnreachable("The web chat is closed.")
        return self._routes.uploads.fetch(attachment, most=most)

    async def _beat(self) -> None:
        while True:
            await self._around.clock.sleep(_BEAT)
            for stream in self._chats.everyone():
                stream.push(HEARTBEAT)

    @staticmethod
    def _chat(target: Mapping[str, str]) -> ChatKey:
        try:
            return KEYS.encode(target)
        except ValueError:
            raise errors.TargetGone("The target names no web chat.") from None
