"""Parses Telegram updates into `Inbound`s."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import telegram
from telegram import ExternalReplyInfo, Message, MessageEntity, Update, User

from bot import text
from bot.contracts.base import Json
from bot.contracts.inbound import Attachment, Command, Inbound, Origin, Quoted
from channels import approval_buttons
from channels.telegram import address, content
from channels.telegram.bot_api import GARBLED
from channels.telegram.content import name, number, part, string

STOPPED = "stopped_message_generation"
PRESSED = "callback_query"
ADDED = "my_chat_member"
REACTED = "message_reaction"
HANDLED = ("message", "edited_message", PRESSED, STOPPED, ADDED, REACTED)
"""The kinds of update that the bot asks Telegram for."""

FULL = 4_000
"""Characters from which on a text is likely to go on in the next message: people's apps cut a long one at 4,096, or a little before."""
Addressed = Literal["direct", "mention", "reply", "command", "chat"]
_COMMAND = re.compile(r"/(?P<name>[A-Za-z0-9_]{1,64})(?:@(?P<bot>\w+))?")

_TAG = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8}){0,4}")


class Unreadable(ValueError):
    """An update that is not what the Bot API describes."""


@dataclass(frozen=True, slots=True)
class ReadUpdate:
    """One update that may be for the bot. `album` names the album that it is an item of."""

    inbound: Inbound
    album: str | None = None


def read(raw: Json, bot: telegram.Bot, now: float) -> ReadUpdate | None:
    """An update as an inbound; None where it does not concern the bot. `now` (epoch seconds) dates an update that has
    no date of its own. Raises `Unreadable`.
    """
    try:
        if STOPPED in raw:
            return _stop(raw["update_id"], raw[STOPPED], bot.bot, now)
        if PRESSED in raw:
            return _press(raw["update_id"], raw[PRESSED], bot.bot, now)
        for kind, signal in ((ADDED, _added), (REACTED, _reacted)):
            if kind in raw:
                return signal(raw["update_id"], raw[kind], bot.bot)
        # Other kinds are nobody's business here, so they are not decoded, and cannot fail.
        told = {name: raw[name] for name in ("update_id", *HANDLED) if name in raw}
        told |= {name: content.kept(one) for name, one in told.items() if isinstance(one, dict)}
        update = Update.de_json(told, bot)
        if update.message is not None:
            return _message(update.update_id, update.message, bot.bot, edit=False)
        if update.edited_message is not None:
            return _message(update.update_id, update.edited_message, bot.bot, edit=True)
    except GARBLED as exc:
        raise Unreadable(type(exc).__name__) from exc
    return None


def merge(events: Sequence[ReadUpdate]) -> Inbound | None:
    """One inbound for the items of an album (or a single event); None where there is none."""
    items = [event.inbound for event in events]
    if not items:
        return None
    addressed = [item for item in items if item.addressed != "chat"]
    named = next((item for item in items if item.command is not None), [*addressed, *items][0])
    answered = next((kept for item in items if (kept := [one for one in item.quoted if not one.brought])), [])
    return items[0].model_copy(
        update={
            "keys": tuple(key for item in items for key in item.keys),
            "text": "\n".join(item.text for item in items if item.text),
            "addressed": named.addressed,
            "command": named.command,
            "attachments": tuple(attachment for item in items for attachment in item.attachments),
            "quoted": (*answered, *(one for item in items for one in item.brought)),
            "links": tuple(link for item in items for link in item.links),
            "items": {item.message_id: item.text for item in items if item.message_id} if items[1:] else {},
        }
    )


