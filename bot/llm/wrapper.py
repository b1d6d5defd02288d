"""Wrappers that add something to a model: attached files, log lines, system messages, retries, health or fallback models."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bot import errors, text
from bot.contracts.base import Json, Level, Message
from bot.contracts.environment import Clock, Ids, Log, OperatorNotices
from bot.contracts.identity import ChatKey
from bot.contracts.model import ATTACHED, Model, ModelFacts, ModelReply, ModelRequest, ModelStream, Usage
from bot.llm import blocks
from bot.llm.messages_api import body_of
from bot.storage.artifacts import ArtifactStore
from bot.tags import with_system_messages
from bot.telemetry import log as telemetry
from bot.words import say, sentence

if TYPE_CHECKING:
    from bot.llm.models import ContextWindows


@dataclass(eq=False)
class ModelWrapper:
    """Base class of wrappers: passes every call to the wrapped model."""

    model: Model

    async def check(self) -> None:
        await self.model.check()

    async def facts(self, model: str) -> ModelFacts:
        return await self.model.facts(model)

    async def close(self) -> None:
        await self.model.close()


async def reply_of(stream: ModelStream) -> ModelReply:
    """Read a stream to its end, and return the reply, which comes last. Raises `errors.ModelError`."""
    reply: ModelReply | None = None
    async for event in stream:
        if isinstance(event, ModelReply):
            reply = event
    if reply is None:
        raise errors.StreamBroken("the model's stream ended without a reply")
    return reply


# ------------------------------------------------------------ attached files

GONE = "[this file is not kept any more]"
UNSEEN = "[a file was sent here that you cannot be shown: the provider refuses it]"
_WHOLE = 100_000_000  # Max characters that are read from an artifact


@dataclass(eq=False)
class AttachedFiles(ModelWrapper):
    """A model that sees the attached files of the current chat. Just before a request is sent, each block of type `attached` is
    replaced by the file's bytes, or by a sentence if the provider has refused the file before.
    """

    artifacts: ArtifactStore
    log: Log
    _blind: set[str] = field(init=False, default_factory=set)
    _refused: set[tuple[str, str]] = field(init=False, default_factory=set)
    """Files that the provider refused, as (model, artifact)."""

    def stream(self, request: ModelRequest) -> ModelStream:
        files = {
            (at, number): block["artifact"]
            for at, message in enumerate(request.messages)
            for number, block in enumerate(message["content"])
            if isinstance(block, dict) and block.get("type") == ATTACHED
        }
        return self._stream(request, files) if files else self.model.stream(request)

    async def _stream(self, request: ModelRequest, files: Mapping[tuple[int, int], str]) -> ModelStream:
        """Send a request with files. The keys of `files` are (index of the message, index of the block)."""
        model = request.model
        left_out = {one for one in files.values() if model in self._blind or (model, one) in self._refused}
        while True:
            messages = [await self._filled(one, left_out) for one in request.messages]
            try:
                async with aclosing(self.model.stream(replace(request, messages=messages))) as answer:
                    async for piece in answer:
                        if isinstance(piece, ModelReply):
                            self._refused |= {(model, one) for one in left_out}
                            blind = model in self._blind
                            piece = replace(piece, unshown=frozenset(left_out), blind=blind)  # noqa: PLW2901
                        yield piece
            except errors.RequestInvalid as error:
                # No part of the answer has arrived yet, so the request can be repeated without the files.
                left = [one for one in files.values() if one not in left_out]
                if not (error.about_files and left):
                    raise
                words = "the provider refuses files and is asked without them"
                self.log.write("model", words, level="warn", model=model, cause=str(error))
                if error.blind:
                    self._blind.add(model)
                    left_out.update(left)
                else:
                    named = files.get(error.place) if error.place is not None else None
                    left_out.add(named if named in left else left[-1])
            else:
                return

    async def _filled(self, message: Message, left_out: set[str]) -> Message:
        """Return the message with the bytes of its files. A sentence replaces each file in `left_out`."""
        content, chat_key = list(message["content"]), telemetry.current().chat_key
        for at, block in enumerate(content):
            if not isinstance(block, dict) or block.get("type") != ATTACHED:
                continue
            mark = {"cache_control": block["cache_control"]} if "cache_control" in block else {}
            sentence = UNSEEN if block["artifact"] in left_out else GONE
            content[at] = {"type": "text", "text": sentence} | mark
            if sentence == GONE and chat_key is not None:
                with contextlib.suppress(errors.ToolError, errors.StorageError):
                    read = await self.artifacts.read(block["artifact"], chat_key, offset=0, limit=_WHOLE)
                    source = {"type": "base64", "media_type": block["media"], "data": read.text}
                    kind = "image" if block["media"].startswith("image/") else "document"
                    content[at] = {"type": kind, "source": source} | mark
        return {**message, "content": content if isinstance(message["content"], list) else message["content"]}


# ------------------------------------------------------------ log lines

MESSAGE_PREVIEW = 4_000  # Max characters of one message in a log line
TOTAL_PREVIEW = 12_000
"""Max total characters of the messages in one log line. The newest messages have priority."""

MIN_PREVIEW = 40
"""If fewer than this many characters of `TOTAL_PREVIEW` are left, no further message is logged."""


@dataclass(eq=False)
class LoggedModel(ModelWrapper):
    """A model whose calls are logged. Each attempt has its own log lines; `callId` connects a request with its response. The
    line of a request contains only the messages after the model's last answer; the whole request if `payload` is True.
    """

    _: KW_ONLY
    log: Log
    ids: Ids
    clock: Clock
    messages: bool
    payload: bool = False

    async def stream(self, request: ModelRequest) -> ModelStream:
        call, started = self.ids.ulid(), self.clock.monotonic()
        logged = False
        asked: dict[str, Any] = {
            "call_id": call,
            "model": request.model,
            "purpose": request.purpose,
            "max_tokens": request.max_tokens,
            "message_count": len(request.messages),
            "tool_count": len(request.tools),
        }
        if self.messages:
            answers = (at for at, one in enumerate(request.messages) if one.get("role") == "assistant")
            asked["messages"] = previews(request.messages[max(answers, default=-1) + 1 :])
        if self.messages and self.payload:
            asked["payload"] = body_of(request)
        self.log.write("llm_request", f"Asking {request.model}.", **asked)

        def ended(words: str, level: Level, **details: Any) -> None:
            nonlocal logged
            logged = True
            elapsed = (self.clock.monotonic() - started) * 1000
            known = {"purpose": request.purpose, "person": telemetry.person(), "latency_ms": round(elapsed)}
            details = {"call_id": call, "model": request.model} | known | details
            self.log.write("llm_response", words, level=level, duration=elapsed, **details)

        try:
            async with aclosing(self.model.stream(request)) as answer:
                async for item in answer:
                    if isinstance(item, ModelReply):
                        ended(f"{item.model} answered ({item.stop_reason}).", "info", **self._reply(item))
                    yield item
        except errors.ModelError as error:
            ended(
                f"The model failed: {type(error).__name__}.",
                "error",
                error=type(error).__name__,
                cause=str(error),
                status=error.status,
                stop_reason=error.stop_reason,
                usage=error.usage,
                cost_usd=error.cost_usd,
                provider_request_id=error.request_id,
                retry_after=getattr(error, "retry_after", None),
            )
            raise
        finally:
            if not logged:
                ended("The call was cancelled.", "warn", error="Stopped")

    def _reply(self, reply: ModelReply) -> dict[str, Any]:
        details: dict[str, Any] = {
            "model": reply.model,
            "stop_reason": reply.stop_reason,
            "usage": usage_object(reply.usage),
            "cost_usd": reply.cost_usd,
            "latency_ms": reply.latency_ms,
            "first_token_ms": reply.first_token_ms,
            "provider_request_id": reply.provider_request_id,
            "tool_calls": [block.get("name") for block in reply.content if block.get("type") == "tool_use"],
        }
        if reply.cut:
            details["cut"] = sorted(reply.cut)
        if self.messages:
            details["messages"] = previews([{"role": "assistant", "content": reply.content}])
            if reply.detail is not None:
                details["stop_details"] = reply.detail
        if self.messages and self.payload:
            details["payload"] = {"content": reply.content}
        return details


def usage_of(logged: Mapping[str, int]) -> Usage:
    """Return the `Usage` from which `usage_object` made the logged object."""
    return Usage(
        logged["inputTokens"], logged["outputTokens"], logged["cacheReadTokens"], logged["cacheWriteTokens"]
    )


def usage_object(usage: Usage) -> Json:
    """Return a `Usage` as an object with the log's field names."""
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadTokens": usage.cache_read_tokens,
        "cacheWriteTokens": usage.cache_write_tokens,
    }


