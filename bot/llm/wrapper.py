"""Wrappers of a model: retries (`RetryingModel`), health (`WatchedModel`), system messages
(`SystemRoleModel`). `bot.llm.log`, `bot.llm.budgets` and `bot.features.replay` derive further wrappers
from `ModelWrapper`.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from bot import errors
from bot.contracts.environment import Clock, Log
from bot.contracts.model import Model, ModelFacts, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.llm.windows import ContextWindows
from bot.tags import with_system_messages
from bot.telemetry import context

T = TypeVar("T")


class ModelWrapper:
    """Base class of wrappers: passes every call to the wrapped model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def check(self) -> None:
        await self._model.check()

    async def facts(self, model: str) -> ModelFacts:
        return await self._model.facts(model)

    async def close(self) -> None:
        await self._model.close()


async def reply_of(
    stream: AsyncIterator[TextDelta | ToolInputDelta | ModelReply], heard: Callable[[], object] = lambda: None
) -> ModelReply:
    """Return the reply at the end of a stream, and call `heard` for each event before it. Raises
    `errors.ModelError`.
    """
    reply: ModelReply | None = None
    async for event in stream:
        heard()
        if isinstance(event, ModelReply):
            reply = event
    if reply is None:
        raise errors.StreamBroken("the model's stream ended without a reply")
    return reply


class aclosing(Generic[T]):  # noqa: N801 - like contextlib's, which needs an `aclose`
    """Context manager that closes a model's stream if the stream can be closed. Otherwise the connection
    would stay open after the reader is done.
    """

    def __init__(self, stream: AsyncIterator[T]) -> None:
        self._stream = stream

    async def __aenter__(self) -> AsyncIterator[T]:
        return self._stream

    async def __aexit__(self, *_: object) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


NO_SYSTEM = re.compile(r"role .?system.? is not supported|\.role: input should be 'user'", re.IGNORECASE)


class SystemRoleModel(ModelWrapper):
    """A model that receives the gateway's texts as system messages, unless `windows` says that the model
    does not accept system messages.
    """

    def __init__(self, model: Model, windows: ContextWindows) -> None:
        super().__init__(model)
        self._windows = windows

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        asked = [replace(request, messages=with_system_messages(request.messages)), request]
        for one in asked if self._windows.takes_system(request.model) else asked[1:]:
            try:
                async with aclosing(self._model.stream(one)) as answer:
                    async for item in answer:
                        yield item
                break
            except errors.RequestInvalid as error:
                if one is request or not NO_SYSTEM.search(str(error)):
                    raise
                self._windows.takes_no_system(request.model)


AWAY = (
    errors.ModelMisconfigured,
    errors.ModelRefused,
    errors.ModelUnreachable,
    errors.Overloaded,
    errors.SpendLimit,
    errors.StreamBroken,
)
"""Failures after which no turn can be answered. All other failures concern one request, or pass by themselves."""
_OF_ACCOUNT = (errors.ModelMisconfigured, errors.ModelRefused, errors.SpendLimit)
"""Failures that only a successful answer disproves. A successful request for the list of models does not,
because a provider lists its models even for an account that it refuses.
"""
PROBE_SECONDS = 300.0
"""Interval in seconds between requests that only test whether the provider accepts the account again."""


@dataclass(frozen=True, slots=True)
class ModelTrouble:
    """Reason why no turn can be answered. `of_account` is True if the provider works but refuses this account."""

    cause: str
    of_account: bool


