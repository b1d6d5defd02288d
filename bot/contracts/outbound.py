"""Messages of Shipmate: one visible message as channels get it, and its row in the outbox with the states that it passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from bot import errors
from bot.contracts.approvals import QuestionButtons
from bot.contracts.base import ChatType
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.words import DEFAULT

OutboundKind = Literal["reply", "notice", "preview", "progress"]
"""A `preview` shows what is not certain yet: it is created once and then changed, at last into what takes its place. So
does `progress`, at last into a summary.
"""


ONLY_TO = "only_to"
"""The field of a target that names the one person who is to see a message, where the channel has a way (`Manifest.ephemeral`)."""
ABOUT = "about"
"""The field beside it with the id of the message that it answers."""


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file that people get, whole. `path` is its place from the project's folder on; "" where it has none."""

    name: str
    mime_type: str
    data: bytes = field(repr=False)
    path: str = ""
    markdown: str = field(default="", repr=False)
    """The passage of an answer in whose place it comes; "" of a file that somebody made."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The part of an `OutgoingFile` that its row has: the bytes are kept in `.ship/outgoing` by their SHA-256."""

    name: str
    mime_type: str
    size: int
    sha256: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Outbound:
    """One visible message: a part that `Channel.split` made, redacted. `id` (ULID) names its outbox row. `repeat_of` is
    that of the row whose words these are, once more: a channel that cannot be asked what arrived sends it only over a
    connection that has just answered.
    """

    id: str
    request_id: str
    chat_key: ChatKey
    target: Mapping[str, str]
    text: str
    kind: OutboundKind = "reply"
    title: str = ""
    cards: tuple[Card, ...] = ()
    """Of a `progress`: what its text says, for channels that have a form of their own for that. They may use the text."""
    sure: str = ""
    """Of a `preview`: the beginning of its text that stays as it is, for channels in which a text can only grow."""
    goes_on: bool = False
    """True of a `preview` or `progress` that will be changed again."""
    ends: bool = False
    """True of the last part of an answer: below it a channel may ask what people think of it."""
    repeat_of: str | None = None
    buttons: QuestionButtons | None = None
    """Of a question about an approval."""
    language: str = DEFAULT
    """The language of the words that a channel adds, such as those on buttons."""
    meant_at: float = 0.0
    """The time from which on it can be in the chat, in epoch seconds."""
    claimed: frozenset[str] = frozenset()
    """The message ids that other rows of its chat have: where `Channel.find` goes by what is shown, it takes none of these."""
    file: OutgoingFile | None = None
    """The file that this message is, for a channel that is a `contracts.channel.SendsFiles`; its text is a caption, most often ""."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The platform's record of a delivered message."""

    message_id: str


CardState = Literal["pending", "in_progress", "complete", "error"]


@dataclass(frozen=True, slots=True)
class Card:
    """One of the things that are being done: for channels that show such things in a form of their own."""

    id: str
    title: str
    state: CardState
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LiveForm:
    """The form of a live message beside its words, as the fields of the same names of `Outbound`. `mark` stands behind the
    words that people see of it, which are not complete: its row has them without.
    """

    title: str = ""
    cards: tuple[Card, ...] = ()
    sure: str = ""
    goes_on: bool = False
    mark: str = ""