def spent(reply: ModelReply) -> Json:
    """Return the tokens of an answer, and its cost in US dollars if it is known."""
    return {"usage": usage_object(reply.usage), "costUsd": reply.cost_usd}


def previews(messages: Sequence[Message]) -> list[Json]:
    shown: list[Json] = []
    left = TOTAL_PREVIEW
    for message in reversed(messages):
        words, limit = words_of(message.get("content")), min(MESSAGE_PREVIEW, left)
        if limit < MIN_PREVIEW:
            break
        if len(words) > limit:
            words = text.head(words, limit - 1) + "…"
        shown.append({"role": message.get("role"), "text": words})
        left -= len(words)
    return shown[::-1]


def words_of(content: Any) -> str:
    """Return a message's content as text. A label in brackets precedes tool calls and results, and replaces other blocks
    without text.
    """
    if isinstance(content, str):
        return content
    return "\n".join(map(_block_words, content)) if isinstance(content, list | tuple) else ""


def _block_words(block: Json) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "tool_use":
            return f"[tool_use {block.get('name')}] {json.dumps(block.get('input'), ensure_ascii=False)}"
        case "tool_result":
            mark = " error" if block.get("is_error") else ""
            return f"[tool_result{mark}] {words_of(block.get('content'))}"
    return f"[{block.get('type')}]"


