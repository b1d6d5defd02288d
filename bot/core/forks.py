"""Forks: a separate question to the model about a conversation, with the conversation's exact bytes as
prefix.

System prompt, tools and messages are those of the chat's next request, so the provider's cache contains them;
one message is added. A fork runs no tool, sends nothing to people, and is never compacted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from bot import errors, text
from bot.contracts.base import Json, Message
from bot.contracts.environment import Log, Redact
from bot.contracts.model import ModelReply, ModelRequest, Usage
from bot.core import blocks, compaction, memory, view
from bot.core.context import LENGTH
from bot.core.memory import MemoryInvalid, SessionMemory, TooLong
from bot.core.models import Budget, ContextLimits, ModelDeps
from bot.core.validate import validate
from bot.llm.wrapper import reply_of

ANSWER_TOKENS = 8_192
"""Max tokens of a fork's answer, independent of the limit of turns."""
MAX_RETRIES = 3
"""Max retries of a prompt that is too long; each retry drops the oldest API rounds."""
LARGER = 0.1
"""Share of the excess tokens that is dropped in addition, since the provider's count may be higher."""


class ForkDeps(Protocol):
    """Dependencies of forks: the model with its limits, and the tool definitions of requests."""

    @property
    def models(self) -> ModelDeps: ...
    @property
    def limits(self) -> ContextLimits: ...
    @property
    def log(self) -> Log: ...
    @property
    def redact(self) -> Redact: ...
    def declared(self) -> Sequence[Json]: ...
    def budget(self) -> Budget: ...


