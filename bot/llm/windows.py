"""Context windows and output limits of models, from ship.json, from the provider's list of models, and from refused
requests. There is no table of models, because a table would be outdated within a month.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field

from bot import errors
from bot.config.ship_file import Effort
from bot.contracts.base import Level
from bot.contracts.environment import Disk, Log
from bot.contracts.model import Model

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
        """Store a number; None deletes it."""
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
    model: str = ""
    """The model in ship.json, for which `llm.contextWindow` (`configured`) applies."""
    configured: int | None = None
    tokens: int = 8_192
    """Value of `llm.maxTokens`."""
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
