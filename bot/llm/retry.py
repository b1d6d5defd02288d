"""Retries requests to the model that failed in a way that may pass."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

from bot import errors
from bot.contracts.environment import Clock, Log
from bot.contracts.model import Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.llm.wrapper import ModelWrapper, aclosing

ATTEMPTS = 3  # in all
FIRST_WAIT = 0.5
LONGEST_BACKOFF = 8.0
LONGEST_WAIT = 20.0
"""Seconds that a person is kept waiting without a word. A provider that asks for more is taken at its word at
once: the error goes up with its `retry_after`, and the person is told."""


class RetryingModel(ModelWrapper):
    """A model that is asked again after failures that pass: overload, rate limits, broken streams, no connection.

    Deltas are a preview. Those of a failed attempt stay what they were; a new attempt starts over, so it yields no
    deltas where the one before had yielded some, only the `ModelReply`, which is the answer.
    """

    def __init__(
        self,
        model: Model,
        *,
        clock: Clock,
        rng: random.Random,
        log: Log | None = None,
        attempts: int = ATTEMPTS,
        longest_wait: float = LONGEST_WAIT,
    ) -> None:
        super().__init__(model)
        self._clock = clock
        self._rng = rng
        self._log = log
        self._attempts = attempts
        self._longest_wait = longest_wait

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        shown = False
        for attempt in range(1, self._attempts + 1):
            preview = not shown
            try:
                async with aclosing(self._model.stream(request)) as answer:
                    async for item in answer:
                        if isinstance(item, ModelReply):
                            yield item
                            return
                        if preview:
                            shown = True
                            yield item
                failure: errors.ModelError = errors.StreamBroken("The model ended without a reply.")
            except errors.ModelError as error:
                failure = error
            wait = self._wait(failure, attempt)
            if wait is None:
                raise failure
            if self._log is not None:
                self._log.write(
                    "llm_retry",
                    f"The model failed, asking again in {wait:.1f} s.",
                    level="warn",
                    error=type(failure).__name__,
                    status=failure.status,
                    attempt=attempt,
                    wait_ms=round(wait * 1000),
                    purpose=request.purpose,
                )
            await self._clock.sleep(wait)

    def _wait(self, failure: errors.ModelError, attempt: int) -> float | None:
        """Seconds until the next attempt; None where there is to be none."""
        if not failure.retryable or attempt >= self._attempts:
            return None
        backoff = min(FIRST_WAIT * 2.0 ** (attempt - 1), LONGEST_BACKOFF)
        # Jitter, so that many chats that failed together do not come back together.
        wait = backoff * self._rng.uniform(0.75, 1.25)
        asked = getattr(failure, "retry_after", None)
        if asked is None:
            return wait
        if asked > self._longest_wait:
            return None
        return float(asked) + wait * 0.5