def _message(update_id: int, message: Message, me: User, *, edit: bool) -> ReadUpdate | None:
    sender, chat = message.from_user, message.chat
    if sender is None or sender.id == me.id or message.sender_chat is not None or chat.type == "channel":
        return None
    origin = content.origin(message, me)
    entities = message.entities or message.caption_entities
    rich, linked, mentions = content.rich(message)
    said = content.words(message)
    links = (*content.links(said, entities), *linked)
    attachments = _attachments(message) if message.sticker is None or not said else ()
    kind, note = content.special_content(message)
    if not (said or rich or attachments or kind):
        unknown = content.unknown_content(message)
        if unknown is None:
            return None  # a service message
        kind, note = "unknown", unknown
    if edit and kind in content.MOVING:
        return None  # where somebody is now: nobody has changed a message
    direct = chat.type == "private"
    brought = _brought(message, origin, kind, note)
    if origin is not None:
        # Whoever passes words on has not said them: they are no command, and address nobody.
        said, rich, links, entities, mentions = "", "", (), (), frozenset()
    command, foreign = _command(said, entities, me)
    if foreign and not (direct or edit):
        return None
    addressed = _addressed(message, said, entities, me) if not (direct or foreign) else None
    if addressed is None and f"@{me.username}".lower() in mentions:
        addressed = "mention"
    reason: Addressed = "direct" if direct else "command" if command else addressed or "chat"
    where = _place(chat.id, message.message_thread_id if message.is_topic_message else None)
    numbered = str(number(message.message_id))
    inbound = Inbound(
        channel="telegram",
        chat_id=where["chat_id"],
        chat_key=address.encode(where),
        chat_type="direct" if direct else "group",
        user_id=str(number(sender.id)),
        keys=_keys(me, number(update_id), message, edit=edit),
        ts=int((message.edit_date if edit and message.edit_date else message.date).timestamp() * 1000),
        target=where if direct else {**where, "reply_to": numbered},
        kind="edit" if edit else "message",
        addressed=reason,
        to_others=_to_others(message, said, entities, me),
        text=_without_address(said or rich, me),
        command=None if edit else command,
        message_id=numbered,
        goes_on=not edit and text.utf16_len(said) >= FULL,
        user_name=name(sender),
        chat_name=chat.title,
        language=_language(sender.language_code),
        from_bot=sender.is_bot is not False,
        attachments=attachments,
        quoted=(*_quoted(message, me), *brought),
        links=links,
        answers=str(number(answered.message_id)) if (answered := _answered(message)) else None,
        changes=_key(me, message) if edit else None,
    )
    album = None if edit or not message.media_group_id else f"{chat.id}:{message.media_group_id}"
    return ReadUpdate(inbound, album)


def _stop(update_id: Any, stopped: Any, me: User, now: float) -> ReadUpdate | None:
    """The stop button of a reply that is being written. The library does not know it, so the raw update is read.

    It names no person: in a private chat it is that chat's person; elsewhere it is dropped.
    """
    chat = stopped["chat"]
    chat_id, thread = number(chat["id"]), stopped.get("message_thread_id")
    number(stopped["draft_id"])
    if string(chat["type"]) != "private" or chat_id <= 0 or chat_id == me.id:
        return None
    where = _place(chat_id, thread)
    inbound = Inbound(
        channel="telegram",
        chat_id=where["chat_id"],
        chat_key=address.encode(where),
        chat_type="direct",
        user_id=where["chat_id"],
        keys=(f"telegram:{me.id}:update:{number(update_id)}",),
        ts=int(now * 1000),
        target=where,
        kind="stop",
    )
    return ReadUpdate(inbound)


def _press(update_id: Any, pressed: Any, me: User, now: float) -> ReadUpdate | None:
    """A button below a question of ours. What it stands for comes from the person's program, so only the commands that
    buttons have are taken from it; who pressed it, Telegram says.
    """
    command = approval_buttons.command(string(pressed.get("data")))
    message, sender = pressed.get("message"), pressed["from"]
    if command is None or message is None or (message.get("from") or {}).get("id", me.id) != me.id:
        return None
    chat, topic = message["chat"], message.get("message_thread_id")
    where = _place(chat["id"], topic if message.get("is_topic_message") else None)
    return _signal(
        update_id,
        me,
        (where, chat, sender),
        f"press:{string(pressed['id'])}",
        ts=int(now * 1000),
        target={**where, "press": string(pressed["id"])},
        addressed="command",
        command=command,
    )


def _added(update_id: Any, told: Any, me: User) -> ReadUpdate | None:
    """A group that the bot was brought into. Other changes of its membership concern nobody."""
    chat, sender, at = told["chat"], told["from"], number(told["date"])
    before, after = (_is_inside(told[which]) for which in ("old_chat_member", "new_chat_member"))
    if string(chat["type"]) not in {"group", "supergroup"} or before or not after:
        return None
    where = _place(chat["id"], None)
    mark = f"added:{where['chat_id']}:{at // 86_400}"
    return _signal(
        update_id, me, (where, chat, sender), mark, ts=at * 1000, kind="added", addressed="mention"
    )


_RATINGS: Mapping[str, Literal["good", "bad"]] = {"👍": "good", "👎": "bad"}