# ------------------------------------------------------------ system messages


@dataclass(eq=False)
class SystemRoleModel(ModelWrapper):
    """A model that gets the gateway's texts as system messages if the model accepts such messages (see `bot.llm.models`)."""

    windows: ContextWindows

    async def stream(self, request: ModelRequest) -> ModelStream:
        if self.windows.takes_system(request.model):
            asked = replace(request, messages=with_system_messages(request.messages))
            try:
                async with aclosing(self.model.stream(asked)) as answer:
                    async for item in answer:
                        yield item
            except errors.SystemRefused:
                self.windows.learned.set(request.model, "systemRefused", 1)
            else:
                return
        async with aclosing(self.model.stream(request)) as answer:
            async for item in answer:
                yield item


# ------------------------------------------------------------ retries and health

_OF_ACCOUNT = (errors.ModelMisconfigured, errors.ModelRefused, errors.SpendLimit)
"""Failures of the account. Only an answer shows their end, because a refused account may still list models."""
AWAY = (*_OF_ACCOUNT, errors.ModelUnreachable, errors.Overloaded, errors.StreamBroken)
"""Failures during which no turn can be answered. Every other failure concerns a single request or ends by itself."""


@dataclass(frozen=True, slots=True)
class ModelTrouble:
    """Reason why no turn can be answered. `of_account` is True if the provider works but refuses this account."""

    cause: str
    of_account: bool


MIN_ATTEMPTS = 3
"""Min attempts of a request, even if they take longer than `RETRY_SECONDS`. If retries are off, there is one attempt."""
FIRST_BACKOFF = 0.5
MAX_BACKOFF = 8.0
RETRY_SECONDS = 30.0
"""A request is retried for this many seconds after its first failure. If the provider demands a longer wait, the request fails."""
FALLBACK_RETRY_SECONDS = 5.0
"""Replaces `RETRY_SECONDS` if a fallback model can be asked. In this case, `MIN_ATTEMPTS` does not apply."""


