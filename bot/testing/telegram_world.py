"""State of the fake Bot API server: people, topics, messages, files and unconfirmed updates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.testing import telegram_rules as rules
from bot.testing.loopback import ChatCounts

Media = Literal["photo", "voice", "audio", "video", "video_note", "document", "sticker", "animation"]

DEFAULT_UPDATES_OFF = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
KEPT_SECONDS = 24 * 3600
_MIME = {
    "voice": "audio/ogg",
    "audio": "audio/mpeg",
    "video": "video/mp4",
    "animation": "video/mp4",
    "document": "application/octet-stream",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as a person sees it now. `preview` is True if the first link shows a preview."""

    message_id: int
    text: str
    entities: tuple[Json, ...] = ()
    thread_id: int | None = None
    reply_to: int | None = None
    preview: bool = False
    from_bot: bool = True
    edited: bool = False


@dataclass(slots=True)
class Chat:
    """A chat. If `gone` is set, every call for the chat fails with 403 and this text. `moved_to` is the id of the supergroup
    that replaced the group. `members` has the status of each user id, including the bot's. `rights` are the bot's rights.
    """

    id: int
    kind: str
    forum: bool = False
    topics: dict[int, Json] = field(default_factory=dict)
    messages: dict[int, Json] = field(default_factory=dict)
    previews: dict[int, bool] = field(default_factory=dict)
    tally: ChatCounts = field(default_factory=ChatCounts)
    gone: str | None = None
    moved_to: int | None = None
    members: dict[int, str] = field(default_factory=dict)
    rights: dict[str, bool] = field(default_factory=dict)
    drafts: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Drafts by draft id, each as its text and the time (epoch seconds) until which people see it."""
    reactions: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)
    """Emoji by message id and user id; the bot's reactions are included."""
    last_id: int = 0
    spent: float = 0.0
    spent_at: float = 0.0

    def json(self) -> Json:
        body: Json = {"id": self.id, "type": self.kind}
        if self.kind == "private":
            body["first_name"] = f"Person {self.id}"
        else:
            body["title"] = f"Group {self.id}"
        if self.forum:
            body["is_forum"] = True
        return body

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def spend(self, now: float) -> int:
        """Count one call against the chat's flood limit. Return the seconds to wait; 0 if the call is allowed."""
        every = 1.0 if self.kind == "private" else 3.0
        self.spent = max(0.0, self.spent - (now - self.spent_at) / every)
        self.spent_at = now
        if self.spent > 4:
            return max(1, math.ceil((self.spent - 4) * every))
        self.spent += 1
        return 0

    def seen(self, message: Json, bot_id: int) -> Seen:
        number = message["message_id"]
        mine = message.get("from", {}).get("id") == bot_id
        said, spans = ("text", "entities") if "text" in message else ("caption", "caption_entities")
        return Seen(
            number,
            message.get(said, ""),
            tuple(message.get(spans, ())),
            message.get("message_thread_id"),
            message.get("reply_to_message", {}).get("message_id"),
            preview=self.previews.get(number, False),
            from_bot=mine,
            edited="edit_date" in message,
        )


