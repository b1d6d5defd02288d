"""Gateway side of the console channel: exchanges JSON lines with terminals over a Unix socket.

    terminal → gateway   {"hello": {"chat": "local", "language": "en", "zone": "Asia/Tokyo"}}
                         {"id": "…", "text": "…"}   {"ping": 1}
    gateway → terminal   {"ok": true, "chat": "local", "name": "the bot's"}
                         {"ok": true, "id": "…", "taken": true}   {"error": "a sentence", "id": "…"}
                         {"message": {"id": "…", "kind": "reply", "text": "…", "asks": false}}
                         {"working": true}   {"pong": 1}

The gateway confirms a terminal's message after storing it. The bot's messages to a chat without a terminal are kept until a
terminal connects. `asks` is true if a turn waits for the person's decision on this message.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot import errors, text
from bot.contracts.channel import ChannelDeps, Intake
from bot.contracts.messages import Outbound, Sent
from bot.words import DEFAULT, language_of, say, speaking
from channels.console.manifest import KEYS, NAME, new_socket_path, remove_socket
from channels.local import CHAT_ID, LocalChannel, inbound

LINE = 1 << 20  # Max bytes of one line of the protocol
ABSENT = 10.0
"""Seconds by which a message to a chat without a terminal is delayed while the gateway stops. The gateway ends before
this time is over, so its next process sends the message.
"""
_HELD = 200  # Max messages kept for a chat without a terminal
_CHATS = 100
_BACKLOG = 4 << 20
"""Max bytes waiting for a terminal that does not read. Above this limit, the connection is aborted."""


@dataclass(slots=True)
class _Chat:
    terminals: list[asyncio.StreamWriter] = field(default_factory=list)
    held: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_HELD))
    working: bool = False


class ConsoleChannel(LocalChannel[asyncio.Server]):
    """Implements `contracts.channel.Channel` for terminals on this machine."""

    name = NAME

    def __init__(self, around: ChannelDeps) -> None:
        super().__init__(around)
        self._chats: OrderedDict[str, _Chat] = OrderedDict()
        self._intake: Intake | None = None
        self._sessions: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._user = str(os.getuid())
        self._paused = False

    async def start(self, intake: Intake) -> None:
        try:
            path = new_socket_path(self._around.home)
            # Store the server before it begins to listen, so that it can be closed if the start is cancelled.
            self._server = await asyncio.start_unix_server(
                self._attached, path, limit=LINE, start_serving=False
            )
            path.chmod(0o600)  # before the server listens, so that no other user can connect
        except OSError as failure:
            await self.stop()
            raise errors.ConfigError(
                f"channels.console: no socket can be made in .ship ({failure.strerror}); "
                "make the folder writable or set channels.console.enabled to false"
            ) from failure
        self._intake = intake
        await self._server.start_serving()

    async def pause(self) -> None:
        self._paused = True

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for writer in self._sessions.values():
            writer.close()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        await server.wait_closed()
        remove_socket(self._around.home)

    async def send(self, message: Outbound) -> Sent:
        chat_id = message.target.get("chat", "")
        if self._server is None:
            raise errors.DeliveryFailed("The console is closed.")
        if CHAT_ID.fullmatch(chat_id) is None:
            raise errors.TargetGone("The target names no console chat.")
        chat = self._chat(chat_id)
        # While the gateway stops, no terminal can connect, so a message that is kept in memory would be lost.
        if self._paused and not chat.terminals:
            raise errors.DeliveryThrottled("No terminal is there.", retry_after=ABSENT)
        words = text.clean(message.text)
        if message.file is not None:
            if not message.file.path:
                raise errors.FileRefused("a terminal is shown files of the project alone")
            words = f"{words.strip()}\n📎 {self._around.root / message.file.path}".strip()
        asks = message.buttons is not None and "deny" in message.buttons.choices
        line = {"message": {"id": message.id, "kind": message.kind, "text": words, "asks": asks}}
        _tell(chat, line)
        if not chat.terminals:
            chat.held.append(line)
        return Sent(message.id)

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        chat = self._chats.get(target.get("chat", ""))
        if chat is not None and chat.working != working:
            chat.working = working
            _tell(chat, {"working": working})

    # -- one terminal ----------------------------------------------------------------------------------------

    async def _attached(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a coroutine runs in a task
        self._sessions[task] = writer
        try:
            if _peer(writer) in {None, os.getuid()}:
                await self._session(reader, writer)
            else:
                _write(writer, {"error": say("console.not_yours")})
        except ConnectionError:
            pass  # the terminal has disconnected
        except ValueError:
            _write(writer, {"error": say("console.too_long")})
        finally:
            for chat in self._chats.values():
                if writer in chat.terminals:
                    chat.terminals.remove(writer)
            writer.close()
            del self._sessions[task]

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chat_id, language, zone = "", DEFAULT, None
        while line := await reader.readline():
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                said = None
            if not isinstance(said, dict):
                _write(writer, {"error": "That line is not a JSON object."})
            elif "ping" in said:
                _write(writer, {"pong": said["ping"]})
            elif "hello" in said:
                hello = said["hello"] if isinstance(said["hello"], dict) else {"chat": ""}
                named = hello.get("chat", "local")
                if not isinstance(named, str) or CHAT_ID.fullmatch(named) is None:
                    _write(writer, {"error": "A chat id has 1 to 64 of A-Z, a-z, 0-9, _ and -."})
                    continue
                self._attach(named, writer)
                chat_id, zone = named, hello.get("zone")
                language = language_of(str(hello.get("language"))) or DEFAULT
            elif not chat_id:
                _write(writer, {"error": "Say hello first."})
            else:
                with speaking(language):
                    _write(writer, await self._take(chat_id, language, zone, said))

    def _attach(self, chat_id: str, writer: asyncio.StreamWriter) -> None:
        chat = self._chat(chat_id)
        if writer not in chat.terminals:
            chat.terminals.append(writer)
        _write(writer, {"ok": True, "chat": chat_id, "name": self._around.name})
        while chat.held:
            _write(writer, chat.held.popleft())
        if chat.working:
            _write(writer, {"working": True})

    async def _take(self, chat_id: str, language: str, zone: object, said: dict[str, Any]) -> dict[str, Any]:
        key, words = said.get("id"), said.get("text")
        if not isinstance(key, str) or CHAT_ID.fullmatch(key) is None or not isinstance(words, str):
            return {"error": "A message needs an id and a text."}
        if not words.strip():
            return {"error": say("local.empty"), "id": key}
        if self._paused or self._intake is None:
            return {"error": say("local.closing"), "id": key}
        chat, person, now = KEYS.encode({"chat": chat_id}), self._user, self._around.clock.now()
        words = text.clean(words)
        message = inbound(KEYS, chat, key, words, user=person, now=now, language=language, zone=zone)
        try:
            taken = await self._intake.accept(message)
        except errors.StorageError as failure:
            return {"error": failure.person, "id": key}
        return {"ok": True, "id": key, "taken": taken}

    # -- chats -----------------------------------------------------------------------------------------------

    def _chat(self, chat_id: str) -> _Chat:
        chat = self._chats.setdefault(chat_id, _Chat())
        self._chats.move_to_end(chat_id)
        idle = [other for other, known in self._chats.items() if not known.terminals and other != chat_id]
        for other in idle[: max(0, len(self._chats) - _CHATS)]:
            del self._chats[other]
        return chat


def _tell(chat: _Chat, line: dict[str, Any]) -> None:
    for writer in chat.terminals:
        _write(writer, line)
        if writer.transport.get_write_buffer_size() > _BACKLOG:
            writer.transport.abort()


def _peer(writer: asyncio.StreamWriter) -> int | None:
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    peer = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    return int(struct.unpack("3i", peer)[1])


def _write(writer: asyncio.StreamWriter, line: dict[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
