"""`ModelDeps`: the models with their windows, prices and token ratios; `ContextLimits`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from bot.config.ship_file import Effort, Thinking
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.model import Model, ModelReply, ModelRequest
from bot.core import blocks
from bot.core.chats import Facts
from bot.core.compaction import Policy
from bot.core.estimate import Estimator
from bot.core.memory import in_plain_words
from bot.llm.prices import PriceTable
from bot.llm.windows import EFFORTS, ContextWindows

MARGIN = 13_000
"""Tokens kept free below the window's edge, since sizes are estimates."""
SOFT_TOKENS = 40_000


@dataclass(frozen=True, slots=True)
class Budget:
    """Token limits of one model's requests. `window` is None if unknown: then only `soft` applies, and the
    provider rejects a request that is too large with the size it accepts.
    """

    window: int | None
    max_tokens: int
    """Max tokens of the answer."""
    soft: int = SOFT_TOKENS
    """Soft limit: above it a request costs more than it is worth (`context.compaction.softTokens`)."""
    most_output: int | None = None
    """Max output tokens of the model, if known."""

    @property
    def hard(self) -> int | None:
        """Hard limit: above it a request may not fit. The margin is at most a tenth of the window, and a
        quarter of the window is always left for the prompt.
        """
        if self.window is None:
            return None
        return max(self.window - self.max_tokens - self._margin, self.window // 4)

    def fork(self, most: int) -> int:
        """Return the output limit of a fork. It is independent of `llm.maxTokens` of turns, because a prompt
        below `hard` leaves the margin for it.
        """
        room = most if self.window is None else max(self.max_tokens, self._margin)
        return min(most, room, self.most_output or most)

    @property
    def _margin(self) -> int:
        return min(MARGIN, (self.window or MARGIN * 10) // 10)

    @property
    def limit(self) -> int:
        """The smaller of both limits."""
        return self.soft if self.hard is None else min(self.soft, self.hard)

    def share(self, part: float, most: int) -> int:
        """Return `part` of the window, at most `most` tokens."""
        return most if self.window is None else min(most, int(self.window * part))


ROOM = {"low": 4_096, "medium": 8_192, "high": 16_384}
"""Tokens of an answer's limit that thinking may take at each effort."""


NOTES = 1_024
"""Those of what is said between calls where the model does not think."""


_FORMS: dict[Thinking | None, tuple[str, ...]] = {
    None: (),
    "adaptive": ("adaptive",),
    "between_tools": ("between_tools", "adaptive"),
    "off": ("disabled", "between_tools", "adaptive"),
}
"""Forms of each setting; the first that the model takes is sent."""


@dataclass(frozen=True, slots=True)
class SentManner:
    """Effort and thinking of a request, and the tokens that thinking may take of its limit; None is not sent."""

    effort: str | None = None
    thinking: Json | None = None
    room: int = 0

    def __str__(self) -> str:
        return " ".join(filter(None, (self.effort, (self.thinking or {}).get("type"))))


@dataclass(frozen=True, slots=True)
class Manner:
    """Effort, thinking and model of an answer; None: the model's own, or the chat's."""

    effort: Effort | None = None
    thinking: Thinking | None = None
    model: str | None = None

    def sent(self, takes: Callable[[str], bool]) -> SentManner:
        """The settings sent to a model that `takes` them (`contracts.model.ModelFacts.takes`)."""
        effort = self.effort if takes(f"effort.{self.effort}") else None
        form = next((one for one in _FORMS[self.thinking] if takes(f"thinking.{one}")), None)
        if form == "adaptive":
            # Else what it says between calls would come empty.
            return SentManner(effort, {"type": form, "display": "summarized"}, ROOM[self.effort or "high"])
        return SentManner(effort, {"type": form} if form else None, NOTES if form == "between_tools" else 0)


def effort_of(name: str | None) -> Effort | None:
    """Return the effort of this name; None where it is none."""
    return next((one for one in EFFORTS if one == name), None)


TOOLS = 0.5
"""Max share of the window for tool definitions."""
MODEL, EFFORT = "model", "effort"
"""Kinds of the facts that an operator chose for a chat."""


@dataclass(slots=True)
class ModelDeps:
    """The provider model, and the model names that a chat may use."""

    model: Model
    default_model: str
    """The model that answers unless another was chosen."""
    windows: ContextWindows
    """Context windows and output limits by model, in tokens."""
    fast_model: str = ""
    """The model for summarising results; "" for the answering one."""
    estimator: Estimator = field(default_factory=Estimator)
    """Estimates tokens as each model counts them."""
    prices: PriceTable = field(default_factory=PriceTable)
    manner: Manner = field(default_factory=Manner)
    """Effort and thinking of all requests."""
    purposes: Mapping[str, Manner] = field(default_factory=dict)
    """Model, effort and thinking by purpose, where they differ."""
    chosen: str | None = None
    """The model that an operator chose for the chat; None for that of ship.json."""
    chosen_effort: Effort | None = None
    """The effort that an operator chose for the chat; None for that of ship.json."""
    purpose: str = "turn"
    """The purpose of the running turn: `overheard` if nobody addressed the bot."""

    @property
    def name(self) -> str:
        """The answering model."""
        return self.of(self.purpose).model or self.chosen or self.default_model

    def in_chat(self, chat: ChatKey, facts: Facts, purpose: str = "turn") -> ModelDeps:
        """Return a copy with what was chosen for a chat."""
        model, effort = (facts.get(kind, str(chat)) or {} for kind in (MODEL, EFFORT))
        return replace(
            self, chosen=model.get("name"), chosen_effort=effort_of(effort.get("name")), purpose=purpose
        )

    def of(self, purpose: str) -> Manner:
        """Return effort, thinking and model for a purpose."""
        own = self.purposes.get(purpose, Manner())
        effort = own.effort or self.chosen_effort or self.manner.effort
        return Manner(effort, own.thinking or self.manner.thinking, own.model)

    def sent(self, purpose: str | None = None) -> SentManner:
        """Return effort and thinking as sent for a purpose; None means the turn's."""
        manner = self.of(purpose or self.purpose)
        return manner.sent(partial(self.windows.takes, manner.model or self.name))

    def fitted(self, request: ModelRequest, purpose: str | None = None) -> ModelRequest:
        """Return the request with model, effort and thinking of its purpose. Another model than the chat's
        gets nothing that only the chat's can read.
        """
        sent, model = self.sent(purpose), self.of(purpose or self.purpose).model or self.name
        if model != request.model:
            most = self.windows.max_output(model) or request.max_tokens
            messages = blocks.without_thinking(map(in_plain_words, request.messages))
            request = replace(
                request, model=model, messages=messages, max_tokens=min(request.max_tokens, most)
            )
        return replace(request, effort=sent.effort, thinking=sent.thinking)

    def learn(self, request: ModelRequest, reply: ModelReply) -> None:
        """Learn from an answer: the model's token ratio, and a size that fits."""
        if reply.note:
            return  # of another model
        usage = reply.usage
        self.estimator.observe(request, usage)
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        self.windows.fitted(request.model, prompt)

    def declared(self, forms: Sequence[tuple[Json, ...]]) -> tuple[Json, ...]:
        """Return the largest form of the tool definitions that fits half of the window. `forms` are ordered
        by size, largest first.
        """
        window = self.windows.window(self.name)
        if window is None:
            return forms[0]
        fitting = (one for one in forms if self.estimator.frame(self.name, (), one) <= window * TOOLS)
        return next(fitting, forms[-1])

    def budget(self, soft: int) -> Budget:
        """Return the token limits of the answering model; `soft` is the configured soft limit."""
        name, windows = self.name, self.windows
        return Budget(
            windows.window(name), windows.max_tokens(name, self.sent().room), soft, windows.max_output(name)
        )


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """Limits at which a chat's view changes."""

    max_messages: int = 60
    max_injected: int = 120
    soft_tokens: int = SOFT_TOKENS
    mask_threshold: int = 8_000
    """Tokens above which old tool results are masked."""
    keep_observations: int = 4
    """Number of newest tool results that are not masked."""
    compaction: Policy = field(default_factory=Policy)
