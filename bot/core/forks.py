"""Forks: separate questions to the model about a conversation, such as a request for a summary.

A fork's request has the exact system prompt, tools and messages of the chat's next request, so they are in the
provider's cache. One message is added. A fork runs no tool, sends people nothing, and its history is not compacted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot import errors, text
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelReply, ModelRequest
from bot.core import blocks, memory, view
from bot.core.context import LENGTH
from bot.core.fit import Fit
from bot.core.memory import MemoryInvalid, SessionMemory, TooLong
from bot.llm.wrapper import reply_of

ANSWER_TOKENS = 8_192
"""Max tokens of a fork's answer, whatever the limit for turns."""
MAX_RETRIES = 3
"""Max retries with a shorter prompt. Each retry drops the oldest third of the prompt, in whole API rounds."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Beginning of a chat's next request. `history` are the messages of ended turns as sent, `current` those of the
    running turn.
    """

    system: Sequence[Json]
    history: Sequence[Message]
    current: Sequence[Message] = ()
    exact: bool = True
    """True if the bytes are exactly those of the next request. Only then can the provider write the summary."""

    @property
    def messages(self) -> list[Message]:
        return [*self.history, *self.current]


@dataclass(frozen=True, slots=True)
class Summary:
    """A conversation's summary. `block` is set if the provider wrote it; no other provider can read the block."""

    words: str
    block: Json | None = None


def in_words(prefix: Prefix) -> Prefix:
    """Return the prefix without thinking, and with a provider's summaries as plain text, for any model to read."""
    history, current = (
        blocks.without_thinking(map(memory.in_plain_words, messages))
        for messages in (prefix.history, prefix.current)
    )
    return replace(prefix, history=history, current=current, exact=False)


async def remember(prefix: Prefix, known: SessionMemory | None, fit: Fit) -> SessionMemory:
    """Ask the model for changes of the session memory, and return the changed memory. If the answer is too long, ask
    once more for less. Raises `errors.ModelError` and `MemoryInvalid`.
    """
    try:
        changed = memory.changed(known, await _ask(prefix, memory.extraction(known), fit, purpose="memory"))
    except TooLong as error:
        fit.log.write("memory", "a fork is asked again for less", level="warn", cause=str(error))
        brief = memory.extraction(known, brief=True)
        changed = memory.changed(known, await _ask(prefix, brief, fit, purpose="memory"))
    kept = changed.capped()
    if kept != changed:
        left_out = len(changed) - len(kept)
        fit.log.write("memory", "the memory is full: what was used longest ago goes", items=left_out)
    return kept


async def condense(prefix: Prefix, known: SessionMemory | None, focus: str, fit: Fit) -> Summary:
    """Return a summary of the whole conversation. If the model supports it, the provider writes the summary, because
    that reads only cached tokens. Otherwise, or if that fails, a fork writes it.

    Raises `errors.ModelError` and `MemoryInvalid`.
    """
    windows, name = fit.models.windows, fit.models.name
    able = fit.limits.compaction.provider == "auto" and windows.takes(name, "compacts")
    if able and prefix.exact and not prefix.current:
        try:
            return await _provided(prefix, known, focus, fit)
        except (
            errors.ContextOverflow,
            errors.RequestInvalid,
            errors.SummaryUnavailable,
            MemoryInvalid,
        ) as error:
            cause = f"{type(error).__name__}: {error}"
            fit.log.write("memory", "the provider made no summary: a fork does", level="warn", cause=cause)
            here = isinstance(error, errors.ThinkingUnbound | errors.SummaryRefused)
            if (
                isinstance(error, errors.RequestInvalid)
                and not here
                and not any(map(memory.condensed, prefix.history[:1]))
            ):
                windows.learn(name, "compacts", None)
            if isinstance(error, errors.ContextOverflow):
                prefix = _cut(prefix, error, fit)
    return Summary(await summarize(prefix, known, focus, fit))


async def _provided(prefix: Prefix, known: SessionMemory | None, focus: str, fit: Fit) -> Summary:
    """Return the summary that the provider writes. The token ratio is not learned from its usage, which does not
    describe the prompt.
    """
    asked = request(prefix, fit, purpose="compaction", summarize=memory.condensing(known, focus))
    reply = await _reply(asked, fit)
    found = [block for block in reply.content if block.get("type") == "compaction"]
    if reply.stop_reason != "compaction" or len(found) != 1:
        raise MemoryInvalid(f"no block of the provider's: {reply.stop_reason}")
    # A redacted block would break the provider's signature. So a block with a secret becomes plain text.
    words, written = (
        memory.read_summary(str(found[0].get("content") or ""), known, block=True),
        json.dumps(found[0], ensure_ascii=False),
    )
    fits = blocks.redacted(found, fit.redact) == found and text.clean(written) == written
    return Summary(words, found[0]) if fits else Summary(text.clean(fit.redact(words)))


