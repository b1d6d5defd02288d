"""Access control: the class `Access` decides who may use the bot, and redacts secrets in the texts of admitted people. The bot does
not store the texts of strangers. Operators can change the access lists while the bot runs. Several processes share the file
`.ship/access.json`:

    {"v": 1, "channels": {"telegram": {"allow": ["1"], "block": ["2"], "pending": {"3": 1800000000000}}}}

`operators` are people who opened the link that Shipmate prints at the start. `pending` are people without access who wrote to
the bot, each with the time (epoch ms) of that person's newest message. `names` are their display names, by user id. Texts of
messages are not stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bot import errors, text
from bot.contracts.base import ChatType
from bot.contracts.channel import Channel, Manifest, MembershipAnswer
from bot.contracts.environment import Clock, Disk, Log, Redact
from bot.contracts.identity import CONSOLE, ChatKey, UserRef
from bot.contracts.messages import ABOUT, ONLY_TO, ArchiveLine, Command, Inbound, Quoted
from bot.text import named
from bot.words import Sentence, say, sentence

ALIASES = {"clear": "new", "usage": "stats"}  # Maps each alias to the name of the command that it runs
MOST_CALLED = 1_000
"""Max number of people and chats whose display names are kept in memory. Messages to operators show these names."""
SECONDS = 15.0  # Timeout in seconds for asking a platform which groups a person belongs to


ACCESS_FILE = "access.json"
MOST_PENDING = 200  # max entries per channel; the oldest entries are removed first
MOST_OPERATORS = 100  # max entries per channel; the oldest entries are removed first
MOST_NAME = 80  # max characters of a name
FILE_EVERY = 1.0  # seconds between two checks whether the file has changed
LOCK_SECONDS = 10.0


class ChannelLists(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    allow: list[str] = []
    block: list[str] = []
    operators: list[str] = []
    pending: dict[str, int] = {}
    names: dict[str, str] = {}

    def forget(self, user_id: str, *lists: str) -> None:
        """Remove an id from `pending`, `names` and the given `lists`."""
        self.pending.pop(user_id, None)
        self.names.pop(user_id, None)
        for name in lists:
            setattr(self, name, [one for one in getattr(self, name) if one != user_id])


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    v: int = 1
    channels: dict[str, ChannelLists] = {}


@dataclass(frozen=True, slots=True)
class PendingUser:
    """A person who wrote to the bot and has no access. `ts` is in milliseconds; `name` is "" if unknown."""

    channel: str
    user_id: str
    ts: int
    name: str = ""


_NOBODY = ChannelLists()  # Lists of a channel that the file does not contain. All of them are empty.


class AccessList:
    """The access lists of all channels. Changes by other processes take effect within two seconds.

    If the file is unreadable at construction, `errors.ConfigError` is raised. If it becomes unreadable later, the last
    readable lists stay valid, so that a damaged file cannot give access to a blocked person.

    The methods that change lists are blocking, and raise `errors.StorageError`.
    """

    def __init__(self, path: Path, disk: Disk, clock: Clock) -> None:
        self._path = path
        self._disk = disk
        self._clock = clock
        self._stamp: tuple[int, ...] | None = None
        self._looked = clock.monotonic()
        self._file = _File()
        self._problem: str | None = None
        self._load()

    @property
    def problem(self) -> str | None:
        """Return the reason why the file cannot be read; None if it can be read."""
        self._channels()
        return self._problem

    def allowed(self, channel: str) -> frozenset[str]:
        return frozenset(self._of(channel).allow)

    def blocked(self, channel: str) -> frozenset[str]:
        return frozenset(self._of(channel).block)

    def open_channels(self) -> list[str]:
        return [channel for channel, lists in self._file.channels.items() if "*" in lists.allow]

    def operators(self) -> frozenset[UserRef]:
        channels = self._channels().items()
        return frozenset(UserRef(channel, one) for channel, lists in channels for one in lists.operators)

    def pending(self) -> list[PendingUser]:
        asked = [
            PendingUser(channel, user_id, ts, lists.names.get(user_id, ""))
            for channel, lists in self._channels().items()
            for user_id, ts in lists.pending.items()
        ]
        return sorted(asked, key=lambda item: (-item.ts, item.channel, item.user_id))

    def allow(self, channel: str, user_id: str) -> None:
        with self._changed(channel) as lists:
            lists.forget(user_id, "allow", "block")
            lists.allow.append(user_id)

    def block(self, channel: str, user_id: str) -> None:
        """Block a person, even if other lists contain the person."""
        with self._changed(channel) as lists:
            lists.forget(user_id, "allow", "block", "operators")
            lists.block.append(user_id)

    def dismiss(self, channel: str, user_id: str) -> None:
        with self._changed(channel) as lists:
            lists.forget(user_id)

    def appoint(self, person: UserRef) -> None:
        """Make a person an operator unless that person is blocked. If there are then more than `MOST_OPERATORS`, remove
        the oldest operator.
        """
        with self._changed(person.channel) as lists:
            if person.user_id not in lists.block and person.user_id not in lists.operators:
                lists.operators = [*lists.operators, person.user_id][-MOST_OPERATORS:]

    def lists_with(self, channel: str, user_id: str) -> list[str]:
        lists = self._of(channel)
        return [name for name in ChannelLists.model_fields if user_id in getattr(lists, name)]

    def erase(self, channel: str, user_id: str) -> int:
        """Remove an id from every list except `block`. Return the number of lists that contained it."""
        found = [name for name in self.lists_with(channel, user_id) if name != "block"]
        if found:
            with self._changed(channel) as lists:
                lists.forget(user_id, "allow", "operators")
        return len(found)

    def note(self, channel: str, user_id: str, name: str | None = None) -> None:
        """Record that a person without access has just written to the bot."""
        with self._changed(channel) as lists:
            if user_id in lists.allow or user_id in lists.block:
                return
            lists.pending.pop(user_id, None)
            lists.pending[user_id] = int(self._clock.now() * 1000)
            if name:
                lists.names[user_id] = text.preview(text.clean(name), MOST_NAME)
            for old in list(lists.pending)[:-MOST_PENDING]:
                lists.forget(old)

    def _of(self, channel: str) -> ChannelLists:
        return self._channels().get(channel) or _NOBODY

    def _channels(self) -> dict[str, ChannelLists]:
        """Return the lists of all channels. At most once a second, read the file again if it has changed."""
        now = self._clock.monotonic()
        if now - self._looked >= FILE_EVERY:
            self._looked = now
            try:
                self._load()
                self._problem = None
            except errors.ConfigError as error:
                self._problem = str(error)
        return self._file.channels

    def _load(self) -> None:
        """Read the file if it has changed. Raises `errors.ConfigError`."""
        stamp: tuple[int, ...] | None = None
        try:
            with suppress(FileNotFoundError):
                found = self._path.stat()
                stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if stamp != self._stamp:
                data = self._disk.read(self._path)
                # A file that exists but is empty has been truncated, so it counts as damaged.
                self._file = _File() if stamp is None and not data else _File.model_validate_json(data)
                self._stamp = stamp
        except (ValidationError, OSError) as error:
            what = error.strerror if isinstance(error, OSError) else error.errors()[0]["msg"]
            raise errors.ConfigError(
                f"{self._path.parent.name}/{self._path.name}: found {what}; expected the lists that `shipmate allow` "
                "writes; mend it, or delete it to start with empty lists"
            ) from None

    @contextmanager
    def _changed(self, channel: str) -> Iterator[ChannelLists]:
        """Yield the lists of a channel, which the `with` block may change. Then write the lists if they changed."""
        import filelock

        lock = filelock.FileLock(f"{self._path}.lock", timeout=LOCK_SECONDS, mode=0o600)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with lock:
                self._load()
                file = self._file.model_copy(deep=True)
                yield file.channels.setdefault(channel, ChannelLists())
                if file != self._file:
                    self._disk.replace(self._path, file.model_dump_json(indent=2).encode() + b"\n")
                    self._load()
        except filelock.Timeout:
            raise errors.StorageError("the access list is held by another process") from None
        except errors.ConfigError as error:
            raise errors.StorageError(f"the access list cannot be changed: {error}") from None
        except OSError as error:
            raise errors.StorageError(f"the access list cannot be written: {error.strerror}") from error


@dataclass(eq=False)
class Operators(Collection[UserRef]):
    """The people who may approve tool calls and use operators' commands: the people `named` in ship.json, the user who
    started Shipmate, people who became operators while Shipmate runs, and every user of the console. Iteration skips
    `CONSOLE` (the user of the console), because no chat belongs to it.
    """

    named: frozenset[UserRef]
    lists: AccessList

    def __contains__(self, person: object) -> bool:
        return person == CONSOLE or person in set(self)

    def __iter__(self) -> Iterator[UserRef]:
        return iter(self.named | self.lists.operators())

    def __len__(self) -> int:
        return len({*self})


EVERYONE = "*"
_ANYBODY = "\0nobody"  # Placeholder for the user id of any stranger. It is on no list.
_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    reason: Literal["local", "operator", "listed", "everyone", "stranger", "blocked", "bot", "never"]


@dataclass(eq=False)
class Access:
    """Decides by stable ids, never by names, who may use the bot. The block list overrules all rules that admit people. A
    person whom no rule admits is denied.

    A rule with a person's id admits the person in every chat. A group's id admits the group's members, but only in that group.
    Operators are admitted. A channel that only this machine can reach (`local`) admits everyone. Bots are never admitted.

    The class also asks the channels which chats a person belongs to, and for links to messages.
    """

    manifests: Mapping[str, Manifest]
    allow: Mapping[str, frozenset[str]]
    operators: Collection[UserRef]
    lists: AccessList
    redact: Redact
    channels: Mapping[str, Channel]
    log: Log

    def __post_init__(self) -> None:
        self._called: dict[str, object] = {}
        """Display names of people and chats, keyed by id. Messages to operators show these names."""

    def judge(self, inbound: Inbound) -> Verdict:
        """Return the verdict on the sender of an incoming message, command or signal: admitted or not, and the reason."""
        if inbound.from_bot:
            return Verdict(False, "bot")
        verdict = self.standing(inbound.person, inbound.chat_id, inbound.chat_type)
        if verdict.allowed:
            self.note(inbound)
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
            ids |= self.same_chat(channel, chat_id)
        listed = self._listed(channel)
        # The first rule that matches the person decides.
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
        """Return True if the person is an operator. A person without a user id ("") is never an operator."""
        return bool(person.user_id) and person in self.operators

    # ------------------------------------------------------------ chats of people, and display names

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
        """Return words that tell operators in which chat a message is. For a group, the words link to the message if possible."""
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
        channel, chat, kind = inbound.channel, inbound.chat_id, inbound.chat_type
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
            if one.from_self or self.standing(UserRef(channel, one.user_id or ""), chat, kind).allowed
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
