"""`FallbackModel`: a model that has others behind it (`llm.fallback`), which answer in turn where it is busy, gone or declines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from bot import errors
from bot.contracts.environment import Clock, Log, OperatorNotices
from bot.contracts.identity import ChatKey
from bot.contracts.model import Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.core import blocks, memory
from bot.llm.wrapper import AWAY, ModelWrapper, aclosing
from bot.telemetry import context
from bot.words import say, sentence

AWAY_SECONDS = 300.0
"""For so long the first is not asked again: after a refusal in that chat, else in all."""
GONE = (*AWAY, errors.ModelUnknown, errors.ProviderBusy)
"""Failures of the first that are none of another one. What is wrong with a request is told to who made it."""
DECLINED = "it declined"


Fallback = tuple[Model, str | None]
"""A model that stands in, and its name; None: that of the one that was asked, which another provider has too."""


class FallbackModel(ModelWrapper):
    """Try the models in order. One that answered in place of the first is tried first for five minutes; if all fail, the first error is raised."""

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
        """Until when models are not asked, and why; of one chat or of all."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        order = [self._first, *self._others]
        if request.summarize is not None:
            order = order[:1]  # nobody else could read it
        elif self._absence(request.model):
            order = [*self._others, self._first]
        failed: list[errors.ModelError] = []
        refusal: ModelReply | None = None
        shown = False
        for one in order:
            # As after any failure: what was shown stays, and of what comes in its place there is the whole alone.
            preview = not shown
            async with aclosing(self._asked(one, request, failed)) as answer:
                async for item in answer:
                    if not isinstance(item, ModelReply):
                        shown = True
                        if preview:
                            yield item
                    elif item.stop_reason == "refusal":
                        refusal = refusal or item
                        if one is self._first:
                            self._note(request.model, context.current().chat_key, DECLINED)
                    else:
                        yield item
                        return
        if refusal is None:
            raise failed[0]
        yield refusal

    async def _asked(
        self, one: Fallback, request: ModelRequest, failed: list[errors.ModelError]
    ) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        """The answer of one of them; nothing where it failed."""
        own = one is self._first
        try:
            asked = request if own else _for_another(request, one[1])
            async with aclosing(one[0].stream(asked)) as answer:
                async for item in answer:
                    if isinstance(item, ModelReply) and not own and item.stop_reason != "refusal":
                        yield self._stood_in(request, item)
                    else:
                        yield item
        except errors.ModelError as error:
            if own and (isinstance(error, errors.SummaryUnavailable) or not isinstance(error, GONE)):
                raise
            if own:
                self._note(request.model, None, str(error) or type(error).__name__)
            failed.append(error)

    def _note(self, model: str, chat: ChatKey | None, cause: str) -> None:
        self._absent[model, chat] = self._clock.monotonic() + AWAY_SECONDS, cause

    def _absence(self, model: str) -> str:
        """Why the first is not asked now; "" where it is."""
        now = self._clock.monotonic()
        self._absent = {key: one for key, one in self._absent.items() if one[0] > now}
        keys = ((model, None), (model, context.current().chat_key))
        return next((self._absent[key][1] for key in keys if key in self._absent), "")

    def _stood_in(self, request: ModelRequest, reply: ModelReply) -> ModelReply:
        """Its answer, without what it thought, which no other model reads; people are told whose it is."""
        cause, who = self._absence(request.model), {"model": reply.model, "first": request.model}
        told = f"{reply.model} answered instead of {request.model}: {cause}"
        self._log.write("model", told, level="warn", model=reply.model, before=request.model)
        self._operators.tell(f"fallback {request.model}", sentence("operators.fallback", cause=cause, **who))
        content = [block for block in reply.content if block.get("type") not in blocks.THINKING]
        note = say("turn.fallback_declined" if cause == DECLINED else "turn.fallback_away", **who)
        return replace(reply, content=content, note=note)


class ProviderFallbacks(ModelWrapper):
    """A model for which the provider may answer with another of its own where it refuses (`llm.providerFallbacks`)."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        """As `contracts.model.Model`."""
        allowed = request if request.summarize is not None else replace(request, provider_fallbacks=True)
        async with aclosing(self._model.stream(allowed)) as stream:
            async for event in stream:
                yield _of_another(request, event) if isinstance(event, ModelReply) else event


def _of_another(request: ModelRequest, reply: ModelReply) -> ModelReply:
    """The answer; that of another model without what it thought, and with whose it is."""
    if reply.model.startswith(request.model):
        return reply
    content = [block for block in reply.content if block.get("type") not in blocks.THINKING]
    note = say("turn.fallback_declined", model=reply.model, first=request.model)
    return replace(reply, content=content, note=note)


def _for_another(request: ModelRequest, name: str | None) -> ModelRequest:
    """The request without what only the model or the account can read that made it: thoughts, and a summary of the provider's."""
    messages = [memory.in_plain_words(one) for one in blocks.without_thinking(request.messages)]
    return replace(request, model=name or request.model, messages=messages)