def _reacted(update_id: Any, told: Any, me: User) -> ReadUpdate | None:
    """A thumb below a message, or its end; None for any other reaction, and where nobody says who it is."""
    before, after = (_thumb(told[which]) for which in ("old_reaction", "new_reaction"))
    if before == after or "user" not in told:
        return None
    return _signal(
        update_id,
        me,
        (_place(told["chat"]["id"], None), told["chat"], told["user"]),
        ts=number(told["date"]) * 1000,
        kind="rating",
        addressed="command",
        answers=str(number(told["message_id"])),
        rating=after or "none",
    )


def _signal(
    update_id: Any, me: User, of: tuple[Mapping[str, str], Any, Any], *marks: str, **facts: Any
) -> ReadUpdate:
    """An update that is no message: `of` are its place, its chat and its person, `marks` further keys of it."""
    where, chat, sender = of
    user = User.de_json(sender, None)
    known: dict[str, Any] = {"target": where} | facts
    inbound = Inbound(
        channel="telegram",
        chat_id=where["chat_id"],
        chat_key=address.encode(where),
        chat_type="direct" if string(chat["type"]) == "private" else "group",
        user_id=str(number(sender["id"])),
        keys=tuple(f"telegram:{me.id}:{mark}" for mark in (f"update:{number(update_id)}", *marks)),
        user_name=name(user),
        chat_name=string(chat.get("title")) or None,
        language=_language(user.language_code),
        from_bot=user.is_bot is not False,
        **known,
    )
    return ReadUpdate(inbound)


def _thumb(reactions: Any) -> Literal["good", "bad"] | None:
    """Of several the first counts."""
    found = [_RATINGS[one["emoji"]] for one in reactions if one.get("emoji") in _RATINGS]
    return found[0] if found else None


def _language(tag: object) -> str | None:
    """The tag of the language of somebody's app, where it is one."""
    return tag if isinstance(tag, str) and _TAG.fullmatch(tag) else None


def _is_inside(member: Any) -> bool:
    status = string(member["status"])
    return status in {"creator", "administrator", "member"} or (
        status == "restricted" and member.get("is_member") is True
    )


def _place(chat_id: Any, topic: Any) -> dict[str, str]:
    """The target of what is sent to a chat, or to a topic of it."""
    where = {"chat_id": str(number(chat_id))}
    return where if topic is None else {**where, "message_thread_id": str(number(topic))}


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
    """The command that a message begins with, behind the bot's own name or without it, and whether it is meant for another
    bot.
    """
    begins = _address_end(said, me)
    for entity in entities:
        # All that stands before it is one unit a character, as those are that Telegram counts.
        if entity.type == "bot_command" and entity.offset in {0, begins}:
            ends = entity.offset + number(entity.length)
            match = _COMMAND.fullmatch(said[entity.offset : ends])
            if match is None:
                return None, False
            bot = match["bot"]
            if bot is not None and bot.lower() != (me.username or "").lower():
                return None, True
            args = said[ends:].strip()
            return Command(name=match["name"].lower(), args=args), False
    return None, False


def _addressed(
    message: Message, said: str, entities: Iterable[MessageEntity], me: User
) -> Literal["mention", "reply"] | None:
    """The reason why a message in a group is for the bot; None where it is not."""
    handle = f"@{me.username}".lower()
    for entity in entities:
        if entity.type == "mention" and part(said, entity).lower() == handle:
            return "mention"
        if entity.type == "text_mention" and entity.user is not None and entity.user.id == me.id:
            return "mention"
    answered = _answered(message)
    if answered is not None and answered.from_user is not None and answered.from_user.id == me.id:
        return "reply"
    return None


def _without_address(said: str, me: User) -> str:
    """A text without the bot's name that it begins with; one that is nothing else stays as it is."""
    rest = said[_address_end(said, me) :]
    return rest if rest.strip() else said


def _address_end(said: str, me: User) -> int:
    """The place behind the bot's name with which a text begins; 0 where it begins otherwise."""
    found = re.match(rf"\s*@{re.escape(me.username or '')}\b[\s:,]*", said, flags=re.IGNORECASE)
    return found.end() if found else 0


