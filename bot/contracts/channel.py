"""The port of platform adapters: `Manifest`, `Channel` with its optional abilities, and the `Intake` that accepts messages."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
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
    """The state of a connection. `last_heard`: when the platform last sent anything (epoch seconds); None if it may be silent while idle."""

    connected: bool
    last_heard: float | None = None
    detail: str = ""


LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names of this machine."""
PROXY_HEADERS = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")
"""Headers by which most proxies identify themselves."""
FILE_PIECE = 65_536
"""Max bytes of a piece that `Files.fetch` yields."""


def is_loopback(host: str) -> bool:
    """True if an address to listen on is reachable from this machine only."""
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
    """The gateway, as channels see it."""

    async def accept(self, inbound: Inbound) -> bool:
        """Authorise, de-duplicate, store and queue one inbound.

        When it returns, the channel may confirm the event to the platform. True: accepted; False: refused (duplicate, stranger, not
        addressed). Raises `errors.StorageError` if it could not be stored: the channel must not confirm it, so that the platform
        delivers it again.
        """
        ...

    async def hears_all(self, chat: ChatKey) -> bool:
        """True if the bot listens to all messages of a chat. If not, a channel whose `context` returns earlier messages may skip
        those with `Inbound.addressed` `chat`. Raises `errors.StorageError`.
        """
        ...

    async def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> None:
        """Record an event that cannot be parsed and report it to operators, so that the events after it are processed."""
        ...

    def report_missing_right(self, channel: str, right: str, words: Sentence) -> None:
        """Report to operators that the platform refused something for lack of a permission; at most once a day for each `right`."""
        ...

    async def recent(self, chat_key: ChatKey, limit: int) -> list[ArchiveLine]:
        """The newest `limit` lines of a conversation, in time order."""
        ...

    async def home(self, opened: Inbound) -> tuple[HomeSection, ...]:
        """The home tab of the sender of `opened` (which is not accepted): what the bot does for them, their jobs and settings. For a
        stranger only how to get access. Raises `errors.StorageError`.
        """
        ...

    async def model(self, chat_key: ChatKey) -> str:
        """The name of the model that answers in a chat."""
        ...

    async def questions(self, chat_key: ChatKey, person: UserRef) -> list[OpenQuestion]:
        """Open questions of a conversation, as this person may see them. Raises `errors.StorageError`."""
        ...


