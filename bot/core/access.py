"""Access control: the class `Access` decides who may use the bot, and cleans the texts of admitted people. The bot does not
store the texts of strangers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import BaseModel

from bot import errors, text
from bot.access_list import AccessList
from bot.contracts.base import ChatType
from bot.contracts.channel import Channel, Manifest, MembershipAnswer
from bot.contracts.environment import Log, Redact
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import ABOUT, ONLY_TO, ArchiveLine, Command, Inbound, Quoted
from bot.text import named
from bot.words import Sentence, say, sentence

ALIASES = {"clear": "new", "usage": "stats"}  # Maps each alias to the name of the command that it runs
MOST_CALLED = 1_000
"""Max number of people and chats whose display names are kept in memory. Messages to operators show these names."""
SECONDS = 15.0  # Timeout in seconds for asking a platform which groups a person belongs to


@dataclass(eq=False)
class Memberships:
    """Asks the channels which chats a person belongs to, and for links to messages (`tools.context.Membership`)."""

    channels: Mapping[str, Channel]
    log: Log

    def __post_init__(self) -> None:
        self._called: dict[str, object] = {}
        """Display names of people and chats, keyed by id. Messages to operators show these names."""

    async def chats_of(
        self, channel: str, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
    ) -> MembershipAnswer:
        asked = [key for key in chat_keys if key.channel == channel]
        if not asked or (known := self.channels.get(channel)) is None:
            return MembershipAnswer([])
        try:
            async with asyncio.timeout(SECONDS):
                found = await known.chats_of(user_id, asked, direct=direct)
        except (errors.ShipmateError, TimeoutError) as error:
            words = "who is in which chat cannot be known: other chats were not searched"
            self.log.write("denied", words, level="warn", cause=f"{type(error).__name__}: {error}")
            return MembershipAnswer([], unanswered=asked)
        if found is None:
            return MembershipAnswer([])
        # A channel may name more chats. Return only those that the caller asked about.
        chats, unanswered = set(found.chats), set(found.unanswered)
        return MembershipAnswer(
            [key for key in asked if key in chats], [key for key in asked if key in unanswered]
        )

    def same_chat(self, channel: str, chat_id: str) -> frozenset[str]:
        known = self.channels.get(channel)
        return frozenset({chat_id}) if known is None else known.same_chat(chat_id)

    def permalink(self, line: ArchiveLine) -> str | None:
        """Return a link to the message of this archive line, or None if the line's channel cannot build links."""
        known = self.channels.get(line.channel)
        return None if known is None else known.permalink(line)

    def place(self, inbound: Inbound) -> Sentence:
        """Return words that tell operators in which chat a message is. For a group, they link to the message if possible."""
        if inbound.chat_type == "direct":
            return sentence("place.direct")
        name, link = named(inbound.chat_name or ""), self.permalink(ArchiveLine.of(inbound))
        if link:
            return sentence("place.link", link=link, group=f" (`{name}`)" if name else "")
        return sentence("place.group", group=f"`{name}`" if name else inbound.chat_id)

    def note(self, inbound: Inbound) -> None:
        """Keep the display names of the sender and the chat of an incoming message."""
        name, ref = named(inbound.user_name or ""), str(inbound.person)
        who = f"`{name}` ({inbound.user_id})" if name else ref
        chat = who if inbound.chat_type == "direct" else self.place(inbound)
        for known, words in {ref: who, str(inbound.chat_key.chat): chat}.items():
            self._called.pop(known, None)
            self._called[known] = words
        for oldest in list(self._called)[:-MOST_CALLED]:
            del self._called[oldest]

    def called(self, words: Sentence) -> Sentence:
        """Return the sentence with the ids of people and chats replaced by their display names, where these are known."""
        known, values = self._called.get, words.values.items()
        return Sentence(words.key, {key: known(str(getattr(one, "chat", one)), one) for key, one in values})


EVERYONE = "*"
_ANYBODY = "\0nobody"  # User id that is on no list. It stands for any stranger.
_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    reason: Literal["local", "operator", "listed", "everyone", "stranger", "blocked", "bot", "never"]


