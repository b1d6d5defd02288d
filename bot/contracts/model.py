"""The ports of the language model and of the transcriber."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bot.contracts.base import Json, Message


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A picture or PDF that the model sees. The artifact holds its bytes in base64; `type` is the MIME type detected from them."""

    artifact: str
    type: str
    size: int
    tokens: int


DEMO = "demo"
"""The name of the built-in demo model."""
ATTACHED = "attached"
"""The type of a block for a file that the model sees as such: `artifact` holds its bytes in base64, `media` is its MIME type, `size`
in bytes, `tokens` an estimate.
"""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of the model, in the format of the Messages API except for `ATTACHED` blocks. Equal requests give equal bytes."""

    model: str
    max_tokens: int
    system: Sequence[Json]
    messages: Sequence[Message]
    tools: Sequence[Json] = ()
    purpose: str = "turn"
    summarize: str | None = None
    """Instructions for the provider's own compaction. The reply is then a `compaction` block, which later requests must begin with,
    unchanged. Only if `ModelFacts.compacts`.
    """
    effort: str | None = None
    thinking: Json | None = None
    """`effort` and `thinking` as sent; None is left out."""
    provider_fallbacks: bool = False
    """The provider may answer with another of its models if this one declines."""
    wire: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)
    """Cache of the encoded body (`bot.llm.body`): the same bytes are sent, hashed and recorded."""


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_hour_tokens: int = 0
    """Part of `cache_write_tokens` with a lifetime of an hour instead of five minutes."""
    searches: int = 0
    """The provider's web searches, billed each."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """A piece of the JSON of a tool call's input. For display only; never execute it."""

    tool_use_id: str
    name: str
    partial_json: str


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The whole answer. `cost_usd` is None if the model's price is unknown."""

    content: list[Json]
    stop_reason: str | None
    usage: Usage = Usage()
    model: str = ""
    cut: frozenset[str] = frozenset()
    """Ids of tool calls that arrived incomplete: never execute them."""
    cost_usd: float | None = None
    latency_ms: int = 0
    first_token_ms: int | None = None
    provider_request_id: str | None = None
    detail: Json | None = None
    unshown: frozenset[str] = frozenset()
    """Artifacts of files that the provider refused and the model did not see."""
    blind: bool = False
    """The model accepts no files at all."""
    note: str = ""
    """A sentence below the answer if another model than the requested one answered."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A provider's facts about a model; None if it does not tell."""

    window: int | None = None
    """Max tokens of a request."""
    max_output: int | None = None
    """Max tokens of an answer."""
    compacts: bool = False
    """True if `ModelRequest.summarize` is supported."""
    takes: frozenset[str] = frozenset()
    """Supported efforts and kinds of thinking, as in `effort.low` and `thinking.adaptive`."""


class Learned(Protocol):
    """Numbers measured per model and persisted (`bot.llm.learned`). Never blocks."""

    def get(self, model: str, name: str) -> float | None: ...
    def set(self, model: str, name: str, value: float | None) -> None:
        """Store a number; None deletes it."""
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
        """Stream one answer: deltas, then exactly one `ModelReply`. One call is one request to the provider, without retries
        (`bot.llm.wrapper` has these). Raises only `errors.ModelError`.
        """
        ...

    async def check(self) -> None:
        """Check the API key with the provider. Raises `errors.ModelRefused` or another `ModelError`."""
        ...

    async def facts(self, model: str) -> ModelFacts:
        """The provider's facts about a model; empty if it has no list of models. Raises `errors.ModelError`."""
        ...

    async def close(self) -> None: ...


class Transcriber(Protocol):
    """Transcribes speech."""

    async def transcribe(self, sound: bytes, type: str) -> str:  # noqa: A002 - the MIME type, as everywhere
        """The text of a recording of this MIME type; "" if nothing is said. Raises `errors.TranscriptionFailed`."""
        ...