class Channel(Protocol):
    """A platform adapter. See CONTRIBUTING, "Add a channel", and tests/contracts/channel.py."""

    name: str
    addresses: tuple[str, ...]
    """Addresses to show to the operator, known after `start`."""

    async def start(self, intake: Intake) -> None:
        """Connect and pass inbounds to `intake`; returns once connected. From then on the channel reconnects by itself.

        Raises `errors.ChannelRefused` if the platform refuses the token, `errors.ChannelUnreachable` if it cannot be reached (the
        caller retries), `errors.Unavailable` if a port is taken.
        """
        ...

    async def pause(self) -> None:
        """Stop accepting; `send` still works, so that running turns can be answered."""
        ...

    async def stop(self) -> None:
        """Close all connections. Safe to call twice and without `start`."""
        ...

    def split(self, text: str) -> list[str]:
        """Split Markdown into parts that each fit one message, never inside a grapheme; [] for blank text."""
        ...

    async def send(self, message: Outbound) -> Sent:
        """Create one visible message. Raises the `errors.DeliveryFailed` that says whether it may have been created all the same."""
        ...

    async def find(self, message: Outbound) -> Sent | None:
        """Look up a message whose `send` had an unknown outcome; None if it is certainly not in the chat.

        Raises `errors.DeliveryUncertain` if the platform cannot tell, `errors.DeliveryThrottled` to be called again later, or another
        `errors.DeliveryFailed`.
        """
        ...

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        """Show or clear the typing indicator. Cosmetic: raises only `errors.DeliveryFailed`."""
        ...

    async def context(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Earlier messages for the model, oldest first: up to 50 of the thread of `inbound`, or up to 30 of the chat in which it
        mentions the bot. Raises `errors.ChannelError`.
        """
        ...

    def health(self) -> Health: ...

    async def heal(self) -> None:
        """Replace a connection that seems dead; running sends are not interrupted. Raises nothing."""
        ...


class HttpServer(Protocol):
    """An HTTP server within the connection limits that all servers of the process share."""

    @property
    def streams(self) -> int:
        """Max long-lived responses at once, over all servers."""
        ...

    async def start(self, app: Any, host: str, port: int, *, grace: float, nearby: bool = False) -> int:
        """Serve an unused `aiohttp.web.Application` and return the port: the next free one if `port` is taken and `nearby`. `stop`
        waits up to `grace` seconds for running responses. Raises OSError if it cannot listen.
        """
        ...

    async def stop(self) -> None:
        """Safe to call twice and without `start`."""
        ...


class Section(BaseModel):
    """Base of a section of a channel's settings."""

    model_config = ConfigDict(
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        strict=True,
    )


class ChannelSettings(Section):
    """Base of `Manifest.settings`: `channels.<name>` of ship.json."""

    enabled: bool | None = None
    """Connect it. Default: yes, if all its tokens are set."""


@runtime_checkable
class Edits(Protocol):
    """Optional ability of a `Channel`: edits and deletes its own messages."""

    async def edit(self, message: Outbound, message_id: str) -> None:
        """Replace what `send` created as `message_id` by `message`; idempotent. Raises `errors.EditRefused` if that message cannot be
        edited, otherwise as `send`.
        """
        ...

    async def delete(self, message: Outbound, message_id: str) -> None:
        """Delete what `send` created as `message_id`; `message` is its last content. Raises as `edit`."""
        ...


@runtime_checkable
class Drafts(Protocol):
    """Optional ability of a `Channel`: shows an ephemeral draft, which the final message replaces."""

    async def draft(self, message: Outbound) -> bool:
        """Show or update the draft of this request. False if its chat has no drafts (any more). Raises `errors.DeliveryFailed` if it may
        be tried again.
        """
        ...


@runtime_checkable
class Titles(Protocol):
    """Optional ability of a `Channel`: titles conversations in the person's list of them."""

    async def entitle(self, target: Mapping[str, str], title: str) -> None:
        """Set the title of the conversation of `target`. Cosmetic: raises only `errors.DeliveryFailed`."""
        ...


@runtime_checkable
class Suspends(Protocol):
    """Optional ability of a `Channel`: indicates that a turn waits for a person."""

    async def suspend(self, target: Mapping[str, str]) -> None:
        """Replace the typing indicator until the next `indicate`. Cosmetic: raises only `errors.DeliveryFailed`."""
        ...


@runtime_checkable
class Reacts(Protocol):
    """Optional ability of a `Channel`: reacts to a person's message."""

    async def react(self, target: Mapping[str, str], message_id: str) -> None:
        """Mark a message as seen: it is queued, or was added to the running turn. Cosmetic: raises only `errors.DeliveryFailed`."""
        ...


@runtime_checkable
class Invites(Protocol):
    """Optional ability of a `Channel`: a one-time link that makes whoever opens it an operator."""

    async def invite(self) -> str:
        """A new link, after `start`. Print it to the terminal only: it must not get into a log or file."""
        ...


@dataclass(frozen=True, slots=True)
class Introduction:
    """What the bot says when it was added to a chat: how to address it, and what it does not see. `hindrance` tells operators which
    permission it lacks there.
    """

    words: str = ""
    hindrance: Sentence | None = None


@runtime_checkable
class Introduces(Protocol):
    """Optional ability of a `Channel`: introduces the bot in a group."""

    async def introduce(self, inbound: Inbound) -> Introduction:
        """The introduction for the group of an `added` inbound. Raises nothing."""
        ...


@runtime_checkable
class Files(Protocol):
    """Optional ability of a `Channel`: downloads attachments."""

    def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        """Yield the file in pieces of up to `FILE_PIECE` bytes, each read on demand; a caller may close the generator early. Raises
        `errors.FileTooLarge` after the first `most` bytes of a larger file, `errors.FileGone` or `errors.FileUnreachable`.
        """
        ...


@runtime_checkable
class SendsFiles(Protocol):
    """Optional ability of a `Channel`: `send` uploads `Outbound.file`, and raises `errors.FileRefused` if the platform will never
    accept it. `find` works for such a message too.
    """

    largest_file: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """Max size of code and tables that are readable in a message."""

    lines: int = 60
    """Lines of code, or rows of a table."""
    characters: int = 3_500
    columns: int = 100
    """Width of a table in terminal cells; a wide character takes two."""


@runtime_checkable
class HasReadingLimits(Protocol):
    """Optional ability of a `SendsFiles` channel: code and tables above these limits are sent as files."""

    reading_limits: ReadingLimits


class Streaming(Section):
    """Live updates of answers and progress."""

    enabled: bool = True
    """Show an answer while it is being written, and the progress of long work."""
    after_ms: int = Field(default=1_000, ge=0, le=60_000)
    """An answer that is complete so many milliseconds after its first words is shown at once, and whole."""
    drafts: bool = False
    """In Telegram's private chats, show an answer that is being written as a draft with a stop button, not as a message that
    changes. Some clients flicker. Elsewhere it changes nothing."""


class Webhook(Section):
    """Receive events over HTTP behind a proxy or load balancer, instead of over a connection that Shipmate opens."""

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

        return urlsplit(self.url).path or "/"


@dataclass(frozen=True, slots=True)
class Pace:
    """Outgoing rate limit: `burst` messages at once, then one every `every` seconds."""

    burst: int
    every: float


@dataclass(frozen=True, slots=True)
class EditPace:
    """Rate limit of live edits: one per chat every `every` seconds, and `total` for the whole bot. Independent of the limit of sends."""

    every: Mapping[ChatType, float]
    total: Pace | None = None


async def _refused(_: UserRef) -> None:
    raise errors.StorageError("Nobody keeps who is an operator here.")


def _no_server() -> HttpServer:
    raise errors.ConfigError("Nobody serves pages here.")


@dataclass(frozen=True, slots=True)
class ChannelDeps:
    """Collaborators of a channel."""

    clock: Clock
    log: Log
    rng: random.Random
    home: Path
    """The `.ship` folder."""
    root: Path
    """The project folder."""
    disk: Disk
    """Writes files below `home` that other hosts of a cluster read too."""
    operators: Collection[UserRef] = frozenset()
    """A live view of the present operators."""
    name: str = "Shipmate"
    """The bot's name."""
    holder: Callable[[int], int | None] = lambda _: None
    """Blocking: the pid of the process that listens on a local port; None if unknown."""
    user_of: Callable[[tuple[str, int], tuple[str, int]], int | None] = lambda _near, _far: None
    """Blocking: the uid at the far end of a local connection, given its near and far (host, port); None if unknown."""
    appoint: Callable[[UserRef], Awaitable[None]] = _refused
    """Make a person an operator. Raises `errors.StorageError`."""
    serve: Callable[[], HttpServer] = _no_server
    pace: float = 1.0
    """Network seconds per second of `clock`. Tests speed up the clock, not the network."""


@dataclass(frozen=True, slots=True)
class TokenForm:
    """A pattern that a whole token matches, and an example for people."""

    pattern: str
    example: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The static facts of a channel: `channels/<name>/manifest.py` exports one as `MANIFEST`. Importing it must be cheap: SDKs are
    imported in `build`.
    """

    name: str
    settings: type[ChannelSettings]
    build: Callable[[Any, ChannelDeps], Channel]
    encode: Callable[[Mapping[str, str]], ChatKey]
    decode: Callable[[ChatKey], dict[str, str]]
    """`encode` makes a `ChatKey` of the parts of an address; `decode` is its inverse. Both are pure."""
    tokens: tuple[str, ...] = ()
    """Names of the settings without which the channel cannot run."""
    webhook_tokens: tuple[str, ...] = ()
    """Replaces `tokens` if `webhook` is set."""
    token_forms: Mapping[str, TokenForm] = field(default_factory=dict)
    """By names of `tokens`."""
    access: Literal["allowlist", "local"] = "allowlist"
    """`local`: only somebody with access to this machine, or with the channel's own token, can reach the bot."""
    valid_id: Callable[[str], bool] = bool
    """True if a string can be a stable user id of this platform, for allow lists."""
    where_id: Sentence | None = None
    """Tells operators what a user id looks like and where to find it."""
    operators: frozenset[str] = frozenset()
    """Ids that are operators implicitly: those of the user who started Shipmate."""
    never_admit: frozenset[str] = frozenset()
    """Ids shared by many people, refused whatever the allow lists say."""
    pace: Mapping[ChatType, Pace] = field(default_factory=dict)
    total: Pace | None = None
    """Outgoing rate limit over all chats."""
    edits: EditPace | None = None
    """Set if the channel is an `Edits`."""
    ephemeral: bool = False
    """True if it can show a group message to one person only (`contracts.outbound.ONLY_TO`)."""
    buttons: bool = False
    """True if it shows `Outbound.buttons`. Otherwise the text names the commands that answer the question."""
    examples: bool = False
    """True if it shows `contracts.approvals.EXAMPLES` as buttons in direct chats."""
    files: bool = False
    """True if the channel is a `Files`."""
    silence: float | None = None
    """Timeout in seconds without `Health.last_heard`, after which the connection counts as dead."""
    direct: Callable[[str], dict[str, str]] | None = None
    """The parts of the address of a person's direct chat, from their id; alerts to operators go there."""
    indicate_every: float = 4.5
    """Interval in seconds at which the typing indicator must be renewed."""
    examine: Callable[[Any], Awaitable[Examination]] | None = None
    """Check the tokens of these settings and the ids of their `allow` with the platform, for `shipmate doctor` and `init`. Consumes no
    events.
    """
    claim: Claim | None = None
    """Identifies the first operator for `shipmate init`."""
    connect: Callable[[str, str | None], str] = lambda _name, _posts_to: ""
    """Instructions for getting the tokens, given the bot's name and its webhook's address, if any."""
    rules: str = ""
    """Tells the model what the channel can display."""
    command_prefix: str = "/"
    """How help texts write commands."""
    unused: frozenset[str] = frozenset()
    """Optional dependencies of the platform's library that the channel does not need and that are not imported."""


@runtime_checkable
class KnowsZones(Protocol):
    """Optional ability of a `Channel`: looks up time zones of people."""

    async def zone_of(self, user_id: str) -> str | None:
        """A name of the tz database; None if the platform does not tell. Raises `errors.ChannelError`."""
        ...


@dataclass(frozen=True, slots=True)
class MembershipAnswer:
    """The chats whose member the person is. `unanswered`: the platform gave no answer, or they are above the limit of one call."""

    chats: list[ChatKey]
    unanswered: list[ChatKey] = field(default_factory=list)


@runtime_checkable
class KnowsMembers(Protocol):
    """Optional ability of a `Channel`: looks up members of chats. Without it nobody counts as a member."""

    async def chats_of(self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool) -> MembershipAnswer:
        """Those of `chat_keys` whose member the person is now; their direct chats with the bot only if `direct`, and never those of
        others. Raises `errors.ChannelError`.
        """
        ...


@runtime_checkable
class KnowsChatMigrations(Protocol):
    """Optional ability of a `Channel`: knows chats whose id has changed."""

    def same_chat(self, chat_id: str) -> frozenset[str]:
        """All ids that this chat has had, including this one."""
        ...


@runtime_checkable
class KnowsLinks(Protocol):
    """Optional ability of a `Channel`: knows the addresses of messages."""

    def permalink(self, line: ArchiveLine) -> str | None:
        """The URL of a message, if it can be told without a request."""
        ...
