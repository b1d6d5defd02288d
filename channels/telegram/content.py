"""Reads the content of a Telegram message besides its text and files: origin, links, polls, places and contacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from telegram import (
    ExternalReplyInfo,
    Message,
    MessageEntity,
    MessageOriginChannel,
    MessageOriginChat,
    MessageOriginHiddenUser,
    MessageOriginUser,
    User,
)
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
_RAW = "~"
"""Prefix of field names that hides a field from the library. Otherwise, if a poll lacks one field, the library rejects the
whole message.
"""
_NESTED = ("reply_to_message", "external_reply")
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


def origin(message: Message, me: User) -> Origin | None:
    """Return the origin of a forwarded message, or of one sent through an inline bot. Return None if the sender wrote it."""
    forwarded = message.forward_origin
    if forwarded is not None or OLD_MARKS & message.api_kwargs.keys() or message.is_automatic_forward:
        return _origin(forwarded, "forwarded", me)
    bot = message.via_bot or message.sender_business_bot
    if bot is not None:
        return Origin(how="via_bot", name=name(bot), id=str(number(bot.id)), from_self=bot.id == me.id)
    return None


def external_origin(reply: ExternalReplyInfo, me: User) -> Origin:
    found = _origin(reply.origin, "quoted_from_elsewhere", me)
    chat = _title(reply.chat) if reply.chat is not None else None
    facts = {"chat": chat or found.chat, "message_id": _id(reply.message_id) or found.message_id}
    return found.model_copy(update=facts)


def _origin(given: Any, how: Any, me: User) -> Origin:
    ts = int(given.date.timestamp() * 1000) if given is not None else None
    match given:
        case MessageOriginUser(sender_user=user):
            from_self = user.id == me.id
            return Origin(how=how, ts=ts, name=name(user), id=str(number(user.id)), from_self=from_self)
        case MessageOriginHiddenUser(sender_user_name=hidden):
            return Origin(how=how, ts=ts, name=line(hidden))
        case MessageOriginChat(sender_chat=chat) | MessageOriginChannel(chat=chat):
            author, post = line(given.author_signature), getattr(given, "message_id", None)
            title = _title(chat)
            return Origin(
                how=how, ts=ts, name=author or title, id=_id(chat.id), chat=title, message_id=_id(post)
            )
    return Origin(how=how, ts=ts)


def with_raw_kinds(message: Json) -> Json:
    """Return a message in which the fields of `_KINDS` are hidden from the library. It keeps them unparsed in `api_kwargs`."""
    found = {_RAW + key if key in _KINDS else key: value for key, value in message.items()}
    nested = {key: with_raw_kinds(found[key]) for key in _NESTED if isinstance(found.get(key), dict)}
    return found | nested


def special_content(message: Message | ExternalReplyInfo | None) -> tuple[str | None, str]:
    """Return the type and the description of a poll, place, contact or similar; (None, "") for any other message."""
    if message is None:
        return None, ""
    for kind, fields in _KINDS.items():
        found = message.api_kwargs.get(_RAW + kind)
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


def unknown_content(message: Message) -> str | None:
    """Return a note about a message of an unknown type. Return None for a service message, such as a join."""
    unknown = sorted(message.api_kwargs.keys() - OLD_MARKS)
    known = any(message[kind] for kind in MessageType if kind not in _OF_ANY_KIND)
    if not unknown or known or message.migrate_from_chat_id:
        return None
    return f"a message of a kind that cannot be read here ({line(', '.join(unknown))})"


def words(message: Message) -> str:
    emoji = message.sticker.emoji if message.sticker is not None else None
    return string(message.text if message.text is not None else message.caption or emoji)


def quoted_words(message: Message) -> str:
    """Return the text of a quoted message, with each link's address after the link's words."""
    return linked(words(message), message.entities or message.caption_entities)


def links(said: str, entities: Iterable[MessageEntity]) -> tuple[Link, ...]:
    return tuple(
        Link(text=part(said, one), url=string(one.url))
        for one in entities
        if one.type == "text_link" and one.url
    )


def linked(said: str, entities: Iterable[MessageEntity]) -> str:
    raw = said.encode("utf-16-le")
    for one in sorted(entities, key=lambda each: -each.offset):
        if one.type == "text_link" and one.url:
            end = max(0, number(one.offset) + number(one.length)) * 2
            raw = raw[:end] + f" ({string(one.url)})".encode("utf-16-le") + raw[end:]
    return raw.decode("utf-16-le", "replace")


def name(user: User) -> str | None:
    called = " ".join(filter(None, (string(user.first_name), string(user.last_name)))).strip()
    return text.head(called or string(user.username), 200) or None


def _title(chat: Any) -> str | None:
    called = " ".join(filter(None, (string(chat.first_name), string(chat.last_name))))
    return line(string(chat.title) or called or string(chat.username))


def line(words: object) -> str | None:
    return text.head(" ".join(string(words).split()), 200) or None


def _id(value: object) -> str | None:
    return str(number(value)) if value is not None else None


def part(said: str, entity: MessageEntity) -> str:
    """Return the text that an entity covers; "" if the offsets are outside the text."""
    start = max(0, number(entity.offset)) * 2
    raw = said.encode("utf-16-le")[start : start + max(0, number(entity.length)) * 2]
    return raw.decode("utf-16-le", "replace")


def number(value: object) -> int:
    """Return the value if it is a 64-bit integer. Raises TypeError otherwise, because the library does not check types."""
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
