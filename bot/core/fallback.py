"""`FallbackModel` wraps the primary model. The fallback models (`llm.fallback`) answer if the primary model is overloaded
or unavailable, or if it refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from bot import errors
from bot.contracts.environment import Clock, Log, OperatorNotices
from bot.contracts.identity import ChatKey
from bot.contracts.model import Model, ModelReply, ModelRequest, ModelStream
from bot.core import blocks
from bot.llm.wrapper import AWAY, ModelWrapper
from bot.telemetry import context
from bot.words import say, sentence

AWAY_SECONDS = 300.0
"""Seconds for which the primary model is tried last after it failed or refused. A failure counts for all chats, a refusal
only for the chat in which it occurred.
"""
GONE = (*AWAY, errors.ModelUnknown, errors.ProviderBusy)
"""Failures of the primary model after which a fallback model is worth a try."""
DECLINED = "it declined"


Fallback = tuple[Model, str | None]
"""A fallback model with its model name. None means that another provider runs a model with the primary model's name."""


class FallbackModel(ModelWrapper):
    """Tries models in order. For five minutes after a failure of the primary model, it tries the fallback models first."""

    def __init__(
        self, first: Model, others: Sequence[Fallback], *, clock: Clock, log: Log, operators: OperatorNotices
    ) -> None:
        super().__init__(first)
        self._first: Fallback = (first, None)
        self._others = others
        self._clock = clock
        self._log = log
        self._operators = operators
        self._absent: dict[tuple[str, ChatKey | None], tuple[float, str]] = {}
        """End and cause of each period in which the primary model comes last, by model and chat (None: all chats)."""

    async def stream(self, request: ModelRequest) -> ModelStream:
        order = [self._first, *self._others]
        if self._absence(request.model):
            order = [*self._others, self._first]
        failed: list[errors.ModelError] = []
        refusal: ModelReply | None = None
        shown = False
        for one in order:
            # If a model fails after the preview has begun, the next model's answer is shown only when complete.
            preview = not shown
            async with aclosing(self._asked(one, request, failed)) as answer:
                async for item in answer:
                    if not isinstance(item, ModelReply):
                        shown = True
                        if preview:
                            yield item
                    elif item.stop_reason == "refusal":
                        refusal = refusal or item
                    else:
                        yield item
                        return
        if refusal is None:
            raise failed[0]
        yield refusal

    async def _asked(
        self, one: Fallback, request: ModelRequest, failed: list[errors.ModelError]
    ) -> ModelStream:
        """Yield one model's answer. Add a failure to `failed`, or raise it if no other model can help."""
        (model, name), own = one, one is self._first
        asked = request
        if not own:  # only the model that wrote thinking can read it
            messages = blocks.without_thinking(request.messages)
            asked = replace(request, model=name or request.model, messages=messages)
        try:
            async with aclosing(model.stream(asked)) as answer:
                async for item in answer:
                    refused = isinstance(item, ModelReply) and item.stop_reason == "refusal"
                    if refused and own:
                        until = self._clock.monotonic() + AWAY_SECONDS
                        self._absent[request.model, context.current().chat_key] = until, DECLINED
                    if isinstance(item, ModelReply) and not own and not refused:
                        item = self._stood_in(request, item)  # noqa: PLW2901
                    yield item
        except errors.ModelError as error:
            if own and not isinstance(error, GONE):
                raise
            if own:
                cause = str(error) or type(error).__name__
                self._absent[request.model, None] = self._clock.monotonic() + AWAY_SECONDS, cause
            failed.append(error)

    def _absence(self, model: str) -> str:
        """Return why the primary model comes last now; "" if it comes first."""
        now = self._clock.monotonic()
        self._absent = {key: one for key, one in self._absent.items() if one[0] > now}
        keys = ((model, None), (model, context.current().chat_key))
        return next((self._absent[key][1] for key in keys if key in self._absent), "")

    def _stood_in(self, request: ModelRequest, reply: ModelReply) -> ModelReply:
        """Tell operators that a fallback model answered. Return its answer with a note for the person."""
        cause, who = self._absence(request.model), {"model": reply.model, "first": request.model}
        told = f"{reply.model} answered instead of {request.model}: {cause}"
        self._log.write("model", told, level="warn", model=reply.model, before=request.model)
        self._operators.tell(f"fallback {request.model}", sentence("operators.fallback", cause=cause, **who))
        return _noted(
            reply, say("turn.fallback_declined" if cause == DECLINED else "turn.fallback_away", **who)
        )


class ProviderFallbacks(ModelWrapper):
    """Wraps a model. If the model refuses, the provider may answer with another model (`llm.providerFallbacks`)."""

    async def stream(self, request: ModelRequest) -> ModelStream:
        """Stream the model's answer (see `contracts.model.Model`)."""
        async with aclosing(self._model.stream(replace(request, provider_fallbacks=True))) as stream:
            async for event in stream:
                if isinstance(event, ModelReply) and not event.model.startswith(request.model):
                    who = {"model": event.model, "first": request.model}
                    yield _noted(event, say("turn.fallback_declined", **who))
                else:
                    yield event


def _noted(reply: ModelReply, note: str) -> ModelReply:
    """Return another model's answer with this note, and without its thinking, which only that model can read."""
    content = [block for block in reply.content if block.get("type") not in blocks.THINKING]
    return replace(reply, content=content, note=note)
