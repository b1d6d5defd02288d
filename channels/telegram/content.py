"""Reads the content of a Telegram message besides its text and files: origin, links, polls, places and contacts."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from telegram import Message, User
from telegram.constants import MessageType

from bot import text
from bot.contracts.base import Json
from bot.contracts.inbound import Link, Origin

MOST_OPTIONS = 100  # Max options of a poll, or tasks of a checklist, in a description
LONGEST = 8_000  # Max characters of a description
MOVING = frozenset({"location", "venue"})
"""Types of content that Telegram itself edits while a person shares a live location."""
OLD_MARKS = frozenset(
    {"forward_date", "forward_from", "forward_from_chat", "forward_sender_name", "forward_signature"}
)
"""Fields that mark a forwarded message on Bot API servers before version 7.0."""
_KINDS: Mapping[str, tuple[str, ...]] = {
    # A venue also has the field `location`, so `venue` must be first.
    "venue": ("title", "address", "location", "latitude", "longitude"),
    "location": ("latitude", "longitude", "live_period"),
    "contact": ("first_name", "last_name", "phone_number", "user_id", "vcard"),
    "poll": ("question", "description", "is_closed", "options", "text", "voter_count", "explanation"),
    "checklist": ("title", "tasks", "text", "completion_date"),
    "dice": ("emoji", "value"),
    "game": ("title", "description"),
    "story": ("chat", "title", "first_name", "last_name"),
    "invoice": ("title", "description"),
    "paid_media": ("star_count",),
    "giveaway": ("prize_description",),
    "giveaway_winners": ("prize_description",),
    "web_app_data": ("button_text", "data"),
}
"""Types of content besides text and files. The values are the fields to describe, at any depth."""
_KNOWN = frozenset(inspect.signature(Message).parameters) | {
    "from"
}  # Fields of a message that the library knows
_OF_ANY_KIND = frozenset(
    {
        MessageType.BUSINESS_CONNECTION_ID,
        MessageType.EFFECT_ID,
        MessageType.REPLY_TO_STORY,
        MessageType.SENDER_BOOST_COUNT,
        MessageType.SENDER_BUSINESS_BOT,
        MessageType.SUGGESTED_POST_INFO,
    }
)
"""Fields of any message that the library lists as types of messages."""


def origin(message: Json, me: User) -> Origin | None:
    """Return the origin of a forwarded message, or of one sent through an inline bot. Return None if the sender wrote it."""
    forwarded = message.get("forward_origin")
    if forwarded is not None or OLD_MARKS & message.keys() or message.get("is_automatic_forward"):
        return _origin(forwarded or {}, "forwarded", me)
    bot = message.get("via_bot") or message.get("sender_business_bot")
    if bot is not None:
        return Origin(how="via_bot", name=name(bot), id=str(number(bot["id"])), from_self=bot["id"] == me.id)
    return None


def external_origin(reply: Json, me: User) -> Origin:
    found, chat = _origin(reply["origin"], "quoted_from_elsewhere", me), reply.get("chat")
    facts = {
        "chat": (_title(chat) if chat is not None else None) or found.chat,
        "message_id": _id(reply.get("message_id")) or found.message_id,
    }
    return found.model_copy(update=facts)


def _origin(given: Json, how: Any, me: User) -> Origin:
    ts = number(given["date"]) * 1000 if "date" in given else None
    match given.get("type"):
        case "user":
            user = given["sender_user"]
            from_self = user["id"] == me.id
            return Origin(how=how, ts=ts, name=name(user), id=str(number(user["id"])), from_self=from_self)
        case "hidden_user":
            return Origin(how=how, ts=ts, name=line(given["sender_user_name"]))
        case "chat" | "channel":
            chat = given.get("sender_chat") or given["chat"]
            author, title = line(given.get("author_signature")), _title(chat)
            ids = {"id": _id(chat["id"]), "message_id": _id(given.get("message_id"))}
            return Origin(how=how, ts=ts, name=author or title, chat=title, **ids)
    return Origin(how=how, ts=ts)


def special_content(message: Json | None) -> tuple[str | None, str]:
    """Return the type and the description of a poll, place, contact or similar; (None, "") for any other message."""
    for kind, fields in _KINDS.items():
        found = (message or {}).get(kind)
        if isinstance(found, dict):
            named = kind.replace("_", " ")
            described = "\n".join(_lines(found, fields))
            return named, text.head(described, LONGEST) or f"a message of the kind {named}"
    return None, ""


def _lines(value: object, fields: Sequence[str], field: str = "") -> list[str]:
    if isinstance(value, dict):
        return [one for key in fields if key in value for one in _lines(value[key], fields, key)]
    if isinstance(value, list):
        return [one for part in value[:MOST_OPTIONS] for one in _lines(part, fields, field)]
    return [f"{field.replace('_', ' ')}: {text.clean(str(value))}"]


def unknown_content(message: Json) -> str | None:
    """Return a note about a message of an unknown type. Return None for a service message, such as a join."""
    unknown = sorted(message.keys() - _KNOWN - OLD_MARKS)
    known = any(message.get(kind) for kind in MessageType if kind not in _OF_ANY_KIND)
    if not unknown or known or message.get("migrate_from_chat_id"):
        return None
    return f"a message of a kind that cannot be read here ({line(', '.join(unknown))})"


def words(message: Json) -> str:
    found = message.get("text")
    if found is None:
        found = message.get("caption") or (message.get("sticker") or {}).get("emoji")
    return string(found)


def entities(message: Json) -> list[Json]:
    """Return the formatted spans of a message's text or caption. Their offsets are in UTF-16 code units."""
    return message.get("entities") or message.get("caption_entities") or []