@dataclass(eq=False)
class RetryingModel(ModelWrapper):
    """A model that repeats a call after a transient failure. If a failed attempt has already yielded deltas, later attempts
    yield only the `ModelReply`, so no text appears twice. `last` is False if a fallback model is asked when this model fails.
    """

    _: KW_ONLY
    clock: Clock
    rng: random.Random
    log: Log
    seconds: float = RETRY_SECONDS
    last: bool = True
    asked: float | None = field(init=False, default=None)
    """Time at which the last call ended, in epoch seconds."""
    trouble: ModelTrouble | None = field(init=False, default=None)
    """Reason why the model cannot be used. None before the first call and while the model answers."""

    async def stream(self, request: ModelRequest) -> ModelStream:
        shown = False
        failed_at: float | None = None
        with contextlib.ExitStack() as waiting:
            for attempt in itertools.count(1):
                preview = not shown
                try:
                    async with aclosing(self.model.stream(request)) as answer:
                        async for item in answer:
                            waiting.close()
                            if isinstance(item, ModelReply):
                                self.trouble = None
                                self._note(None)
                                yield item
                                return
                            if preview:
                                shown = True
                                yield item
                    failure: errors.ModelError = errors.StreamBroken("The model ended without a reply.")
                except errors.ModelError as error:
                    failure = error
                now = self.clock.monotonic()
                failed_at = now if failed_at is None else failed_at
                wait = self._wait(failure, attempt, now - failed_at)
                if wait is None:
                    self._note(failure)
                    raise failure
                waiting.close()
                waiting.enter_context(telemetry.waiting_for_model.get()(now - failed_at))
                self.log.write(
                    "llm_retry",
                    f"The model failed, asking again in {wait:.1f} s.",
                    level="warn",
                    error=type(failure).__name__,
                    status=failure.status,
                    attempt=attempt,
                    wait_ms=round(wait * 1000),
                    purpose=request.purpose,
                )
                await self.clock.sleep(wait)

    async def check(self) -> None:
        try:
            await super().check()
        except errors.ModelError as error:
            self._note(error)
            raise
        self._note(None)

    async def poll(self) -> None:
        """Check whether a model in trouble works again. Raises nothing."""
        if self.trouble is not None:
            with contextlib.suppress(errors.ModelError):
                await self.check()

    def _note(self, error: errors.ModelError | None) -> None:
        self.asked = self.clock.now()
        of_account = isinstance(error, _OF_ACCOUNT)
        if of_account or self.trouble is None or not self.trouble.of_account:
            self.trouble = ModelTrouble(str(error), of_account) if isinstance(error, AWAY) else None

    def _wait(self, failure: errors.ModelError, attempt: int, passed: float) -> float | None:
        """Return the seconds to wait before the next attempt, `passed` seconds after the first failure; None to give up."""
        most = self.seconds if self.last else min(self.seconds, FALLBACK_RETRY_SECONDS)
        over = passed >= most and (attempt >= MIN_ATTEMPTS or not self.last)
        if not failure.retryable or not most or over:
            return None
        # The wait is random. Otherwise chats that failed at the same time would all retry at the same time.
        wait = min(FIRST_BACKOFF * 2.0 ** (attempt - 1), MAX_BACKOFF) * self.rng.uniform(0.75, 1.25)
        retry_after = getattr(failure, "retry_after", None)
        if retry_after is not None:
            return float(retry_after) + wait * 0.5 if retry_after <= most else None
        return wait if self.last else min(wait, most - passed)


# ------------------------------------------------------------ fallback models

AWAY_SECONDS = 300.0
"""Seconds for which the primary model is tried last after it failed or refused. A failure affects all chats; a refusal affects
only the chat in which the model refused.
"""
FALLS_BACK = (*AWAY, errors.ModelUnknown, errors.ProviderBusy)
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
                if own and not isinstance(error, FALLS_BACK):
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
    """Lets the provider answer with another of its models if the chosen model refuses (`llm.providerFallbacks`)."""

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
