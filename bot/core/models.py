"""`ModelDeps`: the models that answer, with what is known of each: window, prices, how they count. And `ContextLimits`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.manner import Effort, Manner, SentManner, effort_of
from bot.contracts.model import Model, ModelReply, ModelRequest
from bot.core import blocks
from bot.core.budget import SOFT_TOKENS, Budget
from bot.core.chats import Facts
from bot.core.compaction import Policy
from bot.core.estimate import Estimator
from bot.core.memory import in_plain_words
from bot.llm.prices import PriceTable
from bot.llm.windows import ContextWindows

TOOLS = 0.5
"""The part of a window that definitions of tools may take."""
MODEL, EFFORT = "model", "effort"
"""The kinds of the facts that an operator chose for a chat."""


@dataclass(slots=True)
class ModelDeps:
    """The model, under the names by which a chat asks it, and what is known of each name."""

    model: Model
    default_model: str
    """The model that answers where no other one was chosen."""
    windows: ContextWindows
    """Context windows and output limits of models, in tokens."""
    fast_model: str = ""
    """The model that brings results together; "": the one that answers."""
    estimator: Estimator = field(default_factory=Estimator)
    """Tokens as the models count them."""
    prices: PriceTable = field(default_factory=PriceTable)
    manner: Manner = field(default_factory=Manner)
    """Effort and thinking of all that asks a model."""
    purposes: Mapping[str, Manner] = field(default_factory=dict)
    """Models, efforts and thinking that differ by purpose."""
    chosen: str | None = None
    """The model that an operator chose for the chat; None where ship.json says it."""
    chosen_effort: Effort | None = None
    """The same of the effort."""
    purpose: str = "turn"
    """The purpose of the turn that runs: `overheard` where nobody has spoken to the bot."""

    @property
    def name(self) -> str:
        """The model that answers."""
        return self.of(self.purpose).model or self.chosen or self.default_model

    def in_chat(self, chat: ChatKey, facts: Facts, purpose: str = "turn") -> ModelDeps:
        """The same with what was chosen for a chat."""
        model, effort = (facts.get(kind, str(chat)) or {} for kind in (MODEL, EFFORT))
        return replace(
            self, chosen=model.get("name"), chosen_effort=effort_of(effort.get("name")), purpose=purpose
        )

    def of(self, purpose: str) -> Manner:
        """Return the effort, thinking and model for a purpose."""
        own = self.purposes.get(purpose, Manner())
        effort = own.effort or self.chosen_effort or self.manner.effort
        return Manner(effort, own.thinking or self.manner.thinking, own.model)

    def sent(self, purpose: str | None = None) -> SentManner:
        """Effort and thinking as they are sent for a purpose; None is that of the turn."""
        manner = self.of(purpose or self.purpose)
        return manner.sent(partial(self.windows.takes, manner.model or self.name))

    def fitted(self, request: ModelRequest, purpose: str | None = None) -> ModelRequest:
        """The request with the model, the effort and the thinking of its purpose. Another model than the chat's gets nothing that
        only that one reads.
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
        """Learn from an answer how its model counts, and that so much does fit."""
        if reply.note:
            return  # of another model
        usage = reply.usage
        self.estimator.observe(request, usage)
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        self.windows.fitted(request.model, prompt)

    def declared(self, forms: Sequence[tuple[Json, ...]]) -> tuple[Json, ...]:
        """Of the forms of definitions, the largest first, the first that takes no more than half of the window."""
        window = self.windows.window(self.name)
        if window is None:
            return forms[0]
        fitting = (one for one in forms if self.estimator.frame(self.name, (), one) <= window * TOOLS)
        return next(fitting, forms[-1])

    def budget(self, soft: int) -> Budget:
        """The limits of requests to the model that answers; `soft` is the configured one."""
        name, windows = self.name, self.windows
        return Budget(
            windows.window(name), windows.max_tokens(name, self.sent().room), soft, windows.max_output(name)
        )


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """The sizes at which a chat's view changes."""

    max_messages: int = 60
    max_injected: int = 120
    soft_tokens: int = SOFT_TOKENS
    mask_threshold: int = 8_000
    """Tokens above which old tool results are masked."""
    keep_observations: int = 4
    """So many of the newest tool results are not."""
    compaction: Policy = field(default_factory=Policy)