def quoted_words(message: Json) -> str:
    """Return the text of a quoted message, with each link's address after the link's words."""
    return linked(words(message), entities(message))


def links(said: str, entities: Iterable[Json]) -> tuple[Link, ...]:
    return tuple(Link(text=part(said, one), url=string(one["url"])) for one in entities if _is_link(one))


def linked(said: str, entities: Iterable[Json]) -> str:
    raw = said.encode("utf-16-le")
    for one in sorted(entities, key=lambda each: -number(each["offset"])):
        if _is_link(one):
            end = max(0, number(one["offset"]) + number(one["length"])) * 2
            raw = raw[:end] + f" ({string(one['url'])})".encode("utf-16-le") + raw[end:]
    return raw.decode("utf-16-le", "replace")


def _is_link(entity: Json) -> bool:
    return bool(entity["type"] == "text_link" and entity.get("url"))


def name(user: Json) -> str | None:
    return text.head(_called(user) or string(user.get("username")), 200) or None


def _title(chat: Json) -> str | None:
    return line(string(chat.get("title")) or _called(chat) or string(chat.get("username")))


def _called(who: Json) -> str:
    names = (string(who.get("first_name")), string(who.get("last_name")))
    return " ".join(filter(None, names)).strip()


def line(words: object) -> str | None:
    return text.head(" ".join(string(words).split()), 200) or None


def _id(value: object) -> str | None:
    return str(number(value)) if value is not None else None


def part(said: str, entity: Json) -> str:
    """Return the text that an entity covers; "" if the offsets are outside the text."""
    start = max(0, number(entity["offset"])) * 2
    raw = said.encode("utf-16-le")[start : start + max(0, number(entity["length"])) * 2]
    return raw.decode("utf-16-le", "replace")


def number(value: object) -> int:
    """Return the value if it is a 64-bit integer. Raises TypeError otherwise."""
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise TypeError("a number of 64 bits is expected")
    return value


def string(value: object) -> str:
    """Return the value if it is a string; "" for None. Each lone surrogate becomes U+FFFD, which keeps the entities' offsets."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return text.clean(value)
