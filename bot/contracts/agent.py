"""Types that the agent shares with its tools and with commands: the way back to a chat, and what is told of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, Quoted, SeenFile
from bot.contracts.outbound import OutgoingFile, Sent


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


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A message on its way to the model: an `inbound` with the `context` that goes before it and the outcome of its `files`, or a
    `prompt` that no chat caused.
    """

    request_id: str
    chat_key: ChatKey
    inbound: Inbound | None = None
    context: tuple[Quoted, ...] = ()
    prompt: str = ""
    files: Sequence[SeenFile] = ()


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

    `calls` are those of the model. `input_tokens` were neither read from a cache nor written to
    it; `cost_usd` is without the `unpriced` calls. `tokens` of the `messages` are estimated; `masked_tokens` of them are not
    shown to the model.
    """

    turns: int = 0
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
