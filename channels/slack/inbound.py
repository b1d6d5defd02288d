"""Slack's payloads as `Inbound`: pure functions, strict about what places an answer, lenient about the rest."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bot import text
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Command, Inbound, Quoted
from channels.slack import address, blocks, events, mentions, shared_messages
from channels.slack.files import attachments
from channels.slack.mentions import Names, unescape

Addressed = Literal["direct", "mention", "command", "thread", "chat"]
Kind = Literal["message", "edit", "delete", "stop"]
ChannelId = Annotated[str, Field(pattern=r"^[CDG][A-Z0-9]{2,}$")]
UserId = Annotated[str, Field(pattern=r"^[UW][A-Z0-9]{2,}$")]
Ts = Annotated[str, Field(pattern=r"^[0-9]{1,12}\.[0-9]{1,9}$")]
Label = Annotated[str, Field(pattern=r"^[!-~]{1,300}$")]

_LEAD = " \t\r\n\u200b\ufeff"
_COMMAND = re.compile(r"!([A-Za-z][A-Za-z0-9_-]{0,31})(?:\s+(.*))?", re.DOTALL)


BOTS = "post of a bot"
"""The kind of a quote that no person wrote."""


class Unreadable(ValueError):
    """A payload that Slack never sends: the text names fields and kinds of trouble, and quotes nothing."""


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """The bot's ids and name in its workspace. `one_direct`: a direct chat is one conversation, its threads included."""

    team: str
    user: str
    bot: str
    one_direct: bool = False
    name: str = ""

    def heard(self, source: str) -> str:
        """A text of Slack as it is said to the bot: by its name within a sentence, and without that before it; others stay ids."""
        said = mentions.nameless(mentions.without_address(source, self.user))
        return mentions.readable(said, self.named(mentions.nobody), self.user)

    def named(self, names: Names) -> Names:
        """The names of people, and the bot's own."""
        return lambda user: self.name if user == self.user else names(user)

    @property
    def ids(self) -> frozenset[str]:
        return frozenset({self.user, self.bot})

    def named_in(self, message: str) -> bool:
        return f"<@{self.user}>" in message or f"<@{self.user}|" in message

    def wrote(self, post: _Post) -> bool:
        return post.bot_id == self.bot or post.user == self.user

    def conversation(self, channel: str, root: str | None) -> ChatKey:
        """The conversation of a message whose thread is that of `root`; None for what is said of the chat itself."""
        if root is None or (self.one_direct and address.is_direct(channel)):
            return address.encode({"channel": channel})
        return address.encode({"channel": channel, "thread_ts": root})

    def inbound(self, channel: str, root: str | None, user: str, **facts: Any) -> Inbound:
        """The act of a person in the conversation of `root`; its further `facts` are those of `Inbound`."""
        return Inbound(
            channel="slack",
            chat_id=channel,
            chat_key=self.conversation(channel, root),
            chat_type="direct" if address.is_direct(channel) else "group",
            user_id=user,
            **facts,
        )


def _carried(value: Any) -> Any:
    # Before validation: a lone surrogate must not cost the message.
    return text.clean(value) if isinstance(value, str) else value


Words = Annotated[str, BeforeValidator(_carried)]


