"""Events from people: messages, edits, deletions and stops, with attachments, quotes and links."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bot.contracts.base import ChatType, Frozen
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.provenance import ANYBODYS, Provenance, Taint


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
        """True for kinds that are transcribed if transcription is configured."""
        return self.kind in {"voice", "audio"}

    @property
    def may_be_read(self) -> bool:
        """True for kinds that may contain text, speech or a picture that can be read."""
        return (self.spoken or self.kind in {"file", "photo"}) and self.ref is not None


class Origin(Frozen):
    """The original author of forwarded words, as far as the platform tells. `id` and `chat` are platform ids; `name` was chosen by its
    bearer. `from_self`: the bot wrote them.
    """

    how: Literal["forwarded", "shared", "via_bot", "quoted_from_elsewhere", "preview"]
    name: str | None = None
    id: str | None = None
    chat: str | None = None
    message_id: str | None = None
    ts: int | None = None
    from_self: bool = False


class Quoted(Frozen):
    """A message that came with another one: an earlier one of the thread, the one replied to, or (`brought`) one that is forwarded,
    shared, or sent instead of text.

    `user_id` posted it here; `origin` is its author if that is somebody else. `part` is the excerpt that a reply selects, `kind` its
    kind if it is not a person's text (a poll, a location, a bot's post), `files` the names of its files. `words_of` and `taint`
    override the default `provenance`.
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
        """Whose words these are: the poster's own text is theirs, everything else anybody's."""
        passed_on = self.origin or self.kind or self.files or self.from_self
        own = (self.user_id,) if self.user_id and not passed_on else None
        return _provenance(own if self.words_of is None else self.words_of, self.taint)

    @property
    def in_place_of_words(self) -> bool:
        """True if the person sent it instead of text: a contact, a poll, a location. Its words may still be anybody's."""
        own = self.origin is None and self.message_id is None
        return self.brought and own and self.kind is not None


class Link(Frozen):
    """A link whose text differs from its URL."""

    text: str
    url: str


class Command(Frozen):
    """`/new`, `!new` or `/shipmate new` without its prefix; `name` is lower case."""

    name: str
    args: str = ""


class Due(Frozen):
    """A due job that starts a turn instead of a message. `at`: due time (epoch seconds); `late`: seconds since then; `missed`: number
    of earlier runs that were skipped. `words_of` and `taint` are the provenance of what was in view when it was scheduled; None:
    anybody's words.
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
    """One normalised message, edit, delete or stop signal from a person.

    `edit`: `message_id` names the changed message, `text` is its new text. `delete`: `message_id` is gone. `stop`: ends the turn of
    `chat_key`. `admission`: made by the intake from a stranger's message, without its text. `added`: this person added the bot to
    a chat. `rating`: this person rates the message `answers`.
    """

    channel: str
    chat_id: str
    chat_key: ChatKey
    chat_type: ChatType
    user_id: str
    keys: tuple[str, ...]
    """Identify the platform's event (event id, channel and ts, update id). An inbound with a key seen before is a duplicate."""
    ts: int
    target: dict[str, str]
    """What the channel needs to reply in the same place. A `reply_to` in it only names the message that the reply is attached to."""
    kind: Literal["message", "edit", "delete", "stop", "admission", "added", "rating"] = "message"
    addressed: Literal["direct", "mention", "reply", "command", "thread", "chat"] = "direct"
    """Why it is for the bot. `thread`: it is in a thread, which counts if the bot takes part in it; `chat`: it is in a chat of the bot,
    which counts if the bot listens to all messages there.
    """
    to_others: bool = False
    """It mentions somebody else first, or replies to somebody else."""
    text: str = ""
    """The person's own words. Forwarded and shared words are `brought` quotes, and never read as commands."""
    command: Command | None = None
    message_id: str | None = None
    user_name: str | None = None
    chat_name: str | None = None
    """The name of a group."""
    language: str | None = None
    """Language tag of the person's app (`zh-hans`, `en-US`)."""
    zone: str | None = None
    """The person's time zone, as in the tz database."""
    from_bot: bool = False
    attachments: tuple[Attachment, ...] = ()
    quoted: tuple[Quoted, ...] = ()
    links: tuple[Link, ...] = ()
    mentioned: dict[str, str] = Field(default_factory=dict)
    """Names of mentioned people by the mention in `text` (`<@U1>`)."""
    answers: str | None = None
    """The id of the message that this one replies to."""
    of_album: bool = False
    """An item of an album: each item is a message of its own."""
    goes_on: bool = False
    """As long as its platform allows: the rest probably follows in the next message."""
    due: Due | None = None
    """The due job of this person that `text` was scheduled for."""
    renews: str | None = None
    """The id of the answer to replace; `text` is that of an edited message."""
    rating: Literal["good", "bad", "none"] | None = None
    """`none`: an earlier rating is withdrawn."""
    request_id: str = ""
    """A ULID, assigned by the intake."""

    @property
    def person(self) -> UserRef:
        """The person who sent it."""
        return UserRef(self.channel, self.user_id)

    @property
    def readable(self) -> str:
        """The text with names for mentions: `Ada (U1)` for `<@U1>`."""
        said = self.text
        for mark, name in self.mentioned.items():
            said = said.replace(mark, f"{name} ({mark.strip('<@#>')})")
        return said

    @property
    def opens(self) -> bool:
        """True for the first message of a thread in a direct chat: it starts a conversation."""
        return (
            self.chat_type == "direct"
            and self.chat_key.thread is not None
            and self.chat_key.thread == self.message_id
        )

    @property
    def overheard(self) -> bool:
        """True if it does not address the bot, which then need not answer."""
        return self.addressed in {"thread", "chat"}

    @property
    def args(self) -> str:
        """The arguments of a command, or ""."""
        return self.command.args.strip() if self.command is not None else ""

    @property
    def is_stop(self) -> bool:
        """True for a command or a platform's signal to stop."""
        return self.kind == "stop" or (self.command is not None and self.command.name == "stop")

    @property
    def brought(self) -> tuple[Quoted, ...]:
        """The quotes that the message forwards, or sends instead of text."""
        return tuple(one for one in self.quoted if one.brought)

    @property
    def has_text(self) -> bool:
        """True if it has text: the person's own, or forwarded."""
        return bool(self.text.strip()) or any(one.text.strip() for one in self.brought)

    def quotes(self, message_id: str) -> bool:
        """True if it replies to this message or quotes it."""
        return self.answers == message_id or any(one.message_id == message_id for one in self.quoted)
