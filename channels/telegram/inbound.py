"""Converts Telegram updates to `Inbound`s."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import telegram
from telegram import ExternalReplyInfo, Message, MessageEntity, Update, User

from bot import text
from bot.contracts.base import Json
from bot.contracts.inbound import Attachment, Command, Inbound, Origin, Quoted
from channels import approval_buttons
from channels.http_client import file_name
from channels.telegram import content
from channels.telegram.bot_api import GARBLED
from channels.telegram.content import name, number, part, string
from channels.telegram.manifest import encode

STOPPED = "stopped_message_generation"
PRESSED = "callback_query"
ADDED = "my_chat_member"
REACTED = "message_reaction"
HANDLED = ("message", "edited_message", PRESSED, STOPPED, ADDED, REACTED)
"""Types of updates that the bot requests."""

FULL = 4_000
"""Min characters of a text that probably continues in the next message. Apps split long texts at 4,096 characters or just
before.
"""
_COMMAND = re.compile(r"/(?P<name>[A-Za-z0-9_]{1,64})(?:@(?P<bot>\w+))?")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8}){0,4}")
_RATINGS: Mapping[str, Literal["good", "bad"]] = {"👍": "good", "👎": "bad"}


class Unreadable(ValueError):
    """Error for an update that does not follow the Bot API."""


def read(raw: Json, bot: telegram.Bot, now: float) -> Inbound | None:
    """Convert one update; return None if it does not concern the bot. `now` (epoch seconds) is used for updates without a
    time. Raises `Unreadable`.
    """
    try:
        number(raw["update_id"])
        if STOPPED in raw:
            return _stop(raw, bot.bot, now)
        if PRESSED in raw:
            return _press(raw, bot.bot, now)
        if ADDED in raw:
            return _added(raw, bot.bot)
        if REACTED in raw:
            return _reacted(raw, bot.bot)
        for kind in ("message", "edited_message"):
            if kind in raw:
                # Only this field is parsed, so errors in other fields do no harm.
                body = content.with_raw_kinds(raw[kind]) if isinstance(raw[kind], dict) else raw[kind]
                update = Update.de_json({"update_id": raw["update_id"], kind: body}, bot)
                message = update.effective_message
                return _message(update.update_id, message, bot.bot, kind) if message is not None else None
    except GARBLED as exc:
        raise Unreadable(type(exc).__name__) from exc
    return None


def album(raw: Json) -> str | None:
    """Return the id of the album that the update's message is part of; None if it is in no album."""
    message = raw.get("message") or {}
    group = message.get("media_group_id")
    return f"{message['chat']['id']}:{group}" if group else None


def _message(update_id: int, message: Message, me: User, kind: str) -> Inbound | None:
    sender, chat, edit = message.from_user, message.chat, kind == "edited_message"
    if sender is None or sender.id == me.id or message.sender_chat is not None or chat.type == "channel":
        return None
    origin = content.origin(message, me)
    entities = message.entities or message.caption_entities
    said = content.words(message)
    attachments = _attachments(message) if message.sticker is None or not said else ()
    special, note = content.special_content(message)
    if not (said or attachments or special):
        unknown = content.unknown_content(message)
        if unknown is None:
            return None  # a service message
        special, note = "unknown", unknown
    if edit and special in content.MOVING:
        return None  # Telegram updates the place of a live location
    brought = _brought(message, origin, special, note)
    if origin is not None:
        # The sender did not write the text of a forwarded message, so it contains no command and no mention by the sender.
        said, entities = "", ()
    direct = chat.type == "private"
    command, for_other_bot = _command(said, entities, me)
    if for_other_bot and not (direct or edit):
        return None
    place = _place(chat.id, message.message_thread_id if message.is_topic_message else None)
    answered, message_id = _answered(message), str(number(message.message_id))
    answers_me = answered is not None and answered.from_user is not None and answered.from_user.id == me.id
    reasons: dict[Any, bool] = {
        "direct": direct,
        "command": command is not None,
        "mention": not for_other_bot and any(_mentions(entity, said, me) for entity in entities),
        "reply": not for_other_bot and answers_me,
        "chat": True,
    }
    begins, rest = len(said) - len(said.lstrip()), said[_own_mention_end(said, me) :]
    key = f"telegram:{me.id}:message:{chat.id}:{message_id}"
    update_key = f"telegram:{me.id}:update:{number(update_id)}"
    if edit and message.edit_date is None:
        raise ValueError("an edited message has no edit date")
    return Inbound(
        channel="telegram",
        chat_id=place["chat_id"],
        chat_key=encode(place),
        chat_type="direct" if direct else "group",
        user_id=str(number(sender.id)),
        # Two edits may have the same second, so only the update's id is a unique key.
        keys=(update_key,) if edit else (update_key, key),
        ts=int((message.edit_date if edit and message.edit_date else message.date).timestamp() * 1000),
        target=place if direct else {**place, "reply_to": message_id},
        kind="edit" if edit else "message",
        addressed=next(reason for reason, holds in reasons.items() if holds),
        # the message replies to somebody else, or begins with another person's name
        to_others=(answered is not None and not answers_me)
        or any(one.offset == begins and _mentions(one, said, me) is False for one in entities),
        text=rest if rest.strip() else said,  # without a mention of the bot at the start
        command=None if edit else command,
        message_id=message_id,
        goes_on=not edit and text.utf16_len(said) >= FULL,
        user_name=name(sender),
        chat_name=chat.title,
        language=_language(sender.language_code),
        from_bot=sender.is_bot is not False,
        attachments=attachments,
        quoted=(*_quoted(message, me), *brought),
        links=content.links(said, entities),
        of_album=not edit and bool(message.media_group_id),
        answers=str(number(answered.message_id)) if answered is not None else None,
    )


