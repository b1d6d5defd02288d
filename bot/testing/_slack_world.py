"""A Slack workspace in memory: people, conversations and messages, and their JSON as Slack writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.testing.loopback import ChatCounts

RoomKind = Literal["im", "mpim", "channel", "group"]

STATUS_SECONDS = 120.0
"""Timeout in seconds of a thread's status. A message of the bot in the thread removes the status earlier."""

_TOKEN = re.compile(r"<(?:[@#!][^<>]+|https?://[^<>]+|mailto:[^<>]+)>")


class ApiError(Exception):
    """Raised to make a Web API call answer `{"ok": false, "error": code}`."""

    def __init__(self, code: str, **more: Any) -> None:
        super().__init__(code)
        self.code = code
        self.more = more


def escape(typed: str) -> str:
    """Return text as Slack stores it: `&`, `<` and `>` become entities, except in mentions and links."""
    parts, end = [], 0
    for match in _TOKEN.finditer(typed):
        parts += [_entities(typed[end : match.start()]), match.group()]
        end = match.end()
    return "".join([*parts, _entities(typed[end:])])


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@dataclass(slots=True)
class Post:
    """A message. `text` is the text before escaping: what a person typed, or the bot's Markdown."""

    ts: str
    text: str
    user: str | None = None
    bot_id: str | None = None
    thread_ts: str | None = None
    subtype: str | None = None
    client_msg_id: str | None = None
    edited: Json | None = None
    metadata: Json | None = None
    files: Sequence[Json] = ()
    blocks: Sequence[Json] = ()
    attachments: Sequence[Json] = ()
    reactions: list[Json] = field(default_factory=list)
    unfurl_links: bool | None = None
    unfurl_media: bool | None = None

    @property
    def root(self) -> str:
        return self.thread_ts or self.ts

    @property
    def is_reply(self) -> bool:
        return self.thread_ts is not None and self.thread_ts != self.ts


@dataclass(slots=True)
class Upload:
    """An upload that the bot has announced: file name, size in bytes, and time at which the upload address expires."""

    name: str
    length: int
    until: float
    data: bytes | None = None


@dataclass(slots=True)
class Room:
    id: str
    kind: RoomKind
    name: str
    members: set[str]
    archived: bool = False
    posts: dict[str, Post] = field(default_factory=dict)
    tally: ChatCounts = field(default_factory=ChatCounts)

    def find(self, ts: Any) -> Post | None:
        return self.posts.get(ts) if isinstance(ts, str) else None

    def thread(self, root: str) -> list[Post]:
        """Return the root message of a thread and the replies, oldest first."""
        return [post for post in self.posts.values() if post.root == root]


class World:
    """Holds the state that the Web API and the sockets share. Tests use the state through `SlackServer`."""

    team, app_id, bot_user, bot_id = "T0TEAM", "A0SHIP", "U0SHIP", "B0SHIP"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.rooms: dict[str, Room] = {}
        self.users: dict[str, Json] = {}
        self.files: dict[str, tuple[Json, bytes]] = {}
        self.uploads: dict[str, Upload] = {}
        """Announced uploads by file id."""
        self.agent = True
        """True if the app's manifest declares an agent."""
        self.subscriptions: set[str] = set()
        self.sessions: dict[tuple[str, str], str] = {}
        self.titles: dict[tuple[str, str], str] = {}
        self.homes: dict[str, Json] = {}
        """Published home views by user id."""
        self.alone: list[tuple[str, str, str]] = []
        """Ephemeral messages, each as conversation id, user id and text."""
        self._statuses: dict[tuple[str, str], tuple[str, float]] = {}
        self._last = 0

    def stamp(self) -> str:
        """Return a unique message timestamp, in seconds with microseconds."""
        self._last = max(self._last + 1, int(self.clock.now() * 1_000_000))
        return f"{self._last // 1_000_000}.{self._last % 1_000_000:06d}"

    def room(self, channel: Any, *, member: bool = True) -> Room:
        """Return a conversation. Raises `ApiError` if the bot cannot see it or, with `member`, if the bot is not in it."""
        room = self.rooms.get(channel) if isinstance(channel, str) else None
        inside = room is not None and self.bot_user in room.members
        if room is None or (not inside and room.kind != "channel"):
            raise ApiError("channel_not_found")
        if member and not inside:
            raise ApiError("not_in_channel")
        return room

    def add(self, room: Room, post: Post) -> Post:
        room.posts[post.ts] = post
        if post.thread_ts is not None and post.bot_id == self.bot_id:
            self._statuses.pop((room.id, post.thread_ts), None)
        return post

    def set_status(self, channel: str, thread_ts: str, status: str) -> None:
        self._statuses[channel, thread_ts] = (status, self.clock.monotonic() + STATUS_SECONDS)

    def status(self, channel: str, thread_ts: str) -> str:
        status, until = self._statuses.get((channel, thread_ts), ("", 0.0))
        return status if self.clock.monotonic() < until else ""

    def message(self, room: Room, post: Post, *, metadata: bool = False) -> Json:
        """Return a message as JSON, as in the Web API and in `message` events."""
        out: Json = {"type": "message", "text": escape(post.text), "ts": post.ts, "team": self.team}
        optional: Mapping[str, Any] = {
            "user": post.user,
            "subtype": post.subtype,
            "bot_id": post.bot_id,
            "app_id": self.app_id if post.bot_id == self.bot_id else None,
            "client_msg_id": post.client_msg_id,
            "edited": post.edited,
            "files": list(post.files) or None,
            "blocks": list(post.blocks) or None,
            "attachments": list(post.attachments) or None,
            "reactions": post.reactions or None,
            "metadata": post.metadata if metadata else None,
        }
        out.update({key: value for key, value in optional.items() if value is not None})
        replies = [] if post.is_reply else [p for p in room.thread(post.ts) if p.is_reply]
        if post.thread_ts is not None or replies:
            out["thread_ts"] = post.root
        if replies:
            out |= {"reply_count": len(replies), "latest_reply": replies[-1].ts}
        elif post.is_reply and (parent := room.find(post.thread_ts)) is not None:
            out["parent_user_id"] = parent.user
        return out
