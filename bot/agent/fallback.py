"""`FallbackModel`: a model that has others behind it (`llm.fallback`), which answer in turn where it is busy, gone or declines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from bot import errors
from bot.context import blocks, memory
from bot.contracts.base import Message
from bot.contracts.environment import Clock, Log, OperatorNotices
from bot.contracts.identity import ChatKey
from bot.contracts.model import Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.llm.wrapper import ModelWrapper, aclosing
from bot.telemetry import context
from bot.words import say, sentence

AWAY_SECONDS = 300.0
"""For so long the first is not asked again."""
GONE = (
    errors.ModelMisconfigured,
    errors.ModelRefused,
    errors.ModelUnknown,
    errors.ModelUnreachable,
    errors.ProviderBusy,
    errors.SpendLimit,
    errors.StreamBroken,
)
"""Failures of the first that are none of another one. What is wrong with a request is told to who made it."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """A model that stands in; `name` is None where it is the one that was asked, at another provider."""

    model: Model
    name: str | None = None


@dataclass(frozen=True, slots=True)
class _Absence:
    until: float
    cause: str
    declined: bool


class FallbackModel(ModelWrapper):
    """Whoever is busy, gone or declines is passed over. Who answered in place of the first goes first for five minutes: in that chat
    after a refusal, in all else. If none answers, the failure is that of the first.
    """

    def __init__(
        self,
        first: Model,
        others: Sequence[Fallback],
        *,
        clock: Clock,
        log: Log,
        operators: OperatorNotices,
    ) -> None:
        super().__init__(first)
        self._first = Fallback(first)
        self._others = others
        self._clock = clock
        self._log = log
        self._operators = operators
        self._absences: dict[tuple[str, ChatKey | None], _Absence] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        failed: list[errors.ModelError] = []
        refusal: ModelReply | None = None
        shown = False
        for one in self._order(request):
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
                    else:
                        yield item
                        return
        if refusal is None:
            raise failed[0]
        yield refusal

    def _order(self, request: ModelRequest) -> list[Fallback]:
        if request.summarize is not None:
            return [self._first]  # nobody else could read it
        away = self._absence(request.model) is not None
        return [*self._others, self._first] if away else [self._first, *self._others]

    async def _asked(
        self, one: Fallback, request: ModelRequest, failed: list[errors.ModelError]
    ) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        """The answer of one of them; nothing where it failed. The failure of the first stands first."""
        own = one is self._first
        try:
            async with aclosing(
                one.model.stream(request if own else _for_another(request, one.name))
            ) as answer:
                async for item in answer:
                    if not isinstance(item, ModelReply):
                        yield item
                    elif item.stop_reason != "refusal":
                        yield item if own else self._stood_in(request, item)
                    else:
                        if own:
                            chat = context.current().chat_key
                            self._note(request.model, chat, "it declined", declined=True)
                        yield item
        except errors.ModelError as error:
            if own and not isinstance(error, GONE):
                raise
            if own:
                self._note(request.model, None, str(error))
            failed.insert(0 if own else len(failed), error)

    def _absence(self, model: str) -> _Absence | None:
        """Why the first is not asked now."""
        now = self._clock.monotonic()
        self._absences = {key: one for key, one in self._absences.items() if one.until > now}
        found = self._absences.get((model, None))
        return found or self._absences.get((model, context.current().chat_key))

    def _note(self, model: str, chat: ChatKey | None, cause: str, *, declined: bool = False) -> None:
        until = self._clock.monotonic() + AWAY_SECONDS
        self._absences[model, chat] = _Absence(until, cause, declined)

    def _stood_in(self, request: ModelRequest, reply: ModelReply) -> ModelReply:
        """Its answer, without what it thought, which no other model reads; people are told whose it is."""
        why = self._absence(request.model)
        cause, key = (why.cause, "declined" if why.declined else "away") if why is not None else ("", "away")
        self._log.write(
            "llm_fallback",
            f"{reply.model} answered instead of {request.model}.",
            level="warn",
            model=reply.model,
            before=request.model,
            cause=cause,
            purpose=request.purpose,
        )
        told = sentence("operators.fallback", model=reply.model, first=request.model, cause=cause)
        self._operators.tell(f"fallback {request.model}", told)
        content = [block for block in reply.content if block.get("type") not in blocks.THINKING]
        note = say(f"turn.fallback_{key}", model=reply.model, first=request.model)
        return replace(reply, content=content, note=note)


def _for_another(request: ModelRequest, name: str | None) -> ModelRequest:
    """The request without what only the model or the account can read that made it: thoughts, and a summary of the provider's."""
    messages: list[Message] = blocks.without_thinking(request.messages)
    if messages and memory.condensed(messages[0]):
        messages[0] = memory.in_plain_words(messages[0])
    return replace(request, model=name or request.model, messages=messages)
