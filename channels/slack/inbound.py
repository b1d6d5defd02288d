"""Converts Slack's payloads to `Inbound`s with pure functions. Only the fields that decide where an answer is sent are
required.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bot import text
from bot.contracts.base import Json
from bot.contracts.messages import Command, Inbound, Quoted
from bot.words import names as command_names
from channels import approval_buttons
from channels.slack import content
from channels.slack.content import Names, unescape
from channels.slack.manifest import encode, is_direct

Addressed = Literal["direct", "mention", "command", "thread", "chat"]
ChannelId = Annotated[str, Field(pattern=r"^[CDG][A-Z0-9]{2,}$")]
UserId = Annotated[str, Field(pattern=r"^[UW][A-Z0-9]{2,}$")]
Ts = Annotated[str, Field(pattern=r"^[0-9]{1,12}\.[0-9]{1,9}$")]
Label = Annotated[str, Field(pattern=r"^[!-~]{1,300}$")]

HOME_OPENED, PRESSED = "app_home_opened", "block_actions"
_RATINGS: dict[str, Literal["good", "bad"]] = {"rating good": "good", "rating bad": "bad"}
MESSAGES = frozenset({"file_share", "thread_broadcast", "me_message", "bot_message"})
"""Subtypes of `message` events that contain a person's or bot's message. Other subtypes (join, topic, pin) are ignored."""
BOTS = "post of a bot"  # `Quoted.kind` of a bot's message

_WHOLE = ":whole"
"""Suffix of the de-duplication key of a complete message. An `app_mention` may lack files, so its key has no suffix."""
_LEAD = " \t\r\n\u200b\ufeff"
_COMMAND = re.compile(r"!([A-Za-z][A-Za-z0-9_-]{0,31})(?:\s+(.*))?", re.DOTALL)
_COMMANDS = frozenset(command_names("help"))
_MAX_MISSPELT_ARGS = 2
"""Max words after a misspelt command. A text with more words counts as a sentence, such as `!news of today, please`."""


class Unreadable(ValueError):
    """Error for a payload that lacks documented fields. The error's text names fields and types, but never values."""


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """The bot's ids and name in a workspace. If `one_direct` is True, all messages of a direct chat, also in threads, are one
    conversation. `site` is the workspace's URL. `scopes` are OAuth scopes; empty if Slack does not report them.
    """

    team: str
    user: str
    bot: str
    one_direct: bool = False
    name: str = ""
    site: str = ""
    scopes: frozenset[str] = frozenset()

    def readable(self, source: str, names: Names = content.nobody) -> str:
        """Return a text without Slack's markup (`content.readable`). A mention of the bot becomes its name."""
        known: Names = lambda user: self.name if user == self.user else names(user)  # noqa: E731
        return content.readable(source, known, self.user)

    def wrote(self, post: _Post) -> bool:
        return post.bot_id == self.bot or post.user == self.user

    def inbound(
        self,
        channel: str,
        root: str | None,
        user: str,
        *keys: str,
        where: Mapping[str, str] = {},
        **facts: Any,
    ) -> Inbound:
        """Return an `Inbound` of the person `user` in the thread `root`. The `Inbound`'s target also
        has the entries of `where`. `facts` are the `Inbound`'s other fields.
        """
        target = {"channel": channel} if root is None else {"channel": channel, "thread_ts": root}
        direct = is_direct(channel)
        return Inbound(
            channel="slack",
            chat_id=channel,
            chat_key=encode({"channel": channel} if self.one_direct and direct else target),
            chat_type="direct" if direct else "group",
            user_id=user,
            keys=tuple(f"slack:{self.team}:{key}" for key in keys),
            target={**target, **where},
            **facts,
        )


Words = Annotated[str, BeforeValidator(lambda value: text.clean(value) if isinstance(value, str) else value)]
"""Type of a text field. Lone surrogates are replaced, because pydantic rejects them."""