OutboxState = Literal["ready", "sending", "sent", "failed", "unknown"]
_NEXT: Mapping[OutboxState, frozenset[OutboxState]] = {
    "ready": frozenset({"sending", "failed"}),
    "sending": frozenset({"ready", "sent", "failed", "unknown"}),
    "sent": frozenset(),
    "failed": frozenset(),
    "unknown": frozenset(),
}
OPEN_OUTBOX: tuple[OutboxState, ...] = ("ready", "sending")
"""The states of a row that may still go out."""
OUTBOX_FAILURES: tuple[OutboxState, ...] = ("unknown", "failed")
"""The ends of a row that somebody may have to look at for longer."""
OutboxReason = errors.DeliveryCode | Literal["stopped", "not shown", "not found"]


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One message in the outbox. Its transitions are methods that return the row as it is afterwards:

        ready ──begin──► sending ──arrive──► sent
          ▲                │ ├──fail───────► failed     it surely is not in the chat
          └─refuse, put off┘ └──lose───────► unknown    nobody can tell, and nobody asks any more

    While the answer to a send is lost, and while the platform is asked for it, the row stays `sending`: a process that dies
    then leaves it as one whose outcome has to be asked for. A live message (`preview`, `progress`) stays `sending` with its
    `message_id` for as long as it may still change. A row at its end never leaves it; its message, where it is in the chat,
    can still be changed (`revise`, `offer`, `close`). What the state does not allow raises `errors.IllegalTransition`.

    Times are epoch seconds. The journal sets `created_at` and `changed_at` as it writes them.
    """

    id: str
    request_id: str
    chat_key: ChatKey
    target: Mapping[str, str] | None
    """None where the disk has damaged it."""
    text: str
    kind: OutboundKind = "reply"
    state: OutboxState = "ready"
    message_id: str | None = None
    """That of the platform, once it is known."""
    reason: OutboxReason | None = None
    """Why it is not in the chat, or may not be."""
    step_id: str | None = None
    """The tool call that said it; None of what no call said."""
    replaces: str | None = None
    """The message id of the preview in whose place it comes."""
    repeat_of: str | None = None
    """The row whose words these are, once more. As they are sent they say that."""
    not_before: float | None = None
    """The time from which a message goes out by itself: last words about an inbound, and what was put off. None where its turn
    looks after it.
    """
    delayed: bool = False
    """It was put off, and did not go out when it was said."""
    attempts: int = 0
    """Its sends of unknown outcome."""
    untold: bool = False
    """It will not arrive, and its chat has still to hear that."""
    buttons: QuestionButtons | None = None
    """Of a question about an approval."""
    created_at: float = 0.0
    changed_at: float = 0.0
    language: str = DEFAULT
    """The language in which it is said (`bot.words`)."""
    file: StoredFile | None = None
    """The file that this message is. Its text is the passage of an answer in whose place it comes, most often ""."""
    zone: str | None = None
    """The time zone in which it tells times; None of what earlier versions said."""
    own_zone: bool = False
    """That zone is the reader's, and not named with its times."""
    part_of: str | None = None
    """The row of the first part of its message; None of that one."""
    closes_as: str | None = None
    """The part of its words that stays once its question is decided; None of what is no question, and once it says how that ended."""

    @property
    def shown(self) -> str:
        """Its words, or the name of its file, as the archive has them."""
        return self.text if self.file is None else f"[file: {self.file.name}]"

    @property
    def archived(self) -> str:
        """All that people got with it."""
        return f"{self.shown}\n{self.text}" if self.file is not None and self.text else self.shown

    @property
    def original(self) -> str:
        """The id of the row that this one repeats, or its own."""
        return self.repeat_of or self.id

    @property
    def open(self) -> bool:
        return self.state in OPEN_OUTBOX

    @property
    def deferred(self) -> bool:
        """True if it has still to go out, and the outbox alone looks after it."""
        return self.open and self.not_before is not None

    def begin(self) -> OutboxRow:
        """Its send begins, or begins again."""
        return self if self.state == "sending" else self._to("sending")

    def refuse(self) -> OutboxRow:
        """The platform surely has not taken it; it may be sent again."""
        return self._to("ready")

    def lose_answer(self) -> OutboxRow:
        """A send has ended without an answer: it may be in the chat."""
        return replace(self._while("sending"), attempts=self.attempts + 1)

    def put_off(self, until: float) -> OutboxRow:
        """It goes out later, by itself. What may be in the chat stays `sending`."""
        return replace(self._while("ready", "sending"), not_before=until, delayed=True)

    def appear(self, message_id: str) -> OutboxRow:
        """A live message stands in the chat, and may still change."""
        return replace(self._while("sending"), message_id=message_id)

    def show(self, words: str) -> OutboxRow:
        """A live message that stands in the chat has these words from now on."""
        return replace(self._while("sending"), text=words)

    def arrive(self, message_id: str) -> OutboxRow:
        """It is in the chat, as it will stay."""
        return replace(self._to("sent"), message_id=message_id)

    def fail(self, reason: OutboxReason, *, untold: bool = False) -> OutboxRow:
        """It is not in the chat, and will not be."""
        return replace(self._to("failed"), reason=reason, untold=untold)

    def lose(self, reason: OutboxReason, *, untold: bool = False) -> OutboxRow:
        """It may be in the chat; nobody can tell, and nobody asks any more."""
        return replace(self._to("unknown"), reason=reason, untold=untold)

    def locate(self, message_id: str) -> OutboxRow:
        """It is in the chat after all: its platform was asked once more."""
        return replace(self._while("unknown"), message_id=message_id)

    def revise(self, words: str) -> OutboxRow:
        """Its message has these words from now on."""
        return replace(self._while("sent", "unknown"), text=words)

    def offer(self, buttons: QuestionButtons) -> OutboxRow:
        """These buttons stand below its message from now on, in the place of others."""
        return replace(self._while("sent", "unknown"), buttons=buttons)

    def close(self, outcome: str = "") -> OutboxRow:
        """Its question is decided: the words that hold no longer go, and so do its buttons; the outcome stands below."""
        words = "\n\n".join(filter(None, (self.closes_as or self.text, outcome)))
        return replace(self.revise(words).offer(QuestionButtons("", ())), closes_as=None)

    def tell(self) -> OutboxRow:
        """Its chat has heard that it will not arrive."""
        return replace(self._while("failed", "unknown"), untold=False)

    def update(self, row: OutboxRow) -> OutboxRow:
        """The row that this one on file becomes by what was done to `row` meanwhile. The state that it has is legal too: facts change
        beside it, and what a crash or a full disk interrupted is written once more.
        """
        return replace(
            self if row.state == self.state else self._to(row.state),
            text=row.text,
            message_id=row.message_id,
            reason=row.reason,
            not_before=row.not_before,
            delayed=row.delayed,
            attempts=row.attempts,
            untold=row.untold,
            closes_as=row.closes_as,
        )

    def make_way(self) -> OutboxRow:
        """A reply takes the place of its message: a preview that still stands there ends, any other row stays as it is."""
        return self._to("sent") if (self.kind, self.state) == ("preview", "sending") else self

    def _to(self, state: OutboxState) -> OutboxRow:
        if state not in _NEXT.get(self.state, ()):
            raise errors.IllegalTransition(f"outbox row {self.id} is {self.state} and cannot become {state}")
        return replace(self, state=state)

    def _while(self, *states: OutboxState) -> OutboxRow:
        if self.state not in states:
            raise errors.IllegalTransition(f"outbox row {self.id} is {self.state}, not {' or '.join(states)}")
        return self


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a message: fixed by the inbound it answers."""

    channel: str
    chat_id: str
    chat_key: ChatKey
    chat_type: ChatType
    target: Mapping[str, str]
    request_id: str

    @classmethod
    def of(cls, inbound: Inbound) -> Address:
        return cls(
            inbound.channel,
            inbound.chat_id,
            inbound.chat_key,
            inbound.chat_type,
            inbound.target,
            inbound.request_id,
        )

    @property
    def budget(self) -> str:
        """Threads and topics share the budget of their chat."""
        return f"{self.channel}:{self.chat_id}"
