"""The newest messages of each web chat, and the browsers that listen to it.

A browser that was away for a moment is told what it missed. The archive is the truth; live chats are bounded in number,
length and size, and dropped from the oldest.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.contracts.approvals import OpenQuestion, QuestionButtons
from channels.web.chat_files import ChatFile
from channels.web.markdown import Node

MESSAGES = 200
"""Messages kept in a room."""
_SIZE = 1_000_000
"""Characters kept in a room."""
TOTAL = 16_000_000
"""Characters kept in all rooms together."""
MOST_CHATS = 256
STREAMS = 20
"""Browsers that may listen to one chat at a time."""
_QUEUE = 300

HEARTBEAT = b": still here\n\n"


@dataclass(frozen=True, slots=True)
class WebMessage:
    """One message as browsers get it. `number` is its place, and grows with each message of the whole channel."""

    number: int
    id: str
    role: str
    kind: str
    text: str
    ts: int
    nodes: Sequence[Node] | None = None
    """Of what Shipmate says: its Markdown as nodes."""
    buttons: QuestionButtons | None = None
    restored: bool = False
    """Said before this start."""
    files: Sequence[ChatFile] = ()
    """Those that it is, or came with it."""
    changed: int = 0
    """The number of its last change: it keeps its place, and browsers that were away are told."""

    @property
    def newest(self) -> int:
        return max(self.number, self.changed)

    def json(self) -> dict[str, Any]:
        buttons = self.buttons
        asks = {} if buttons is None else {"approval": buttons.question_id, "choices": buttons.choices}
        formed = {} if self.nodes is None else {"nodes": self.nodes}
        files = {"files": [one.json() for one in self.files]} if self.files else {}
        return (
            asks
            | formed
            | files
            | {
                "id": self.id,
                "n": self.number,
                "role": self.role,
                "kind": self.kind,
                "text": self.text,
                "ts": self.ts,
            }
        )


class BrowserStream:
    """Queue of events for one browser. `abort` cuts the connection of one that does not read."""

    def __init__(self, abort: Callable[[], None]) -> None:
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUE)
        self._abort = abort

    def push(self, chunk: bytes | None) -> None:
        """None ends the stream."""
        try:
            self._waiting.put_nowait(chunk)
        except asyncio.QueueFull:
            self._abort()

    async def next(self) -> bytes | None:
        return await self._waiting.get()


@dataclass(slots=True)
class LiveChat:
    floor: int
    """Messages up to this number are not here: dropped, or said before the room was opened."""
    said: deque[WebMessage] = field(default_factory=deque)
    size: int = 0
    streams: list[BrowserStream] = field(default_factory=list)
    working: bool = False

    def keep(self, said: WebMessage) -> None:
        later = []
        while self.said and self.said[-1].number > said.number:
            later.append(self.said.pop())
        self.said.extend([said, *reversed(later)])
        self.size += len(said.text)
        while len(self.said) > MESSAGES or (self.size > _SIZE and len(self.said) > 1):
            dropped = self.said.popleft()
            self.size -= len(dropped.text)
            self.floor = max(self.floor, dropped.newest)

    def taken(self, id_: str) -> WebMessage | None:
        """A message that was kept, and is no more."""
        said = next((one for one in reversed(self.said) if one.id == id_), None)
        if said is not None:
            self.said.remove(said)
            self.size -= len(said.text)
        return said

    def empty(self) -> None:
        """Keep nothing: a browser that was away is shown the archive."""
        self.floor = max((self.floor, *(said.newest for said in self.said)))
        self.said.clear()
        self.size = 0

    def tell(self, chunk: bytes) -> None:
        for stream in self.streams:
            stream.push(chunk)

    def end(self) -> None:
        """End the streams of all its pages, which then ask for new ones."""
        for stream in self.streams:
            stream.push(None)


class LiveChats:
    def __init__(self) -> None:
        self.chats: OrderedDict[str, LiveChat] = OrderedDict()
        self.boot = secrets.token_hex(4)
        self._number = 0

    def room(self, chat: str) -> LiveChat:
        """The room of a chat, which is now the one used last."""
        room = self.chats.setdefault(chat, LiveChat(self._number))
        self.chats.move_to_end(chat)
        empty = [other for other, known in self.chats.items() if not known.streams and other != chat]
        for other in empty[: max(0, len(self.chats) - MOST_CHATS)]:
            del self.chats[other]
        return room

    def number(self) -> int:
        """The place of a message in the order of all."""
        self._number += 1
        return self._number

    def say(self, chat: str, said: WebMessage) -> None:
        """Keep a message and tell everyone who listens."""
        room = self.room(chat)
        room.keep(said)
        self._make_room(chat)
        room.tell(self._message(said))

    def change(
        self, chat: str, id_: str, *, number: int, kind: str, text: str, nodes: Sequence[Node]
    ) -> bool:
        """Give a message another text, in its place: a browser that was away is told. False where it is not kept."""
        room = self.room(chat)
        said = room.taken(id_)
        if said is None:
            return False
        self.say(chat, replace(said, changed=number, kind=kind, text=text, nodes=nodes, buttons=None))
        return True

    def remove(self, chat: str, id_: str) -> None:
        """Take a message away; a browser that was away is shown everything anew."""
        room = self.room(chat)
        room.taken(id_)
        room.floor = self.number()
        room.tell(event("removed", {"id": id_}, f"{self.boot}-{room.floor}"))

    def ask(self, chat: str, asked: OpenQuestion, nodes: Sequence[Node]) -> None:
        """Show a waiting question, asked perhaps before this start, with the words and buttons of the viewer."""
        room = self.room(chat)
        new = WebMessage(
            room.floor, asked.id, "assistant", "notice", asked.text, asked.ts, nodes, restored=True
        )
        said = room.taken(asked.id) or new
        room.keep(replace(said, text=asked.text, nodes=nodes, buttons=asked.buttons))

    def _make_room(self, chat: str) -> None:
        """Empty the rooms used least recently where all together hold too much."""
        total = sum(room.size for room in self.chats.values())
        for other, room in self.chats.items():
            if total <= TOTAL:
                return
            if other != chat:
                total -= room.size
                room.empty()

    def work(self, chat: str, *, working: bool) -> None:
        room = self.room(chat)
        if room.working != working:
            room.working = working
            room.tell(event("working", {"working": working}))

    def missed(self, chat: str, last_event: str) -> bytes | None:
        """The messages after the event that a browser saw last; None where they are no longer kept."""
        boot, _, number = last_event.partition("-")
        room = self.chats.get(chat)
        if room is None or boot != self.boot or not number.isdecimal() or len(number) > 18:
            return None
        if int(number) < room.floor:
            return None
        news = [said for said in room.said if said.newest > int(number)]
        return b"".join(self._message(said) for said in sorted(news, key=lambda said: said.newest))

    def history(self, messages: list[dict[str, Any]]) -> bytes:
        """The event that replaces everything a browser shows."""
        return event("history", {"messages": messages}, f"{self.boot}-{self._number}")

    def everyone(self) -> list[BrowserStream]:
        return [stream for room in self.chats.values() for stream in room.streams]

    def _message(self, said: WebMessage) -> bytes:
        return event("message", said.json(), f"{self.boot}-{said.newest}")


def event(name: str, data: dict[str, Any], id_: str = "") -> bytes:
    """One server-sent event."""
    head = f"id: {id_}\n" if id_ else ""
    return f"{head}event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")
