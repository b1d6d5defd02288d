"""Interfaces of the language model and of the transcriber."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bot.contracts.base import Json, Message


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A picture or PDF that the model sees. `artifact` is the id of the artifact with the bytes in base64; `type` is
    the MIME type, detected from the bytes.
    """

    artifact: str
    type: str
    size: int
    tokens: int


DEMO = "demo"  # Name of the built-in demo model
ATTACHED = "attached"
"""Type of a block for a file that the model sees directly. In the block, `artifact` names the file with the
bytes in base64, `media` is the MIME type, `size` is in bytes, and `tokens` is a token estimate.
"""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of the model, in the format of the Messages API except for `ATTACHED` blocks. Equal requests
    are encoded to equal bytes.
    """

    model: str
    max_tokens: int
    system: Sequence[Json]
    messages: Sequence[Message]
    tools: Sequence[Json] = ()
    purpose: str = "turn"
    effort: str | None = None
    thinking: Json | None = None
    """Value of the request's field `thinking`. If `thinking` or `effort` is None, the request does not contain that field."""
    provider_fallbacks: bool = False
    """True if the provider may answer with another of its models when this model declines."""
    wire: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)
    """Cache of the encoded body (`bot.llm.messages_api`), so that exactly the same bytes are sent, hashed and recorded."""


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_hour_tokens: int = 0
    """Number of the `cache_write_tokens` that the provider keeps in its cache for an hour instead of five minutes."""
    searches: int = 0  # Number of the provider's web searches. Each search is billed.


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolInputDelta:
    """A piece of the JSON input of a tool call. Only display it; never execute it."""

    tool_use_id: str
    name: str
    partial_json: str


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The whole answer of the model. `cost_usd` is None if the model's price is unknown."""

    content: list[Json]
    stop_reason: str | None
    usage: Usage = Usage()
    model: str = ""
    cut: frozenset[str] = frozenset()  # Ids of tool calls that arrived incomplete. Never execute these calls.
    cost_usd: float | None = None
    latency_ms: int = 0
    first_token_ms: int | None = None
    provider_request_id: str | None = None
    detail: Json | None = None
    unshown: frozenset[str] = frozenset()
    """Artifacts of the files that the provider refused. The model did not see these files."""
    blind: bool = False  # True if the model accepts no files at all
    note: str = ""  # Sentence to show below the answer if a model other than the requested one answered


ModelStream = AsyncGenerator[TextDelta | ToolInputDelta | ModelReply, None]
"""Stream of one answer: deltas, then exactly one `ModelReply`."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about a model, as the provider reports them. A fact that the provider does not report is None."""

    window: int | None = None  # Max tokens of a request
    max_output: int | None = None  # Max tokens of an answer
    takes: frozenset[str] = frozenset()
    """Names of the supported efforts and kinds of thinking, such as `effort.low` and `thinking.adaptive`."""


@dataclass(frozen=True, slots=True)
class AnsweringModel:
    """The model that answers in a chat, and the models and efforts that a person may choose instead. Only operators may
    choose. `effort` is "" if requests contain no effort.
    """

    name: str = ""
    effort: str = ""
    models: tuple[str, ...] = ()
    efforts: tuple[str, ...] = ()


class Model(Protocol):
    """A language model, called through its provider."""

    def stream(self, request: ModelRequest) -> ModelStream:
        """Send one request to the provider, without retries; `bot.llm.wrapper` retries. Raises only `errors.ModelError`."""

    async def check(self) -> None:
        """Check the API key with the provider. Raises `errors.ModelRefused` or another `ModelError`."""

    async def facts(self, model: str) -> ModelFacts:
        """Return the provider's facts about a model; empty facts if the provider has no list of models.
        Raises `errors.ModelError`.
        """

    async def close(self) -> None: ...
