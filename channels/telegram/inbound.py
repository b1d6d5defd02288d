"""Converts Telegram updates, which are JSON, to `Inbound`s."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import telegram
from telegram import Message, User
from telegram.constants import MessageType

from bot import text
from bot.contracts.base import Json
from bot.contracts.messages import Attachment, Command, Inbound, Link, Origin, Quoted
from channels import approval_buttons
from channels.http_api import file_name
from channels.telegram.bot_api import GARBLED
from channels.telegram.manifest import encode

STOPPED, PRESSED, ADDED = "stopped_message_generation", "callback_query", "my_chat_member"
REACTED, EDITED = "message_reaction", "edited_message"
HANDLED = ("message", EDITED, PRESSED, STOPPED, ADDED, REACTED)  # Types of updates that the bot requests
FULL = 4_000
"""A text of at least this many characters probably continues in the next message, because apps split long texts at 4,096
characters or just before.
"""
_COMMAND = re.compile(r"/(?P<name>[A-Za-z0-9_]{1,64})(?:@(?P<bot>\w+))?")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8}){0,4}")
_FILES: Mapping[str, Literal["photo", "video", "audio", "voice", "sticker", "file"]] = {
    "live_photo": "photo",
    "animation": "video",
    "video": "video",
    "video_note": "video",
    "voice": "voice",
    "audio": "audio",
    "sticker": "sticker",
    "document": "file",
}
"""Fields that contain a message's file, with the kind of the file. An animation has a copy in `document`."""
_RATINGS: Mapping[str, Literal["good", "bad"]] = {"👍": "good", "👎": "bad"}
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
_KNOWN = frozenset(inspect.signature(Message).parameters) | {"from"}
"""Fields of a message that the library knows."""
_CONTENT = frozenset(MessageType) - {
    MessageType.BUSINESS_CONNECTION_ID,
    MessageType.EFFECT_ID,
    MessageType.REPLY_TO_STORY,
    MessageType.SENDER_BOOST_COUNT,
    MessageType.SENDER_BUSINESS_BOT,
    MessageType.SUGGESTED_POST_INFO,
}
"""Types of messages. The library's list also contains fields that a message of any type may have; this set does not."""


class Unreadable(ValueError):
    """Error for an update that does not follow the Bot API."""


def read(raw: Json, bot: telegram.Bot, now: float) -> Inbound | None:
    """Convert one update; return None if the update does not concern the bot. `now` (epoch seconds) is used for updates without
    a time. Raises `Unreadable`.
    """
    readers = {STOPPED: _stop, PRESSED: _press, ADDED: _added, REACTED: _reacted, "message": _message}
    try:
        number(raw["update_id"])
        for kind, reader in (readers | {EDITED: _message}).items():
            if kind in raw:
                return reader(raw, raw[kind], bot.bot, now)
    except GARBLED as exc:
        raise Unreadable(type(exc).__name__) from exc
    return None


def album(raw: Json) -> str | None:
    """Return the id of the album that the update's message is part of; None if the message is in no album."""
    message = raw.get("message") or {}
    group = message.get("media_group_id")
    return f"{message['chat']['id']}:{group}" if group else None


