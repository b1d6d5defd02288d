"""Access control: one function decides who may talk to the bot, for every kind of event, and which of their
words are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from bot import errors, text
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import ChatType
from bot.contracts.channel import (
    Channel,
    KnowsChatMigrations,
    KnowsLinks,
    KnowsMembers,
    Manifest,
    MembershipAnswer,
)
from bot.contracts.environment import Log, Redact
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Attachment, Command, Inbound, Link, Quoted
from bot.contracts.outbound import ABOUT, ONLY_TO
from bot.tools.permissions.display import named
from bot.words import Sentence, say, sentence

ALIASES = {"clear": "new", "usage": "stats"}
"""Aliases of commands, by alias."""
MOST_CALLED = 1_000
"""Max people and chats whose display names are cached for operator messages."""
SECONDS = 15.0
"""Timeout for a platform to answer who is a member of what."""


class Memberships:
    """Implements `tools.ports.Membership` by asking the running channels; also resolves links to messages."""

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

        # Only chats that were asked about.
        return MembershipAnswer(of(found.chats), of(found.unanswered))

    def same_chat(self, channel: str, chat_id: str) -> frozenset[str]:
        """Return every id under which the channel knows this chat."""
        knows: object = self._channels.get(channel)
        return knows.same_chat(chat_id) if isinstance(knows, KnowsChatMigrations) else frozenset({chat_id})

    def permalink(self, line: ArchiveLine) -> str | None:
        """Return the link to a message, or None where its channel cannot make one."""
        knows: object = self._channels.get(line.channel)
        return knows.permalink(line) if isinstance(knows, KnowsLinks) else None

    def place(self, inbound: Inbound) -> str:
        """Describe for operators where an inbound was written, with a link where the channel can make one."""
        return say("place.direct") if inbound.chat_type == "direct" else str(self._group(inbound))

    def _group(self, inbound: Inbound) -> Sentence:
        name, link = named(inbound.chat_name or ""), self.permalink(ArchiveLine.of(inbound))
        if link:
            return sentence("place.link", link=link, group=f" (`{name}`)" if name else "")
        return sentence("place.group", group=f"`{name}`" if name else inbound.chat_id)

    def note(self, inbound: Inbound) -> None:
        """Cache the display names of an inbound's person and chat."""
        name, ref = named(inbound.user_name or ""), str(inbound.person)
        who = f"`{name}` ({inbound.user_id})" if name else ref
        chat = who if inbound.chat_type == "direct" else self._group(inbound)
        for known, words in {ref: who, str(inbound.chat_key.chat): chat}.items():
            self._called.pop(known, None)
            self._called[known] = words
        for oldest in list(self._called)[:-MOST_CALLED]:
            del self._called[oldest]

    def called(self, words: Sentence) -> Sentence:
        """Return the sentence with cached names in place of ids."""
        known, values = self._called.get, words.values.items()
        return Sentence(words.key, {key: known(str(getattr(one, "chat", one)), one) for key, one in values})


EVERYONE = "*"
_ANYBODY = "\0nobody"
"""A user id that is on no list."""


class Lists(Protocol):
    """What operators decided at run time (`bot.access_list.AccessList`)."""

    def allowed(self, channel: str) -> frozenset[str]: ...
    def blocked(self, channel: str) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    reason: Literal["local", "operator", "listed", "everyone", "stranger", "blocked", "bot", "never"]


STRANGER = Verdict(allowed=False, reason="stranger")


class Access:
    """Decides by stable ids, never by names: block > allow > ship.json, and deny by default.

    A person is admitted by their own id. The id of a group admits its members in that group, but not in
    direct messages. Operators are admitted. Where a channel is only reachable from this machine, everyone on
    it is admitted. Bots are never admitted.
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
        """Return the verdict on an inbound of any kind."""
        if inbound.from_bot:
            return Verdict(allowed=False, reason="bot")
        verdict = self.standing(inbound.person, inbound.chat_id, inbound.chat_type)
        if verdict.allowed:
            self._memberships.note(inbound)
        return verdict

    def prove(self, channel: str) -> None:
        """Check that a person on no list is denied. Raises `errors.ConfigError` where they are admitted
        although no list says that everyone is.
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
        """Return a person's standing in a chat. `person` has the `user_id` "" where the platform does not
        say who it is.
        """
        channel, user_id = person.channel, person.user_id
        manifest = self._manifests.get(channel)
        if manifest is None:  # somebody asked on a channel that has gone since
            return STRANGER
        ids = {user_id} if user_id else set()
        if chat_type == "group":
            # All ids of a chat count, so admissions and blocks survive a new platform id.
            ids |= self._memberships.same_chat(channel, chat_id)
        listed = self._lists.allowed(channel) | self._allow.get(channel, frozenset())
        # The first rule that applies decides.
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
        """Return True for a group in which every member is admitted."""
        return self.standing(UserRef(channel, _ANYBODY), chat_id, "group").allowed

    def rules(self, channel: str) -> tuple[frozenset[str] | frozenset[UserRef], ...]:
        """Return the rules that decide who may use direct chats and that can change at run time."""
        return (self._lists.allowed(channel), self._lists.blocked(channel), frozenset(self._operators))

    def is_operator(self, person: UserRef) -> bool:
        """Return True for an operator. An unknown person ("") is never one, even if a list contains ""."""
        return bool(person.user_id) and person in self._operators


class InboundCleaner:
    """Redacts secrets from inbounds and drops what they quote from people who are not admitted."""

    def __init__(self, redact: Redact, access: Access) -> None:
        self._redact = redact
        self._access = access

    def words(self, words: str) -> str:
        """Return the text without secrets."""
        return self._redact(text.clean(words))

    def cleaned(self, inbound: Inbound) -> Inbound:
        """Return the inbound without secrets. Its quotes are filtered by `admitted`."""
        return inbound.model_copy(
            update={
                "text": self.words(inbound.text),
                "user_name": self._optional(inbound.user_name),
                "chat_name": self._optional(inbound.chat_name),
                "command": self._clean_command(inbound.command),
                "links": tuple(
                    Link(text=self.words(link.text), url=self.words(link.url)) for link in inbound.links
                ),
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
        """Return the quoted messages whose authors are admitted here, so that a stranger's words reach the
        bot in no way.
        """
        return tuple(
            self._clean_quote(message)
            for message in quoted
            if message.from_self
            or self._access.standing(
                UserRef(inbound.channel, message.user_id or ""), inbound.chat_id, inbound.chat_type
            ).allowed
        )


EVERY = 24 * 3600.0
"""Min seconds between two admission requests of one person."""


def request_of(inbound: Inbound, request_id: str, now: float) -> Inbound:
    """Build an admission request from a stranger's message. Drops the text; the key allows one request per
    person per day; in groups the reply is ephemeral.
    """
    alone = (
        {ONLY_TO: inbound.user_id, ABOUT: inbound.message_id or ""} if inbound.chat_type == "group" else {}
    )
    return Inbound(
        channel=inbound.channel,
        chat_id=inbound.chat_id,
        # The chat's address: the bot does not take part in a thread of strangers only.
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
    """Describe what an id of this channel looks like and where to find it."""
    if manifest.where_id is not None:
        return str(manifest.where_id)
    return say("commands.id_told", prefix=manifest.command_prefix)
