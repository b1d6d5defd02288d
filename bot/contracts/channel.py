"""Interfaces of the platform adapters: `Manifest`, `Channel`, and the `Intake` that accepts messages."""

from __future__ import annotations

import ipaddress
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from bot import errors
from bot.contracts.approvals import OpenLoop, ShownQuestion
from bot.contracts.base import ChatType
from bot.contracts.environment import Clock, Disk, Log
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import ArchiveLine, Attachment, Conversation, Inbound, Outbound, Quoted, Sent
from bot.contracts.model import AnsweringModel
from bot.words import Sentence


@dataclass(frozen=True, slots=True)
class Health:
    """State of a connection. `last_heard` is the time (epoch seconds) of the platform's last sign of life; None if the
    platform sends nothing over an idle connection.
    """

    connected: bool
    last_heard: float | None = None
    detail: str = ""


LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})  # Host names and addresses of this machine
PROXY_HEADERS = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")
"""Headers by which most proxies identify themselves."""
FILE_PIECE = 65_536  # Max bytes of a piece that `Channel.fetch` yields


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server that listens on this address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class HomeSection:
    """A section of a person's home tab, in lines of plain text."""

    title: str
    lines: tuple[str, ...]


class Intake(Protocol):
    """The gateway's interface for channels. Methods that read or write the log raise `errors.StorageError`."""

    async def accept(self, inbound: Inbound) -> bool:
        """Authorise, de-duplicate and store one inbound. Return False if it was refused (a duplicate, a stranger, not for the
        bot). Once this method returns, the channel may confirm the event to the platform. After `errors.StorageError` the
        channel must not confirm the event, so that the platform delivers it again.
        """

    async def hears_all(self, chat: ChatKey) -> bool:
        """Return True if the bot listens to all messages of a chat. If the bot does not, a channel that can return messages later
        (`Channel.context`) may skip messages whose `Inbound.addressed` is `chat`.
        """

    async def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> None:
        """Store an event that cannot be parsed, and tell operators. The channel can then process later events."""

    def report_missing_right(self, channel: str, right: str, words: Sentence) -> None:
        """Report to operators, at most once a day, that the platform refused a call because a permission is missing."""

    async def recent(self, chat_key: ChatKey, limit: int) -> list[ArchiveLine]:
        """Return the newest `limit` archive lines of a conversation, in order of time."""

    async def conversations(
        self, chat_key: ChatKey, *, query: str = "", after: ChatKey | None = None, limit: int
    ) -> list[Conversation]:
        """Return conversations of a chat and its threads, most recently used first, beginning after `after`. A `query` selects
        conversations in which the title or a message contains all its words.
        """

    async def conversation(self, chat_key: ChatKey) -> Conversation | None:
        """Return one conversation; None if it has no messages."""

    async def rename(self, chat_key: ChatKey, name: str, person: UserRef) -> None:
        """Give a conversation a name. An empty name restores the conversation's first words as the title."""

    async def home(self, opened: Inbound) -> tuple[HomeSection, ...]:
        """Return the home tab for the sender of the event `opened`. The event is not handled as a message. A stranger's home tab
        only says how to get access.
        """

    async def model(self, chat_key: ChatKey, person: UserRef) -> AnsweringModel:
        """Return the model that answers in a chat, and the models and efforts that this person may choose there."""

    async def questions(self, chat_key: ChatKey, person: UserRef, since: float) -> list[ShownQuestion]:
        """Return a chat's questions as this person sees them: questions decided after `since` (epoch seconds), then open ones."""

    async def ratings(self, chat_key: ChatKey, since: float) -> dict[str, str]:
        """Return the ratings that people gave in a conversation after `since` (epoch seconds). The keys are turn ids."""

    async def acts(self, chat_key: ChatKey) -> bool:
        """Return True if the chat's running turn has shown a part of its answer, has used a tool with effects, or replaces an
        earlier answer. Restarting such a turn would be noticed. Return False if no turn runs.
        """

    async def board(self, person: UserRef) -> list[OpenLoop]:
        """Return the open loops (unfinished things) that this person may see in a private chat."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """Text that the bot posts after it was added to a chat. `hindrance` tells operators which permission the bot lacks."""

    words: str = ""
    hindrance: Sentence | None = None


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """Max size of code and tables that people can read inside a message."""

    lines: int = 60  # Max lines of code, or max rows of a table
    characters: int = 3_500
    columns: int = 100  # Max width of a table in terminal cells. A wide character takes two cells.


@dataclass(frozen=True, slots=True)
class MembershipAnswer:
    """Chats that the person is a member of. `unanswered` are chats that were not looked up."""

    chats: list[ChatKey]
    unanswered: list[ChatKey] = field(default_factory=list)


class Channel(ABC):
    """An adapter of one platform (docs/extend/channel.md). Methods that are not abstract are optional abilities."""

    name: str
    addresses: tuple[str, ...]  # Addresses to show to the operator, known after `start`
    largest_file = 0  # Max bytes of a file that `send` can upload; 0 if it can upload none
    reading_limits: ReadingLimits | None = None
    """Code and tables above these limits are sent as files. None if the channel shows code and tables of any size."""

    @abstractmethod
    async def start(self, intake: Intake) -> None:
        """Connect and pass inbounds to `intake`; return once connected. After that the channel reconnects by itself. Raises
        `errors.ChannelRefused` (token), `errors.ChannelUnreachable` (the caller retries), `errors.Unavailable` (port in use).
        """

    @abstractmethod
    async def pause(self) -> None:
        """Stop accepting messages. `send` still works, so that running turns can be answered."""

    @abstractmethod
    async def stop(self) -> None:
        """Close all connections. It may be called twice, and without `start`."""

    @abstractmethod
    def split(self, text: str) -> list[str]:
        """Split Markdown into parts that each fit in one message, never inside a grapheme. Return [] for blank text."""

    @abstractmethod
    async def send(self, message: Outbound) -> Sent:
        """Create one visible message, and upload `Outbound.file`. Raises a subclass of `errors.DeliveryFailed`, which tells
        whether the message may exist in spite of the error.
        """

    @abstractmethod
    async def find(self, message: Outbound) -> Sent | None:
        """Return a message that `send` may have delivered before it failed; None if the message is certainly not in the chat. Raises
        `errors.DeliveryUncertain` if the platform cannot tell, `errors.DeliveryThrottled`, or another `DeliveryFailed`.
        """

    @abstractmethod
    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        """Show or clear the typing indicator. Raises only `errors.DeliveryFailed`."""

    @abstractmethod
    async def context(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Return earlier messages for the model, oldest first. In a thread, return up to 50 messages of the thread.
        Elsewhere, return up to 30 messages of the chat if `inbound` mentions the bot. Raises `errors.ChannelError`.
        """

    @abstractmethod
    def health(self) -> Health: ...

    @abstractmethod
    async def heal(self) -> None:
        """Replace a connection that seems dead, without interrupting running sends. Raises nothing."""

    async def edit(self, message: Outbound, message_id: str) -> None:
        """Replace the content of a message that `send` created (`Manifest.edits`). Raises `errors.EditRefused` if the message
        cannot be edited, and the errors of `send`.
        """
        raise errors.EditRefused

    async def delete(self, message: Outbound, message_id: str) -> None:
        """Delete a message that `send` created. `message` is the last content of the deleted message. Raises the errors of `edit`."""
        raise errors.EditRefused

    async def draft(self, message: Outbound) -> bool:
        """Show or update a draft, which the final message replaces. Return False if the chat supports no drafts. Raises
        `errors.DeliveryFailed` if the call may be tried again.
        """
        return False

    async def entitle(self, target: Mapping[str, str], title: str) -> None:
        """Set the title that the person's list of conversations shows. Raises only `errors.DeliveryFailed`."""

    async def suspend(self, target: Mapping[str, str]) -> None:
        """Until the next `indicate`, show that the turn waits for a person. Raises only `errors.DeliveryFailed`."""

    async def react(self, target: Mapping[str, str], message_id: str) -> None:
        """React to a message that is queued or was added to the running turn. Raises only `errors.DeliveryFailed`."""

    async def invite(self) -> str:
        """Return a new one-time link; the person who opens the link becomes an operator. "" if the channel has no
        links. Print the link only to the terminal, never to a log or file.
        """
        return ""

    async def introduce(self, inbound: Inbound) -> Introduction | None:
        """Return the introduction for a group. `inbound` is the event `added`. Raises nothing."""
        return None

    def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        """Yield the content of an attachment in pieces of up to `FILE_PIECE` bytes, each read on demand. Raises
        `errors.FileTooLarge` if the file has more than `most` bytes. Raises `errors.FileGone` or
        `errors.FileUnreachable` if the file cannot be read.
        """
        raise errors.FileGone

    async def zone_of(self, user_id: str) -> str | None:
        """Return the person's tz database zone; None if the platform does not say. Raises `errors.ChannelError`."""
        return None

    async def chats_of(
        self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
    ) -> MembershipAnswer | None:
        """Return the chats from `chat_keys` in which the person is a member now. If `direct` is True, include the
        person's own direct chat. Return None if the platform has no members to look up. Raises `errors.ChannelError`.
        """
        return None

    def same_chat(self, chat_id: str) -> frozenset[str]:
        """Return `chat_id` and all other ids that the chat has had. A platform may change the id of a chat."""
        return frozenset({chat_id})

    def permalink(self, line: ArchiveLine) -> str | None:
        """Return the URL of a message, if it can be computed without a request."""
        return None


