"""Access: who may talk to the bot, decided by one function for every kind of event, and what of their words may be kept."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from bot import errors, text
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import ChatType
from bot.contracts.channel import Channel, Manifest
from bot.contracts.environment import Log, Redact
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Attachment, Command, Inbound, Link, Quoted
from bot.contracts.outbound import ABOUT, ONLY_TO
from bot.contracts.recall import KnowsChatMigrations, KnowsLinks, KnowsMembers, MembershipAnswer
from bot.tools.permissions.display import named
from bot.words import Sentence, say, sentence

ALIASES = {"clear": "new", "usage": "stats"}
"""Other names of commands."""
MOST_CALLED = 1_000
"""People and chats whose names are known for operators."""
SECONDS = 15.0
"""The time for a platform to say who is where."""


class Memberships:
    """`contracts.recall.Membership` by the channels that run; and the addresses that they know of messages."""

    def __init__(self, channels: Mapping[str, Channel], log: Log) -> None:
        self._channels = channels
        self._log = log
        self._called: dict[str, object] = {}

    async def chats_of(
        self, channel: str, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
    ) -> MembershipAnswer:
        knows: object = self._channels.get(channel)
        asked = [key for key in chat_keys if key.channel == channel]
        if not asked or not isinstance(knows, KnowsMembers):
            return MembershipAnswer([])
        try:
            async with asyncio.timeout(SECONDS):
                found = await knows.chats_of(user_id, asked, direct=direct)
        except (errors.ShipmateError, TimeoutError) as error:
            self._log.write(
                "denied",
                "who is in which chat cannot be known: other chats were not searched",
                level="warn",
                cause=f"{type(error).__name__}: {error}",
            )
            return MembershipAnswer([], unanswered=asked)

        def of(keys: Sequence[ChatKey]) -> list[ChatKey]:
            known = set(keys)
            return [key for key in asked if key in known]

        # Never more than was asked about.
        return MembershipAnswer(of(found.chats), of(found.unasked), of(found.unanswered))

    def same_chat(self, channel: str, chat_id: str) -> frozenset[str]:
        """All ids of a chat, as its channel knows them."""
        knows: object = self._channels.get(channel)
        return knows.same_chat(chat_id) if isinstance(knows, KnowsChatMigrations) else frozenset({chat_id})

    def permalink(self, line: ArchiveLine) -> str | None:
        """The address of a message, where its channel knows it."""
        knows: object = self._channels.get(line.channel)
        return knows.permalink(line) if isinstance(knows, KnowsLinks) else None

    def place(self, inbound: Inbound) -> str:
        """The place where somebody spoke, for operators, with a link to it where its channel knows one."""
        return say("place.direct") if inbound.chat_type == "direct" else str(self._group(inbound))

    def _group(self, inbound: Inbound) -> Sentence:
        name, link = named(inbound.chat_name or ""), self.permalink(ArchiveLine.of(inbound))
        if link:
            return sentence("place.link", link=link, group=f" (`{name}`)" if name else "")
        return sentence("place.group", group=f"`{name}`" if name else inbound.chat_id)

    def note(self, inbound: Inbound) -> None:
        """Remember what operators read of a person and a chat in the place of their ids."""
        name, ref = named(inbound.user_name or ""), str(inbound.person)
        who = f"`{name}` ({inbound.user_id})" if name else ref
        chat = who if inbound.chat_type == "direct" else self._group(inbound)
        for known, words in {ref: who, str(inbound.chat_key.chat): chat}.items():
            self._called.pop(known, None)
            self._called[known] = words
        for oldest in list(self._called)[:-MOST_CALLED]:
            del self._called[oldest]

    def called(self, words: Sentence) -> Sentence:
        """A sentence with that in it."""
        known, values = self._called.get, words.values.items()
        return Sentence(words.key, {key: known(str(getattr(one, "chat", one)), one) for key, one in values})


EVERYONE = "*"
_ANYBODY = "\0nobody"
"""The id of somebody whom no list has."""


class Lists(Protocol):
    """The decisions of operators at run time (`bot.access_list.AccessList`)."""

    def allowed(self, channel: str) -> frozenset[str]: ...
    def blocked(self, channel: str) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    reason: Literal["local", "operator", "listed", "everyone", "stranger", "blocked", "bot", "never"]


STRANGER = Verdict(allowed=False, reason="stranger")


class Access:
    """Stable ids only, never names: block > allow > ship.json, and nobody by default.

    A person is admitted by their own id; the id of a group admits its members in that group, not in direct
    messages. Operators are admitted. Where reaching the channel takes access to this machine, everyone who does
    is. Bots never are.
    """

    def __init__(
        self,
        manifests: Mapping[str, Manifest],
        allow: Mapping[str, frozenset[str]],
        operators: Collection[UserRef],
        lists: Lists,
        memberships: Memberships,
    ) -> None:
        self._manifests = manifests
        self._allow = allow
        self._operators = operators
        self._lists = lists
        self._memberships = memberships

    def judge(self, inbound: Inbound) -> Verdict:
        """The verdict on one inbound, whatever its kind."""
        if inbound.from_bot:
            return Verdict(allowed=False, reason="bot")
        verdict = self.standing(inbound.person, inbound.chat_id, inbound.chat_type)
        if verdict.allowed:
            self._memberships.note(inbound)
        return verdict

    def prove(self, channel: str) -> None:
        """See that somebody whom nobody can know is kept out. Raises `errors.ConfigError` where they are not, although no
        list says that everyone may come in.
        """
        listed = self._lists.allowed(channel) | self._allow.get(channel, frozenset())
        if self._manifests[channel].access == "local" or EVERYONE in listed:
            return
        kinds: tuple[ChatType, ...] = ("direct", "group")
        for nobody in ("", _ANYBODY):
            for kind in kinds:
                if self.standing(UserRef(channel, nobody), "\0nowhere", kind).allowed:
                    raise errors.ConfigError(
                        f"channels.{channel}.allow: found that a stranger would be let in, expected that nobody is who is not "
                        'listed; write "*" if everyone may talk to it'
                    )

    def standing(self, person: UserRef, chat_id: str, chat_type: ChatType) -> Verdict:
        """The standing of a person in a chat; the `user_id` of one whom nobody knows is ""."""
        channel, user_id = person.channel, person.user_id
        manifest = self._manifests.get(channel)
        if manifest is None:  # somebody asked on a channel that has gone since
            return STRANGER
        ids = {user_id} if user_id else set()
        if chat_type == "group":
            # With all ids of a chat, admission and blocking stay where a platform gives another one.
            ids |= self._memberships.same_chat(channel, chat_id)
        listed = self._lists.allowed(channel) | self._allow.get(channel, frozenset())
        # In this order: the first that holds decides.
        checks: tuple[tuple[bool, Verdict], ...] = (
            (bool(ids & manifest.never_admit), Verdict(allowed=False, reason="never")),
            (bool(ids & self._lists.blocked(channel)), Verdict(allowed=False, reason="blocked")),
            (manifest.access == "local", Verdict(allowed=True, reason="local")),
            (self.is_operator(person), Verdict(allowed=True, reason="operator")),
            (bool(ids & listed), Verdict(allowed=True, reason="listed")),
            (EVERYONE in listed and bool(user_id), Verdict(allowed=True, reason="everyone")),
        )
        return next((verdict for holds, verdict in checks if holds), STRANGER)

    def is_open(self, channel: str, chat_id: str) -> bool:
        """True of a group in which whoever is there may talk."""
        return self.standing(UserRef(channel, _ANYBODY), chat_id, "group").allowed

    def rules(self, channel: str) -> tuple[frozenset[str] | frozenset[UserRef], ...]:
        """All that may change while it runs and that the standing of people in direct chats follows from."""
        return (self._lists.allowed(channel), self._lists.blocked(channel), frozenset(self._operators))

    def is_operator(self, person: UserRef) -> bool:
        """True for an operator. Somebody whom nobody knows is none, whatever the lists have."""
        return bool(person.user_id) and person in self._operators


class InboundCleaner:
    """Cleans inbounds and the messages that they bring."""

    def __init__(self, redact: Redact, access: Access) -> None:
        self._redact = redact
        self._access = access

    def words(self, words: str) -> str:
        """A text as it may be kept."""
        return self._redact(text.clean(words))

    def cleaned(self, inbound: Inbound) -> Inbound:
        """An inbound as it may be kept, but for what it quotes (`admitted`)."""
        return inbound.model_copy(
            update={
                "text": self.words(inbound.text),
                "user_name": self._optional(inbound.user_name),
                "chat_name": self._optional(inbound.chat_name),
                "command": self._clean_command(inbound.command),
                "links": tuple(
                    Link(text=self.words(link.text), url=self.words(link.url)) for link in inbound.links
                ),
                "items": {name: self.words(words) for name, words in inbound.items.items()},
                "attachments": tuple(map(self._clean_attachment, inbound.attachments)),
            }
        )

    def _clean_command(self, command: Command | None) -> Command | None:
        if command is None:
            return None
        return Command(
            name=ALIASES.get(command.name) or self.words(command.name), args=self.words(command.args)
        )

    def _clean_attachment(self, attachment: Attachment) -> Attachment:
        update = {"name": self._optional(attachment.name), "mime": self._optional(attachment.mime)}
        return attachment.model_copy(update=update)

    def _clean_quote(self, message: Quoted) -> Quoted:
        origin = message.origin
        if origin is not None:
            names = {"name": self._optional(origin.name), "chat": self._optional(origin.chat)}
            origin = origin.model_copy(update=names)
        update = {
            "text": self.words(message.text),
            "user_name": self._optional(message.user_name),
            "part": self._optional(message.part),
            "files": tuple(map(self.words, message.files)),
            "origin": origin,
        }
        return message.model_copy(update=update)

    def _optional(self, words: str | None) -> str | None:
        return self.words(words) if words is not None else None

    def admitted(self, inbound: Inbound, quoted: Iterable[Quoted]) -> tuple[Quoted, ...]:
        """The quoted messages whose authors may talk to the bot here: a stranger's words reach it by no door."""
        return tuple(
            self._clean_quote(message)
            for message in quoted
            if message.from_self
            or self._access.standing(
                UserRef(inbound.channel, message.user_id or ""), inbound.chat_id, inbound.chat_type
            ).allowed
        )


