"""Messages between people and the bot: provenance, inbound events, outbound messages, and archive lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, Self

from pydantic import Field

from bot.contracts.approvals import QuestionButtons
from bot.contracts.base import ChatType, Frozen, Json, Role
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.model import ShownFile
from bot.words import DEFAULT

ORIGIN = "origin"
"""Key of the provenance of a text. Stored blocks and messages have this key. Requests to a model lack the key."""


class Taint(IntEnum):
    """Level of distrust of a text; a higher level is less trusted. `WORKSPACE`: the project's files, and output of
    commands that ran without network. `FOREIGN`: text that anybody may have written.
    """

    NONE = 0
    WORKSPACE = 1
    FOREIGN = 2


@dataclass(frozen=True, slots=True)
class Provenance:
    """Authors of a text: ids of people who wrote parts of the text, and the level of distrust (`taint`) of the rest."""

    people: frozenset[str] = frozenset()
    taint: Taint = Taint.NONE

    def __or__(self, other: Provenance) -> Provenance:
        return Provenance(self.people | other.people, max(self.taint, other.taint))

    def packed(self) -> Any:
        """Return the provenance as JSON: a list of ids, or an object if there is untrusted text."""
        people = sorted(self.people)
        return {"people": people, "taint": self.taint.name.lower()} if self.taint else people


NOBODYS = Provenance()
WORKSPACES = Provenance(taint=Taint.WORKSPACE)
ANYBODYS = Provenance(taint=Taint.FOREIGN)


def unpacked(value: object) -> Provenance:
    """Convert JSON made by `packed` back to a provenance. Return `ANYBODYS` if the JSON is invalid."""
    facts = value if isinstance(value, dict) else {"people": value, "taint": "none"}
    people, name = facts.get("people"), str(facts.get("taint")).upper()
    if not isinstance(people, list) or name not in Taint.__members__:
        return ANYBODYS
    return Provenance(frozenset(map(str, people)), Taint[name])


# ------------------------------------------------------------ inbound


def _provenance(words_of: tuple[str, ...] | None, taint: Taint) -> Provenance:
    return Provenance(frozenset(words_of), taint) if words_of is not None else ANYBODYS


class Attachment(Frozen):
    """A file attached to a message. `ref` is the platform's handle; never use it as a path."""

    kind: Literal["photo", "video", "audio", "voice", "sticker", "file"]
    name: str | None = None
    size: int | None = None
    mime: str | None = None
    ref: str | None = None

    @property
    def spoken(self) -> bool:
        """Return True if the attachment is speech, which is transcribed if transcription is configured."""
        return self.kind in {"voice", "audio"}

    @property
    def may_be_read(self) -> bool:
        """Return True if the attachment is of a kind that may contain readable text, speech or a picture."""
        return (self.spoken or self.kind in {"file", "photo"}) and self.ref is not None


@dataclass(frozen=True, slots=True)
class SeenFile:
    """Result of reading an attached file.

    For a file with text, `artifact` names the stored text (secrets redacted) and `head` is its beginning. A file may also
    be `shown` to the model. Any other file was not read. Then `why` is the reason in English, or "" if files of this kind
    are never read. `code` selects the translated reason (`files.why_…` of a catalogue), and `limit` is the number in that
    reason. `refused` means that memory was short, so no file of the message was fetched.
    """

    artifact: str | None = None
    characters: int = 0
    lines: int = 0
    head: str = ""
    why: str = ""
    refused: bool = False
    shown: ShownFile | None = None
    code: str = ""
    limit: int = 0

    @property
    def read(self) -> bool:
        """Return True if the model receives the file's text or the file itself."""
        return self.artifact is not None or self.shown is not None


REFUSED = SeenFile(why="memory was short", refused=True, code="memory")
"""Result for a file that was not fetched because memory was short."""
UNSEEN = SeenFile(why="the provider refuses it", code="unseen")
UNSEEN_BY_MODEL = SeenFile(why="the model sees no files", code="blind")


class Origin(Frozen):
    """The original author of a forwarded text, as far as the platform tells. `id` and `chat` are ids of the
    platform. `name` is a name that the author chose. `from_self`: the bot wrote the text.
    """

    how: Literal["forwarded", "shared", "via_bot", "quoted_from_elsewhere", "preview"]
    name: str | None = None
    id: str | None = None
    chat: str | None = None
    message_id: str | None = None
    ts: int | None = None
    from_self: bool = False


class Quoted(Frozen):
    """A message that accompanies an inbound message. It is an earlier message of the thread, the message replied to, or (`brought`)
    a message that is forwarded, shared, or sent instead of text.

    `user_id` is the person who posted the quoted message here; `origin` is the author, if somebody else wrote it.
    `part` is the excerpt that a reply selects. `kind` is the kind of content other than a person's text (a poll, a
    location, a bot's post). `files` are file names. `words_of` and `taint` override the default `provenance`.
    """

    user_id: str | None
    text: str
    user_name: str | None = None
    ts: int | None = None
    from_self: bool = False
    message_id: str | None = None
    origin: Origin | None = None
    brought: bool = False
    part: str | None = None
    kind: str | None = None
    files: tuple[str, ...] = ()
    words_of: tuple[str, ...] | None = None
    taint: Taint = Taint.NONE

    @property
    def provenance(self) -> Provenance:
        """Return the provenance of the text. Text that the poster did not write counts as foreign."""
        passed_on = self.origin or self.kind or self.files or self.from_self
        own = (self.user_id,) if self.user_id and not passed_on else None
        return _provenance(own if self.words_of is None else self.words_of, self.taint)

    @property
    def in_place_of_words(self) -> bool:
        """Return True if the person sent, instead of text, content that anybody may have written, such as a poll."""
        own = self.origin is None and self.message_id is None
        return self.brought and own and self.kind is not None