def _to_others(message: Message, said: str, entities: Iterable[MessageEntity], me: User) -> bool:
    """True where a message mentions somebody else first, or replies to them."""
    answered, handle = _answered(message), f"@{me.username}".lower()
    if answered is not None and (answered.from_user is None or answered.from_user.id != me.id):
        return True
    begins = len(said) - len(said.lstrip())
    return any(
        (entity.type == "mention" and part(said, entity).lower() != handle)
        or (entity.type == "text_mention" and (entity.user is None or entity.user.id != me.id))
        for entity in entities
        if entity.offset == begins
    )


def _answered(message: Message) -> Message | None:
    """The message that this one replies to. In a topic every message points at the one that opened it."""
    answered = message.reply_to_message
    if answered is None or answered.forum_topic_created is not None:
        return None
    return answered


def _quoted(message: Message, me: User) -> tuple[Quoted, ...]:
    """The message that this one replies to, here or in another chat. A passage that the person picked comes with the
    message itself; of another chat it is all that has words.
    """
    quote = message.quote
    picked = (content.linked(string(quote.text), quote.entities or ()) or None) if quote is not None else None
    answered, reply = _answered(message), message.external_reply
    if answered is not None:
        return _replied(answered, picked, me)
    if reply is None and picked is None and message.reply_to_story is None:
        return ()
    origin = content.external_origin(reply, me) if reply is not None else Origin(how="quoted_from_elsewhere")
    kind, note = content.special_content(reply)
    by = message.from_user
    return (
        Quoted(
            user_id=str(number(by.id)) if by is not None else None,
            text=picked or note,
            origin=origin,
            brought=True,
            kind=kind or ("story" if message.reply_to_story is not None else None),
            files=_files(reply) if reply is not None else (),
        ),
    )


def _replied(answered: Message, picked: str | None, me: User) -> tuple[Quoted, ...]:
    kind, note = content.special_content(answered)
    said = content.quoted_words(answered) or note
    said = said or " ".join(f"[{attachment.kind}]" for attachment in _attachments(answered))
    if not said:
        return ()
    sender = answered.from_user if answered.sender_chat is None else None
    return (
        Quoted(
            user_id=str(number(sender.id)) if sender else None,
            text=said,
            user_name=name(sender) if sender else None,
            ts=int(answered.date.timestamp() * 1000),
            from_self=sender is not None and sender.id == me.id,
            message_id=str(number(answered.message_id)),
            origin=content.origin(answered, me),
            part=picked,
            brought=picked is not None,
            kind=kind or ("post of a bot" if sender and sender.is_bot and sender.id != me.id else None),
            files=_files(answered),
        ),
    )


def _brought(message: Message, origin: Origin | None, kind: str | None, note: str) -> tuple[Quoted, ...]:
    """Words that a message forwards, and a note of its kind where it is neither words nor a file."""
    if origin is None and kind is None:
        return ()
    sender = message.from_user
    words = content.quoted_words(message) if origin is not None else ""
    return (
        Quoted(
            user_id=str(number(sender.id)) if sender is not None else None,
            text=words or note,
            user_name=name(sender) if sender is not None else None,
            ts=int(message.date.timestamp() * 1000),
            origin=origin,
            brought=True,
            kind=kind,
            files=_files(message) if origin is not None else (),
        ),
    )


def _files(message: Message | ExternalReplyInfo) -> tuple[str, ...]:
    return tuple(one.name or one.kind for one in _attachments(message))


def _attachments(message: Message | ExternalReplyInfo) -> tuple[Attachment, ...]:
    """The file of a message. An animation comes as a document too, for old clients."""
    if message.photo:
        best = max(message.photo, key=lambda size: number(size.width) * number(size.height))
        return (_attachment("photo", best),)
    kinds: tuple[tuple[Any, Literal["photo", "video", "audio", "voice", "sticker", "file"]], ...] = (
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
            return (_attachment(kind, file),)
    return ()


def _attachment(
    kind: Literal["photo", "video", "audio", "voice", "sticker", "file"], file: Any
) -> Attachment:
    called = string(getattr(file, "file_name", None))
    return Attachment(
        kind=kind,
        name=_file_name(called) or None,
        size=None if file.file_size is None else number(file.file_size),
        mime=string(getattr(file, "mime_type", None)) or None,
        ref=string(file.file_id),
    )


def _file_name(name: str) -> str:
    """A file's name without what makes it read as another one: controls, direction marks, lines."""
    shown = "".join(char for char in name if unicodedata.category(char) not in {"Cc", "Cf", "Zl", "Zp"})
    return text.head(shown.strip(), 200)
