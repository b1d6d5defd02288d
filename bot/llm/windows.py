"""Context windows and output limits of models. The limits come from ship.json, from the provider's list of
models, and from refused requests. This module has no table of models, because a table would be outdated
within a month.
"""

from __future__ import annotations

import re
from typing import get_args

from bot import errors
from bot.config.ship_file import Effort
from bot.contracts.base import Level
from bot.contracts.environment import Log
from bot.contracts.model import Learned, Model

EFFORTS: tuple[Effort, ...] = get_args(Effort)
TAKES = (
    *(f"effort.{one}" for one in EFFORTS),
    "thinking.adaptive",
    "thinking.between_tools",
    "thinking.disabled",
)
"""Settings that a model may support."""
SYSTEM_ROLE = re.compile(r"claude-(?:opus-(?:4-8|5)|(?:sonnet|haiku)-5-5|(?:fable|mythos)-5)(?:-.*)?")
"""Names of the models that accept system messages in a conversation. No provider's list contains this fact."""
MIN_WINDOW = 500
MAX_WINDOW = 100_000_000
"""Max plausible context window in tokens. A value outside of `MIN_WINDOW` and `MAX_WINDOW` was misread."""


class ContextWindows:
    """The limits of one provider's models. If two limits are known, the smaller limit is used. A limit is
    forgotten once a successful call exceeds it.
    """

    def __init__(
        self,
        learned: Learned,
        *,
        log: Log,
        model: str = "",
        configured: int | None = None,
        max_tokens: int = 8_192,
    ) -> None:
        self._learned = learned
        self._log = log
        self._model = model
        self._configured = configured
        self._max_tokens = max_tokens
        self._asked: set[str] = set()

    def window(self, model: str) -> int | None:
        """Return the max tokens of a request; None if unknown. The value in ship.json applies only to the
        model named there. That value overrides the provider's list, but not a limit learned from a
        refusal.
        """
        listed, refused = self._figure(model, "window"), self._figure(model, "refusedAbove")
        if self._configured is not None and model == self._model:
            listed = self._configured
        known = [figure for figure in (listed, refused) if figure is not None]
        return min(known, default=None)

    def max_output(self, model: str) -> int | None:
        """Return the max tokens of an answer; None if unknown."""
        return self._figure(model, "maxOutput")

    def compacts(self, model: str) -> bool:
        """Return True if the provider can summarise a conversation with this model."""
        return bool(self._figure(model, "compacts"))

    def compacts_not(self, model: str) -> None:
        """Remember that the provider refused to summarise with this model, whatever the provider's list says."""
        self._learned.set(model, "compacts", None)

    def takes(self, model: str, what: str) -> bool:
        """Return True if the provider lists this setting for the model (`ModelFacts.takes`)."""
        return bool(self._figure(model, what))

    def takes_system(self, model: str) -> bool:
        """Return True if the model is believed to accept system messages in a conversation."""
        return SYSTEM_ROLE.fullmatch(model) is not None and not self._figure(model, "systemRefused")

    def takes_no_system(self, model: str) -> None:
        """Remember that the model refused a system message. A model that accepts system messages at one
        provider may refuse them at another.
        """
        self._learned.set(model, "systemRefused", 1)

    def max_tokens(self, model: str, thinking: int = 0) -> int:
        """Return the output tokens to request: `llm.maxTokens` plus `thinking`, limited to the model's max
        output. If that is larger than the context window, return a quarter of the window.
        """
        most, window = self.max_output(model), self.window(model)
        asked = self._max_tokens + thinking
        asked = asked if most is None else min(asked, most)
        return asked if window is None or asked < window else window // 4

    async def ask(self, provider: Model, model: str) -> str | None:
        """Ask the provider once for a model's limits. Return a warning if ship.json exceeds the limits.

        Raises `errors.ModelError` if the provider does not answer; call again then.
        """
        if model in self._asked:
            return None
        facts = await provider.facts(model)
        self._asked.add(model)
        if facts.window is not None and MIN_WINDOW <= facts.window <= MAX_WINDOW:
            self._learned.set(model, "window", facts.window)
        if facts.max_output is not None:
            self._learned.set(model, "maxOutput", facts.max_output)
        self._learned.set(model, "compacts", 1 if facts.compacts else None)
        for what in TAKES:
            self._learned.set(model, what, 1 if what in facts.takes else None)
        self._write("the provider's facts of the model", model, level="info")
        if facts.max_output is not None and self._max_tokens > facts.max_output:
            return (
                f"llm.maxTokens: found {self._max_tokens}; {model} gives at most {facts.max_output}, which is used; "
                "lower it"
            )
        if self._configured is not None and facts.window is not None and self._configured > facts.window:
            return (
                f"llm.contextWindow: found {self._configured}; the provider says {facts.window} for {model}; "
                "lower or remove it"
            )
        return None

    def refused(self, model: str, error: errors.ContextOverflow) -> None:
        """Store the limits that a refusal names."""
        before = self.window(model), self.max_output(model)
        if error.window is not None and MIN_WINDOW <= error.window <= MAX_WINDOW:
            self._learned.set(model, "refusedAbove", error.window)
        if isinstance(error, errors.OutputOverflow) and error.limit is not None and error.limit > 0:
            self._learned.set(model, "maxOutput", error.limit)
        if before != (self.window(model), self.max_output(model)):
            self._write("a limit of the model was learned from its refusal", model, level="warn")

    def fitted(self, model: str, tokens: int) -> None:
        """Forget each limit that is smaller than the tokens of an accepted prompt."""
        for name in ("refusedAbove", "window"):
            figure = self._figure(model, name)
            if figure is not None and tokens > figure:
                self._learned.set(model, name, None)

    def _figure(self, model: str, name: str) -> int | None:
        value = self._learned.get(model, name)
        return None if value is None else int(value)

    def _write(self, message: str, model: str, *, level: Level) -> None:
        window, most = self.window(model), self.max_output(model)
        self._log.write("model", message, level=level, model=model, window=window, max_output=most)
