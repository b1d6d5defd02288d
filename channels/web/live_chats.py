"""Keeps the newest messages of each web conversation, and the event streams to the browsers that show the conversation.

A browser that connects gets the whole conversation, then each change. Above a limit, this module drops the oldest messages, but
the archive keeps them.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.contracts.approvals import QuestionButtons
from bot.contracts.identity import ChatKey
from channels.web.files import ChatFile
from channels.web.manifest import FIRST
from channels.web.markdown import Node

MESSAGES, SIZE = 100, 1_000_000
"""Max messages kept of a chat, and max characters of their texts. The newest message is always kept."""
MOST_CHATS = 256
STREAMS = 20  # Max open event streams of one person
_QUEUE = 300  # Max events that wait for a browser. Above this limit, the browser's connection is aborted.
HEARTBEAT = b": still here\n\n"


@dataclass(frozen=True, slots=True)
class WebMessage:
    """A message in the form that browsers receive. `number` is the message's position among all messages of the channel."""

    number: int
    id: str
    role: str
    kind: str
    text: str
    ts: int
    nodes: Sequence[Node] | None = None  # Parsed Markdown of a message from the bot
    buttons: QuestionButtons | None = None
    restored: bool = False  # True if an earlier process sent the message
    files: Sequence[ChatFile] = ()
    turn: str = ""  # Id of the turn that sent the message; "" if none did
    changed: bool = False  # True if the message keeps its place in the list although its content is new

    def json(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("id", "role", "kind", "text", "ts")} | {
            "n": self.number
        }
        if self.buttons is not None:
            told |= {"approval": self.buttons.question_id, "choices": self.buttons.choices}
        if self.nodes is not None:
            told["nodes"] = self.nodes
        if self.files:
            told["files"] = [one.json() for one in self.files]
        if self.turn:
            told["turn"] = self.turn
        return told | ({"changed": True} if self.changed else {})


@dataclass(eq=False)
class BrowserStream:
    """Queue of events for one browser. `abort` closes the connection if the queue is full."""

    abort: Callable[[], None]
    waiting: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(_QUEUE))

    def push(self, chunk: bytes | None) -> None:
        """Add an event to the queue. None ends the stream."""
        try:
            self.waiting.put_nowait(chunk)
        except asyncio.QueueFull:
            self.abort()


@dataclass(slots=True)
class LiveChat:
    said: deque[WebMessage] = field(default_factory=deque)
    streams: list[BrowserStream] = field(default_factory=list)
    working: bool = False

    def keep(self, said: WebMessage) -> None:
        """Insert a message in the order of the numbers. Drop the oldest messages above the limits."""
        at = next((at for at, one in enumerate(self.said) if one.number > said.number), len(self.said))
        self.said.insert(at, said)
        size = sum(len(one.text) for one in self.said)
        while len(self.said) > MESSAGES or (size > SIZE and len(self.said) > 1):
            size -= len(self.said.popleft().text)

    def taken(self, id_: str) -> WebMessage | None:
        said = next((one for one in reversed(self.said) if one.id == id_), None)
        if said is not None:
            self.said.remove(said)
        return said

    def tell(self, chunk: bytes | None) -> None:
        """Send an event to the chat's browsers. None closes their event streams, and the pages open new ones."""
        for stream in self.streams:
            stream.push(chunk)


@dataclass(eq=False)
class LiveChats:
    chats: OrderedDict[ChatKey, LiveChat] = field(default_factory=OrderedDict)
    _number: int = 0

    def chat(self, chat: ChatKey) -> LiveChat:
        """Return the live chat of a conversation, or create it. Above `MOST_CHATS`, drop old chats without browsers."""
        live = self.chats.setdefault(chat, LiveChat())
        self.chats.move_to_end(chat)
        empty = [other for other, known in self.chats.items() if not known.streams and other != chat]
        for other in empty[: max(0, len(self.chats) - MOST_CHATS)]:
            del self.chats[other]
        return live

    def number(self) -> int:
        self._number += 1
        return self._number

    def say(self, chat: ChatKey, said: WebMessage) -> None:
        """Keep a message, and send it to the chat's browsers."""
        live = self.chat(chat)
        live.keep(said)
        live.tell(event("message", said.json()))
        if said.kind in {"message", "reply", "notice"}:
            self._tell_elsewhere(chat, {"ts": said.ts, "role": said.role})

    def change(self, chat: ChatKey, fresh: WebMessage) -> None:
        """Replace a message in its position. If it is not kept here (an earlier process sent it), put it first."""
        old = self.chat(chat).taken(fresh.id) or replace(fresh, number=0, restored=True)
        kept = replace(old, kind=fresh.kind, text=fresh.text, nodes=fresh.nodes, buttons=fresh.buttons)
        self.say(chat, replace(kept, turn=fresh.turn, changed=True))

    def remove(self, chat: ChatKey, id_: str) -> None:
        live = self.chat(chat)
        live.taken(id_)
        live.tell(event("removed", {"id": id_}))

    def ask(self, chat: ChatKey, asked: WebMessage) -> None:
        """Show an open question with the buttons that this person may press. An earlier process may have sent the question."""
        live = self.chat(chat)
        said = live.taken(asked.id) or asked
        live.keep(replace(said, text=asked.text, nodes=asked.nodes, buttons=asked.buttons))

    def work(self, chat: ChatKey, *, working: bool) -> None:
        live = self.chat(chat)
        if live.working != working:
            live.working = working
            live.tell(event("working", {"working": working}))
            self._tell_elsewhere(chat, {"working": working})

    def tell(self, person: ChatKey, chunk: bytes | None) -> None:
        """Send an event to all browsers of a person. `person` is the chatKey of the person's first conversation."""
        for chat, live in self.chats.items():
            if person.contains(chat):
                live.tell(chunk)

    def _tell_elsewhere(self, chat: ChatKey, news: dict[str, Any]) -> None:
        """Tell the person's pages that show other conversations what has changed in `chat`."""
        told = event("conversation", {"id": chat.thread or FIRST, **news})
        for other, live in self.chats.items():
            if other != chat and other.chat == chat.chat:
                live.tell(told)

    def everyone(self) -> list[BrowserStream]:
        return [stream for live in self.chats.values() for stream in live.streams]


def event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")