class Link(Frozen):
    """A link whose text differs from its URL."""

    text: str
    url: str


class Command(Frozen):
    """A command such as `/new`, `!new` or `/shipmate new`, without its prefix. `name` is lower case."""

    name: str
    args: str = ""


class Due(Frozen):
    """A due job, which starts a turn without a message. `at` is the due time in epoch seconds, `late` the seconds since then,
    `missed` the number of skipped runs. `words_of` and `taint` are the provenance of the model's context when the job was
    scheduled; if `words_of` is None, the job counts as foreign text.
    """

    job: str
    at: float
    plan: str = ""
    late: float = 0.0
    missed: int = 0
    words_of: tuple[str, ...] | None = None
    taint: Taint = Taint.NONE

    @property
    def origin(self) -> Provenance:
        return _provenance(self.words_of, self.taint)


class Inbound(Frozen):
    """One event that a person caused, in the same form for all platforms. `kind` selects the meaning.

    `edit`: `text` is the new text of the message `message_id`. `delete`: that message was deleted. `stop`: ends the
    turn of `chat_key`. `admission`: the intake makes this inbound when a stranger writes, without the stranger's text.
    `added`: this person added the bot to a chat. `rating`: this person rates the message `answers`.
    """

    channel: str
    chat_id: str
    chat_key: ChatKey
    chat_type: ChatType
    user_id: str
    keys: tuple[str, ...]
    """Ids of the platform's event. An inbound with a key that was seen before is a duplicate."""
    ts: int
    target: dict[str, str]
    """Data for a reply in this inbound's chat or thread. `reply_to` is the id of the message to reply to, if any."""
    kind: Literal["message", "edit", "delete", "stop", "admission", "added", "rating"] = "message"
    addressed: Literal["direct", "mention", "reply", "command", "thread", "chat"] = "direct"
    """Reason why the message may be for the bot. `thread`: the bot may take part in the thread. `chat`: the bot may listen to
    all messages of the chat.
    """
    to_others: bool = False  # True if the message first mentions somebody else, or replies to somebody else
    text: str = ""
    """Text that the person wrote. Forwarded and shared texts are `brought` quotes, and are never read as commands."""
    command: Command | None = None
    message_id: str | None = None
    user_name: str | None = None
    chat_name: str | None = None  # Name of the group
    language: str | None = None  # Language tag of the person's app (`zh-hans`, `en-US`)
    zone: str | None = None  # Name in the tz database
    from_bot: bool = False
    attachments: tuple[Attachment, ...] = ()
    quoted: tuple[Quoted, ...] = ()
    links: tuple[Link, ...] = ()
    mentioned: dict[str, str] = Field(default_factory=dict)
    """Names of the mentioned people. The keys are the mentions in `text`, such as `<@U1>`."""
    answers: str | None = None  # Id of the message that this message replies to
    of_album: bool = False  # True for an item of an album. Each item is a separate message.
    goes_on: bool = False
    """True if the text has the platform's max length. The next message then probably continues the text."""
    due: Due | None = None  # Job that made this inbound; `text` is then the job's text
    renews: str | None = None
    """Id of the answer to replace. If the inbound is an edit, "" asks for a new answer to the edited message."""
    rating: Literal["good", "bad", "none"] | None = None  # `none` withdraws an earlier rating
    request_id: str = ""  # ULID that the intake assigns

    @property
    def person(self) -> UserRef:
        return UserRef(self.channel, self.user_id)

    @property
    def readable(self) -> str:
        """Return the text with names in mentions: `Ada (U1)` for `<@U1>`."""
        said = self.text
        for mark, name in self.mentioned.items():
            said = said.replace(mark, f"{name} ({mark.strip('<@#>')})")
        return said

    @property
    def opens(self) -> bool:
        """Return True for the first message of a thread in a direct chat, which starts a conversation."""
        return (
            self.chat_type == "direct"
            and self.chat_key.thread is not None
            and self.chat_key.thread == self.message_id
        )

    @property
    def overheard(self) -> bool:
        """Return True if the message does not address the bot, so the bot need not answer."""
        return self.addressed in {"thread", "chat"}

    @property
    def args(self) -> str:
        return self.command.args.strip() if self.command is not None else ""

    @property
    def is_stop(self) -> bool:
        """Return True for a stop command or the platform's signal to stop."""
        return self.kind == "stop" or (self.command is not None and self.command.name == "stop")

    @property
    def brought(self) -> tuple[Quoted, ...]:
        """Return the quotes that the message forwards, or sends instead of text."""
        return tuple(one for one in self.quoted if one.brought)

    @property
    def has_text(self) -> bool:
        """Return True if the message contains text that the person wrote or forwarded."""
        return bool(self.text.strip()) or any(one.text.strip() for one in self.brought)

    def quotes(self, message_id: str) -> bool:
        """Return True if the message replies to or quotes the message `message_id`."""
        return self.answers == message_id or any(one.message_id == message_id for one in self.quoted)


