"""Limits and abilities of models, token estimates for each model, and the model that a chat uses. The limits come from
ship.json, from the provider's list of models, and from refused requests, because a table would be outdated within a month.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field

from bot import errors
from bot.config.ship_file import Effort, ModelUse, Thinking
from bot.contracts.base import Json, Level, Message
from bot.contracts.environment import Disk, Log
from bot.contracts.model import Model, ModelReply, ModelRequest, Usage
from bot.llm import blocks
from bot.llm.costs import PriceTable

EFFORTS: tuple[Effort, ...] = get_args(Effort)
TAKES = (
    *(f"effort.{one}" for one in EFFORTS),
    "thinking.adaptive",
    "thinking.between_tools",
    "thinking.disabled",
)
"""Request settings that only some models support."""
SYSTEM_ROLE = re.compile(r"claude-(?:opus-(?:4-8|5)|(?:sonnet|haiku)-5-5|(?:fable|mythos)-5)(?:-.*)?")
"""Pattern of the names of models that accept system messages in a conversation. No provider's list of models states this."""
MIN_WINDOW = 500
MAX_WINDOW = 100_000_000
"""Max plausible context window in tokens. A number below `MIN_WINDOW` or above `MAX_WINDOW` is ignored."""


class _Document(BaseModel):
    v: Literal[1] = 1
    models: dict[
        str, dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]
    ]  # Limits by provider and model


class Learned:
    """Numbers that were learned about each model of one provider, such as its context window. Methods never block."""

    def __init__(self, provider: str = "") -> None:
        self._provider = provider
        self._known: dict[str, dict[str, float]] = {}
        self._changed = False

    def get(self, model: str, name: str) -> float | None:
        return self._known.get(f"{self._provider} {model}", {}).get(name)

    def set(self, model: str, name: str, value: float | None) -> None:
        """Store a learned number. The value None deletes the stored number."""
        if self.get(model, name) != value:
            self._changed = True
            figures = self._known.setdefault(f"{self._provider} {model}", {})
            figures.pop(name, None)
            figures |= {} if value is None else {name: value}


class LearnedFile(Learned):
    """Stores the learned numbers in one JSON file for all providers. The file is a cache: an unreadable file is ignored, and a
    failed write is repeated later.
    """

    def __init__(self, path: Path, provider: str, *, disk: Disk, log: Log) -> None:
        super().__init__(provider)
        self._path = path
        self._disk = disk
        self._log = log

    def load(self) -> None:
        """Read the file. Blocking; raises nothing."""
        try:
            if raw := self._disk.read(self._path):
                self._known = _Document.model_validate_json(raw).models
        except (OSError, ValueError) as error:
            cause = type(error).__name__
            self._log.write("storage", "learned facts of models cannot be read", level="warn", cause=cause)

    async def save(self) -> None:
        """Write the changes made since the last `save`. Raises nothing."""
        if not self._changed:
            return
        self._changed = False
        data = _Document.model_construct(models=self._known).model_dump_json(indent=1) + "\n"
        try:
            await asyncio.to_thread(self._disk.replace, self._path, data.encode("utf-8", "replace"))
        except OSError as error:
            self._changed = True
            cause = str(error)
            self._log.write("storage", "learned facts of models cannot be written", level="warn", cause=cause)


