"""Reads the parts of a Telegram message that are neither its own words nor files: forwards, quotes, polls, places, and
their origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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

MOST_OPTIONS = 100
"""Options of a poll, or tasks of a list, that are named; Telegram has fewer."""
MOST_PARTS = 5_000
"""Parts of a rich message that are looked at; Telegram has 500 blocks."""
DEEPEST = 40
LONGEST = 8_000
"""Characters of what is neither words nor a file."""
_AS_IT_COMES = "~"
"""Before the names of fields that the library is not to read."""
_INSIDE = ("reply_to_message", "external_reply")
MOVING = frozenset({"location", "venue"})
"""Kinds that Telegram changes by itself while they are shared live."""
OLD_MARKS = frozenset(
    {"forward_date", "forward_from", "forward_from_chat", "forward_sender_name", "forward_signature"}
)
"""Fields by which older servers mark a forwarded message."""
_RICH = "rich_message"
_LEADING = ("summary", "label", "text", "blocks", "items", "cells", "expression", "caption", "credit")
"""The fields of the parts of a rich message that hold words, in the order in which they are read."""
_PARAGRAPHS = frozenset({"blocks", "items"})


def origin(message: Message, me: User) -> Origin | None:
    """The author of a forwarded message or of one sent by an inline bot; None where the sender wrote it."""
    told = message.forward_origin
    if told is not None or OLD_MARKS & message.api_kwargs.keys() or message.is_automatic_forward:
        return _of(told, "forwarded", me)
    bot = message.via_bot or message.sender_business_bot
    if bot is not None:
        return Origin(how="via_bot", name=name(bot), id=str(number(bot.id)), from_self=bot.id == me.id)
    return None


def external_origin(reply: ExternalReplyInfo, me: User) -> Origin:
    """The author of a message of another chat that this one replies to."""
    found = _of(reply.origin, "quoted_from_elsewhere", me)
    where = reply.chat
    if where is None:
        return found
    named = _title(where) or found.chat
    return found.model_copy(update={"chat": named, "message_id": _id(reply.message_id) or found.message_id})


def _of(told: Any, how: Any, me: User) -> Origin:
    ts = int(told.date.timestamp() * 1000) if told is not None else None
    match told:
        case MessageOriginUser(sender_user=user):
            return Origin(
                how=how, name=name(user), id=str(number(user.id)), ts=ts, from_self=user.id == me.id
            )
        case MessageOriginHiddenUser(sender_user_name=hidden):
            return Origin(how=how, name=line(hidden), ts=ts)
        case MessageOriginChat(sender_chat=chat, author_signature=author):
            return Origin(
                how=how, name=line(author) or _title(chat), id=_id(chat.id), chat=_title(chat), ts=ts
            )
        case MessageOriginChannel(chat=chat, author_signature=author, message_id=post):
            return Origin(
                how=how,
                name=line(author) or _title(chat),
                id=_id(chat.id),
                chat=_title(chat),
                message_id=_id(post),
                ts=ts,
            )
    return Origin(how=how, ts=ts)


def kept(message: Json) -> Json:
    """A message as the library is given it: what it is in place of words is left as it comes, since the library refuses the whole
    message over a field of it that is missing or new.
    """
    found = {_AS_IT_COMES + key if key in _KINDS else key: value for key, value in message.items()}
    inner = {key: kept(found[key]) for key in _INSIDE if isinstance(found.get(key), dict)}
    return found | inner


def special_content(message: Message | ExternalReplyInfo | None) -> tuple[str | None, str]:
    """The kind and text of a message that is neither words nor a file (a poll, a place, a contact); None and "" for any other."""
    if message is None:
        return None, ""
    for kind, told in _KINDS.items():
        found = message.api_kwargs.get(_AS_IT_COMES + kind)
        if isinstance(found, dict):
            said = "\n".join(filter(None, told(found)))
            named = kind.replace("_", " ")
            return named, text.head(said, LONGEST) or f"a message of the kind {named}"
    return None, ""


def unknown_content(message: Message) -> str | None:
    """A note for a message of an unknown kind; None for a service message, such as a join."""
    unknown = sorted(message.api_kwargs.keys() - OLD_MARKS - {_RICH})
    known = any(message[kind] for kind in MessageType if kind not in _OF_ANY_KIND)
    if not unknown or known or message.migrate_from_chat_id:
        return None
    return f"a message of a kind that cannot be read here ({line(', '.join(unknown))})"


def rich(message: Message) -> tuple[str, tuple[Link, ...], frozenset[str]]:
    """The words of a rich message, the addresses behind some of them, and the names that are mentioned in it."""
    reading = _RichTextReader()
    return reading.words(message), tuple(reading.links), frozenset(reading.mentions)


def words(message: Message) -> str:
    """Words of a message: its text or caption, or the emoji that a sticker stands for."""
    emoji = message.sticker.emoji if message.sticker is not None else None
    return string(message.text if message.text is not None else message.caption or emoji)


def quoted_words(message: Message) -> str:
    """The words of a message that another one brings, each address behind the words that stand for it."""
    said = words(message)
    entities = message.entities or message.caption_entities
    return linked(said, entities) or _RichTextReader(shows_addresses=True).words(message)


class _RichTextReader:
    """One rich message being read: a tree of blocks, each with words, marked words, or more blocks."""

    def __init__(self, *, shows_addresses: bool = False) -> None:
        self._shows_addresses = shows_addresses
        self._left = MOST_PARTS
        self.links: list[Link] = []
        self.mentions: set[str] = set()

    def words(self, message: Message) -> str:
        told = message.api_kwargs.get(_RICH)
        return self.read(told.get("blocks"), 0).strip("\n") if isinstance(told, Mapping) else ""

    def read(self, part: Any, depth: int, between: str = "\n") -> str:
        self._left -= 1
        if depth > DEEPEST or self._left < 0:
            return ""
        if isinstance(part, str):
            return text.clean(part)
        if isinstance(part, list):
            return between.join(self.read(one, depth + 1, between) for one in part)
        return self._object(part, depth) if isinstance(part, Mapping) else ""

    def _object(self, part: Mapping[str, Any], depth: int) -> str:
        kind = part.get("type")
        lines = [self._field(key, part[key], depth + 1) for key in _LEADING if key in part]
        said = "\n".join(filter(None, lines))
        if kind == "mention":
            self.mentions.add(said.lower())
        if isinstance(url := part.get("url"), str) and said:
            self.links.append(Link(text=said, url=text.clean(url)))
            said += f" ({text.clean(url)})" if self._shows_addresses else ""
        if kind in {"photo", "video", "animation", "audio", "voice_note", "map"}:
            return f"[{kind}]" + (f" {said}" if said else "")
        return said or string(part.get("alternative_text"))

    def _field(self, key: str, value: Any, depth: int) -> str:
        if key == "cells" and isinstance(value, list):
            rows = (row if isinstance(row, list) else [row] for row in value)
            return "\n".join(" | ".join(self.read(cell, depth) for cell in row) for row in rows)
        return self.read(value, depth, "\n" if key in _PARAGRAPHS else "")


def links(said: str, entities: Iterable[MessageEntity]) -> tuple[Link, ...]:
    """The addresses that stand behind words of a text."""
    return tuple(
        Link(text=part(said, one), url=string(one.url))
        for one in entities
        if one.type == "text_link" and one.url
    )


def linked(said: str, entities: Iterable[MessageEntity]) -> str:
    """A text with each address behind the words that stand for it."""
    raw = said.encode("utf-16-le")
    for one in sorted(entities, key=lambda each: -each.offset):
        if one.type == "text_link" and one.url:
            end = max(0, number(one.offset) + number(one.length)) * 2
            raw = raw[:end] + f" ({string(one.url)})".encode("utf-16-le") + raw[end:]
    return raw.decode("utf-16-le", "replace")


def _word(found: Json, *keys: str) -> str:
    """The texts and numbers that stand under these keys."""
    told = (found.get(key) for key in keys)
    return " ".join(text.clean(str(one)) for one in told if isinstance(one, str | int) and one != "")


def _list(found: Json, key: str) -> list[Json]:
    listed = found.get(key)
    return [one for one in listed if isinstance(one, dict)][:MOST_OPTIONS] if isinstance(listed, list) else []


def _location(found: Json) -> list[str]:
    places = [
        f"{key} {value:.6f}"
        for key in ("latitude", "longitude")
        if isinstance(value := found.get(key), int | float)
    ]
    return [", ".join([*places, *(["live"] if found.get("live_period") else [])])]


def _venue(found: Json) -> list[str]:
    place = found.get("location")
    return [
        _word(found, "title"),
        _word(found, "address"),
        *(_location(place) if isinstance(place, dict) else []),
    ]


def _contact(found: Json) -> list[str]:
    known = f"Telegram id {_word(found, 'user_id')}" if found.get("user_id") else ""
    return [
        _word(found, "first_name", "last_name"),
        f"phone {_word(found, 'phone_number')}",
        known,
        _word(found, "vcard"),
    ]


def _poll(found: Json) -> list[str]:
    closed = " (closed)" if found.get("is_closed") is True else ""
    options = [f"- {_word(one, 'text')} ({_word(one, 'voter_count')})" for one in _list(found, "options")]
    return [
        f"{_word(found, 'question')}{closed}",
        _word(found, "description"),
        *options,
        _word(found, "explanation"),
    ]


def _checklist(found: Json) -> list[str]:
    tasks = [
        f"[{'x' if one.get('completion_date') else ' '}] {_word(one, 'text')}"
        for one in _list(found, "tasks")
    ]
    return [_word(found, "title"), *tasks]


def _story(found: Json) -> list[str]:
    chat = found.get("chat")
    whose = _word(chat, "title") or _word(chat, "first_name", "last_name") if isinstance(chat, dict) else ""
    return [f"a story of {whose or 'somebody'}, which cannot be looked at here"]


def _titled(found: Json) -> list[str]:
    return [_word(found, "title"), _word(found, "description")]


_KINDS: Mapping[str, Callable[[Json], list[str]]] = {
    "venue": _venue,
    "location": _location,
    "contact": _contact,
    "poll": _poll,
    "checklist": _checklist,
    "dice": lambda found: [_word(found, "emoji", "value")],
    "game": _titled,
    "story": _story,
    "invoice": _titled,
    "paid_media": lambda found: [
        f"{len(_list(found, 'paid_media'))} items for {_word(found, 'star_count')} stars"
    ],
    "giveaway": lambda found: [_word(found, "prize_description")],
    "giveaway_winners": lambda found: [_word(found, "prize_description")],
    "web_app_data": lambda found: [_word(found, "button_text"), _word(found, "data")],
}
"""A venue has a location too, so it comes first."""
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
"""Fields of messages of every kind, which the library counts as kinds."""


def name(user: User) -> str | None:
    called = " ".join(filter(None, (string(user.first_name), string(user.last_name)))).strip()
    return text.head(called or string(user.username), 200) or None


def _title(chat: Any) -> str | None:
    called = " ".join(filter(None, (string(chat.first_name), string(chat.last_name))))
    return line(string(chat.title) or called or string(chat.username))


def line(words: object) -> str | None:
    """A name on one line."""
    return text.head(" ".join(string(words).split()), 200) or None


def _id(value: object) -> str | None:
    return str(number(value)) if value is not None else None


def part(said: str, entity: MessageEntity) -> str:
    """The text of an entity. Its numbers are the platform's, so nothing is taken for granted."""
    start = max(0, number(entity.offset)) * 2
    raw = said.encode("utf-16-le")[start : start + max(0, number(entity.length)) * 2]
    return raw.decode("utf-16-le", "replace")


def number(value: object) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise TypeError("a number of 64 bits is expected")
    return value


def string(value: object) -> str:
    """A text that can be written. Each half pair becomes one unit, so the offsets of entities still hold."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return text.clean(value)