def _message(raw: Json, message: Json, me: User, _now: float) -> Inbound | None:
    sender, chat, edit = message.get("from"), message["chat"], EDITED in raw
    place = _place(chat["id"], message.get("message_thread_id") if message.get("is_topic_message") else None)
    kind, message_id = string(chat["type"]), str(number(message["message_id"]))
    if sender is None or sender["id"] == me.id or "sender_chat" in message or kind == "channel":
        return None
    origin = origin_of(message, me)
    spans, said = entities(message), words(message)
    attachments = _attachments(message) if "sticker" not in message or not said else ()
    special, note = special_content(message)
    if not (said or attachments or special):
        unknown = unknown_content(message)
        if unknown is None:
            return None  # a service message
        special, note = "unknown", unknown
    if edit and special in MOVING:
        return None  # not an edit by a person: Telegram updates a live location
    brought: tuple[Quoted, ...] = ()
    if origin is not None or special is not None:
        # Quote the text of a forwarded message, or the description of content that is neither text nor a file.
        facts = {"origin": origin, "brought": True, "kind": special, "ts": number(message["date"]) * 1000}
        said_there = (quoted_words(message) if origin is not None else "") or note
        source = message if origin is not None else None
        brought = (_quote(sender, source, text=said_there, user_name=name(sender), **facts),)
    if origin is not None:
        # The sender did not write the text of a forwarded message, so commands and mentions in the text do not count.
        said, spans = "", []
    direct = kind == "private"
    command, for_other_bot = _command(said, spans, me)
    if for_other_bot and not (direct or edit):
        return None
    answered = _answered(message)
    answers_me = answered is not None and (answered.get("from") or {}).get("id") == me.id
    reasons: dict[Any, bool] = {
        "direct": direct,
        "command": command is not None,
        "mention": not for_other_bot and any(_mentions(one, said, me) for one in spans),
        "reply": not for_other_bot and answers_me,
        "chat": True,
    }
    begins, rest = len(said) - len(said.lstrip()), said[_own_mention_end(said, me) :]
    return _inbound(
        raw,
        me,
        sender,
        chat,
        place,
        # Two edits may have the same time in seconds, so only the update's id is a unique key.
        key="" if edit else f"message:{chat['id']}:{message_id}",
        ts=number(message["edit_date" if edit else "date"]) * 1000,
        target=place if direct else {**place, "reply_to": message_id},
        kind="edit" if edit else "message",
        addressed=next(reason for reason, holds in reasons.items() if holds),
        # True if the message replies to somebody else, or begins with another person's name
        to_others=(answered is not None and not answers_me)
        or any(one["offset"] == begins and _mentions(one, said, me) is False for one in spans),
        text=rest if rest.strip() else said,  # leave out a mention of the bot at the start
        command=None if edit else command,
        message_id=message_id,
        goes_on=not edit and text.utf16_len(said) >= FULL,
        attachments=attachments,
        quoted=(*_quoted(message, me), *brought),
        links=tuple(Link(text=part(said, one), url=string(one["url"])) for one in spans if _is_link(one)),
        of_album=not edit and bool(message.get("media_group_id")),
        answers=str(number(answered["message_id"])) if answered is not None else None,
    )


# -- updates without a message -----------------------------------------------------------------------------------


def _stop(raw: Json, stopped: Json, me: User, now: float) -> Inbound | None:
    """Return a press of a draft's stop button. The update names no person, so presses outside private chats are dropped."""
    chat = stopped["chat"]
    number(stopped["draft_id"])
    if string(chat["type"]) != "private" or number(chat["id"]) <= 0 or chat["id"] == me.id:
        return None
    person = {"id": chat["id"], "is_bot": False}
    place = _place(chat["id"], stopped.get("message_thread_id"))
    return _inbound(raw, me, person, chat, place, ts=int(now * 1000), kind="stop")


def _press(raw: Json, pressed: Json, me: User, now: float) -> Inbound | None:
    """Return a button press as an `Inbound`. The person's client sends the button's value, so only known commands are
    accepted. The person's id is trusted, because Telegram itself sends it.
    """
    command, press = approval_buttons.command(string(pressed.get("data"))), string(pressed["id"])
    message = pressed.get("message")
    if command is None or message is None or (message.get("from") or {}).get("id", me.id) != me.id:
        return None
    topic = message.get("message_thread_id") if message.get("is_topic_message") else None
    place = _place(message["chat"]["id"], topic)
    return _inbound(
        raw,
        me,
        pressed["from"],
        message["chat"],
        place,
        key=f"press:{press}",
        ts=int(now * 1000),
        target={**place, "press": press},
        addressed="command",
        command=command,
    )


def _added(raw: Json, change: Json, me: User, _now: float) -> Inbound | None:
    chat, at = change["chat"], number(change["date"])
    before, after = (is_inside(change[which]) for which in ("old_chat_member", "new_chat_member"))
    if string(chat["type"]) not in {"group", "supergroup"} or before or not after:
        return None
    place = _place(chat["id"], None)
    key = f"added:{place['chat_id']}:{at // 86_400}"
    return _inbound(
        raw, me, change["from"], chat, place, key=key, ts=at * 1000, kind="added", addressed="mention"
    )