@dataclass(frozen=True, slots=True)
class Prefix:
    """Prefix of a chat's next request: `history` as sent to the model, then the messages of the running turn."""

    system: Sequence[Json]
    history: Sequence[Message]
    current: Sequence[Message] = ()
    spent: Callable[[Usage, float | None], object] | None = None
    """Callback that receives the usage and cost of the fork."""
    exact: bool = True
    """True if the prefix has the exact bytes of the next request. The provider's own summaries require that."""

    @property
    def messages(self) -> list[Message]:
        return [*self.history, *self.current]


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of a conversation. `block` is set if the provider wrote the summary; only that provider can
    read the block.
    """

    words: str
    block: Json | None = None


def request(
    prefix: Prefix,
    deps: ForkDeps,
    *,
    purpose: str,
    directive: Message | None = None,
    summarize: str | None = None,
) -> ModelRequest:
    """Return the request of a fork. Cache breakpoints are set only in the shared prefix. Raises
    `errors.RequestInvalid`.
    """
    # The provider's summary must be written by the chat's own model.
    own = purpose if summarize is None else None
    shared = view.render(
        model=deps.models.name,
        max_tokens=deps.budget().fork(ANSWER_TOKENS + deps.models.sent(own).room),
        system=prefix.system,
        tools=deps.declared(),
        history=prefix.history,
        injected=(),
        current=prefix.current,
    )
    behind = () if directive is None else (directive,)
    whole = replace(shared, messages=(*shared.messages, *behind), purpose=purpose, summarize=summarize)
    fitted = deps.models.fitted(whole, own)
    validate(fitted)
    return fitted


def in_words(prefix: Prefix) -> Prefix:
    """Return the prefix without content that only the provider that made it accepts."""
    history, current = (
        blocks.without_thinking(map(memory.in_plain_words, messages))
        for messages in (prefix.history, prefix.current)
    )
    return replace(prefix, history=history, current=current, exact=False)


async def ask(prefix: Prefix, directive: Message, deps: ForkDeps, *, purpose: str) -> str:
    """Ask the model and return its text with secrets redacted. Raises `errors.ModelError`, and
    `memory.TooLong` if the answer reached its limit.
    """
    asked = request(prefix, deps, purpose=purpose, directive=directive)
    try:
        reply = await _reply(asked, prefix, deps)
    except (errors.RequestInvalid, errors.SummaryUnavailable) as error:
        plain = in_words(prefix)
        if plain.messages == prefix.messages:
            raise
        # Retry without the rejected content, like a turn does (`bot.core.fit`). The next turn declares the epoch.
        cause = f"{type(error).__name__}: {error}"
        deps.log.write("memory", "a fork goes without what was refused", level="warn", cause=cause)
        asked = request(plain, deps, purpose=purpose, directive=directive)
        reply = await _reply(asked, plain, deps)
    deps.models.learn(asked, reply)
    if reply.stop_reason in LENGTH:
        raise TooLong(f"cut off after {reply.usage.output_tokens} tokens: {reply.stop_reason}")
    return deps.redact(blocks.plain_text(reply.content))


async def _reply(asked: ModelRequest, prefix: Prefix, deps: ForkDeps) -> ModelReply:
    """Return the answer. If the provider rejects the output limit, ask again with the limit that the provider names."""
    try:
        return await _streamed(asked, prefix, deps)
    except errors.OutputOverflow as error:
        if error.limit is None or error.limit >= asked.max_tokens:
            raise
        deps.models.windows.refused(asked.model, error)
        return await _streamed(replace(asked, max_tokens=error.limit), prefix, deps)


async def _streamed(asked: ModelRequest, prefix: Prefix, deps: ForkDeps) -> ModelReply:
    reply = await reply_of(deps.models.model.stream(asked))
    if prefix.spent is not None:
        prefix.spent(reply.usage, reply.cost_usd)
    return reply


async def remember(prefix: Prefix, known: SessionMemory | None, deps: ForkDeps) -> SessionMemory:
    """Return the session memory with the model's changes applied. Changes that are too long are requested
    once more in a shorter form.

    Raises `errors.ModelError` and `MemoryInvalid`.
    """
    try:
        changed = memory.changed(known, await ask(prefix, memory.extraction(known), deps, purpose="memory"))
    except TooLong as error:
        _shorter_please(error, deps)
        brief = memory.extraction(known, brief=True)
        changed = memory.changed(known, await ask(prefix, brief, deps, purpose="memory"))
    kept = changed.capped()
    if kept != changed:
        left_out = len(changed) - len(kept)
        deps.log.write("memory", "the memory is full: what was used longest ago goes", items=left_out)
    return kept


async def condense(prefix: Prefix, known: SessionMemory | None, focus: str, deps: ForkDeps) -> Summary:
    """Return a summary of the whole conversation. The provider writes it if the model supports that, since
    that reads only cached tokens. Else, or if that fails, a fork writes it.

    Raises `errors.ModelError` and `MemoryInvalid`.
    """
    able = deps.limits.compaction.provider and deps.models.windows.compacts(deps.models.name)
    if able and prefix.exact and not prefix.current:
        try:
            return await _provided(prefix, known, focus, deps)
        except (
            errors.ContextOverflow,
            errors.RequestInvalid,
            errors.SummaryUnavailable,
            MemoryInvalid,
        ) as error:
            cause = f"{type(error).__name__}: {error}"
            deps.log.write("memory", "the provider made no summary: a fork does", level="warn", cause=cause)
            if _never(error, prefix):
                deps.models.windows.compacts_not(deps.models.name)
            if isinstance(error, errors.ContextOverflow):
                prefix = _cut(prefix, error, deps)
    return Summary(await summarize(prefix, known, focus, deps))


def _never(error: Exception, prefix: Prefix) -> bool:
    """Return True if a provider rejects summaries in general, independent of the conversation."""
    here = isinstance(error, errors.ThinkingUnbound | errors.SummaryRefused)
    bound = any(map(memory.condensed, prefix.history[:1]))
    return isinstance(error, errors.RequestInvalid) and not here and not bound


async def _provided(prefix: Prefix, known: SessionMemory | None, focus: str, deps: ForkDeps) -> Summary:
    """Return the summary that the provider writes. Token counts of that answer do not describe the prompt,
    so the token ratio is not updated.
    """
    asked = request(prefix, deps, purpose="compaction", summarize=memory.condensing(known, focus))
    reply = await _reply(asked, prefix, deps)
    found = [block for block in reply.content if block.get("type") == "compaction"]
    if reply.stop_reason != "compaction" or len(found) != 1:
        raise MemoryInvalid(f"no block of the provider's: {reply.stop_reason}")
    # A changed block would not match the provider's signature, so a block with a secret becomes plain text.
    words, written = memory.read_block(found[0], known), json.dumps(found[0], ensure_ascii=False)
    fits = blocks.redacted(found, deps.redact) == found and text.clean(written) == written
    return Summary(words, found[0]) if fits else Summary(text.clean(deps.redact(words)))


async def summarize(prefix: Prefix, known: SessionMemory | None, focus: str, deps: ForkDeps) -> str:
    """Return a summary of a conversation. If the prompt is too long, drop its oldest API rounds and retry,
    at most three times. A summary that is too long is requested once more in a shorter form.

    Raises `errors.ModelError` and `MemoryInvalid`.
    """
    refused, brief = 0, False
    while True:
        directive = memory.summarizing(known, focus, brief=brief)
        try:
            return memory.read_summary(await ask(prefix, directive, deps, purpose="compaction"), known)
        except errors.ContextOverflow as error:
            refused += 1
            if refused > MAX_RETRIES:
                deps.models.windows.refused(deps.models.name, error)
                raise
            prefix = _cut(prefix, error, deps)
        except TooLong as error:
            if brief:
                raise
            brief = True
            _shorter_please(error, deps)


def _shorter_please(error: TooLong, deps: ForkDeps) -> None:
    deps.log.write("memory", "a fork is asked again for less", level="warn", cause=str(error))


def _cut(prefix: Prefix, error: errors.ContextOverflow, deps: ForkDeps) -> Prefix:
    """Return the prefix shrunk until it fits, without thinking after the cut. Raises the error if nothing is left."""
    deps.models.windows.refused(deps.models.name, error)
    left = _shorter(prefix, error, deps)
    if not left:
        raise error
    return in_words(replace(prefix, history=left, current=()))


def _shorter(prefix: Prefix, error: errors.ContextOverflow, deps: ForkDeps) -> list[Message]:
    """Return the messages without the oldest API rounds. Drops the excess that the provider named, else a
    quarter. A summary at the beginning stays, since nothing else covers the messages that it replaced.
    """

    def size(messages: Sequence[Message]) -> float:
        return deps.models.estimator.messages(deps.models.name, messages)

    frame = deps.models.estimator.frame(deps.models.name, prefix.system, deps.declared())
    total = size(prefix.messages)
    excess = total / 4
    if error.tokens and error.window:
        asked = deps.budget().fork(ANSWER_TOKENS) if isinstance(error, errors.OutputOverflow) else 0
        over = error.tokens + asked - error.window
        # Convert the excess from the provider's count to our estimate.
        excess = over * (total + frame) / error.tokens * (1 + LARGER)
    begins = int(memory.stands_for(prefix.messages[0])) if prefix.messages else 0
    left = compaction.without_oldest(prefix.messages[begins:], max(1.0, excess), size)
    return [*prefix.messages[:begins], *left] if left else []
