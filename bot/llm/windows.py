"""Context windows and output limits of models, as far as they are known.

ship.json says it, or the provider's list of models, or the sentence with which it refuses what does not fit. No
table of models stands here: it would be wrong by next month.
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
"""Settings that a model may take, or not."""


SYSTEM_ROLE = re.compile(r"claude-(?:opus-(?:4-8|5)|(?:sonnet|haiku)-5-5|(?:fable|mythos)-5)(?:-.*)?")
"""The models that take messages of the system in a conversation: no list of a provider tells it."""


SMALLEST = 500
LARGEST = 100_000_000
"""Windows outside of these are misread sentences."""


class ContextWindows:
    """The limits of models of one provider. Of two figures the smaller holds; one that a successful call disproves
    is forgotten.
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
        """Most tokens of a request; None where unknown. The value of ship.json counts for its own model, and wins over
        what the provider lists, but not over what the provider refused.
        """
        listed, refused = self._figure(model, "window"), self._figure(model, "refusedAbove")
        if self._configured is not None and model == self._model:
            listed = self._configured
        known = [figure for figure in (listed, refused) if figure is not None]
        return min(known, default=None)

    def max_output(self, model: str) -> int | None:
        """Most tokens of an answer; None where unknown."""
        return self._figure(model, "maxOutput")

    def compacts(self, model: str) -> bool:
        """True if the model's provider summarizes a conversation when it is asked to."""
        return bool(self._figure(model, "compacts"))

    def compacts_not(self, model: str) -> None:
        """It was asked to and refused, whatever it says of itself."""
        self._learned.set(model, "compacts", None)

    def takes(self, model: str, what: str) -> bool:
        """True if the provider says that the model takes this (`ModelFacts.takes`)."""
        return bool(self._figure(model, what))

    def takes_system(self, model: str) -> bool:
        """True if the model takes messages of the system in a conversation, as far as is known."""
        return SYSTEM_ROLE.fullmatch(model) is not None and not self._figure(model, "systemRefused")

    def takes_no_system(self, model: str) -> None:
        """It refused one, as where another provider has it."""
        self._learned.set(model, "systemRefused", 1)

    def max_tokens(self, model: str, thinking: int = 0) -> int:
        """Return the output tokens to ask for: `llm.maxTokens` and what `thinking` may take, or less if the model gives less; if that
        is more than the whole window, a fourth of it.
        """
        most, window = self.max_output(model), self.window(model)
        asked = self._max_tokens + thinking
        asked = asked if most is None else min(asked, most)
        return asked if window is None or asked < window else window // 4

    async def ask(self, provider: Model, model: str) -> str | None:
        """Ask the provider, once. Returns a sentence for the operator where ship.json asks for more than there is.

        Raises `errors.ModelError` where it did not answer; it can be asked again then.
        """
        if model in self._asked:
            return None
        facts = await provider.facts(model)
        self._asked.add(model)
        if facts.window is not None and SMALLEST <= facts.window <= LARGEST:
            self._learned.set(model, "window", facts.window)
        if facts.max_output is not None:
            self._learned.set(model, "maxOutput", facts.max_output)
        self._learned.set(model, "compacts", 1 if facts.compacts else None)
        for what in TAKES:
            self._learned.set(model, what, 1 if what in facts.takes else None)
        self._write("what the provider says of the model", model, level="info")
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
        """Take from a refusal what it says."""
        before = self.window(model), self.max_output(model)
        if error.window is not None and SMALLEST <= error.window <= LARGEST:
            self._learned.set(model, "refusedAbove", error.window)
        if isinstance(error, errors.OutputOverflow) and error.limit is not None and error.limit > 0:
            self._learned.set(model, "maxOutput", error.limit)
        if before != (self.window(model), self.max_output(model)):
            self._write("a limit of the model was learnt from its refusal", model, level="warn")

    def fitted(self, model: str, tokens: int) -> None:
        """So many tokens of prompt did fit: a smaller figure is out of date."""
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
