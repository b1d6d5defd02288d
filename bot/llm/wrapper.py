"""Models around a model: `RetryingModel` asks again after failures that pass, `WatchedModel` remembers how the last call ended. Others
build on `ModelWrapper`, each where its concern is (`bot.llm.log`, `bot.llm.budgets`, `bot.features.replay`).
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
from bot.system_role import told
from bot.telemetry import context

T = TypeVar("T")


class ModelWrapper:
    """Passes on what a wrapper does not do in a way of its own."""

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
    """The reply at the end of a stream; `heard` is called at each of its events. Raises `errors.ModelError`."""
    reply: ModelReply | None = None
    async for event in stream:
        heard()
        if isinstance(event, ModelReply):
            reply = event
    if reply is None:
        raise errors.StreamBroken("the model's stream ended without a reply")
    return reply


class aclosing(Generic[T]):  # noqa: N801 - as the one of contextlib, which is for streams alone that can be closed
    """A stream of the model, closed on every way out where it can be, so that its connection does not outlive its reader."""

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
    """A model that is told what the gateway says in messages of the system, unless its `windows` know that it takes none."""

    def __init__(self, model: Model, windows: ContextWindows) -> None:
        super().__init__(model)
        self._windows = windows

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        asked = [replace(request, messages=told(request.messages)), request]
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
"""Failures after which no turn can be answered. The others belong to one request, or pass by themselves."""
_OF_THE_ACCOUNT = (errors.ModelMisconfigured, errors.ModelRefused, errors.SpendLimit)
"""Those of a call that only an answer disproves: a provider tells of its models also where it answers nothing."""
TRIAL_SECONDS = 300.0
"""Between two requests that only find out whether the account is answered again."""
TRIAL_PURPOSE = "check"


@dataclass(frozen=True, slots=True)
class ModelTrouble:
    """Why no turn can be answered. `of_account`: the provider answers, but not this account."""

    cause: str
    of_account: bool


class WatchedModel(ModelWrapper):
    """A model that remembers how its last call ended. `trouble` is None while it answers or was not asked yet."""

    def __init__(self, model: Model, *, clock: Clock, alone: bool = True) -> None:
        super().__init__(model)
        self._clock = clock
        self.alone = alone
        """False: others answer while it does not (`llm.fallback`)."""
        self.asked: float | None = None
        """End of the last call in epoch seconds; None if there was none."""
        self._last: ModelTrouble | None = None
        """Of the last call or check."""
        self._refused: ModelTrouble | None = None
        """Holds until there is an answer of a model."""
        self._answered = ""
        """The model that answered last."""
        self._tried = ""
        """The model that a trial asks: a refusal may be of one model alone, so one that has answered before says more."""
        self._next_trial = 0.0

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
                    self._refused, self._tried = self._last, self._answered or request.model
                    wait = TRIAL_SECONDS if self._tried == request.model else 0.0
                    self._next_trial = self._clock.monotonic() + wait
                raise

    async def check(self) -> None:
        try:
            await super().check()
        except errors.ModelError as error:
            self._note(error)
            raise
        self._note(None)

    async def look(self) -> None:
        """If the model was away when last asked, check whether it is back. Raises nothing."""
        if self.trouble is None:
            return
        with contextlib.suppress(errors.ModelError):
            await self.check()
            if self._refused is not None and self._clock.monotonic() >= self._next_trial:
                self._next_trial = self._clock.monotonic() + TRIAL_SECONDS
                await self._try(self._tried)

    async def _try(self, model: str) -> None:
        """Ask for one token, which costs nothing while the account is refused. Raises `errors.ModelError`."""
        hello = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
        await reply_of(self.stream(ModelRequest(model, 1, (), (hello,), purpose=TRIAL_PURPOSE)))

    def _note(self, error: errors.ModelError | None) -> None:
        self.asked = self._clock.now()
        away = isinstance(error, AWAY)
        self._last = ModelTrouble(str(error), isinstance(error, _OF_THE_ACCOUNT)) if away else None


ATTEMPTS = 3
"""Min attempts, however long each takes, unless nothing is to be repeated."""
FIRST_WAIT = 0.5
LONGEST_BACKOFF = 8.0
RETRY_SECONDS = 30.0
"""Seconds after the first failure up to which attempts follow. A provider that asks to wait for longer is taken at its word at
once: the error goes up with its `retry_after`, and the person is told."""


PATIENCE = 5.0
"""The same where it is not the last model that can be asked, and one attempt may do."""


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
        log: Log,
        seconds: float = RETRY_SECONDS,
        last: bool = True,
    ) -> None:
        super().__init__(model)
        self._clock = clock
        self._rng = rng
        self._log = log
        self._seconds = seconds if last else min(seconds, PATIENCE)
        self._attempts = ATTEMPTS if last else 1

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
        """Seconds until the next attempt; None where there is to be none."""
        if not failure.retryable or not self._seconds or (left <= 0 and attempt >= self._attempts):
            return None
        backoff = min(FIRST_WAIT * 2.0 ** (attempt - 1), LONGEST_BACKOFF)
        # Jitter, so that many chats that failed together do not come back together.
        wait = backoff * self._rng.uniform(0.75, 1.25)
        asked = getattr(failure, "retry_after", None)
        if asked is None:
            return wait if self._attempts > 1 else min(wait, left)
        return float(asked) + wait * 0.5 if asked <= self._seconds else None