@dataclass(eq=False)
class ContextWindows:
    """The limits of one provider's models. If a call succeeds although it exceeds a limit, the limit is forgotten."""

    learned: Learned
    _: KW_ONLY
    log: Log
    model: str = ""  # The model in ship.json, for which `llm.contextWindow` (`configured`) applies
    configured: int | None = None
    tokens: int = 8_192  # Value of `llm.maxTokens`
    _asked: set[str] = field(init=False, default_factory=set)

    def window(self, model: str) -> int | None:
        """Return the context window of a model in tokens; None if unknown. For the model in ship.json, `llm.contextWindow`
        replaces the number in the provider's list. A smaller limit that a refused request has shown overrides both numbers.
        """
        configured = self.configured if model == self.model else None
        told = configured or self.learned.get(model, "window")
        refused = self.learned.get(model, "refusedAbove")
        known = min(told or float("inf"), refused or float("inf"))
        return None if known == float("inf") else int(known)

    def max_output(self, model: str) -> int | None:
        value = self.learned.get(model, "maxOutput")
        return None if value is None else int(value)

    def takes(self, model: str, what: str) -> bool:
        """Return True if the provider says that the model supports `what`, which is one of `TAKES`."""
        return bool(self.learned.get(model, what))

    def takes_system(self, model: str) -> bool:
        """Return True if the model probably accepts system messages in a conversation, by its name and earlier refusals."""
        return SYSTEM_ROLE.fullmatch(model) is not None and not self.learned.get(model, "systemRefused")

    def max_tokens(self, model: str, thinking: int = 0) -> int:
        """Return the output tokens to request: `llm.maxTokens` plus `thinking`, but at most the model's max output. If these
        tokens exceed the context window, return a quarter of the window.
        """
        most, window = self.max_output(model), self.window(model)
        asked = self.tokens + thinking
        asked = min(asked, most or asked)
        return asked if window is None or asked < window else window // 4

    async def ask(self, provider: Model, model: str) -> str | None:
        """Ask the provider once for a model's limits. If ship.json exceeds them, return a warning. Raises `errors.ModelError`."""
        if model in self._asked:
            return None
        facts = await provider.facts(model)
        self._asked.add(model)
        if facts.window is not None and MIN_WINDOW <= facts.window <= MAX_WINDOW:
            self.learned.set(model, "window", facts.window)
        if facts.max_output is not None:
            self.learned.set(model, "maxOutput", facts.max_output)
        for what in TAKES:
            self.learned.set(model, what, 1 if what in facts.takes else None)
        self._write("the provider's facts of the model", model, level="info")
        if facts.max_output is not None and self.tokens > facts.max_output:
            found = f"found {self.tokens}; {model} gives at most {facts.max_output}"
            return f"llm.maxTokens: {found}, which is used; lower it"
        if self.configured is not None and facts.window is not None and self.configured > facts.window:
            found = f"found {self.configured}; the provider says {facts.window} for {model}"
            return f"llm.contextWindow: {found}; lower or remove it"
        return None

    def refused(self, model: str, error: errors.ContextOverflow) -> None:
        before = self.window(model), self.max_output(model)
        if error.window is not None and MIN_WINDOW <= error.window <= MAX_WINDOW:
            self.learned.set(model, "refusedAbove", error.window)
        if isinstance(error, errors.OutputOverflow) and error.limit is not None and error.limit > 0:
            self.learned.set(model, "maxOutput", error.limit)
        if before != (self.window(model), self.max_output(model)):
            self._write("a limit of the model was learned from its refusal", model, level="warn")

    def fitted(self, model: str, tokens: int) -> None:
        """Forget the model's context window if the provider has accepted a prompt with more tokens."""
        for name in ("refusedAbove", "window"):
            if tokens > (self.learned.get(model, name) or tokens):
                self.learned.set(model, name, None)

    def _write(self, message: str, model: str, *, level: Level) -> None:
        window, most = self.window(model), self.max_output(model)
        self.log.write("model", message, level=level, model=model, window=window, max_output=most)


# ------------------------------------------------------------ token estimates

SMALLEST_SAMPLE, RATIOS = 200, (0.25, 4.0)
"""Min estimated tokens of a request that may change the ratio, and range of plausible ratios. Ratios outside the range are
ignored.
"""
JUMP, SLOWEST = 1.5, 0.1
"""Max factor by which one answer changes the ratio, and min weight of one answer. The first answers weigh more."""


@dataclass(eq=False)
class Estimator:
    """Estimates tokens: multiplies the plain estimate by the model's ratio. `learned` stores the ratios."""

    learned: Learned = field(default_factory=Learned)
    _ratios: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Each model's ratio, and the number of answers from which it was learned."""

    def ratio(self, model: str) -> float:
        """Return the ratio of actual to estimated tokens; 1.0 for a model that has not answered yet."""
        if model not in self._ratios:
            low, high = RATIOS
            ratio = self.learned.get(model, "tokenRatio") or 0.0
            known = low <= ratio <= high
            self._ratios[model] = (ratio, self.learned.get(model, "answers") or 1.0) if known else (1.0, 0.0)
        return self._ratios[model][0]

    def tokens(self, model: str, *parts: Iterable[Message | Json]) -> int:
        return round(sum(map(blocks.tokens, parts)) * self.ratio(model))

    def request(self, request: ModelRequest) -> int:
        return self.tokens(request.model, request.system, request.tools, request.messages)

    def text(self, model: str, words: str) -> int:
        return round(blocks.text_tokens(words) * self.ratio(model))

    def observe(self, request: ModelRequest, usage: Usage) -> None:
        """Learn the model's ratio from the usage of an answer. All input tokens count, cached or not."""
        actual = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        plain = sum(map(blocks.tokens, (request.system, request.tools, request.messages)))
        low, high = RATIOS
        if plain < SMALLEST_SAMPLE or not low <= actual / plain <= high:
            return
        seen = actual / plain
        ratio = self.ratio(request.model)
        answers = self._ratios[request.model][1]
        if answers:
            seen = min(max(seen, ratio / JUMP), ratio * JUMP)
        ratio += (seen - ratio) * max(SLOWEST, 1 / (answers + 1))
        self._ratios[request.model] = (ratio, answers + 1)
        self.learned.set(request.model, "tokenRatio", round(ratio, 4))
        self.learned.set(request.model, "answers", min(answers + 1, 1 / SLOWEST))


# ------------------------------------------------------------ the model of a chat

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
    purpose: str = "turn"  # Purpose of the running turn: `turn`, or `overheard` if nobody addressed the bot

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
        """Return the first version of the tool definitions that fits into half of the window; the last version if none fits."""
        window = self.windows.window(self.name)
        if window is None:
            return forms[0]
        return next((one for one in forms if self.estimator.tokens(self.name, one) <= window / 2), forms[-1])

    def budget(self, soft: int) -> Budget:
        name, windows = self.name, self.windows
        most = windows.max_tokens(name, self.sent().room)
        return Budget(windows.window(name), most, soft, windows.max_output(name))