class _Payload(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class _Head(_Payload):
    event_id: Label
    type: Label = Field(validation_alias=AliasPath("event", "type"))
    subtype: Label | None = Field(default=None, validation_alias=AliasPath("event", "subtype"))


class _Post(_Payload):
    """A message in a payload. Events about edits and deletions contain such messages too."""

    ts: Ts
    user: UserId | None = None
    bot_id: Label | None = None
    subtype: Label | None = None
    text: Words | None = None
    thread_ts: Ts | None = None
    client_msg_id: Label | None = None
    edited_at: Ts | None = Field(default=None, validation_alias=AliasPath("edited", "ts"))
    edited_by: UserId | None = Field(default=None, validation_alias=AliasPath("edited", "user"))
    files: Any = None
    blocks: Any = None
    attachments: Any = None

    @property
    def source(self) -> str:
        """Return the text in Slack's markup: `<@U…>` is a mention, and a `<` that a person typed is escaped."""
        return self.text if self.text and self.text.strip() else content.text_of(self.blocks)

    @property
    def words(self) -> str:
        return unescape(self.source)

    @property
    def is_reply(self) -> bool:
        return self.thread_ts is not None and self.thread_ts != self.ts

    @property
    def of_bot(self) -> bool:
        return self.bot_id is not None or self.subtype == "bot_message"

    @property
    def is_message(self) -> bool:
        return self.subtype is None or self.subtype in MESSAGES


class _New(_Post):
    type: str
    channel: ChannelId


class _Changed(_Payload):
    channel: ChannelId
    message: _Post
    previous_message: _Post | None = None


class _Deleted(_Payload):
    channel: ChannelId
    previous_message: _Post | None = None


class _Event(_Payload):
    """An event without a message: a stop, a person joining, or a Home tab that was opened."""

    channel: ChannelId
    user: UserId
    thread_ts: Ts | None = None
    inviter: UserId | None = None
    event_ts: Ts


class _Slash(_Payload):
    channel_id: ChannelId
    user_id: UserId
    trigger_id: Label
    text: Words | None = None


class _Press(_Payload):
    user: UserId = Field(validation_alias=AliasPath("user", "id"))
    channel: ChannelId = Field(validation_alias=AliasPath("channel", "id"))
    ts: Ts = Field(validation_alias=AliasPath("message", "ts"))
    thread_ts: Ts | None = Field(default=None, validation_alias=AliasPath("message", "thread_ts"))
    trigger_id: Label


_PartT = TypeVar("_PartT", bound=_Payload)


def _parse(model: type[_PartT], value: Any) -> _PartT:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = [
            f"{'.'.join(map(str, each['loc']))}: {each['type']}"
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise Unreadable("; ".join(found[:5])) from None


def read(body: Json, me: BotIdentity, now: float, names: Names = content.nobody) -> Inbound | None:
    """Return a payload as an `Inbound`; None if the payload does not concern the bot. `names` returns the names of mentioned
    people. Raises `Unreadable`.
    """
    kind = body.get("type")
    if kind == "event_callback":
        return read_event(body, me, names)
    if kind == PRESSED:
        return read_press(body, me, now)
    if kind is None and "command" in body:
        return read_command(body, me, now)
    if not isinstance(kind, str):
        raise Unreadable("type: missing")
    return None


def read_event(body: Json, me: BotIdentity, names: Names = content.nobody) -> Inbound | None:
    head, event = _parse(_Head, body), body["event"]
    key = f"event:{head.event_id}"
    match head.type, head.subtype:
        case "agent_session_stopped" | "member_joined_channel", _:
            return _signal(head.type, _parse(_Event, event), key, me)
        case "message", "message_changed":
            return _change(_parse(_Changed, event), key, me, names)
        case "message", "message_deleted":
            deleted = _parse(_Deleted, event)
            return _delete(deleted.channel, deleted.previous_message, key, me)
        case "message" | "app_mention", subtype if subtype is None or subtype in MESSAGES:
            return _message(_parse(_New, event), key, me, names)
    return None


def _signal(kind: str, event: _Event, key: str, me: BotIdentity) -> Inbound | None:
    channel, root, ts = event.channel, event.thread_ts, _nano(event.event_ts) // 1_000_000
    if kind == "member_joined_channel":
        if event.user != me.user or event.inviter is None:
            return None
        keys = (key, f"added:{channel}:{ts // 86_400_000}")
        return me.inbound(channel, None, event.inviter, *keys, ts=ts, kind="added", addressed="mention")
    if root is None:
        raise Unreadable("thread_ts: missing")
    keys = (key, f"stop:{channel}:{root}:{event.event_ts}")
    addressed = "direct" if is_direct(channel) else "command"
    return me.inbound(channel, root, event.user, *keys, ts=ts, kind="stop", addressed=addressed)


def read_command(body: Json, me: BotIdentity, now: float) -> Inbound:
    """Return the slash command `/shipmate word args` as an `Inbound`. If `word` is no command, the whole text is a message.
    (Slack has no slash commands in threads.)
    """
    slash = _parse(_Slash, body)
    said = unescape(slash.text or "").strip(_LEAD)
    words = said.split(None, 1) or ["help"]
    typed = Command(name=words[0].lstrip("!/").lower(), args=words[1] if len(words) > 1 else "")
    is_command = typed.name in _COMMANDS or _is_misspelt(typed)
    facts: Json = {"command": typed} if is_command else {"text": said}
    facts |= {"where": {"trigger": slash.trigger_id}, "ts": int(now * 1000), "addressed": "command"}
    return me.inbound(slash.channel_id, None, slash.user_id, f"command:{slash.trigger_id}", **facts)


def read_press(body: Json, me: BotIdentity, now: float) -> Inbound | None:
    """Return a button press as a command or a rating. Return None for another app's button. Raises `Unreadable`."""
    actions = body.get("actions")
    action = actions[0] if isinstance(actions, list) and len(actions) == 1 else None
    value = action.get("value") if isinstance(action, dict) else None
    if not isinstance(value, str):
        return None
    command, rating = approval_buttons.command(value), _RATINGS.get(value)
    if command is None and rating is None:
        return None
    press = _parse(_Press, body)
    rated = {"kind": "rating", "answers": press.ts, "rating": rating}
    facts: Json = rated if rating is not None else {"command": command}
    facts |= {"where": {"press": press.trigger_id}, "ts": int(now * 1000), "addressed": "command"}
    return me.inbound(press.channel, press.thread_ts, press.user, f"press:{press.trigger_id}", **facts)


def read_home(body: Json, me: BotIdentity, now: float) -> Inbound | None:
    """Return an `Inbound` that names the person who opened the Home tab. Return None for other events. Raises `Unreadable`."""
    event = body.get("event")
    if not isinstance(event, dict) or event.get("type") != HOME_OPENED or event.get("tab") != "home":
        return None
    opened = _parse(_Event, event)
    return me.inbound(opened.channel, None, opened.user, ts=int(now * 1000))


def read_thread(messages: Any, me: BotIdentity, before: str, names: Names = content.nobody) -> list[Quoted]:
    """Return the messages older than `before` and the messages that are shared in them, oldest first. Skip unreadable posts."""
    found: list[tuple[int, Quoted]] = []
    for message in messages if isinstance(messages, list) else []:
        try:
            post = _parse(_Post, message)
        except Unreadable:
            continue
        at, who, mine = _nano(post.ts), post.user or post.bot_id, me.wrote(post)
        if not post.is_message or at >= _nano(before):
            continue
        if post.words.strip():
            facts = {"from_self": mine, "message_id": post.ts, "ts": at // 1_000_000}
            kind = BOTS if post.of_bot and not mine else None
            text_ = me.readable(post.source, names)
            found.append((at, Quoted(user_id=who, text=text_, kind=kind, **facts)))
        ours = frozenset({me.user, me.bot})
        for shared, _ in content.shared_messages(post.attachments, by=who, channel=None, ours=ours):
            # The shared message belongs to this earlier message, not to the message that is answered.
            found.append((at, shared.model_copy(update={"message_id": post.ts, "brought": False})))
    return [quoted for _, quoted in sorted(found, key=lambda each: each[0])]


def newest(said: Sequence[Quoted], most: int) -> list[Quoted]:
    """Return the `most` newest messages of people and the `most` newest messages of bots, oldest first."""
    kinds = (
        [at for at, one in enumerate(said) if (one.kind == BOTS) is bots][-most:] for bots in (False, True)
    )
    return [said[at] for at in sorted(itertools.chain(*kinds))]


def _nano(ts: str) -> int:
    seconds, _, fraction = ts.partition(".")
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0"))


def _message(post: _New, event_key: str, me: BotIdentity, names: Names) -> Inbound | None:
    if me.wrote(post):
        return None
    if post.user is None and post.bot_id is None:
        raise Unreadable("user: missing")
    keys = [event_key, key := f"message:{post.channel}:{post.ts}"]
    if not is_direct(post.channel) and (post.type == "message" or post.files):
        keys.append(key + _WHOLE)
    if post.client_msg_id is not None:
        keys.append(f"client:{post.client_msg_id}")
    addressed = _addressed(post.channel, me, post, mentioned=post.type == "app_mention")
    command = _typed_command(post.words, me)
    if command is not None and command.name not in _COMMANDS:
        command = command if addressed != "chat" and _is_misspelt(command) else None
    found = _inbound(post.channel, post, me, names, *keys, addressed=addressed, command=command)
    about_chat = command is not None and (command.name == "stop" or is_direct(post.channel))
    if about_chat and not post.is_reply:
        return found.model_copy(update={"chat_key": encode({"channel": post.channel})})
    return found


def rest_of(message: Inbound) -> Inbound | None:
    """Return an `Inbound` with the files and shared messages that an accepted `app_mention` lacked; None if the
    `app_mention` was complete. The text becomes a quote, because the bot already answers the `app_mention`.
    """
    whole = tuple(key for key in message.keys if key.endswith(_WHOLE))
    if message.kind != "message" or not whole or not (message.attachments or message.brought):
        return None
    known = message.model_dump(include={"user_id", "text", "user_name", "ts", "message_id"})
    words = [Quoted(**known)] if message.text.strip() else []
    update = {"keys": whole, "text": "", "command": None, "message_id": None}
    return message.model_copy(update=update | {"quoted": (*words, *message.quoted)})


def _change(event: _Changed, event_key: str, me: BotIdentity, names: Names) -> Inbound | None:
    post, before = event.message, event.previous_message
    if post.subtype == "tombstone":
        return _delete(event.channel, before, event_key, me)
    # Slack also sends `message_changed` for link previews and new replies. Only the author's own edits count.
    if post.edited_at is None or not post.is_message or me.wrote(post):
        return None
    by_another = post.user is not None and post.edited_by not in {None, post.user}
    if by_another or (before is not None and before.source == post.source):
        return None
    if post.user is None and post.bot_id is None:
        raise Unreadable("message.user: missing")
    addressed = _addressed(event.channel, me, *filter(None, (post, before)))
    key = f"message:{event.channel}:{post.ts}:edited:{post.edited_at}"
    facts = {"addressed": addressed, "kind": "edit", "ts": _nano(post.edited_at) // 1_000_000}
    return _inbound(event.channel, post, me, names, event_key, key, **facts)


def _delete(channel: str, post: _Post | None, event_key: str, me: BotIdentity) -> Inbound | None:
    # If the event does not contain the deleted message, its author is unknown, so nobody's right to delete it can be checked.
    if post is None or me.wrote(post) or (post.user is None and post.bot_id is None) or not post.is_message:
        return None
    addressed = _addressed(channel, me, post)
    if addressed == "chat" and post.thread_ts is not None:
        addressed = "thread"  # the bot's answers in the thread may depend on the deleted message
    key = f"message:{channel}:{post.ts}:deleted"
    return _inbound(channel, post, me, None, event_key, key, addressed=addressed, kind="delete")


def _addressed(channel: str, me: BotIdentity, *versions: _Post, mentioned: bool = False) -> Addressed:
    """Return the way in which a message addresses the bot, now or before an edit. `versions` begins with the newest version."""
    if is_direct(channel):
        return "direct"
    if mentioned or any(f"<@{me.user}{end}" in post.source for post in versions for end in ">|"):
        return "mention"
    if versions[0].is_reply:
        return "thread"
    typed = [_typed_command(post.words, me) for post in versions]
    known = any(command is not None and command.name in _COMMANDS for command in typed)
    return "command" if known else "chat"


def _typed_command(words: str, me: BotIdentity) -> Command | None:
    """Return the `!word args` at the start of a text, also after a mention of the bot. The command `word` may be unknown."""
    start = words.lstrip(_LEAD)
    mention = re.match(rf"<@{re.escape(me.user)}(?:\|[^<>]*)?>[\s:,]*", start)
    if mention is not None:
        start = start[mention.end() :].lstrip(_LEAD)
    match = _COMMAND.fullmatch(start)
    return Command(name=match[1].lower(), args=(match[2] or "").strip()) if match is not None else None


def _is_misspelt(typed: Command) -> bool:
    """Return True if the word resembles a command, so that a misspelt command is not taken for an answer to an open question."""
    short = len(typed.args.split()) <= _MAX_MISSPELT_ARGS
    return typed.name not in _COMMANDS and short and text.nearest(typed.name, _COMMANDS) is not None


def _inbound(
    channel: str, post: _Post, me: BotIdentity, names: Names | None, *keys: str, **more: Any
) -> Inbound:
    """Return a message, edit or deletion as an `Inbound`. `names` is None for a deletion, whose content is left out. `more`
    has further fields of the `Inbound`.
    """
    facts: dict[str, Any] = {"ts": _nano(post.ts) // 1_000_000}
    if names is not None:
        source = content.nameless(content.without_address(post.source, me.user))
        ours = frozenset({me.user, me.bot})
        shared = content.shared_messages(post.attachments, by=post.user, channel=channel, ours=ours)
        facts |= {
            "text": me.readable(source),
            "mentioned": content.named(post.source, names, me.user),
            "attachments": (*content.attachments(post.files), *(one for _, files in shared for one in files)),
            "quoted": tuple(quoted for quoted, _ in shared),
        }
    return me.inbound(
        channel,
        post.thread_ts or post.ts,
        post.user or post.bot_id or "",
        *keys,
        to_others=content.begins_with_other(post.source, me.user),
        message_id=post.ts,
        from_bot=post.of_bot,
        **facts | more,
    )


_KEPT = frozenset({"type", "subtype", "channel", "channel_id", "user", "user_id", "bot_id", "ts", "event_id"})


def skeleton(body: Any) -> dict[str, str]:
    """Return only the ids and types of a payload, because authors cannot delete their texts from dead letters."""
    event = body.get("event") if isinstance(body, dict) else None
    return {
        key: value[:80]
        for part in (event, body)
        for key, value in (part.items() if isinstance(part, dict) else ())
        if key in _KEPT and isinstance(value, str)
    }
