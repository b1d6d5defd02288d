"""Updates of Telegram as inbound messages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import telegram
from telegram import Message, MessageEntity, Update, User

from bot import text
from bot.contracts import Attachment, Command, Inbound, Json, Quoted
from channels.telegram import address, kinds
from channels.telegram.wire import GARBLED

OTHER_CONTENT = ("location", "venue", "contact", "poll", "dice", "story", "checklist", "paid_media", "game")
"""Content that is no file and has no text: named as an attachment, so that the answer can name it too."""

Addressed = Literal["direct", "mention", "reply", "command"]
_BUTTON = re.compile(r"(?P<name>approve|deny) (?P<args>[0-9A-Z]{26}(?: (?:once|chat|always))?)")
_COMMAND = re.compile(r"/(?P<name>[A-Za-z0-9_]{1,64})(?:@(?P<bot>\w+))?")


class Unreadable(ValueError):
    """An update that is not what the Bot API describes."""


@dataclass(frozen=True, slots=True)
class Event:
    """One update that may be for the bot. `addressed` is False where only its album can make it so."""

    update_id: int
    inbound: Inbound
    addressed: bool
    album: str | None = None


def read(raw: Json, bot: telegram.Bot, now: float) -> Event | None:
    """What an update means; None where it is none of the bot's business. `now` is the time (epoch seconds) of what
    has no date of its own. Raises `Unreadable`.
    """
    try:
        if kinds.STOPPED in raw:
            return _stop(raw["update_id"], raw[kinds.STOPPED], bot.bot, now)
        if kinds.PRESSED in raw:
            return _press(raw["update_id"], raw[kinds.PRESSED], bot.bot, now)
        # Other kinds are nobody's business here, so they are not decoded, and cannot fail.
        update = Update.de_json(
            {name: raw[name] for name in ("update_id", *kinds.HANDLED) if name in raw}, bot
        )
        if update.message is not None:
            return _message(update.update_id, update.message, bot.bot, edit=False)
        if update.edited_message is not None:
            return _message(update.update_id, update.edited_message, bot.bot, edit=True)
    except GARBLED as exc:
        raise Unreadable(type(exc).__name__) from exc
    return None


def merge(events: Sequence[Event]) -> Inbound | None:
    """One inbound for the items of an album (or a single event); None where none is addressed to the bot."""
    addressed = [event.inbound for event in events if event.addressed]
    if not addressed:
        return None
    items = [event.inbound for event in events]
    named = next((item for item in items if item.command is not None), addressed[0])
    quoted = next((item.quoted for item in items if item.quoted), ())
    return items[0].model_copy(
        update={
            "keys": tuple(key for item in items for key in item.keys),
            "text": "\n".join(item.text for item in items if item.text),
            "addressed": named.addressed,
            "command": named.command,
            "attachments": tuple(attachment for item in items for attachment in item.attachments),
            "quoted": quoted,
            "items": {item.message_id: item.text for item in items if item.message_id} if items[1:] else {},
        }
    )


def _message(update_id: int, message: Message, me: User, *, edit: bool) -> Event | None:
    sender, chat = message.from_user, message.chat
    if sender is None or sender.id == me.id or message.sender_chat is not None or chat.type == "channel":
        return None
    said = _string(message.text if message.text is not None else message.caption)
    attachments = _attachments(message)
    if not said and not attachments:
        return None  # a service message
    direct = chat.type == "private"
    entities = message.entities or message.caption_entities
    command, foreign = _command(said, entities, me)
    addressed = _addressed(message, said, entities, me) if not (direct or foreign) else None
    reason: Addressed = "direct" if direct else "command" if command else addressed or "mention"
    topic = message.message_thread_id if message.is_topic_message else None
    where = {"chat_id": str(_number(chat.id))}
    if topic is not None:
        where["message_thread_id"] = str(_number(topic))
    number = _number(message.message_id)
    inbound = Inbound(
        channel="telegram",
        chat_id=where["chat_id"],
        chat_key=address.encode(where),
        chat_type="direct" if direct else "group",
        user_id=str(_number(sender.id)),
        keys=_keys(me, _number(update_id), message, edit=edit),
        ts=int((message.edit_date if edit and message.edit_date else message.date).timestamp() * 1000),
        target=where if direct else {**where, "reply_to": str(number)},
        kind="edit" if edit else "message",
        addressed=reason,
        text=said,
        command=None if edit else command,
        message_id=str(number),
        user_name=_name(sender),
        from_bot=sender.is_bot is not False,
        attachments=attachments,
        quoted=_quoted(message, me),
        answers=str(_number(answered.message_id)) if (answered := _answered(message)) else None,
        changes=_key(me, message) if edit else None,
    )
    album = None if edit or not message.media_group_id else f"{chat.id}:{message.media_group_id}"
    return Event(update_id, inbound, direct or bool(command or addressed), album)


def _stop(update_id: Any, stopped: Any, me: User, now: float) -> Event | None:
    """The stop button of a reply that is being written. The library does not know it, so it is read as it comes.

    It names no person: in a private chat it can only be the one whose chat it is; elsewhere it is nobody's.
    """
    chat = stopped["chat"]
    chat_id, thread = _number(chat["id"]), stopped.get("message_thread_id")
    _number(stopped["draft_id"])
    if _string(chat["type"]) != "private" or chat_id <= 0 or chat_id == me.id:
        return None
    where = {"chat_id": str(chat_id)}
    if thread is not None:
        where["message_thread_id"] = str(_number(thread))
    inbound = Inbound(
        channel="telegram",
        chat_id=where["chat_id"],
        chat_key=address.encode(where),
        chat_type="direct",
        user_id=where["chat_id"],
        keys=(f"telegram:{me.id}:update:{_number(update_id)}",),
        ts=int(now * 1000),
        target=where,
        kind="stop",
    )
    return Event(update_id, inbound, addressed=True)


def _press(update_id: Any, pressed: Any, me: User, now: float) -> Event | None:
    """A button below a question of ours. What it stands for comes from the person's program, so only the commands that
    buttons have are taken from it; who pressed it, Telegram says.
    """
    found = _BUTTON.fullmatch(_string(pressed.get("data")))
    message, sender = pressed.get("message"), pressed["from"]
    if found is None or message is None or (message.get("from") or {}).get("id", me.id) != me.id:
        return None
    chat, topic = message["chat"], message.get("message_thread_id")
    where = {"chat_id": str(_number(chat["id"]))}
    if topic is not None and message.get("is_topic_message"):
        where["message_thread_id"] = str(_number(topic))
    inbound = Inbound(
        channel="telegram",
        chat_id=where["chat_id"],
        chat_key=address.encode(where),
        chat_type="direct" if chat["type"] == "private" else "group",
        user_id=str(_number(sender["id"])),
        keys=(
            f"telegram:{me.id}:update:{_number(update_id)}",
            f"telegram:{me.id}:press:{_string(pressed['id'])}",
        ),
        ts=int(now * 1000),
        target={**where, "press": _string(pressed["id"])},
        addressed="command",
        command=Command(name=found["name"], args=found["args"]),
        from_bot=sender.get("is_bot") is not False,
    )
    return Event(update_id, inbound, addressed=True)


def _keys(me: User, update_id: int, message: Message, *, edit: bool) -> tuple[str, ...]:
    """The update itself, and the message that it tells of, which may come in another update again. Two edits may
    bear the same second, so an edit has no other mark than its update.
    """
    bot = f"telegram:{me.id}"
    update = f"{bot}:update:{update_id}"
    if not edit:
        return update, _key(me, message)
    if message.edit_date is None:
        raise ValueError("an edited message has a date of its edit")
    return (update,)


def _key(me: User, message: Message) -> str:
    return f"telegram:{me.id}:message:{message.chat.id}:{message.message_id}"


def _command(said: str, entities: Iterable[MessageEntity], me: User) -> tuple[Command | None, bool]:
    """The command that a message begins with, and whether it is meant for another bot."""
    for entity in entities:
        if entity.type == "bot_command" and entity.offset == 0:
            match = _COMMAND.fullmatch(said[: _number(entity.length)])
            if match is None:
                return None, False
            bot = match["bot"]
            if bot is not None and bot.lower() != (me.username or "").lower():
                return None, True
            args = said[entity.length :].strip()
            return Command(name=match["name"].lower(), args=args), False
    return None, False


def _addressed(
    message: Message, said: str, entities: Iterable[MessageEntity], me: User
) -> Literal["mention", "reply"] | None:
    """Why a message in a group is for the bot."""
    handle = f"@{me.username}".lower()
    for entity in entities:
        if entity.type == "mention" and _part(said, entity).lower() == handle:
            return "mention"
        if entity.type == "text_mention" and entity.user is not None and entity.user.id == me.id:
            return "mention"
    answered = _answered(message)
    if answered is not None and answered.from_user is not None and answered.from_user.id == me.id:
        return "reply"
    return None


def _answered(message: Message) -> Message | None:
    """The message that this one replies to. In a topic every message points at the one that opened it."""
    answered = message.reply_to_message
    if answered is None or answered.forum_topic_created is not None:
        return None
    return answered


def _quoted(message: Message, me: User) -> tuple[Quoted, ...]:
    answered = _answered(message)
    if answered is None:
        return ()
    said = _string(answered.text if answered.text is not None else answered.caption)
    if not said:
        said = " ".join(f"[{attachment.kind}]" for attachment in _attachments(answered))
    if not said:
        return ()
    sender = answered.from_user if answered.sender_chat is None else None
    return (
        Quoted(
            user_id=str(_number(sender.id)) if sender else None,
            text=said,
            user_name=_name(sender) if sender else None,
            ts=int(answered.date.timestamp() * 1000),
            from_self=sender is not None and sender.id == me.id,
            message_id=str(_number(answered.message_id)),
        ),
    )


def _attachments(message: Message) -> tuple[Attachment, ...]:
    """The file of a message. An animation comes as a document too, for old clients."""
    if message.photo:
        best = max(message.photo, key=lambda size: _number(size.width) * _number(size.height))
        return (_attachment("photo", best),)
    kinds: tuple[tuple[Any, Literal["video", "audio", "voice", "sticker", "file"]], ...] = (
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
            return (_attachment(kind, file),)
    other = next((name for name in OTHER_CONTENT if getattr(message, name, None)), None)
    return (Attachment(kind="file", name=other.replace("_", " ")),) if other else ()


def _attachment(
    kind: Literal["photo", "video", "audio", "voice", "sticker", "file"], file: Any
) -> Attachment:
    name = _string(getattr(file, "file_name", None))
    return Attachment(
        kind=kind,
        name=_file_name(name) or None,
        size=None if file.file_size is None else _number(file.file_size),
        mime=_string(getattr(file, "mime_type", None)) or None,
        ref=_string(file.file_id),
    )


def _file_name(name: str) -> str:
    """A file's name without what makes it read as another one: controls, direction marks, lines."""
    shown = "".join(char for char in name if unicodedata.category(char) not in {"Cc", "Cf", "Zl", "Zp"})
    return text.head(shown.strip(), 200)


def _name(user: User) -> str | None:
    name = " ".join(filter(None, (_string(user.first_name), _string(user.last_name)))).strip()
    return text.head(name or _string(user.username), 200) or None


def _part(said: str, entity: MessageEntity) -> str:
    """The text of an entity. Its numbers are the platform's, so nothing is taken for granted."""
    start = max(0, _number(entity.offset)) * 2
    raw = said.encode("utf-16-le")[start : start + max(0, _number(entity.length)) * 2]
    return raw.decode("utf-16-le", "replace")


def _number(value: object) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise TypeError("a number of 64 bits is expected")
    return value


def _string(value: object) -> str:
    """A text that can be written. Each half pair becomes one unit, so the offsets of entities still hold."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return text.clean(value)
