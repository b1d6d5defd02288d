"""Models, limits and services that every turn of the agent uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bot.config.ship_file import Effort, ModelUse, Thinking
from bot.contracts.approvals import Approvals, Unattended
from bot.contracts.base import Json
from bot.contracts.environment import OperatorNotices
from bot.contracts.model import Model, ModelReply, ModelRequest
from bot.core import blocks
from bot.core.archive_files import ChatStore
from bot.core.blocks import Estimator
from bot.core.prompt import Prompts
from bot.core.services import Services
from bot.llm.costs import PriceTable
from bot.llm.windows import EFFORTS, ContextWindows
from bot.tools.dispatch import Dispatcher
from bot.tools.registry import Registry

if TYPE_CHECKING:
    from bot.core.tasks import TaskEvent

MARGIN = 13_000
"""Tokens of the context window that stay free, because prompt sizes are estimates. At most a tenth of the window stays free."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Token limits for requests to a model. `window` is the model's context window and `most_output` the model's output
    limit; None if unknown. `max_tokens` is the output limit that requests set. `soft` is the desired max tokens of a prompt
    (setting `softTokens`).
    """

    window: int | None
    max_tokens: int
    soft: int = 40_000
    most_output: int | None = None

    @property
    def hard(self) -> int | None:
        """Return the max tokens that a prompt may have so that the answer still fits; None if the window is unknown."""
        if self.window is None:
            return None
        return max(self.window - self.max_tokens - self._margin, self.window // 4)

    def fork(self, most: int) -> int:
        """Return the output limit, at most `most`, for a fork (a side question that reuses the chat's prompt)."""
        room = most if self.window is None else max(self.max_tokens, self._margin)
        return min(most, room, self.most_output or most)

    @property
    def _margin(self) -> int:
        return min(MARGIN, (self.window or MARGIN * 10) // 10)

    @property
    def limit(self) -> int:
        """Return the smaller of the soft and the hard limit, in tokens."""
        return self.soft if self.hard is None else min(self.soft, self.hard)

    def share(self, part: float, most: int) -> int:
        """Return `part` (a fraction) of the context window in tokens, but at most `most`. If the window is unknown, return `most`."""
        return most if self.window is None else min(most, int(self.window * part))


ROOM = {"low": 4_096, "medium": 8_192, "high": 16_384}
"""For each effort, the tokens added to the output limit to make room for the model's thinking."""
NOTES = 1_024
"""Tokens added to the output limit if the model does not think. They make room for text between tool calls."""
MODEL, EFFORT = "model", "effort"
"""Kinds of the `FactSet` events that store which model and which effort an operator chose for a chat."""
_FORMS: dict[Thinking | None, tuple[str, ...]] = {
    None: (),
    "adaptive": ("adaptive",),
    "between_tools": ("between_tools", "adaptive"),
    "off": ("disabled", "between_tools", "adaptive"),
}
"""API values for each thinking setting. Requests contain the first of these values that the model accepts."""


@dataclass(frozen=True, slots=True)
class SentManner:
    """Effort and thinking that a request contains; None if it leaves them out. `room` is the number of tokens for thinking."""

    effort: str | None = None
    thinking: Json | None = None
    room: int = 0


def sent_manner(effort: Effort | None, thinking: Thinking | None, takes: Callable[[str], bool]) -> SentManner:
    """Return the settings to send; None stands for the model's default. `takes` receives a setting's name and returns True if
    the model accepts the setting.
    """
    sent = effort if takes(f"effort.{effort}") else None
    form = next((one for one in _FORMS[thinking] if takes(f"thinking.{one}")), None)
    if form == "adaptive":
        # Without `display`, the text between tool calls would be empty.
        return SentManner(sent, {"type": form, "display": "summarized"}, ROOM[effort or "high"])
    return SentManner(sent, {"type": form} if form else None, NOTES if form == "between_tools" else 0)


_NO_USE = ModelUse()


def effort_of(name: str | None) -> Effort | None:
    return next((one for one in EFFORTS if one == name), None)


@dataclass(slots=True)
class ModelDeps:
    """The provider's model, and the model names and settings of one chat."""

    model: Model
    default_model: str
    windows: ContextWindows
    fast_model: str = ""
    """Name of the model that combines the results of subagent tasks; "" if the chat's answering model does it."""
    estimator: Estimator = field(default_factory=Estimator)
    prices: PriceTable = field(default_factory=PriceTable)
    effort: Effort | None = None
    thinking: Thinking | None = None
    purposes: Mapping[Any, ModelUse] = field(default_factory=dict)
    """For each purpose of requests, the model, effort and thinking (`llm.purposes`). They override the chat's values."""
    chosen: str | None = None
    chosen_effort: Effort | None = None
    """Effort that an operator chose for the chat; None to use the effort in ship.json."""
    purpose: str = "turn"
    """Purpose of the running turn: `turn`, or `overheard` if nobody addressed the bot."""

    @property
    def name(self) -> str:
        return self._own(self.purpose).model or self.chosen or self.default_model

    @property
    def known(self) -> tuple[str, ...]:
        """Return the names of all models in ship.json, and of priced models in the default model's family."""
        named = [self.default_model, self.fast_model, *(one.model for one in self.purposes.values())]
        family = f"{self.default_model.partition('-')[0]}-"
        priced = [name for name in self.prices.names if name in self.prices.own or name.startswith(family)]
        return tuple(dict.fromkeys(name for name in (*named, *priced) if name))

    @property
    def efforts(self) -> tuple[Effort, ...]:
        return tuple(one for one in EFFORTS if self.windows.takes(self.name, f"effort.{one}"))

    def _own(self, purpose: str) -> ModelUse:
        return self.purposes.get(purpose, _NO_USE)

    def sent(self, purpose: str | None = None) -> SentManner:
        """Return the effort and thinking to send for a purpose; None means the running turn's purpose."""
        own = self._own(purpose or self.purpose)
        effort, takes = own.effort or self.chosen_effort or self.effort, self.windows.takes
        return sent_manner(effort, own.thinking or self.thinking, partial(takes, own.model or self.name))

    def fitted(self, request: ModelRequest, purpose: str | None = None) -> ModelRequest:
        """Return the request with the model for its purpose. Leave out thinking that this model cannot read."""
        sent, model = self.sent(purpose), self._own(purpose or self.purpose).model or self.name
        if model != request.model:
            most = self.windows.max_output(model) or request.max_tokens
            messages = blocks.without_thinking(request.messages)
            request = replace(
                request, model=model, messages=messages, max_tokens=min(request.max_tokens, most)
            )
        return replace(request, effort=sent.effort, thinking=sent.thinking)

    def learn(self, request: ModelRequest, reply: ModelReply) -> None:
        """Update the model's token ratio and largest fitting prompt from an answer. Ignore the answer of a fallback model."""
        if not reply.note:
            used = reply.usage
            self.estimator.observe(request, used)
            prompt = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
            self.windows.fitted(request.model, prompt)

    def declared(self, forms: Sequence[tuple[Json, ...]]) -> tuple[Json, ...]:
        """Return the first version of the tool definitions that fits into half of the window, otherwise the last."""
        window = self.windows.window(self.name)
        if window is None:
            return forms[0]
        return next((one for one in forms if self.estimator.tokens(self.name, one) <= window / 2), forms[-1])

    def budget(self, soft: int) -> Budget:
        name, windows = self.name, self.windows
        most = windows.max_tokens(name, self.sent().room)
        return Budget(windows.window(name), most, soft, windows.max_output(name))


@dataclass(frozen=True, kw_only=True)
class AgentDeps(Services):
    """The services of the process, and objects that only the agent uses. A reload changes `settings`, `models` and `dispatcher`."""

    models: ModelDeps
    archive: ChatStore
    registry: Registry
    dispatcher: Dispatcher
    prompts: Prompts
    alerts: OperatorNotices
    task_events: Callable[[TaskEvent], object] = lambda _: None
    approvals: Approvals = field(default_factory=Unattended)
