"""The port of platform adapters: `Channel` and its optional abilities, its manifest, and the intake that takes its
messages.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from bot import errors
from bot.contracts.approvals import OpenQuestion
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import ChatType
from bot.contracts.environment import Clock, Disk, Log
from bot.contracts.examination import Claim, Examination
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Attachment, Inbound, Quoted
from bot.contracts.outbound import Outbound, Sent
from bot.words import Sentence


@dataclass(frozen=True, slots=True)
class Health:
    """`last_heard` is epoch seconds of the last sign of life of the platform; None where it gives none while nothing happens."""

    connected: bool
    last_heard: float | None = None
    detail: str = ""


LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Hosts that are this machine."""
PROXY_HEADERS = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")
"""A request that came through a proxy says so by one of these, unless the proxy keeps quiet."""
FILE_PIECE = 65_536
"""Bytes of a file that are in memory at once."""


def is_loopback(host: str) -> bool:
    """True if an address to listen on can be reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


TITLE = 60
"""Characters of the title of a conversation."""


@dataclass(frozen=True, slots=True)
class HomeSection:
    """A part of a person's home, with lines of plain text."""

    title: str
    lines: tuple[str, ...]


class Intake(Protocol):
    """The door of the gateway, as channels see it."""

    async def accept(self, inbound: Inbound) -> bool:
        """Take in one inbound: authorise, de-duplicate, write down, queue.

        Returns once the platform may be told that the event arrived; True where it was taken in, False where
        it was rightly refused (duplicate, stranger, not addressed). Raises `errors.StorageError` where it
        could not be written: the channel must then not confirm, so that the platform sends it again.
        """
        ...

    async def hears_all(self, chat: ChatKey) -> bool:
        """True where all that people say in a chat is for the bot. A channel whose `context` knows what was said before need not
        hand over other words that do not speak to the bot (`Inbound.addressed` is `chat`). Raises `errors.StorageError`.
        """
        ...

    async def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> None:
        """Put an event that cannot be read among the dead letters; what stands behind it goes on."""
        ...

    def report_missing_right(self, channel: str, right: str, words: Sentence) -> None:
        """The platform has refused something for want of a right: operators are told in these `words`, once a day for each
        `right`, over restarts too.
        """
        ...

    async def recent(self, chat_key: ChatKey, limit: int) -> list[ArchiveLine]:
        """The newest `limit` lines of one conversation, in time order."""
        ...

    async def home(self, opened: Inbound) -> tuple[HomeSection, ...]:
        """The home of the person of an inbound that nobody takes in: what the bot does for them, their jobs and settings. A
        stranger reads that they have to be let in, and no more. Raises `errors.StorageError`.
        """
        ...

    async def model(self, chat_key: ChatKey) -> str:
        """The name of the model that answers in a chat now."""
        ...

    async def questions(self, chat_key: ChatKey, person: UserRef) -> list[OpenQuestion]:
        """Open approval questions of a conversation, as this person sees them. Raises `errors.StorageError`."""
        ...