class HttpServer(Protocol):
    """An HTTP server that shares the connection limits of all servers in this process."""

    @property
    def streams(self) -> int:
        """Return the max number of long-lived responses that all servers together may have open."""

    async def start(
        self, app: Any, host: str, port: int, *, key: str, grace: float, nearby: bool = False
    ) -> int:
        """Serve a new `aiohttp.web.Application` and return the port. If `port` is in use and `nearby` is true, use the next
        free port. `stop` will wait up to `grace` seconds for running responses. Raises `errors.Unavailable` if another
        process uses the port, and `errors.ConfigError` for other failures. Both errors name the settings section `key`.
        """

    async def stop(self) -> None:
        """Stop the server. It may be called twice, and without `start`."""


class Section(BaseModel):
    """Base class for a section of a channel's settings."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, populate_by_name=True, frozen=True, strict=True
    )


class ChannelSettings(Section):
    """Base class of `Manifest.settings`: `channels.<name>` of ship.json."""

    enabled: bool | None = None
    """Connect this channel. Default: true if all tokens of the channel are set."""


class Streaming(Section):
    """Live updates of answers and progress."""

    enabled: bool = True
    """Show an answer while it is being written, and the progress of long work."""
    after_ms: int = Field(default=1_000, ge=0, le=60_000)
    """Show an unfinished answer only if this many milliseconds have passed since its first words. An answer that is
    complete earlier is sent as a whole.
    """
    drafts: bool = False
    """In Telegram's private chats, show an unfinished answer as a draft with a stop button, not as a message that is
    edited again and again. Drafts flicker in some clients. Other chats ignore this setting.
    """


class Webhook(Section):
    """Receive events as HTTP requests, through a proxy or load balancer, and open no connection for events."""

    url: str
    """Address (`https://…`) to which the platform posts. The proxy must pass requests, including their path,
    unchanged to `host` and `port`.
    """
    host: str = "127.0.0.1"
    """Address on which Shipmate listens for these requests."""
    port: int = Field(default=8443, ge=0, le=65_535)
    """Port on which Shipmate listens; 0 selects a free port."""

    @field_validator("url")
    @classmethod
    def _public(cls, value: str) -> str:
        parts = urlsplit(value)
        here = parts.scheme == "http" and parts.hostname in LOOPBACK
        if not parts.hostname or set("?#{}") & set(value) or not (here or parts.scheme == "https"):
            raise ValueError("must be an https:// address without ?, #, { and }, or http:// on this machine")
        return value

    @property
    def path(self) -> str:
        return urlsplit(self.url).path or "/"


@dataclass(frozen=True, slots=True)
class Pace:
    """Rate limit of outgoing messages: `burst` messages at once, then one message every `every` seconds."""

    burst: int
    every: float


@dataclass(frozen=True, slots=True)
class EditPace:
    """Rate limit of live edits: each chat allows one edit every `every` seconds, and `total` limits all chats together.
    Edits do not count towards the limit of sends.
    """

    every: Mapping[ChatType, float]
    total: Pace | None = None


async def _refused(_: UserRef) -> None:
    raise errors.StorageError("Nobody keeps who is an operator here.")


def _no_server() -> HttpServer:
    raise errors.ConfigError("Nobody serves pages here.")


@dataclass(frozen=True, slots=True)
class ChannelDeps:
    """The objects and functions that a channel gets from the gateway. `user_of` blocks."""

    clock: Clock
    log: Log
    rng: random.Random
    home: Path  # Path of the `.ship` folder
    root: Path  # Path of the project folder
    disk: Disk  # Writer for files below `home` that other hosts of a cluster also read
    operators: Collection[UserRef] = frozenset()
    """Current operators. The collection changes while the process runs."""
    name: str = "Shipmate"  # Name of the bot
    user_of: Callable[[tuple[str, int], tuple[str, int]], int | None] = lambda _near, _far: None
    """Returns the uid of the process at the far end of a local connection, given (host, port) of both ends; None if unknown."""
    appoint: Callable[[UserRef], Awaitable[None]] = _refused
    """Makes a person an operator. Raises `errors.StorageError`."""
    serve: Callable[[], HttpServer] = _no_server
    pace: float = 1.0
    """Network seconds per second of `clock`. Tests run the clock faster, but not the network."""


Verdict = Literal["ok", "warn", "later", "wrong"]
"""Result of a check. `later`: a repetition of the check may succeed. `wrong`: the operator must fix the setting."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report of `shipmate doctor`: the part that was checked, the result, and what to do about it."""

    part: str
    verdict: Verdict
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """The platform's answer about a channel's credentials. `time` is the platform's clock in epoch seconds, if known."""

    findings: tuple[Finding, ...]
    time: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Finds a person's id on the platform by a secret code that the person sends to the bot. Both functions take the
    channel's settings and the code, and raise `errors.ChannelError`.
    """

    invite: Callable[[Any, str], Awaitable[str]]  # Returns instructions for sending the code
    look: Callable[[Any, str], Awaitable[str | None]]
    """Returns the id of the person who has sent the code; None if nobody has yet. The gateway still receives all events."""


@dataclass(frozen=True, slots=True)
class TokenForm:
    """Form of a token: a pattern that the whole token must match, and an example to show to people."""

    pattern: str
    example: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Constant properties of a channel. Each `channels/<name>/manifest.py` exports a `Manifest` named `MANIFEST`.
    Importing a manifest must be fast, so only `build` imports the platform's libraries.
    """

    name: str
    settings: type[ChannelSettings]
    build: Callable[[Any, ChannelDeps], Channel]
    encode: Callable[[Mapping[str, str]], ChatKey]  # Converts the parts of an address to a `ChatKey`
    decode: Callable[[ChatKey], dict[str, str]]  # Inverse of `encode`
    tokens: tuple[str, ...] = ()  # Names of the settings that the channel cannot run without
    webhook_tokens: tuple[str, ...] = ()  # Names of the settings that replace `tokens` if `webhook` is set
    token_forms: Mapping[str, TokenForm] = field(default_factory=dict)  # By the names in `tokens`
    access: Literal["allowlist", "local"] = "allowlist"
    """`allowlist`: anybody can reach the bot, so an allow list is needed. `local`: only people who have access to this
    machine or the channel's own token can reach the bot.
    """
    valid_id: Callable[[str], bool] = bool
    """Returns True if an entry of an allow list can be a stable user id of this platform."""
    where_id: Sentence | None = None
    """Text that tells operators what a user id looks like and where to find it."""
    operators: frozenset[str] = frozenset()
    """Ids of the user who started Shipmate. This user is an operator without being configured."""
    never_admit: frozenset[str] = frozenset()
    """User ids that many people share. Senders with such an id are refused even if an allow list names the id."""
    pace: Mapping[ChatType, Pace] = field(default_factory=dict)  # Rate limit of messages in one chat
    total: Pace | None = None  # Rate limit of messages over all chats
    edits: EditPace | None = None
    """Rate limit of live edits; set if the channel implements `edit` and `delete`."""
    ephemeral: bool = False
    """True if the channel can show a group message to only one person (`contracts.messages.ONLY_TO`)."""
    buttons: bool = False
    """True if the channel shows `Outbound.buttons`. Otherwise the text names the commands that answer the question."""
    examples: bool = False  # True if direct chats show `contracts.approvals.EXAMPLES` as buttons
    files: bool = False  # True if the channel implements `fetch`
    silence: float | None = None
    """Max seconds since `Health.last_heard`. After this time, the connection counts as dead. None if silence is normal."""
    separate: bool = False
    """True if a direct chat and each thread in it are separate conversations. A stop or a command outside threads then
    affects only the direct chat itself.
    """
    direct: Callable[[str], dict[str, str]] | None = None
    """Returns the address parts of a person's direct chat, given the person's id. Alerts to operators are sent there."""
    indicate_every: float = 4.5  # Interval in seconds at which the typing indicator must be renewed
    examine: Callable[[Any], Coroutine[Any, Any, Examination]] | None = None
    """Asks the platform whether the tokens in the settings and the ids in `allow` are valid. The gateway still receives all events."""
    claim: Claim | None = None  # Identifies the first operator for `shipmate init`
    connect: Callable[[str, str | None], str] = lambda _name, _posts_to: ""
    """Returns instructions for getting the tokens, given the bot's name and the address of its webhook, if any."""
    rules: str = ""  # Text that tells the model what the channel can display
    command_prefix: str = "/"  # Prefix with which help texts write commands
    unused: frozenset[str] = frozenset()
    """Optional dependencies of the platform's library that the channel does not need and that must not be imported."""