# -- updates without a message: the library rejects or does not know them, so they are read as JSON ------------------


def _stop(raw: Json, me: User, now: float) -> Inbound | None:
    """Return the inbound of a draft's stop button. The update names no person, so presses outside private chats are dropped."""
    stopped = raw[STOPPED]
    chat = stopped["chat"]
    number(stopped["draft_id"])
    if string(chat["type"]) != "private" or number(chat["id"]) <= 0 or chat["id"] == me.id:
        return None
    place = _place(chat["id"], stopped.get("message_thread_id"))
    return Inbound(
        channel="telegram",
        chat_id=place["chat_id"],
        chat_key=encode(place),
        chat_type="direct",
        user_id=place["chat_id"],
        keys=(f"telegram:{me.id}:update:{raw['update_id']}",),
        ts=int(now * 1000),
        target=place,
        kind="stop",
    )


def _press(raw: Json, me: User, now: float) -> Inbound | None:
    """Return the inbound of a button press. The person's client sends the value, so only known commands are accepted.
    Telegram itself sends the person's id.
    """
    pressed = raw[PRESSED]
    command, press = approval_buttons.command(string(pressed.get("data"))), string(pressed["id"])
    message = pressed.get("message")
    if command is None or message is None or (message.get("from") or {}).get("id", me.id) != me.id:
        return None
    topic = message.get("message_thread_id") if message.get("is_topic_message") else None
    place = _place(message["chat"]["id"], topic)
    return _signal(
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


def _added(raw: Json, me: User) -> Inbound | None:
    """Return the inbound of a person who added the bot to a group. Return None for other changes of membership."""
    change = raw[ADDED]
    chat, at = change["chat"], number(change["date"])
    before, after = (is_inside(change[which]) for which in ("old_chat_member", "new_chat_member"))
    if string(chat["type"]) not in {"group", "supergroup"} or before or not after:
        return None
    place = _place(chat["id"], None)
    key = f"added:{place['chat_id']}:{at // 86_400}"
    return _signal(
        raw, me, change["from"], chat, place, key=key, ts=at * 1000, kind="added", addressed="mention"
    )


def _reacted(raw: Json, me: User) -> Inbound | None:
    """Return the inbound of a thumb that a person added to a message or removed. Return None for other or anonymous reactions."""
    change = raw[REACTED]
    before, after = (
        next((_RATINGS[one["emoji"]] for one in change[which] if one.get("emoji") in _RATINGS), None)
        for which in ("old_reaction", "new_reaction")
    )
    if before == after or "user" not in change:
        return None
    return _signal(
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


def _signal(
    raw: Json, me: User, sender: Any, chat: Any, place: Mapping[str, str], *, key: str = "", **facts: Any
) -> Inbound:
    """Return an inbound without a text, for an action of a person. `key` adds a second de-duplication key besides the
    update's id.
    """
    user = User.de_json(sender, None)
    marks = [f"update:{raw['update_id']}", *([key] if key else [])]
    known: dict[str, Any] = {"target": dict(place)} | facts
    return Inbound(
        channel="telegram",
        chat_id=place["chat_id"],
        chat_key=encode(place),
        chat_type="direct" if string(chat["type"]) == "private" else "group",
        user_id=str(number(sender["id"])),
        keys=tuple(f"telegram:{me.id}:{mark}" for mark in marks),
        user_name=name(user),
        chat_name=string(chat.get("title")) or None,
        language=_language(user.language_code),
        from_bot=user.is_bot is not False,
        **known,
    )


def is_inside(member: Json) -> bool:
    restricted = member.get("status") == "restricted" and member.get("is_member") is True
    return restricted or member.get("status") in {"creator", "administrator", "member"}


# -- parts of a message ------------------------------------------------------------------------------------------


def _language(tag: object) -> str | None:
    return tag if isinstance(tag, str) and _LANGUAGE.fullmatch(tag) else None


def _place(chat_id: Any, topic: Any) -> dict[str, str]:
    place = {"chat_id": str(number(chat_id))}
    return place if topic is None else {**place, "message_thread_id": str(number(topic))}


def _command(said: str, entities: Iterable[MessageEntity], me: User) -> tuple[Command | None, bool]:
    """Return the command at the start of a message, also after a mention of the bot, and True if it is for another bot."""
    begins = _own_mention_end(said, me)
    for entity in entities:
        # Only ASCII precedes the command, so its offset is the same in UTF-16 units and in characters.
        if entity.type == "bot_command" and entity.offset in {0, begins}:
            ends = entity.offset + number(entity.length)
            match = _COMMAND.fullmatch(said[entity.offset : ends])
            if match is None:
                return None, False
            if match["bot"] is not None and match["bot"].lower() != (me.username or "").lower():
                return None, True
            return Command(name=match["name"].lower(), args=said[ends:].strip()), False
    return None, False


def _mentions(entity: MessageEntity, said: str, me: User) -> bool | None:
    """Return True if the entity mentions the bot, False if it mentions somebody else, None if it is no mention."""
    if entity.type == "mention":
        return part(said, entity).lower() == f"@{me.username}".lower()
    if entity.type == "text_mention":
        return entity.user is not None and entity.user.id == me.id
    return None


def _own_mention_end(said: str, me: User) -> int:
    """Return the offset after a mention of the bot at the start of a text; 0 if there is none."""
    found = re.match(rf"\s*@{re.escape(me.username or '')}\b[\s:,]*", said, flags=re.IGNORECASE)
    return found.end() if found else 0


def _answered(message: Message) -> Message | None:
    """Return the message that this one replies to. In a topic, a reply to the topic's first message does not count."""
    answered = message.reply_to_message
    return answered if answered is not None and answered.forum_topic_created is None else None


def _quoted(message: Message, me: User) -> tuple[Quoted, ...]:
    """Return the message that this one replies to, which may be in another chat. The quote's `part` is the passage that the
    person selected. From another chat, Telegram sends only this passage.
    """
    quote = message.quote
    picked = (content.linked(string(quote.text), quote.entities or ()) or None) if quote is not None else None
    answered, reply = _answered(message), message.external_reply
    if answered is None and reply is None and picked is None and message.reply_to_story is None:
        return ()
    kind, note = content.special_content(answered or reply)
    if answered is None:
        origin = (
            content.external_origin(reply, me) if reply is not None else Origin(how="quoted_from_elsewhere")
        )
        facts = {"text": picked or note, "kind": kind or ("story" if message.reply_to_story else None)}
        by = message.from_user
        return (_quote(by, reply, origin=origin, brought=True, **facts),)
    said = content.quoted_words(answered) or note
    said = said or " ".join(f"[{attachment.kind}]" for attachment in _attachments(answered))
    if not said:
        return ()
    sender = answered.from_user if answered.sender_chat is None else None
    mine = sender is not None and sender.id == me.id
    return (
        _quote(
            sender,
            answered,
            text=said,
            user_name=name(sender) if sender else None,
            ts=int(answered.date.timestamp() * 1000),
            from_self=mine,
            message_id=str(number(answered.message_id)),
            origin=content.origin(answered, me),
            part=picked,
            brought=picked is not None,
            kind=kind or ("post of a bot" if sender and sender.is_bot and not mine else None),
        ),
    )


def _quote(by: User | None, source: Message | ExternalReplyInfo | None, **facts: Any) -> Quoted:
    files = _attachments(source) if source is not None else ()
    names = tuple(one.name or one.kind for one in files)
    return Quoted(user_id=str(number(by.id)) if by is not None else None, files=names, **facts)


def _brought(message: Message, origin: Origin | None, kind: str | None, note: str) -> tuple[Quoted, ...]:
    """Return the text of a forwarded message, or the description of content that is neither text nor a file."""
    if origin is None and kind is None:
        return ()
    sender, forwarded = message.from_user, origin is not None
    facts = {"origin": origin, "brought": True, "kind": kind, "ts": int(message.date.timestamp() * 1000)}
    text = (content.quoted_words(message) if forwarded else "") or note
    user_name = name(sender) if sender is not None else None
    return (_quote(sender, message if forwarded else None, text=text, user_name=user_name, **facts),)


def _attachments(message: Message | ExternalReplyInfo) -> tuple[Attachment, ...]:
    """Return the message's file. Of a photo, return the largest size. Of an animation, ignore its copy in `document`."""
    photo = max(message.photo or (), key=lambda size: number(size.width) * number(size.height), default=None)
    kinds: tuple[tuple[Any, Literal["photo", "video", "audio", "voice", "sticker", "file"]], ...] = (
        (photo, "photo"),
        (message.live_photo, "photo"),
        (message.animation, "video"),
        (message.video, "video"),
        (message.video_note, "video"),
        (message.voice, "voice"),
        (message.audio, "audio"),
        (message.sticker, "sticker"),
        (message.document, "file"),
    )
    for file, kind in kinds:
        if file is not None:
            attachment = Attachment(
                kind=kind,
                name=file_name(string(getattr(file, "file_name", None))) or None,
                size=None if file.file_size is None else number(file.file_size),
                mime=string(getattr(file, "mime_type", None)) or None,
                ref=string(file.file_id),
            )
            return (attachment,)
    return ()