@dataclass(eq=False)
class Access:
    """Decides by stable ids, never by names, who may use the bot. The block list overrules all rules that admit people. A
    person whom no rule admits is denied.

    A person's id admits the person in every chat. A group's id admits the group's members, but only in that group.
    Operators are admitted. A channel that only this machine can reach (`local`) admits everyone. Bots are never admitted.
    """

    manifests: Mapping[str, Manifest]
    allow: Mapping[str, frozenset[str]]
    operators: Collection[UserRef]
    lists: AccessList
    memberships: Memberships
    redact: Redact

    def judge(self, inbound: Inbound) -> Verdict:
        """Return the verdict on the sender of an incoming message, command or signal: admitted or not, and the reason."""
        if inbound.from_bot:
            return Verdict(False, "bot")
        verdict = self.standing(inbound.person, inbound.chat_id, inbound.chat_type)
        if verdict.allowed:
            self.memberships.note(inbound)
        return verdict

    def prove(self, channel: str) -> None:
        """Raise `errors.ConfigError` if the rules admit a stranger, unless the channel is `local` or its list has "*"."""
        if self.manifests[channel].access == "local" or EVERYONE in self._listed(channel):
            return
        people = [UserRef(channel, nobody) for nobody in ("", _ANYBODY)]
        kinds: tuple[ChatType, ...] = ("direct", "group")
        if any(self.standing(one, "\0nowhere", kind).allowed for one in people for kind in kinds):
            raise errors.ConfigError(
                f"channels.{channel}.allow: found that a stranger would be let in, expected that nobody is who is not "
                'listed; write "*" if everyone may talk to it'
            )

    def _listed(self, channel: str) -> frozenset[str]:
        return self.lists.allowed(channel) | self.allow.get(channel, frozenset())

    def standing(self, person: UserRef, chat_id: str, chat_type: ChatType) -> Verdict:
        """Return the verdict on a person in a chat: admitted or not, and the reason. `person.user_id` is "" if the
        platform does not tell who the person is.
        """
        channel, user_id = person.channel, person.user_id
        manifest = self.manifests.get(channel)
        if manifest is None:  # the channel no longer exists
            return Verdict(False, "stranger")
        ids = {user_id} if user_id else set()
        if chat_type == "group":
            # A platform may give a chat a new id. The rules may name an old id, so check all ids.
            ids |= self.memberships.same_chat(channel, chat_id)
        listed = self._listed(channel)
        # The first rule that matches decides.
        checks = (
            (ids & manifest.never_admit, Verdict(False, "never")),
            (ids & self.lists.blocked(channel), Verdict(False, "blocked")),
            (manifest.access == "local", Verdict(True, "local")),
            (self.is_operator(person), Verdict(True, "operator")),
            (ids & listed, Verdict(True, "listed")),
            (EVERYONE in listed and user_id, Verdict(True, "everyone")),
        )
        return next((verdict for holds, verdict in checks if holds), Verdict(False, "stranger"))

    def is_open(self, channel: str, chat_id: str) -> bool:
        return self.standing(UserRef(channel, _ANYBODY), chat_id, "group").allowed

    def rules(self, channel: str) -> tuple[frozenset[str] | frozenset[UserRef], ...]:
        return (self.lists.allowed(channel), self.lists.blocked(channel), frozenset(self.operators))

    def is_operator(self, person: UserRef) -> bool:
        """Return True if the person is an operator. A person without a user id ("") never is."""
        return bool(person.user_id) and person in self.operators

    # ------------------------------------------------------------ texts

    def words(self, words: str) -> str:
        return self.redact(text.clean(words))

    def _redacted(self, model: _M, *names: str, **update: object) -> _M:
        values = {name: getattr(model, name) for name in names}
        clean = {name: self.words(one) for name, one in values.items() if one is not None}
        return model.model_copy(update=clean | update)

    def cleaned(self, inbound: Inbound) -> Inbound:
        """Return the incoming message with secrets redacted. Quoted messages stay unchanged; `admitted` cleans them."""
        command = inbound.command
        if command is not None:
            name = ALIASES.get(command.name) or self.words(command.name)
            command = Command(name=name, args=self.words(command.args))
        return self._redacted(
            inbound,
            "text",
            "user_name",
            "chat_name",
            command=command,
            links=tuple(self._redacted(link, "text", "url") for link in inbound.links),
            attachments=tuple(self._redacted(one, "name", "mime") for one in inbound.attachments),
        )

    def admitted(self, inbound: Inbound, quoted: Iterable[Quoted]) -> tuple[Quoted, ...]:
        """Return the quoted messages by authors who are admitted in this chat, with secrets redacted. Drop all other quoted
        messages, so that no stranger's text reaches the model.
        """

        def knows(message: Quoted) -> bool:
            author = UserRef(inbound.channel, message.user_id or "")
            return message.from_self or self.standing(author, inbound.chat_id, inbound.chat_type).allowed

        return tuple(
            self._redacted(
                one,
                "text",
                "user_name",
                "part",
                files=tuple(map(self.words, one.files)),
                origin=None if one.origin is None else self._redacted(one.origin, "name", "chat"),
            )
            for one in quoted
            if knows(one)
        )


EVERY = 24 * 3600.0
"""Period in seconds. The bot makes at most one admission request per person in each period."""
_OF_STRANGERS = "channel chat_id chat_type user_id ts addressed message_id user_name chat_name language zone"
"""Fields that an admission request copies from the stranger's message."""


def request_of(inbound: Inbound, now: float) -> Inbound:
    """Return a request to admit the stranger who wrote this message, without its text. The event key limits requests to
    one per person and day. In a group, only the stranger sees the bot's reply.
    """
    alone = (
        {ONLY_TO: inbound.user_id, ABOUT: inbound.message_id or ""} if inbound.chat_type == "group" else {}
    )
    return Inbound(
        # The chat key leaves out the thread, because the bot does not join a thread in which only strangers write.
        chat_key=inbound.chat_key.chat,
        keys=(f"admission:{inbound.channel}:{inbound.user_id}:{int(now // EVERY)}",),
        target={**inbound.target, **alone},
        kind="admission",
        **{name: getattr(inbound, name) for name in _OF_STRANGERS.split()},
    )


def id_form(manifest: Manifest) -> str:
    """Return a text that tells people what a user id of this channel looks like and where to find it."""
    if manifest.where_id is not None:
        return str(manifest.where_id)
    return say("commands.id_told", prefix=manifest.command_prefix)
