"""The agent port: turns in, outcomes out, and the operations on a conversation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, Quoted, SeenFile
from bot.contracts.manner import Effort
from bot.contracts.outbound import OutgoingFile, Sent
from bot.contracts.provenance import Provenance


class Reply(Protocol):
    """The way back to the chat that asked. The destination is fixed; the model cannot name one."""

    @property
    def written(self) -> Sequence[str]:
        """The ids in the outbox of what was given to `send`, in order, whatever became of it."""
        ...

    async def send(
        self, text: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        """Deliver one message (in parts where it is long) with files below it. Cancelled, what is left of it goes out by itself.
        `step_id` is the tool call that says it, None where no call does.

        Raises `errors.DeliveryFailed`; with `errors.FileRefused` nothing was sent.
        """
        ...

    def preview(self, words: Callable[[], str]) -> None:
        """Show what is being said while it comes, until the next `send`; `words` gives it so far. Each of these words may be
        the last that is shown for good where the answer breaks off; called again, the new ones take the place of those before.
        """
        ...


SILENT = "[silent]"
"""The whole answer to words that were not said to the bot, where these need none. People never see it."""


def is_silent(words: str) -> bool:
    """True of an answer that says so, whatever it adds."""
    return words.lstrip().startswith(SILENT)


class Arrivals(Protocol):
    """Gives a turn what comes from its chat while it runs."""

    @property
    def quiet(self) -> bool:
        """True where nobody has spoken to the bot: it may answer `SILENT`."""
        ...

    async def files(self, inbound: Inbound) -> Sequence[SeenFile]:
        """Results for the files of a message of this turn, in their order; asked again, it gives the same."""
        ...

    def unshown(self, artifacts: Collection[str], *, blind: bool) -> None:
        """The model could not be shown these files, or any: each of this turn's own is told below its next answer, once."""
        ...

    def note(self, words: str) -> None:
        """Tell the person this below the next answer, once a turn."""
        ...

    def take_more(self) -> list[Inbound]:
        """Take what the same person has sent since the turn began; what is taken belongs to this turn."""
        ...

    async def joined(self) -> None:
        """Return once all that was taken is on file as part of this turn."""
        ...

    def effect_begins(self) -> None:
        """Hear that something with effects is about to be done for this turn: from then on its question is not put anew."""
        ...


