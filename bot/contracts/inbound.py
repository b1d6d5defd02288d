"""Events from people: messages, edits, deletions and stops, with attachments, quotes and links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from bot import errors
from bot.contracts.base import ChatType, Frozen
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.provenance import ANYBODYS, Provenance, Taint

Listening = Literal["mention", "thread", "always", "never"]
"""The messages of a group that are for the bot, besides commands: those that mention it; also replies to it, and threads that it
takes part in; all; none.
"""
LISTENING: tuple[Listening, ...] = ("mention", "thread", "always", "never")
HEARD: Listening = "thread"
"""The choice where nobody has made one."""


def _provenance(words_of: tuple[str, ...] | None, taint: Taint) -> Provenance:
    return Provenance(frozenset(words_of), taint) if words_of is not None else ANYBODYS


class Attachment(Frozen):
    """A file that came with a message. `ref` is the platform's own handle; it never becomes a path."""

    kind: Literal["photo", "video", "audio", "voice", "sticker", "file"]
    name: str | None = None
    size: int | None = None
    mime: str | None = None
    ref: str | None = None

    @property
    def spoken(self) -> bool:
        """True of kinds of which the words are heard, where somebody hears them."""
        return self.kind in {"voice", "audio"}

    @property
    def may_be_read(self) -> bool:
        """True where its bytes are worth a look: what a platform calls a video, say, never holds text."""
        return (self.spoken or self.kind in {"file", "photo"}) and self.ref is not None


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file that the model is shown as it is. The artifact holds its bytes in base64; `type` is its MIME type by what it holds."""

    artifact: str
    type: str
    size: int
    tokens: int


@dataclass(frozen=True, slots=True)
class SeenFile:
    """The result of reading a file of a message. Its text is the artifact `artifact`, redacted, and `head` the
    beginning of that; what has none may be `shown`. Where it is neither, `why` is the reason in plain words, "" where the file
    is of a kind that is not read. `refused`: memory was short, and nothing of its message was fetched. `code` names the reason
    for a person's language (`files.why_…` of a catalogue), `limit` what it speaks of.
    """

    artifact: str | None = None
    characters: int = 0
    lines: int = 0
    head: str = ""
    why: str = ""
    refused: bool = False
    shown: ShownFile | None = None
    code: errors.FileCode | Literal[""] = ""
    limit: int = 0

    @property
    def read(self) -> bool:
        """True if the model gets something of it."""
        return self.artifact is not None or self.shown is not None


class Origin(Frozen):
    """The author of words that a person passes on, as far as the platform tells. `id` and `chat` name the author and
    the place there; a name is what its bearer has chosen. `from_self`: the words were the bot's own.
    """

    how: Literal["forwarded", "shared", "via_bot", "quoted_from_elsewhere", "preview"]
    name: str | None = None
    id: str | None = None
    chat: str | None = None
    message_id: str | None = None
    ts: int | None = None
    from_self: bool = False


class Quoted(Frozen):
    """A message of another author that came along: an earlier one of the thread, the one replied to, or (`brought`) one
    that the message itself passes on or sends instead of words. `user_id` is the person who put it here, and
    `origin` its author where that is another. `message_id` is its name in the chat, where known. `part` is the piece
    of it that the reply picks out, `kind` its kind where it is no text of a person (a poll, a place, a bot's post), `files` the names of its
    files. `words_of` and `taint` are the provenance of its text, where that is known to be another than `provenance` takes it for.
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
        """Sources of the words: own words belong to the person who put them here; the name of a file is anybody's."""
        passed_on = self.origin or self.kind or self.files or self.from_self
        own = (self.user_id,) if self.user_id and not passed_on else None
        return _provenance(own if self.words_of is None else self.words_of, self.taint)

    @property
    def in_place_of_words(self) -> bool:
        """True for what its person has sent by their message instead of words: a contact, a poll, the place where they are. The
        words in it may be anybody's all the same.
        """
        own = self.origin is None and self.message_id is None
        return self.brought and own and self.kind is not None


class Link(Frozen):
    """An address that stands behind other words of a message."""

    text: str
    url: str


class Command(Frozen):
    """`/new`, `!new` or `/shipmate new`, without its mark; `name` is lower case."""

    name: str
    args: str = ""


class Due(Frozen):
    """The cause of a turn that no message began: a job is due. `at` is when (epoch seconds), `late` how many seconds
    ago that was, `missed` how many times before it nothing could be done. `words_of` and `taint` are the provenance
    of what was in view when it was planned; None where anybody's words were.
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
    """One message, edit, delete or stop signal from a person, normalised.

    `keys` identify the platform's event (event id, channel and ts, update id …): an inbound of which any key
    was seen before is a duplicate. `addressed` says why it is for the bot: a direct message, a mention, a
    reply to it, a command, or only because it stands in a thread (`thread`), which counts where the bot
    takes part in that thread, or in a chat that the bot is in (`chat`), which counts where it listens to all. `to_others`:
    it speaks to somebody else, whom it mentions first or replies to. `target` is what the channel needs to answer in the same place; a `reply_to` in
    it only says which message the answer hangs on. `answers` is the id of the message that a person replied to.
    An `edit` carries the id and the new text of the message that it changes, a `delete` the id of the one that is
    gone; a `stop` names the place whose turn should end, and its chat_key may be the place's or that of a thread.
    An `admission` is the request of a stranger to be let in, which the intake makes of what they wrote, without its words,
    and `added` says that this person has brought the bot into a chat.
    A `rating` says what this person thinks of the message that it `answers` (`none`: they take back what they said).
    `text` is what the person said in words of their own: what they forward or share is `quoted`, as `brought`, and no
    command is read from it. `links` are addresses that words of theirs stand for, `mentioned` are the names
    of those who stand in its text by id, by what stands there: words of others.
    `items` are the words of the messages that make up an album, by their ids, in the order of the attachments; an
    edit of one of them names in `changes` the key that it was taken in under. `of_album`: it is one item of an album, whose others
    come as messages of their own. `goes_on`: it is as long as its platform lets a message be, so its rest probably comes as one
    of its own.
    `renews` is the id of the answer in whose place the answer to this comes; the words are those of a message that was edited.
    `chat_name` is what its group is called. `language` is the tag of the language of the person's app (`zh-hans`, `en-US`), and `zone` the name of its time zone, where
    the platform tells.
    `due` is set where a job of this person is due; `text` is then what they had planned.
    `request_id` (ULID) is given by the intake.
    """

    channel: str
    chat_id: str
    chat_key: ChatKey
    chat_type: ChatType
    user_id: str
    keys: tuple[str, ...]
    ts: int
    target: dict[str, str]
    kind: Literal["message", "edit", "delete", "stop", "admission", "added", "rating"] = "message"
    addressed: Literal["direct", "mention", "reply", "command", "thread", "chat"] = "direct"
    to_others: bool = False
    text: str = ""
    command: Command | None = None
    message_id: str | None = None
    user_name: str | None = None
    chat_name: str | None = None
    language: str | None = None
    zone: str | None = None
    from_bot: bool = False
    attachments: tuple[Attachment, ...] = ()
    quoted: tuple[Quoted, ...] = ()
    links: tuple[Link, ...] = ()
    mentioned: dict[str, str] = Field(default_factory=dict)
    answers: str | None = None
    items: dict[str, str] = Field(default_factory=dict)
    of_album: bool = False
    goes_on: bool = False
    changes: str | None = None
    due: Due | None = None
    renews: str | None = None
    rating: Literal["good", "bad", "none"] | None = None
    request_id: str = ""

    @property
    def person(self) -> UserRef:
        """The person who sent it."""
        return UserRef(self.channel, self.user_id)

    @property
    def readable(self) -> str:
        """Its text with names behind the ids that it mentions, as in `@Ada (U1)` for `<@U1>`."""
        said = self.text
        for mark, name in self.mentioned.items():
            said = said.replace(mark, f"{name} ({mark.strip('<@#>')})")
        return said

    @property
    def said_as(self) -> str | None:
        """The id of the message that it is, or changes: of an album that of its first item."""
        return next(iter(self.items), self.message_id)

    @property
    def opens(self) -> bool:
        """True for the message of a direct chat that its thread is named after: a conversation begins with it."""
        return (
            self.chat_type == "direct"
            and self.chat_key.thread is not None
            and self.chat_key.thread == self.message_id
        )

    @property
    def overheard(self) -> bool:
        """True for words that do not speak to the bot: it need not answer them."""
        return self.addressed in {"thread", "chat"}

    @property
    def args(self) -> str:
        """The words behind a command; "" where it is none."""
        return self.command.args.strip() if self.command is not None else ""

    @property
    def is_stop(self) -> bool:
        """True for a command or a platform's signal to stop."""
        return self.kind == "stop" or (self.command is not None and self.command.name == "stop")

    @property
    def brought(self) -> tuple[Quoted, ...]:
        """The quotes that the message itself passes on, or sends instead of words."""
        return tuple(one for one in self.quoted if one.brought)

    @property
    def says(self) -> bool:
        """True if it has words to read: the person's, or those they pass on."""
        return bool(self.text.strip()) or any(one.text.strip() for one in self.brought)

    def quotes(self, message_id: str) -> bool:
        """True if it answers this message, or quotes it."""
        return self.answers == message_id or any(one.message_id == message_id for one in self.quoted)