class Updates:
    """A queue of one bot's updates. An update stays in the queue until the bot confirms it, but at most 24 hours."""

    def __init__(self, clock: Clock, first_id: int = 700_000_001) -> None:
        self._clock = clock
        self._next = first_id
        self._kept: list[tuple[int, float, Any]] = []
        self.allowed: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, body: Any) -> Any:
        """Queue an update and return it."""
        number = self._next
        if isinstance(body, dict):
            body = {"update_id": number, **body}
            if type(body["update_id"]) is int:
                number = body["update_id"]
        self._next = number + 1
        self._kept.append((number, self._clock.now(), body))
        return body

    def wanted(self, kind: str) -> bool:
        return kind in self.allowed if self.allowed else kind not in DEFAULT_UPDATES_OFF

    def again(self, update: Json) -> None:
        """Queue a confirmed update again, under the same id."""
        self._kept.append((update["update_id"], self._clock.now(), update))
        self._kept.sort(key=lambda kept: kept[0])

    def confirm(self, offset: int) -> None:
        """Delete all updates before `offset`. A negative offset -N keeps only the last N updates."""
        self._forget_old()
        if offset > 0:
            self._kept = [kept for kept in self._kept if kept[0] >= offset]
        elif offset < 0:
            self._kept = self._kept[offset:]

    def waiting(self) -> list[tuple[int, Any]]:
        """Return the unconfirmed updates with their numbers, oldest first."""
        self._forget_old()
        return [(number, body) for number, _, body in self._kept]

    def remove(self, number: int) -> None:
        """Delete an update that the bot has confirmed."""
        self._kept = [kept for kept in self._kept if kept[0] != number]

    def clear(self) -> None:
        self._kept.clear()

    def _forget_old(self) -> None:
        oldest = self._clock.now() - KEPT_SECONDS
        self._kept = [kept for kept in self._kept if kept[1] > oldest]

    def first(self, limit: int) -> list[Any]:
        self._forget_old()
        return [body for _, _, body in self._kept[:limit]]


def person(
    user_id: int,
    *,
    name: str = "",
    username: str | None = None,
    is_bot: bool = False,
    language: str | None = None,
) -> Json:
    body: Json = {"id": user_id, "is_bot": is_bot, "first_name": name or f"Person {user_id}"}
    if username:
        body["username"] = username
    if language:
        body["language_code"] = language
    return body


def origin(message: Json, *, hidden: bool = False) -> Json:
    """Return the `forward_origin` of a forwarded message. If `hidden`, the author's name is given, but not the id."""
    if "forward_origin" in message:
        return dict(message["forward_origin"])
    found: Json = {"date": message["date"]}
    sender, chat = message.get("from"), message["chat"]
    if chat["type"] == "channel":
        found |= {"type": "channel", "chat": chat, "message_id": message["message_id"]}
    elif "sender_chat" in message:
        found |= {"type": "chat", "sender_chat": message["sender_chat"]}
    elif hidden:
        found |= {"type": "hidden_user", "sender_user_name": sender["first_name"] if sender else ""}
    else:
        found |= {"type": "user", "sender_user": sender}
    if signed := message.get("author_signature"):
        found["author_signature"] = signed
    return found


FORWARDED = (
    "text",
    "entities",
    "caption",
    "caption_entities",
    "photo",
    "video",
    "audio",
    "voice",
    "video_note",
    "animation",
    "document",
    "sticker",
    "location",
    "venue",
    "contact",
    "poll",
    "dice",
    "checklist",
    "game",
    "story",
    "via_bot",
)
"""Fields that a forwarded message copies from the original message."""


def media_fields(kind: Media, file_id: str, size: int, name: str | None, mime: str | None) -> Json:
    """Return the message field that contains a file (for an animation, two fields)."""
    part: Json = {"file_id": file_id, "file_unique_id": f"u{file_id}", "file_size": size}
    if kind == "photo":
        small = {
            **part,
            "file_id": f"{file_id}-small",
            "file_size": max(1, size // 10),
            "width": 90,
            "height": 90,
        }
        return {"photo": [small, {**part, "width": 1280, "height": 1280}]}
    if kind in {"video", "animation", "sticker"}:
        part |= {"width": 320, "height": 240}
    if kind in {"voice", "audio", "video", "animation", "video_note"}:
        part["duration"] = 3
    if kind == "video_note":
        part["length"] = 240
    if kind == "sticker":
        part |= {"type": "regular", "is_animated": False, "is_video": False}
    if (kind in _MIME and mime is None) or mime:
        part["mime_type"] = mime or _MIME[kind]
    if name is not None and kind in {"audio", "video", "animation", "document"}:
        part["file_name"] = name
    if kind == "animation":
        return {"animation": part, "document": {**part}}
    return {kind: part}


def links(text: str, entities: Iterable[Json]) -> bool:
    """Return True if the text or an entity has a link that Telegram can preview."""
    return any(span["type"] in {"url", "text_link"} for span in [*entities, *rules.detect(text)])