class Channel(Protocol):
    """A platform adapter. See CONTRIBUTING, "Add a channel", and tests/contracts/channel.py."""

    name: str
    addresses: tuple[str, ...]
    """Addresses for the ready line, known after `start`."""

    async def start(self, intake: Intake) -> None:
        """Connect and begin to hand inbound to `intake`; returns once connected.

        Raises `errors.ChannelRefused` where the platform refuses the token, `errors.ChannelUnreachable` where
        it cannot be reached (the caller waits and calls again), `errors.Unavailable` where a port is taken.
        After it has returned, the channel reconnects by itself.
        """
        ...

    async def pause(self) -> None:
        """Stop taking in; what was taken in may still be answered through `send`."""
        ...

    async def stop(self) -> None:
        """Close every connection. Safe to call twice and without `start`."""
        ...

    def split(self, text: str) -> list[str]:
        """Markdown text as parts that each fit one message; never inside a grapheme; [] for blank text."""
        ...

    async def send(self, message: Outbound) -> Sent:
        """Create one visible message. Raises an `errors.DeliveryFailed` that says how sure the failure is."""
        ...

    async def find(self, message: Outbound) -> Sent | None:
        """A message whose send has an unknown outcome: what became of it, None where it surely is not in the chat.

        Raises `errors.DeliveryUncertain` where the platform cannot tell, `errors.DeliveryThrottled` where it can be
        asked again after a while, or another `errors.DeliveryFailed`.
        """
        ...

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        """Show or clear the sign of work. Cosmetic: raises only `errors.DeliveryFailed`."""
        ...

    async def context(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Up to 50 earlier messages of the thread in which `inbound` was said, or up to 30 of the chat in which it mentions the
        bot; oldest first. Raises `errors.ChannelError`.
        """
        ...

    def health(self) -> Health: ...

    async def heal(self) -> None:
        """Give up a connection that seems dead and make a new one; sends that run are not touched. Raises nothing."""
        ...


class HttpServer(Protocol):
    """Serves pages within the limits that all servers of the process share."""

    @property
    def streams(self) -> int:
        """Most long-lived answers at once, over all servers."""
        ...

    async def start(self, app: Any, host: str, port: int, *, grace: float, nearby: bool = False) -> int:
        """Serve an `aiohttp.web.Application` that was not used yet; the port, where that is taken and `nearby` is true the next
        free one. A stop waits `grace` seconds for what is being answered. Raises OSError where it cannot listen.
        """
        ...

    async def stop(self) -> None:
        """Safe to call twice and without `start`."""
        ...


class Section(BaseModel):
    """A part of the settings of a channel."""

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        strict=True,
    )


class ChannelSettings(Section):
    """Base of the settings models in the channels' manifests (`channels.<name>` of ship.json)."""

    enabled: bool | None = None
    """Connect it. Default: yes, if all its tokens are set."""


@runtime_checkable
class Edits(Protocol):
    """Optional ability of a `Channel`: changes messages of its own."""

    async def edit(self, message: Outbound, message_id: str) -> None:
        """Show `message` in the place of what `send` created as `message_id`. The same edit again changes nothing.

        Raises `errors.EditRefused` where that message cannot be changed, else an `errors.DeliveryFailed` as `send` does.
        """
        ...

    async def delete(self, message: Outbound, message_id: str) -> None:
        """Take away what `send` created as `message_id` in the place of `message`. Raises as `edit` does."""
        ...


@runtime_checkable
class Drafts(Protocol):
    """Optional ability of a `Channel`: shows words of which nothing is left but the message that follows."""

    async def draft(self, message: Outbound) -> bool:
        """Show `message` as being written, in the place of what was shown so of its request before. False where that is not
        possible in its chat, or not any more. Raises an `errors.DeliveryFailed` where it may be tried again.
        """
        ...


@runtime_checkable
class Titles(Protocol):
    """Optional ability of a `Channel`: names conversations in the list that a person has of them."""

    async def entitle(self, target: Mapping[str, str], title: str) -> None:
        """Give the conversation of `target` a title of at most `TITLE` characters. Cosmetic: raises only `errors.DeliveryFailed`."""
        ...


@runtime_checkable
class Suspends(Protocol):
    """Optional ability of a `Channel`: has a sign for work that waits for a person."""

    async def suspend(self, target: Mapping[str, str]) -> None:
        """Show that sign in the place of the one of work, until `indicate` shows another. Cosmetic, as that is."""
        ...


@runtime_checkable
class Reacts(Protocol):
    """Optional ability of a `Channel`: marks the message of a person."""

    async def react(self, target: Mapping[str, str], message_id: str) -> None:
        """Show that a message was seen: it waits, or has joined what is being answered. Cosmetic, as `indicate` is."""
        ...


@runtime_checkable
class Invites(Protocol):
    """Optional ability of a `Channel`: a link that makes the person who opens it an operator, once."""

    async def invite(self) -> str:
        """A new link, once the channel has been started. It is for the output of the command alone: no log, no file."""
        ...


@dataclass(frozen=True, slots=True)
class Introduction:
    """The words of a bot that was added to a chat: how it is spoken to, and what it does not see. `hindrance` is for operators: a
    right that it lacks to do its work there.
    """

    words: str = ""
    hindrance: Sentence | None = None


@runtime_checkable
class Introduces(Protocol):
    """Optional ability of a `Channel`: says how the bot is spoken to in a chat of several."""

    async def introduce(self, inbound: Inbound) -> Introduction:
        """The introduction for the chat that it was `added` to. Raises nothing."""
        ...


@runtime_checkable
class Files(Protocol):
    """Optional ability of a `Channel`: fetches files of messages."""

    def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        """The bytes of a file in pieces of `FILE_PIECE` at the most. A piece is read only when it is asked for; a
        caller that wants no more closes the generator. Of a larger file the first `most` bytes come, however large
        it says it is.

        Raises `errors.FileTooLarge` after those, `errors.FileGone` or `errors.FileUnreachable`.
        """
        ...


@runtime_checkable
class SendsFiles(Protocol):
    """Optional ability of a `Channel`: `send` takes a message that is a file (`Outbound.file`). It raises `errors.FileRefused` where
    the platform does not take the file for good, and `find` knows such a message as any other.
    """

    largest_file: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """The longest code, and the longest and widest table, that people can read in a message of a channel."""

    lines: int = 60
    """Of code, and rows of a table."""
    characters: int = 3_500
    columns: int = 100
    """Of a table: cells of a terminal, in which a wide character takes two."""


@runtime_checkable
class HasReadingLimits(Protocol):
    """Optional ability of a `Channel` that is a `SendsFiles`: code and tables beyond these limits are better read in a file."""

    reading_limits: ReadingLimits


class Streaming(Section):
    """Answers and progress that are shown while they change."""

    enabled: bool = True
    """Show an answer while it is being written, and the progress of long work."""
    after_ms: int = Field(default=1_000, ge=0, le=60_000)
    """An answer that is complete so many milliseconds after its first words is shown at once, and whole."""
    drafts: bool = False
    """In Telegram's private chats, show an answer that is being written as a draft with a stop button, not as a message that
    changes. Some clients flicker. Elsewhere it changes nothing."""


class Webhook(Section):
    """The platform posts its events over HTTP, behind a proxy or a load balancer, in place of a connection that Shipmate opens."""

    url: str
    """The `https://` address to which the platform posts. What stands behind it passes requests on to `host` and `port` as they
    are, with this path."""
    host: str = "127.0.0.1"
    """Address on which Shipmate waits for them."""
    port: int = Field(default=8443, ge=0, le=65_535)
    """Its port; 0 takes a free one."""

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
        """The path of its address."""
        return urlsplit(self.url).path or "/"


@dataclass(frozen=True, slots=True)
class Pace:
    """Outgoing budget of one chat: `burst` messages at once, then one every `every` seconds."""

    burst: int
    every: float


@dataclass(frozen=True, slots=True)
class EditPace:
    """Rate of edits for show: one in each chat every so many seconds (`every`), and of the whole bot as `total` allows,
    beside the rate of sends.
    """

    every: Mapping[ChatType, float]
    total: Pace | None = None


async def _refused(_: UserRef) -> None:
    raise errors.StorageError("Nobody keeps who is an operator here.")


def _no_server() -> HttpServer:
    raise errors.ConfigError("Nobody serves pages here.")


@dataclass(frozen=True, slots=True)
class ChannelDeps:
    """Collaborators of a channel. `home` is the `.ship` folder, to which `disk` writes what another host has to know too, `root` the
    project root; `name` is the bot's. `holder` (blocking) gives the pid of the
    process that listens on a port of this machine, None where it cannot be seen; `user_of` (blocking) the user whose
    program is at the far end of a connection from this machine (near end first, each as host and port), None where
    that cannot be seen. `operators` are those of now; `appoint` makes a person one of them, and raises
    `errors.StorageError`. `serve` gives a server of pages. `pace` is how many seconds of the network one second of
    `clock` takes: a network keeps no clock that could be moved.
    """

    clock: Clock
    log: Log
    rng: random.Random
    home: Path
    root: Path
    disk: Disk
    operators: Collection[UserRef] = frozenset()
    name: str = "Shipmate"
    holder: Callable[[int], int | None] = lambda _: None
    user_of: Callable[[tuple[str, int], tuple[str, int]], int | None] = lambda _near, _far: None
    appoint: Callable[[UserRef], Awaitable[None]] = _refused
    serve: Callable[[], HttpServer] = _no_server
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class TokenForm:
    """The form of a platform's tokens: a pattern that a whole token matches, and an example of it for people."""

    pattern: str
    example: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The static facts of a channel: `channels/<name>/manifest.py` exports one as `MANIFEST`. Importing it must be
    cheap: SDKs come in `build`.

    `tokens` names the settings without which the channel cannot run. `access` is `allowlist` where strangers can reach
    the bot, `local` where reaching it takes access to this machine (or the channel's own token). `encode` and `decode`
    turn the parts of an address into a `ChatKey` and back; they are pure and inverse. `rules` tells the model what the
    channel can show; `command_prefix` is how its help writes commands.
    """

    name: str
    settings: type[ChannelSettings]
    build: Callable[[Any, ChannelDeps], Channel]
    encode: Callable[[Mapping[str, str]], ChatKey]
    decode: Callable[[ChatKey], dict[str, str]]
    tokens: tuple[str, ...] = ()
    webhook_tokens: tuple[str, ...] = ()
    """The same where `webhook` is set, if those are others."""
    token_forms: Mapping[str, TokenForm] = field(default_factory=dict)
    """The forms of tokens that have one, by their names."""
    access: Literal["allowlist", "local"] = "allowlist"
    valid_id: Callable[[str], bool] = bool
    """True if a string can be a stable id of this platform, for allow lists."""
    where_id: Sentence | None = None
    """For operators: the form of a person's id, with an example, and where it is found."""
    operators: frozenset[str] = frozenset()
    """Ids that are operators' without being named: those of the user who started Shipmate."""
    never_admit: frozenset[str] = frozenset()
    """Ids that stand for many people and are refused whatever the lists say."""
    pace: Mapping[ChatType, Pace] = field(default_factory=dict)
    total: Pace | None = None
    """Outgoing budget of the whole bot, over all chats."""
    edits: EditPace | None = None
    """None where messages cannot be changed; else its channel is an `Edits`."""
    ephemeral: bool = False
    """True if it can show a message of a group to one person alone (`contracts.outbound.ONLY_TO`)."""
    buttons: bool = False
    """True if it shows the buttons of a question (`Outbound.buttons`); elsewhere people read which command answers it."""
    examples: bool = False
    """True if it can offer examples to tap, in direct chats (`contracts.approvals.EXAMPLES`)."""
    files: bool = False
    """True if its channel is a `Files`."""
    silence: float | None = None
    """Seconds without a sign of life from the platform after which the connection counts as dead."""
    direct: Callable[[str], dict[str, str]] | None = None
    """The parts of the address of a person's direct chat, from their id: where an operator is told of trouble."""
    indicate_every: float = 4.5
    """Seconds after which the platform's sign of work fades and has to be shown again."""
    examine: Callable[[Any], Awaitable[Examination]] | None = None
    """Ask the platform about the tokens of these settings, for `shipmate doctor` and `init`, and for `doctor` about the ids of
    their `allow`, which holds all who are let in, operators too. Takes nothing in.
    """
    claim: Claim | None = None
    """Finds out for `shipmate init` who is to be the operator."""
    connect: Callable[[str, str | None], str] = lambda _name, _posts_to: ""
    """Say how to get the tokens, for a bot of this name whose platform posts to this address, if it has a webhook."""
    rules: str = ""
    command_prefix: str = "/"
    unused: frozenset[str] = frozenset()
    """Packages that the platform's library imports where they are installed, and that the channel does not need: a gateway
    imports the library without them.
    """