class NoArrivals:
    """`Arrivals` of a turn to which nothing is added."""

    quiet = False

    async def files(self, inbound: Inbound) -> Sequence[SeenFile]:  # noqa: ARG002
        return ()

    def unshown(self, artifacts: Collection[str], *, blind: bool) -> None: ...
    def note(self, words: str) -> None: ...
    def take_more(self) -> list[Inbound]:
        return []

    async def joined(self) -> None: ...
    def effect_begins(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PriorReply:
    """A message of a turn that its outbox has, by its id there. `ids` are those by which people see its parts, or an own
    one while it waits for its platform; without any it may be in the chat, unless it has `failed`. `step_id` is the tool
    call that said it, where that is known.
    """

    id: str
    ids: tuple[str, ...] = ()
    failed: bool = False
    step_id: str | None = None


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A turn for the agent. `inbound` and `reply` are None where no chat caused it."""

    request_id: str
    chat_key: ChatKey
    inbound: Inbound | None = None
    context: tuple[Quoted, ...] = ()
    reply: Reply | None = None
    also: tuple[Inbound, ...] = ()
    """The other messages of the turn from its beginning: the rest of a burst, in order."""
    prompt: str = ""
    """The text of a turn that no chat caused."""
    begun: tuple[PriorReply, ...] = ()
    """Replies that this turn began before a crash cut it off, in order."""
    arrivals: Arrivals = NoArrivals()  # noqa: RUF009 - it keeps nothing
    pending_input: bool = False
    """Something waits that is part of the question: it is taken before the model is asked."""
    stopped: bool = False
    """It was stopped, and a crash came before it was closed: it is closed now, and says what it still owes."""

    @property
    def delivered(self) -> tuple[str, ...]:
        """Ids of what people saw of it before a crash, or will see."""
        return tuple(one for message in self.begun for one in message.ids)


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """`delivered` counts the replies people saw; `notice` is a plain sentence for the person, or None."""

    status: Literal["done", "failed", "stopped"]
    delivered: int = 0
    notice: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LastTurn:
    """The newest turn that a chat has in mind: the requestIds of what it answered, and the provenance of its words."""

    sources: tuple[str, ...]
    origin: Provenance


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The end of a compaction that a person asked for: the memory, a `summary` of ours or one of the `provider` stands now for
    `messages` older ones, there was `nothing` to gain, or it `failed`. The tokens are those of all messages, as `ChatStats` has them.
    """

    outcome: Literal["memory", "summary", "provider", "nothing", "failed"]
    messages: int = 0
    tokens_before: int = 0
    tokens_after: int = 0


@dataclass(frozen=True, slots=True)
class ChatStats:
    """Totals of a chat since its beginning, over restarts and `reset`, and its present state.

    `epochs` are changes of the view, `calls` those of the model. `input_tokens` were neither read from a cache nor written to
    it; `cost_usd` is without the `unpriced` calls. `tokens` of the `messages` are estimated; `masked_tokens` of them are not
    shown to the model.
    """

    turns: int = 0
    epochs: int = 0
    calls: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    messages: int = 0
    tokens: int = 0
    masked_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A conversation of a chat. `id` is short and of this chat alone; `last_ts` in ms; `words`: the beginning of its first
    message.
    """

    id: str
    current: bool
    messages: int
    last_ts: int
    words: str


@dataclass(frozen=True, slots=True)
class SessionChange:
    """The end of going to another conversation. Where it is `done`: its `id`, that of the one that was left, and how many
    `turns` of that a fork leaves out. Where a fork's point is `unknown`, `turns` says how many there are.
    """

    outcome: Literal["done", "here", "unknown", "ambiguous"]
    id: str = ""
    left_id: str | None = None
    turns: int = 0


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that answers in a chat, `chosen` for it or ship.json's `default`. `window` is in tokens of a request, `price` in
    US dollars for a million tokens read and written; None where unknown. `confirmed`: the provider said that it has it.
    """

    model: str
    chosen: bool
    default: str
    window: int | None
    price: tuple[float, float] | None
    messages: int
    max_messages: int
    confirmed: bool = True
    effort: str | None = None
    """The effort that the model is sent; None where it knows of none."""
    effort_chosen: bool = False
    answered: str = ""
    """The model that gave the last answer in its place; "": none did."""


class Agent(Protocol):
    """The runtimes of all chats. The caller runs one turn of a chat at a time."""

    async def run(self, request: TurnRequest) -> TurnOutcome:
        """One turn. Does not raise for what went wrong inside; cancelled, it leaves the turn unfinished, so that
        running the same request again goes on from its last recorded step. A turn that has ended is not run again.
        """
        ...

    async def cut_off(self, chat_key: ChatKey) -> tuple[str, ...]:
        """The requestIds of the inbound that a turn which a crash cut off was answering, its own first; () where
        none was. `run` with its own request goes on from its last recorded step.
        """
        ...

    async def last_turn(self, chat_key: ChatKey) -> LastTurn | None:
        """The newest turn that has ended and is in mind; None where there is none."""
        ...

    async def stop(self, chat_key: ChatKey) -> bool:
        """Stop the running turn of a chat, which then ends with status `stopped`; False where none runs.

        What the model had said so far is kept, marked as stopped, and delivered where nothing was delivered yet.
        """
        ...

    async def restart_model_call(self, chat_key: ChatKey) -> bool:
        """Give up the model call of the running turn of a chat, take up what its person has added, and ask again; False where
        no turn runs. Where no call runs just now, the next one has it.
        """
        ...

    async def reset(self, chat_key: ChatKey) -> int:
        """Begin anew: an empty store and a new transcript; returns how many messages were set aside."""
        ...

    async def compact(self, chat_key: ChatKey, focus: str = "") -> CompactResult:
        """Put a summary in place of the older part of the history, one that keeps `focus` above all."""
        ...

    async def stats(self, chat_key: ChatKey) -> ChatStats:
        """Totals and present state of a chat."""
        ...

    async def history(self, chat_key: ChatKey) -> str:
        """The beginning of what is kept of a chat, not of what the model is shown, for a person: without secrets,
        2,000 characters at the most; "" where nothing is kept.
        """
        ...

    async def undo(self, chat_key: ChatKey) -> str | None:
        """Take the last turn out of the history; returns the beginning of the message that caused it, None where
        there is none. The archive keeps it, and what it has done is done. Raises `errors.TurnSummarized` if a summary tells of
        it, and `errors.StorageError`: nothing has changed then.
        """
        ...

    async def quoting(self, chat_key: ChatKey, turns: Sequence[str], message_id: str) -> list[str]:
        """Return those of these turns that were shown a message of others, and those of which nobody can tell. Raises
        `errors.StorageError`.
        """
        ...

    async def forget(self, chat_key: ChatKey) -> None:
        """Take what the archive says was removed (`Archive.removals`) out of what is kept of a chat, and what was
        derived of it; what is running ends first. Raises `errors.StorageError`.
        """
        ...

    async def sessions(self, chat_key: ChatKey) -> list[SessionInfo]:
        """The newest conversations of a chat, the one last written to first. Raises `errors.StorageError`."""
        ...

    async def resume(self, chat_key: ChatKey, session: str) -> SessionChange:
        """Go on with an earlier conversation of this chat, by the end of its id. Raises `errors.StorageError`; nothing has
        changed then but the memory.
        """
        ...

    async def fork(self, chat_key: ChatKey, *, request_id: str | None = None, back: int = 0) -> SessionChange:
        """Go on in a new conversation that is a copy of this one up to the end of the turn that answered a message, or
        of the turn so many before the last. Raises as `resume` does.
        """
        ...

    async def describe(self, chat_key: ChatKey) -> ModelInfo:
        """The model that answers in a chat."""
        ...

    async def choose_model(self, chat_key: ChatKey, model: str | None, request_id: str) -> ModelInfo:
        """Let this model answer in a chat from the next turn on, over restarts; None is ship.json's. `request_id` is that of
        the message that says so.

        Raises `errors.ModelUnknown` where the provider does not have it, and `errors.StorageError`; nothing has changed
        then.
        """
        ...

    async def choose_effort(self, chat_key: ChatKey, effort: Effort | None, request_id: str) -> ModelInfo:
        """The same for the effort of answers. Raises `errors.StorageError`; nothing has changed then."""
        ...
