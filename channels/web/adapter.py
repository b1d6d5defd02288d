"""The web channel: a chat page that sends messages by POST and receives answers by server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bot import errors, text
from bot.contracts.channel import ChannelDeps, Health, HttpServer, Intake, MembershipAnswer, is_loopback
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Inbound, Quoted
from bot.contracts.outbound import Outbound, OutgoingFile, Sent
from channels.http_server import port_error
from channels.local import CHAT_ID
from channels.web import guard, routes, state
from channels.web.chat_files import OF_CHAT, RECEIVED, SENT, ChatFile, ChatFiles
from channels.web.live_chats import HEARTBEAT, LiveChats, WebMessage
from channels.web.markdown import nodes
from channels.web.presses import PRESS
from channels.web.settings import KEYS, NAME, WebSettings
from channels.web.uploads import Uploads

PART = 32_000
"""Max characters of one message, so that people can read it; the page has no limit."""
T = TypeVar("T")
_OWN = re.compile(r"[0-9A-Z]{26}")
"""Beginning of the id of each message that Shipmate sent."""
_BEAT = 15.0
"""Interval in seconds of heartbeats on event streams."""


class WebChannel:
    """Implements `contracts.channel.Channel` for browsers."""

    name = NAME
    largest_file = 50_000_000

    def __init__(self, settings: WebSettings, around: ChannelDeps) -> None:
        if settings.token is None and not is_loopback(settings.host):
            raise errors.ConfigError(
                f"channels.web.host: {settings.host!r} can be reached from other machines; set "
                "channels.web.token, which people give once to use the page, or use 127.0.0.1"
            )
        self.addresses: tuple[str, ...] = ()
        self._host, self._port = settings.host, settings.port
        self._nearby = "port" not in settings.model_fields_set
        self._around = around
        self._token = settings.token
        self._chats = LiveChats()
        self._sent_files = ChatFiles(around.home, around.disk, SENT)
        self._received = ChatFiles(around.home, around.disk, RECEIVED, of_chat=OF_CHAT)
        self._uploads = Uploads(self._received, around.clock)
        self._routes: routes.WebRoutes | None = None
        self._server: HttpServer | None = None
        self._beating: asyncio.Task[None] | None = None

    async def start(self, intake: Intake) -> None:
        around = self._around
        gatekeeper = guard.Guard(
            host=self._host,
            token=self._token,
            own=await self._kept(state.load),
            operators=around.operators,
            user_of=around.user_of,
        )
        await self._kept(lambda _: self._received.drop_parts())
        server = around.serve()
        self._routes = routes.WebRoutes(
            gatekeeper,
            self._chats,
            sent_files=self._sent_files,
            uploads=self._uploads,
            around=around,
            intake=intake,
            most=server.streams,
        )
        # "localhost" may stand for two addresses, and a port may be free on one address and in use on the other.
        host = "127.0.0.1" if self._host.lower() == "localhost" else self._host
        try:
            app = self._routes.app()
            port = await server.start(app, host, self._port, grace=1.0, nearby=self._nearby)
        except OSError as failure:
            raise await port_error(f"channels.{NAME}", self._host, self._port, failure, around) from failure
        self._server = server
        self.addresses = (f"http://{guard.for_url(self._host)}:{port}",)
        await self._kept(lambda home: state.save_address(home, self.addresses[0]))
        self._beating = asyncio.create_task(self._beat())

    async def invite(self) -> str:
        """Implement `contracts.channel.Invites`."""
        return await self._kept(state.create_link)

    async def _kept(self, read: Callable[[Path], T]) -> T:
        try:
            return await asyncio.to_thread(read, self._around.home)
        except OSError as failure:
            raise errors.ConfigError(
                f"channels.web: .ship cannot be written ({failure.strerror}), where the page keeps its key; make room or "
                "make it writable"
            ) from failure

    async def pause(self) -> None:
        if self._routes is not None:
            self._routes.pause()

    async def stop(self) -> None:
        server, self._server = self._server, None
        if self._beating is not None:
            self._beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beating
            self._beating = None
        if server is not None:
            for stream in self._chats.everyone():
                stream.push(None)
            await server.stop()

    def split(self, text_: str) -> list[str]:
        return text.split(text_, PART)

    async def send(self, message: Outbound) -> Sent:
        chat, words = self._chat(message.target), text.clean(message.text).strip()
        formed = await asyncio.to_thread(nodes, words)
        if self._server is None:
            raise errors.DeliveryFailed("The web chat is closed.")
        if (press := message.target.get(PRESS)) is not None:
            self._chats.answer(chat, press, words)
            return Sent(message.id)
        sent = await self._kept_file(message, message.file) if message.file is not None else None
        said = WebMessage(
            self._chats.number(),
            message.id,
            "assistant",
            message.kind,
            words,
            self._now(),
            formed,
            message.buttons,
            files=(sent,) if sent is not None else (),
            turn=message.request_id,
        )
        self._chats.say(chat, said)
        return Sent(message.id)

    async def _kept_file(self, message: Outbound, file: OutgoingFile) -> ChatFile:
        try:
            return await asyncio.to_thread(self._sent_files.put, message.chat_key.chat, message.id, file)
        except OSError as failure:
            raise errors.FileRefused(f"the disk does not take a file ({failure.strerror})") from failure

    async def edit(self, message: Outbound, message_id: str) -> None:
        """Implement `contracts.channel.Edits`."""
        chat, words = self._chat(message.target), text.clean(message.text)
        formed = await asyncio.to_thread(nodes, words)
        if self._server is None:
            raise errors.DeliveryFailed("The web chat is closed.")
        if _OWN.match(message_id) is None:
            raise errors.EditRefused("The page shows no such message.")
        buttons = message.buttons
        said = WebMessage(
            self._chats.number(),
            message_id,
            "assistant",
            message.kind,
            words,
            self._now(),
            formed,
            # A decided question has neither an id nor choices. Without choices, another message has no buttons.
            buttons if buttons is not None and (buttons.choices or not buttons.question_id) else None,
            turn=message.request_id,
        )
        self._chats.change(chat, said)

    async def delete(self, message: Outbound, message_id: str) -> None:
        """Implement `contracts.channel.Edits`."""
        self._chats.remove(self._chat(message.target), message_id)

    async def find(self, message: Outbound) -> Sent | None:  # noqa: ARG002  an earlier process left nothing
        return None

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        self._chats.work(self._chat(target), working=working)

    async def context(self, inbound: Inbound) -> tuple[Quoted, ...]:  # noqa: ARG002  the page has no threads
        return ()

    async def chats_of(self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool) -> MembershipAnswer:
        """Implement `contracts.channel.KnowsMembers`: each browser has only conversations of its own."""
        own = KEYS.encode({"chat": user_id}) if direct and CHAT_ID.fullmatch(user_id) else None
        return MembershipAnswer([key for key in chat_keys if key.chat == own])

    def health(self) -> Health:
        if self._server is None:
            return Health(connected=False, detail="not started")
        return Health(connected=True, last_heard=self._around.clock.now())

    async def heal(self) -> None:
        """Do nothing: browsers open the connections, not the gateway."""

    async def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        """Implement `contracts.channel.Files`."""
        if self._server is None:
            raise errors.FileUnreachable("The web chat is closed.")
        async with contextlib.aclosing(self._uploads.fetch(attachment, most=most)) as pieces:
            async for piece in pieces:
                yield piece

    async def _beat(self) -> None:
        while True:
            await self._around.clock.sleep(_BEAT)
            for stream in self._chats.everyone():
                stream.push(HEARTBEAT)

    def _now(self) -> int:
        return int(self._around.clock.now() * 1000)

    @staticmethod
    def _chat(target: Mapping[str, str]) -> ChatKey:
        try:
            return KEYS.encode(target)
        except ValueError:
            raise errors.TargetGone("The target names no web chat.") from None
