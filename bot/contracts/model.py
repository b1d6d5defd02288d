"""The ports of the language model and of the transcriber, whichever providers are behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bot.contracts.base import Json, Message

DEMO = "demo"
"""The name of the built-in demo model."""
ATTACHED = "attached"
"""The type of a block that stands for a file which is shown as it is: `artifact` has its bytes in base64, `media` is its MIME type,
`size` its bytes, `tokens` an estimate.
"""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of the model, in the shapes of the Messages API, but for blocks of the type `ATTACHED`. Equal requests make equal
    bytes.
    """

    model: str
    max_tokens: int
    system: Sequence[Json]
    messages: Sequence[Message]
    tools: Sequence[Json] = ()
    purpose: str = "turn"
    summarize: str | None = None
    """With these instructions the provider's own summary of the messages is asked for, instead of an answer: a block of
    type `compaction`, which stands first in later requests, unchanged. Only where `ModelFacts.compacts`.
    """
    effort: str | None = None
    thinking: Json | None = None
    """Effort and thinking as they are sent; None is not sent (`bot.contracts.manner`)."""
    provider_fallbacks: bool = False
    """The provider may answer with another of its models where this one refuses."""
    wire: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)
    """Its body as it is sent, once that was made (`bot.llm.body`): the same bytes are sent, hashed and recorded."""


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_hour_tokens: int = 0
    """Those of them that were written for an hour; the others were for five minutes."""
    searches: int = 0
    """Of the web, by the provider, which bills each."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """A piece of the JSON of a tool call's input, as it arrives. For display only, never executed."""

    tool_use_id: str
    name: str
    partial_json: str


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The whole answer. `cut` holds the ids of tool calls that did not arrive whole: never execute them. `unshown` are the
    artifacts of files that the model was not shown, since the provider refuses them, or all where it is `blind`.

    Latencies are in milliseconds; `cost_usd` is None where the model's price is unknown.
    """

    content: list[Json]
    stop_reason: str | None
    usage: Usage = Usage()
    model: str = ""
    cut: frozenset[str] = frozenset()
    cost_usd: float | None = None
    latency_ms: int = 0
    first_token_ms: int | None = None
    provider_request_id: str | None = None
    detail: Json | None = None
    unshown: frozenset[str] = frozenset()
    blind: bool = False
    note: str = ""
    """A sentence for the person, below the answer, where another model has answered than the one that was asked."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A provider's facts of a model, in tokens; None where it does not say."""

    window: int | None = None
    """Most tokens of a request."""
    max_output: int | None = None
    """Most tokens of an answer."""
    compacts: bool = False
    """True if `ModelRequest.summarize` is supported."""
    takes: frozenset[str] = frozenset()
    """Efforts and kinds of thinking that it takes, as in `effort.low` and `thinking.adaptive`."""


class Learned(Protocol):
    """Figures learnt of models while they are used, kept over restarts (`bot.llm.learned`). Never blocks."""

    def get(self, model: str, name: str) -> float | None: ...
    def set(self, model: str, name: str, value: float | None) -> None:
        """Keep a figure; None forgets it."""
        ...


class InMemoryLearned:
    """`Learned` in memory alone."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], float] = {}

    def get(self, model: str, name: str) -> float | None:
        return self._known.get((model, name))

    def set(self, model: str, name: str, value: float | None) -> None:
        self._known.pop((model, name), None)
        if value is not None:
            self._known[model, name] = value


class Model(Protocol):
    """A language model behind its provider."""

    def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        """Stream one answer: deltas, then exactly one `ModelReply`, last. Raises only `errors.ModelError`.

        One call is one request to the provider: retries are the caller's (`bot.llm.wrapper`).
        """
        ...

    async def check(self) -> None:
        """Ask the provider whether the key works. Raises `errors.ModelRefused` or another `ModelError`."""
        ...

    async def facts(self, model: str) -> ModelFacts:
        """The provider's facts of a model; empty where it has no such list. Raises `errors.ModelError` where it does
        not answer.
        """
        ...

    async def close(self) -> None: ...


class Transcriber(Protocol):
    """Writes down what is said in a recording."""

    async def transcribe(self, sound: bytes, type: str) -> str:  # noqa: A002 - the MIME type, as everywhere
        """The words of a recording of this MIME type; "" where nothing is said. Raises `errors.TranscriptionFailed`."""
        ...
