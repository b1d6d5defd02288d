"""`FallbackModel` wraps the primary model. The fallback models (`llm.fallback`) answer if the primary model is overloaded
or unavailable, or if it refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field, replace

from bot import errors, telemetry
from bot.contracts.environment import Clock, Log, OperatorNotices
from bot.contracts.identity import ChatKey
from bot.contracts.model import Model, ModelReply, ModelRequest, ModelStream
from bot.core import blocks
from bot.llm.wrapper import AWAY, ModelWrapper
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


@dataclass(eq=False)
class FallbackModel(ModelWrapper):
    """Tries models in order. For five minutes after a failure of the primary model, it tries the fallback models first."""

    others: Sequence[Fallback]
    _: KW_ONLY
    clock: Clock
    log: Log
    operators: OperatorNotices
    _absent: dict[tuple[str, ChatKey | None], tuple[float, str]] = field(init=False, default_factory=dict)
    """End and cause of each period in which the primary model is tried last, keyed by model and chat (None: all chats)."""

    async def stream(self, request: ModelRequest) -> ModelStream:  # noqa: C901 - one model after another
        first: Fallback = (self.model, None)
        order = [*self.others, first] if self._absence(request.model) else [first, *self.others]
        failed: list[errors.ModelError] = []
        refusal: ModelReply | None = None
        shown = False
        for model, name in order:
            # If a model fails after the preview has begun, the next model's answer is shown only when complete.
            own, preview, asked = model is self.model, not shown, request
            if not own:  # only the model that wrote thinking can read it
                messages = blocks.without_thinking(request.messages)
                asked = replace(request, model=name or request.model, messages=messages)
            try:
                async with aclosing(model.stream(asked)) as answer:
                    async for item in answer:
                        if not isinstance(item, ModelReply):
                            shown = True
                            if preview:
                                yield item
                        elif item.stop_reason != "refusal":
                            yield item if own else self._stood_in(request, item)
                            return
                        else:
                            refusal = refusal or item
                            if own:
                                self._leave(request.model, telemetry.current().chat_key, DECLINED)
            except errors.ModelError as error:
                if own and not isinstance(error, GONE):
                    raise
                if own:
                    self._leave(request.model, None, str(error) or type(error).__name__)
                failed.append(error)
        if refusal is None:
            raise failed[0]
        yield refusal

    def _leave(self, model: str, chat: ChatKey | None, cause: str) -> None:
        self._absent[model, chat] = self.clock.monotonic() + AWAY_SECONDS, cause

    def _absence(self, model: str) -> str:
        """Return the reason why the primary model is tried last now; "" if it is tried first."""
        keys, now = ((model, None), (model, telemetry.current().chat_key)), self.clock.monotonic()
        self._absent = {key: one for key, one in self._absent.items() if one[0] > now}
        return next((self._absent[key][1] for key in keys if key in self._absent), "")

    def _stood_in(self, request: ModelRequest, reply: ModelReply) -> ModelReply:
        """Tell operators that a fallback model answered. Return its answer with a note for the person."""
        cause, who = self._absence(request.model), {"model": reply.model, "first": request.model}
        told = f"{reply.model} answered instead of {request.model}: {cause}"
        self.log.write("model", told, level="warn", model=reply.model, before=request.model)
        self.operators.tell(f"fallback {request.model}", sentence("operators.fallback", cause=cause, **who))
        return _noted(
            reply, say("turn.fallback_declined" if cause == DECLINED else "turn.fallback_away", **who)
        )


class ProviderFallbacks(ModelWrapper):
    """Wraps a model. If the model refuses, the provider may answer with another model (`llm.providerFallbacks`)."""

    async def stream(self, request: ModelRequest) -> ModelStream:
        async with aclosing(self.model.stream(replace(request, provider_fallbacks=True))) as stream:
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