def _reacted(raw: Json, change: Json, me: User, _now: float) -> Inbound | None:
    """Return an `Inbound` if a person added or removed a thumb on a message. Return None for other or anonymous reactions."""
    before, after = (
        next((_RATINGS[one["emoji"]] for one in change[which] if one.get("emoji") in _RATINGS), None)
        for which in ("old_reaction", "new_reaction")
    )
    if before == after or "user" not in change:
        return None
    return _inbound(
        raw,
        me,
        change["user"],
        change["chat"],
        _place(change["chat"]["id"], None),
        ts=number(change["date"]) * 1000,
        kind="rating",
        addressed="command",
        answers=str(number(change["message_id"])),
        rating=after or "none",
    )


def _inbound(
    raw: Json, me: User, sender: Json, chat: Json, place: Mapping[str, str], *, key: str = "", **facts: Any
) -> Inbound:
    """Return an `Inbound` of the person `sender`. `key` is a second de-duplication key, besides the update's id."""
    keys = [f"update:{number(raw['update_id'])}", *([key] if key else [])]
    known: dict[str, Any] = {"target": dict(place)} | facts
    tag = sender.get("language_code")
    return Inbound(
        channel="telegram",
        chat_id=place["chat_id"],
        chat_key=encode(place),
        chat_type="direct" if string(chat["type"]) == "private" else "group",
        user_id=str(number(sender["id"])),
        keys=tuple(f"telegram:{me.id}:{key}" for key in keys),
        user_name=name(sender),
        chat_name=string(chat.get("title")) or None,
        language=tag if isinstance(tag, str) and _LANGUAGE.fullmatch(tag) else None,
        from_bot=sender.get("is_bot") is not False,
        **known,
    )


def is_inside(member: Json) -> bool:
    restricted = member.get("status") == "restricted" and member.get("is_member") is True
    return restricted or member.get("status") in {"creator", "administrator", "member"}


# -- parts of a message ------------------------------------------------------------------------------------------


def _place(chat_id: Any, topic: Any) -> dict[str, str]:
    place = {"chat_id": str(number(chat_id))}
    return place if topic is None else {**place, "message_thread_id": str(number(topic))}


def _command(said: str, spans: Sequence[Json], me: User) -> tuple[Command | None, bool]:
    """Return the command at a message's start or after a mention of the bot, and True if the command is for another bot."""
    begins = _own_mention_end(said, me)
    for entity in spans:
        # Only ASCII precedes the command, so its offset is the same in UTF-16 units and in characters.
        if entity["type"] == "bot_command" and entity["offset"] in {0, begins}:
            ends = number(entity["offset"]) + number(entity["length"])
            match = _COMMAND.fullmatch(said[entity["offset"] : ends])
            if match is None:
                return None, False
            if match["bot"] is not None and match["bot"].lower() != (me.username or "").lower():
                return None, True
            return Command(name=match["name"].lower(), args=said[ends:].strip()), False
    return None, False


def _mentions(entity: Json, said: str, me: User) -> bool | None:
    """Return True if the entity mentions the bot, False if it mentions somebody else, None if it is no mention."""
    if entity["type"] == "mention":
        return part(said, entity).lower() == f"@{me.username}".lower()
    if entity["type"] == "text_mention":
        return bool((entity.get("user") or {}).get("id") == me.id)
    return None


def _own_mention_end(said: str, me: User) -> int:
    """Return the offset after a mention of the bot at the start of a text; 0 if the text does not begin with one."""
    found = re.match(rf"\s*@{re.escape(me.username or '')}\b[\s:,]*", said, flags=re.IGNORECASE)
    return found.end() if found else 0


def _answered(message: Json) -> Json | None:
    """Return the message that `message` replies to. In a topic, a reply to the topic's first message does not count."""
    answered: Json | None = message.get("reply_to_message")
    return answered if answered is not None and "forum_topic_created" not in answered else None