EVERY = 24 * 3600.0
"""Seconds in which a stranger asks at most once."""


def request_of(inbound: Inbound, request_id: str, now: float) -> Inbound:
    """Turn the message of a stranger into their request to be let in: nothing of its words, and one a day of each person. In a group that
    person alone is answered.
    """
    alone = (
        {ONLY_TO: inbound.user_id, ABOUT: inbound.message_id or ""} if inbound.chat_type == "group" else {}
    )
    return Inbound(
        channel=inbound.channel,
        chat_id=inbound.chat_id,
        # That of the chat: in a thread where only strangers have spoken the bot takes no part.
        chat_key=inbound.chat_key.chat,
        chat_type=inbound.chat_type,
        user_id=inbound.user_id,
        keys=(f"admission:{inbound.channel}:{inbound.user_id}:{int(now // EVERY)}",),
        ts=inbound.ts,
        target={**inbound.target, **alone},
        kind="admission",
        addressed=inbound.addressed,
        message_id=inbound.message_id,
        user_name=inbound.user_name,
        chat_name=inbound.chat_name,
        language=inbound.language,
        zone=inbound.zone,
        request_id=request_id,
    )


def id_form(manifest: Manifest) -> str:
    """The form of an id of a channel, and where it is found."""
    if manifest.where_id is not None:
        return str(manifest.where_id)
    return say("commands.id_told", prefix=manifest.command_prefix)