async def summarize(prefix: Prefix, known: SessionMemory | None, focus: str, fit: Fit) -> str:
    """Return a summary of a conversation, written by a fork. If the prompt is too long, drop its oldest API rounds and
    retry, at most three times. If the summary is too long, ask once more for a shorter one.

    Raises `errors.ModelError` and `MemoryInvalid`.
    """
    refused, brief = 0, False
    while True:
        directive = memory.summarizing(known, focus, brief=brief)
        try:
            return memory.read_summary(await _ask(prefix, directive, fit, purpose="compaction"), known)
        except errors.ContextOverflow as error:
            refused += 1
            if refused > MAX_RETRIES:
                raise
            prefix = _cut(prefix, error, fit)
        except TooLong as error:
            if brief:
                raise
            brief = True
            fit.log.write("memory", "a fork is asked again for less", level="warn", cause=str(error))


def request(
    prefix: Prefix, fit: Fit, *, purpose: str, directive: Message | None = None, summarize: str | None = None
) -> ModelRequest:
    """Return the request of a fork. Only the shared prefix has cache breakpoints. Raises `errors.RequestInvalid`."""
    # Only the model that made a provider's summary can read it, so the chat's own model (None) makes it.
    own = purpose if summarize is None else None
    shared = view.render(
        model=fit.models.name,
        max_tokens=fit.budget().fork(ANSWER_TOKENS + fit.models.sent(own).room),
        system=prefix.system,
        tools=fit.tools,
        history=prefix.history,
        injected=(),
        current=prefix.current,
    )
    behind = () if directive is None else (directive,)
    whole = replace(shared, messages=(*shared.messages, *behind), purpose=purpose, summarize=summarize)
    fitted = fit.models.fitted(whole, own)
    view.validate(fitted)
    return fitted


async def _ask(prefix: Prefix, directive: Message, fit: Fit, *, purpose: str) -> str:
    """Return the text of the model's answer with secrets redacted. Raises `errors.ModelError`, and `memory.TooLong` if
    the answer hit its length limit.
    """
    asked = request(prefix, fit, purpose=purpose, directive=directive)
    try:
        reply = await _reply(asked, fit)
    except (errors.RequestInvalid, errors.SummaryUnavailable) as error:
        plain = in_words(prefix)
        if plain.messages == prefix.messages:
            raise
        # Retry without the rejected content, like a turn (`bot.core.fit`). The chat's context does not change.
        cause = f"{type(error).__name__}: {error}"
        fit.log.write("memory", "a fork goes without what was refused", level="warn", cause=cause)
        asked = request(plain, fit, purpose=purpose, directive=directive)
        reply = await _reply(asked, fit)
    fit.models.learn(asked, reply)
    if reply.stop_reason in LENGTH:
        raise TooLong(f"cut off after {reply.usage.output_tokens} tokens: {reply.stop_reason}")
    return fit.redact(blocks.plain_text(reply.content))


async def _reply(asked: ModelRequest, fit: Fit) -> ModelReply:
    """Return the answer. If the provider rejects the output limit, retry once with the limit that it names."""
    try:
        return await reply_of(fit.models.model.stream(asked))
    except errors.OutputOverflow as error:
        if error.limit is None or error.limit >= asked.max_tokens:
            raise
        fit.models.windows.refused(asked.model, error)
        return await reply_of(fit.models.model.stream(replace(asked, max_tokens=error.limit)))


def _cut(prefix: Prefix, error: errors.ContextOverflow, fit: Fit) -> Prefix:
    """Return the prefix without the oldest third of its messages, in whole API rounds, and without thinking. A summary
    at the beginning stays, because nothing else covers the messages that it replaced. Raises the error if nothing would
    be left.
    """
    fit.models.windows.refused(fit.models.name, error)
    messages = prefix.messages
    begins = int(memory.stands_for(messages[0])) if messages else 0
    groups: list[list[Message]] = []
    before = ""
    for message in messages[begins:]:
        role = str(message["role"])
        results = role == "user" and message["content"][0].get("type") == "tool_result"
        if not groups or not (results or role == before == "assistant"):
            groups.append([])
        groups[-1].append(message)
        before = role
    gone, most = 0.0, max(1.0, fit.measure(messages) / 3)
    while groups and (gone < most or groups[0][0]["role"] != "user"):
        gone += fit.measure(groups.pop(0))
    if not groups:
        raise error
    left = [message for group in groups for message in group]
    return in_words(replace(prefix, history=[*messages[:begins], *left], current=()))