def _quoted(message: Json, me: User) -> tuple[Quoted, ...]:
    """Return the message that `message` replies to, which may be in another chat. The quote's `part` is the passage that the
    person selected. From another chat, Telegram sends only this passage.
    """
    quote, story = message.get("quote"), message.get("reply_to_story")
    picked = quoted_words(quote) or None if quote else None
    answered, reply = _answered(message), message.get("external_reply")
    if answered is None and reply is None and picked is None and story is None:
        return ()
    kind, note = special_content(answered or reply)
    if answered is None:
        origin = _origin((reply or {}).get("origin") or {}, "quoted_from_elsewhere", me)
        if reply is not None:
            chat = name(reply["chat"]) if "chat" in reply else None
            number_there = _id(reply.get("message_id")) or origin.message_id
            origin = origin.model_copy(update={"chat": chat or origin.chat, "message_id": number_there})
        facts = {"text": picked or note, "kind": kind or ("story" if story else None)}
        return (_quote(message["from"], reply, origin=origin, brought=True, **facts),)
    said = quoted_words(answered) or note
    said = said or " ".join(f"[{attachment.kind}]" for attachment in _attachments(answered))
    if not said:
        return ()
    sender = answered.get("from") if "sender_chat" not in answered else None
    mine = sender is not None and sender["id"] == me.id
    return (
        _quote(
            sender,
            answered,
            text=said,
            user_name=name(sender) if sender else None,
            ts=number(answered["date"]) * 1000,
            from_self=mine,
            message_id=str(number(answered["message_id"])),
            origin=origin_of(answered, me),
            part=picked,
            brought=picked is not None,
            kind=kind or ("post of a bot" if sender and sender.get("is_bot") and not mine else None),
        ),
    )


def _quote(by: Json | None, source: Json | None, **facts: Any) -> Quoted:
    names = tuple(one.name or one.kind for one in _attachments(source or {}))
    return Quoted(user_id=str(number(by["id"])) if by is not None else None, files=names, **facts)


def _attachments(message: Json) -> tuple[Attachment, ...]:
    sizes = message.get("photo") or ()
    photo = max(sizes, key=lambda size: number(size["width"]) * number(size["height"]), default=None)
    found = [(photo, "photo")] if photo is not None else [(message.get(key), _FILES[key]) for key in _FILES]
    for file, kind in found:
        if file is not None:
            attachment = Attachment(
                kind=kind,
                name=file_name(string(file.get("file_name"))) or None,
                size=None if file.get("file_size") is None else number(file["file_size"]),
                mime=string(file.get("mime_type")) or None,
                ref=string(file["file_id"]),
            )
            return (attachment,)
    return ()


# -- content besides text and files ------------------------------------------------------------------------------


def origin_of(message: Json, me: User) -> Origin | None:
    """Return the origin of a message that was forwarded, or sent through an inline bot; None if the sender wrote it."""
    forwarded = message.get("forward_origin")
    if forwarded is not None or OLD_MARKS & message.keys() or message.get("is_automatic_forward"):
        return _origin(forwarded or {}, "forwarded", me)
    bot = message.get("via_bot") or message.get("sender_business_bot")
    if bot is not None:
        return Origin(how="via_bot", name=name(bot), id=str(number(bot["id"])), from_self=bot["id"] == me.id)
    return None


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
            author, title = line(given.get("author_signature")), name(chat)
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
    if not unknown or message.keys() & {*_CONTENT, "migrate_from_chat_id"}:
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
    """Return the text of a message or a `TextQuote`, with each link's address after the link's words."""
    raw = words(message).encode("utf-16-le")
    for one in sorted(entities(message), key=lambda each: -number(each["offset"])):
        if _is_link(one):
            end = max(0, number(one["offset"]) + number(one["length"])) * 2
            raw = raw[:end] + f" ({string(one['url'])})".encode("utf-16-le") + raw[end:]
    return raw.decode("utf-16-le", "replace")


def _is_link(entity: Json) -> bool:
    return bool(entity["type"] == "text_link" and entity.get("url"))


def name(who: Json) -> str | None:
    names = " ".join((string(who.get("first_name")), string(who.get("last_name")))).strip()
    return line(string(who.get("title")) or names or who.get("username"))


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