# ------------------------------------------------------------ outbound

OutboundKind = Literal["reply", "notice", "preview", "progress"]
"""A `preview` shows an unfinished answer, until the final message replaces it. A `progress` shows the steps of a turn, and
finally becomes a summary.
"""
ONLY_TO = "only_to"
"""Key in `Outbound.target`. The value is the id of the only person who may see the message (`Manifest.ephemeral`)."""
ABOUT = "about"  # Key in a target with `ONLY_TO`. The value is the id of the message that the bot answers.


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file to upload. `path` is relative to the project folder; "" if the file is not in that folder."""

    name: str
    mime_type: str
    data: bytes = field(repr=False)
    path: str = ""
    markdown: str = field(default="", repr=False)  # Passage of the answer that the file replaces; or ""


@dataclass(frozen=True, slots=True)
class Outbound:
    """One visible message. Its text has no secrets, and is short enough for one message of the platform (`Channel.split`)."""

    id: str  # ULID of the message's outbox row
    request_id: str
    chat_key: ChatKey
    target: Mapping[str, str]
    text: str
    kind: OutboundKind = "reply"
    title: str = ""
    cards: tuple[Card, ...] = ()
    """Steps of a `progress`, for channels that display cards. `text` says the same."""
    sure: str = ""  # Part of a `preview`'s text that will not change, for channels that only append text
    goes_on: bool = False  # True for a `preview` or `progress` that will be edited again
    ends: bool = False  # True for the last part of an answer. A channel may ask for a rating below this part.
    repeat_of: str | None = None
    """Id of the outbox row that this message repeats, because nobody knows if that row was delivered. A channel without `find`
    sends the repeat only over a connection that has just responded.
    """
    buttons: QuestionButtons | None = None
    language: str = DEFAULT  # Language of the texts that the channel adds, such as button labels
    meant_at: float = 0.0
    """Earliest time (epoch seconds) at which the message can be in the chat. `Channel.find` ignores older messages."""
    claimed: frozenset[str] = frozenset()
    """Message ids of other outbox rows of this chat, which `Channel.find` must not return."""
    file: OutgoingFile | None = None
    """File to upload. `text` is then the file's caption, usually ""."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The platform's record of a delivered message."""

    message_id: str


CardState = Literal["pending", "in_progress", "complete", "error"]


@dataclass(frozen=True, slots=True)
class Card:
    """One step of a `progress`."""

    id: str
    title: str
    state: CardState
    detail: str = ""


# ------------------------------------------------------------ archive


class ArchiveLine(Frozen):
    """One line of `.ship/chats/*.jsonl`: a text that a person or the bot wrote. `ts` is in milliseconds."""

    v: int = 1
    ts: int
    channel: str
    chat_id: str
    chat_key: ChatKey
    user_id: str | None = None
    message_id: str | None = None
    role: Literal["user", "assistant", "system", "tool"]
    text: str
    meta: Json | None = None

    @classmethod
    def of(cls, inbound: Inbound, **fields: Any) -> Self:
        """Return the archive line of an inbound. `fields` override the values from the inbound."""
        own: dict[str, Any] = {
            "ts": inbound.ts,
            "channel": inbound.channel,
            "chat_id": inbound.chat_id,
            "chat_key": inbound.chat_key,
            "user_id": inbound.user_id,
            "message_id": inbound.message_id,
            "role": "user",
            "text": inbound.text,
        }
        return cls(**own | fields)

    @property
    def request_id(self) -> str:
        """Return the id of the inbound that this line records or answers, or ""."""
        return str((self.meta or {}).get("requestId") or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFilter:
    """Selects archive lines: at most `limit` matches, after leaving out `offset` matches. `keyword` is literal text; case does
    not matter. `before` is exclusive and `after` inclusive, both in milliseconds. `skip` returns True for lines to leave out.
    """

    limit: int = 30
    offset: int = 0
    keyword: str | None = None
    role: Role | None = None
    before: int | None = None
    after: int | None = None
    skip: Callable[[ArchiveLine], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery(ArchiveFilter):
    """Selects the newest matches: leaves out `offset` matches, then takes `limit` matches. Older lines are not read.
    `everything` includes removed and superseded lines.
    """

    everything: bool = False


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Result of a `HistoryQuery`: lines in order of time, the number of matches, and the number of damaged lines. If
    `counted` is False, reading stopped early, and older matches are not counted.
    """

    lines: list[ArchiveLine]
    total: int
    unreadable: int = 0
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation in which something was said. `at` is the time of its newest message in epoch seconds."""

    chat_key: ChatKey
    title: str
    at: float