class Payload(BaseModel):
    """A part of what Slack sends, as far as it is read."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class _Body(Payload):
    event_id: Label
    event: dict[str, Any]


class _Head(Payload):
    type: Label
    subtype: Label | None = None


class _Edited(Payload):
    ts: Ts
    user: UserId | None = None


class _Post(Payload):
    """A message: an event of its own, or inside one that tells of a change."""

    ts: Ts
    user: UserId | None = None
    bot_id: Label | None = None
    subtype: Label | None = None
    text: Words | None = None
    thread_ts: Ts | None = None
    client_msg_id: Label | None = None
    edited: _Edited | None = None
    files: Any = None
    blocks: Any = None
    attachments: Any = None

    @property
    def source(self) -> str:
        """As Slack sends it: `<@U…>` is a mention here, and one that was only typed out is escaped."""
        return self.text if self.text and self.text.strip() else blocks.text_of(self.blocks)

    @property
    def words(self) -> str:
        return unescape(self.source)

    @property
    def thread(self) -> str | None:
        """The root, where this is a reply."""
        return self.thread_ts if self.thread_ts != self.ts else None


class _New(_Post):
    type: str
    channel: ChannelId


class _Changed(Payload):
    channel: ChannelId
    message: _Post
    previous_message: _Post | None = None


class _Deleted(Payload):
    channel: ChannelId
    deleted_ts: Ts
    previous_message: _Post | None = None


class _Stopped(Payload):
    channel: ChannelId
    thread_ts: Ts
    user: UserId
    event_ts: Ts


class _Joined(Payload):
    channel: ChannelId
    user: UserId
    inviter: UserId | None = None
    event_ts: Ts


class _Slash(Payload):
    channel_id: ChannelId
    user_id: UserId
    trigger_id: Label
    text: Words | None = None


_PartT = TypeVar("_PartT", bound=Payload)


def parse(model: type[_PartT], value: Any) -> _PartT:
    """Raises `Unreadable`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = [
            f"{'.'.join(map(str, each['loc']))}: {each['type']}"
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise Unreadable("; ".join(found[:5])) from None


def milliseconds(ts: str) -> int:
    return _nano(ts) // 1_000_000


def read_event(body: Json, me: BotIdentity, names: Names = mentions.nobody) -> Inbound | None:
    """An `event_callback` as an `Inbound`, with the `names` of those whom it mentions; None where it is no message for the bot. Raises `Unreadable`."""
    parsed = parse(_Body, body)
    event, event_id = parsed.event, parsed.event_id
    head = parse(_Head, event)
    subtype = head.subtype
    if head.type not in events.HANDLED or head.type == events.HOME:
        return None
    if head.type in _SIGNALS:
        return _SIGNALS[head.type](event, event_id, me)
    if subtype == "message_changed":
        return _change(parse(_Changed, event), event_id, me, names)
    if subtype == "message_deleted":
        gone = parse(_Deleted, event)
        return _delete(gone.channel, gone.previous_message, event_id, me)
    if subtype is not None and subtype not in events.MESSAGES:
        return None
    return _message(parse(_New, event), event_id, me, names)


def _added(told: Json, event_id: str, me: BotIdentity) -> Inbound | None:
    """A conversation that somebody brought the bot into; None for the arrival of anybody else."""
    event = parse(_Joined, told)
    if event.user != me.user or event.inviter is None:
        return None
    ts = milliseconds(event.event_ts)
    return me.inbound(
        event.channel,
        None,
        event.inviter,
        keys=(
            f"slack:{me.team}:event:{event_id}",
            f"slack:{me.team}:added:{event.channel}:{ts // 86_400_000}",
        ),
        ts=ts,
        target={"channel": event.channel},
        kind="added",
        addressed="mention",
    )


def read_command(body: Json, me: BotIdentity, now: float) -> Inbound:
    """`/shipmate word args` as an `Inbound`; other words than a command's are a message. Slack has no slash commands in
    threads.
    """
    slash = parse(_Slash, body)
    said = unescape(slash.text or "").strip(_LEAD)
    words = said.split(None, 1) or ["help"]
    name, args = words[0].lstrip("!/").lower(), words[1] if len(words) > 1 else ""
    is_command = events.is_command(name, args) or events.is_misspelt(name, args)
    command = Command(name=name, args=args) if is_command else None
    return me.inbound(
        slash.channel_id,
        None,
        slash.user_id,
        keys=(f"slack:{me.team}:command:{slash.trigger_id}",),
        ts=int(now * 1000),
        target={"channel": slash.channel_id, "trigger": slash.trigger_id},
        addressed="command",
        text="" if command is not None else said,
        command=command,
    )


def read_thread(messages: Any, me: BotIdentity, before: str, names: Names = mentions.nobody) -> list[Quoted]:
    """Messages of `conversations.replies` older than `before`, oldest first; what is no message is left out."""
    found: list[tuple[int, Quoted]] = []
    for message in messages if isinstance(messages, list) else []:
        try:
            post = parse(_Post, message)
        except Unreadable:
            continue
        ts = milliseconds(post.ts)
        odd = post.subtype is not None and post.subtype not in events.MESSAGES
        if odd or _nano(post.ts) >= _nano(before):
            continue
        who = post.user or post.bot_id
        if post.words.strip():
            words = mentions.readable(post.source, me.named(names), me.user)
            kind = BOTS if _of_bot(post) and not me.wrote(post) else None
            quoted = Quoted(
                user_id=who, text=words, ts=ts, from_self=me.wrote(post), message_id=post.ts, kind=kind
            )
            found.append((_nano(post.ts), quoted))
        for share in shared_messages.read(post.attachments, by=who, channel=None, ours=me.ids):
            # Shared by somebody earlier on: this message does not bring it.
            shared = share.quoted.model_copy(update={"message_id": post.ts, "brought": False})
            found.append((_nano(post.ts), shared))
    return [quoted for _, quoted in sorted(found, key=lambda each: each[0])]


def _of_bot(post: _Post) -> bool:
    return post.bot_id is not None or post.subtype == "bot_message"


def newest(said: Sequence[Quoted], most: int) -> list[Quoted]:
    """The newest messages of people, and as many posts of bots, which take no place of theirs; oldest first."""
    kinds = (
        [at for at, one in enumerate(said) if (one.kind == BOTS) is bots][-most:] for bots in (False, True)
    )
    return [said[at] for at in sorted(itertools.chain(*kinds))]


def _nano(ts: str) -> int:
    seconds, _, fraction = ts.partition(".")
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0"))


def _message(post: _New, event_id: str, me: BotIdentity, names: Names) -> Inbound | None:
    if me.wrote(post):
        return None
    if post.user is None and post.bot_id is None:
        raise Unreadable("user: missing")
    keys = [f"slack:{me.team}:event:{event_id}", f"slack:{me.team}:message:{post.channel}:{post.ts}"]
    if not address.is_direct(post.channel) and (post.type == "message" or post.files):
        keys.append(_whole(me, post.channel, post.ts))
    if post.client_msg_id is not None:
        keys.append(f"slack:{me.team}:client:{post.client_msg_id}")
    command = _command(post.words, me)
    addressed = _addressed(post, command, mentioned=post.type == "app_mention" or me.named_in(post.source))
    if command is None and addressed != "chat":
        command = _command(post.words, me, known=events.is_misspelt)
    found = _inbound(post.channel, post, tuple(keys), addressed, me, names=names, command=command)
    alone = command is not None and (command.name == "stop" or address.is_direct(post.channel))
    if alone and post.thread is None:
        # Said in the chat, it is about that: in the thread that it could open nothing was said yet.
        return found.model_copy(update={"chat_key": me.conversation(post.channel, None)})
    return found


def _whole(me: BotIdentity, channel: str, ts: str) -> str:
    """The key of what a mention may lack of its message."""
    return f"slack:{me.team}:message:{channel}:{ts}:whole"


def rest_of(message: Inbound, me: BotIdentity) -> Inbound | None:
    """The files and shares of a message whose mention, taken in before it, may have lacked them; None where it has
    none. Its words come along as a quote, so that they are not answered twice.
    """
    whole = _whole(me, message.chat_id, message.message_id or "")
    if message.kind != "message" or whole not in message.keys or not (message.attachments or message.brought):
        return None
    words = Quoted(
        user_id=message.user_id,
        text=message.text,
        user_name=message.user_name,
        ts=message.ts,
        message_id=message.message_id,
    )
    update = {
        "keys": (whole,),
        "text": "",
        "command": None,
        "message_id": None,
        "quoted": (*([words] if message.text.strip() else []), *message.quoted),
    }
    return message.model_copy(update=update)


def _change(event: _Changed, event_id: str, me: BotIdentity, names: Names) -> Inbound | None:
    post, before = event.message, event.previous_message
    if post.subtype == "tombstone":
        return _delete(event.channel, before, event_id, me)
    if not _is_edit(post, before) or me.wrote(post):
        return None
    if post.user is None and post.bot_id is None:
        raise Unreadable("message.user: missing")
    addressed = _changed_place(event.channel, me, *([post] if before is None else [post, before]))
    if post.edited is None:
        return None
    place = f"slack:{me.team}:message:{event.channel}:{post.ts}:edited:{post.edited.ts}"
    keys = (f"slack:{me.team}:event:{event_id}", place)
    ts = milliseconds(post.edited.ts)
    return _inbound(event.channel, post, keys, addressed, me, names=names, kind="edit", ts=ts)


def _is_edit(post: _Post, before: _Post | None) -> bool:
    """Streaming, link previews and new replies change a message too: only its author's new words are an edit."""
    if post.edited is None or not _is_message(post) or (before is not None and before.source == post.source):
        return False
    return post.user is None or post.edited.user in {None, post.user}


def _is_message(post: _Post) -> bool:
    return post.subtype is None or post.subtype in events.MESSAGES


def _delete(channel: str, post: _Post | None, event_id: str, me: BotIdentity) -> Inbound | None:
    # Without the message that is gone nobody can say whose it was, so nobody's rights can be looked up.
    if post is None or me.wrote(post) or (post.user is None and post.bot_id is None) or not _is_message(post):
        return None
    addressed = _changed_place(channel, me, post)
    if addressed == "chat" and post.thread_ts is not None:
        addressed = "thread"  # what a thread began with was read along by whoever was asked in it
    place = f"slack:{me.team}:message:{channel}:{post.ts}:deleted"
    keys = (f"slack:{me.team}:event:{event_id}", place)
    return _inbound(channel, post, keys, addressed, me, kind="delete")


def _stop(told: Json, event_id: str, me: BotIdentity) -> Inbound:
    """The stop button of a session. Its place is the target of the message that the session answers."""
    event = parse(_Stopped, told)
    mark = f"slack:{me.team}:stop:{event.channel}:{event.thread_ts}:{event.event_ts}"
    return me.inbound(
        event.channel,
        event.thread_ts,
        event.user,
        keys=(f"slack:{me.team}:event:{event_id}", mark),
        ts=milliseconds(event.event_ts),
        target={"channel": event.channel, "thread_ts": event.thread_ts},
        kind="stop",
        addressed="direct" if address.is_direct(event.channel) else "command",
    )


_SIGNALS: Mapping[str, Callable[[Json, str, BotIdentity], Inbound | None]] = {
    "agent_session_stopped": _stop,
    "member_joined_channel": _added,
}


def _place(channel: str, post: _Post, *, mentioned: bool) -> Addressed:
    if address.is_direct(channel):
        return "direct"
    if mentioned:
        return "mention"
    return "thread" if post.thread is not None else "chat"


def _changed_place(channel: str, me: BotIdentity, *versions: _Post) -> Addressed:
    """The reason why a change is for the bot: that of the newest version of the message that has one."""
    found = _place(channel, versions[0], mentioned=any(me.named_in(post.source) for post in versions))
    if found == "chat" and any(_command(post.words, me) is not None for post in versions):
        return "command"
    return found


def _addressed(post: _New, command: Command | None, *, mentioned: bool) -> Addressed:
    place = _place(post.channel, post, mentioned=mentioned)
    if place == "chat" and command is not None:
        return "command"
    return place


def _command(
    words: str, me: BotIdentity, *, known: Callable[[str, str], bool] = events.is_command
) -> Command | None:
    """`!word args` at the start, or after a mention of the bot, where the word is a command."""
    start = words.lstrip(_LEAD)
    mention = re.match(rf"<@{re.escape(me.user)}(?:\|[^<>]*)?>[\s:,]*", start)
    if mention is not None:
        start = start[mention.end() :].lstrip(_LEAD)
    match = _COMMAND.fullmatch(start)
    if match is None:
        return None
    name, args = match[1].lower(), (match[2] or "").strip()
    return Command(name=name, args=args) if known(name, args) else None


def _inbound(
    channel: str,
    post: _Post,
    keys: tuple[str, ...],
    addressed: Addressed,
    me: BotIdentity,
    *,
    names: Names | None = None,
    kind: Kind = "message",
    command: Command | None = None,
    ts: int | None = None,
) -> Inbound:
    root = post.thread_ts or post.ts
    shared = shared_messages.read(post.attachments, by=post.user, channel=channel, ours=me.ids)
    shared = shared if kind != "delete" else ()
    return me.inbound(
        channel,
        root,
        post.user or post.bot_id or "",
        keys=keys,
        ts=milliseconds(post.ts) if ts is None else ts,
        target={"channel": channel, "thread_ts": root},
        kind=kind,
        addressed=addressed,
        to_others=mentions.begins_with_other(post.source, me.user),
        text=me.heard(post.source) if names is not None else "",
        mentioned=mentions.named(post.source, names, me.user) if names is not None else {},
        command=command,
        message_id=post.ts,
        from_bot=_of_bot(post),
        attachments=(
            *(attachments(post.files) if kind != "delete" else ()),
            *(file for share in shared for file in share.files),
        ),
        quoted=tuple(share.quoted for share in shared),
    )