class WatchedModel(ModelWrapper):
    """A model that remembers how its last call ended. `trouble` is None before the first call and while the
    model answers.

    `alone` is False if other models answer when this model fails (`llm.fallback`).
    """

    def __init__(self, model: Model, *, clock: Clock, alone: bool = True) -> None:
        super().__init__(model)
        self._clock = clock
        self.alone = alone
        self.asked: float | None = None
        """Time at which the last call ended, in epoch seconds."""
        self._last: ModelTrouble | None = None
        """Trouble that the last call or check found."""
        self._refused: ModelTrouble | None = None
        """Refusal of the account. It is kept until a model answers."""
        self._answered = ""
        """Name of the model that answered last."""
        self._probed = ""
        """Name of the model that a probe calls. A model that has answered before is preferred, because the
        refusal may concern only the other model.
        """
        self._next_probe = 0.0

    @property
    def trouble(self) -> ModelTrouble | None:
        return self._last or self._refused

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        async with aclosing(self._model.stream(request)) as pieces:
            try:
                async for piece in pieces:
                    if isinstance(piece, ModelReply):
                        self._refused, self._answered = None, request.model
                        self._note(None)
                    yield piece
            except errors.ModelError as error:
                self._note(error)
                if self._last is not None and self._last.of_account:
                    self._refused, self._probed = self._last, self._answered or request.model
                    wait = PROBE_SECONDS if self._probed == request.model else 0.0
                    self._next_probe = self._clock.monotonic() + wait
                raise

    async def check(self) -> None:
        try:
            await super().check()
        except errors.ModelError as error:
            self._note(error)
            raise
        self._note(None)

    async def poll(self) -> None:
        """Check whether a model in trouble works again. Raises nothing."""
        if self.trouble is None:
            return
        with contextlib.suppress(errors.ModelError):
            await self.check()
            if self._refused is not None and self._clock.monotonic() >= self._next_probe:
                self._next_probe = self._clock.monotonic() + PROBE_SECONDS
                # The probe asks for one token. It costs nothing while the account is refused.
                hello = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
                request = ModelRequest(self._probed, 1, (), (hello,), purpose="check")
                await reply_of(self.stream(request))

    def _note(self, error: errors.ModelError | None) -> None:
        self.asked = self._clock.now()
        away = isinstance(error, AWAY)
        self._last = ModelTrouble(str(error), isinstance(error, _OF_ACCOUNT)) if away else None


MIN_ATTEMPTS = 3
"""Min attempts, however long each attempt takes, unless retries are off."""
FIRST_BACKOFF = 0.5
MAX_BACKOFF = 8.0
RETRY_SECONDS = 30.0
"""Seconds after the first failure during which a request is retried. If the provider demands a longer wait
with `retry_after`, the retries end at once and the person is notified.
"""
FALLBACK_RETRY_SECONDS = 5.0
"""Seconds after the first failure during which a request is retried if a fallback model can be asked. In
this case `MIN_ATTEMPTS` does not apply: a single attempt is enough.
"""


class RetryingModel(ModelWrapper):
    """A model that repeats a call after a transient failure: overload, rate limit, broken stream, no
    connection.

    Deltas are a preview. If a failed attempt has yielded deltas, the later attempts yield only the
    `ModelReply`. `last` is False if a fallback model can be asked.
    """

    def __init__(
        self,
        model: Model,
        *,
        clock: Clock,
        rng: random.Random,
        log: Log,
        seconds: float = RETRY_SECONDS,
        last: bool = True,
    ) -> None:
        super().__init__(model)
        self._clock = clock
        self._rng = rng
        self._log = log
        self._seconds = seconds if last else min(seconds, FALLBACK_RETRY_SECONDS)
        self._min_attempts = MIN_ATTEMPTS if last else 1

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        shown = False
        failed_at: float | None = None
        with contextlib.ExitStack() as waiting:
            for attempt in itertools.count(1):
                preview = not shown
                try:
                    async with aclosing(self._model.stream(request)) as answer:
                        async for item in answer:
                            waiting.close()
                            if isinstance(item, ModelReply):
                                yield item
                                return
                            if preview:
                                shown = True
                                yield item
                    failure: errors.ModelError = errors.StreamBroken("The model ended without a reply.")
                except errors.ModelError as error:
                    failure = error
                now = self._clock.monotonic()
                failed_at = now if failed_at is None else failed_at
                wait = self._wait(failure, attempt, self._seconds - (now - failed_at))
                if wait is None:
                    raise failure
                waiting.close()
                waiting.enter_context(context.waiting_for_model(now - failed_at))
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

    def _wait(self, failure: errors.ModelError, attempt: int, left: float) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is no further attempt. `left` is
        the number of seconds that remain for retries.
        """
        if not failure.retryable or not self._seconds or (left <= 0 and attempt >= self._min_attempts):
            return None
        # Jitter, so that chats that failed at the same time do not retry at the same time.
        wait = min(FIRST_BACKOFF * 2.0 ** (attempt - 1), MAX_BACKOFF) * self._rng.uniform(0.75, 1.25)
        retry_after = getattr(failure, "retry_after", None)
        if retry_after is not None:
            return float(retry_after) + wait * 0.5 if retry_after <= self._seconds else None
        return wait if self._min_attempts > 1 else min(wait, left)
