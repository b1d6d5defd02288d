"""Classifies failures of the provider as `errors.ModelError`s.

Status first where it is certain, then the words: no provider has a code for "the prompt does not fit", so its
sentences are known here, one by one. A throttle, a time-out and a spent budget are told apart before that, since
taking one of them for an overflow costs a conversation its history.

A provider's sentence about a request may quote it, and operators can switch the logging of messages off: then no error may carry them
either, so quotes are withheld.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from bot import errors, text
from bot.contracts.model import ModelRequest

READ = 4_000  # characters of a provider's words that are looked at
SHOWN = 300  # … and that an operator sees
MAX_WAIT = 7 * 86_400.0  # a longer `retry-after` says no more than this one


def _re(pattern: str) -> re.Pattern[str]:
    """A pattern in which `<name>` stands for a number, in brackets or not."""
    named = re.sub(r"<(\w+)>", lambda found: f"\\(?(?P<{found[1]}>\\d[\\d,]{{0,15}})\\)?", pattern)
    return re.compile(named, re.IGNORECASE | re.DOTALL)


SPENT = _re(
    r"spend[_ ]limit|insufficient_quota|exceeded your current quota|credit balance is too low|api usage limits"
)
THROTTLED = _re(r"rate[ _-]?limit|too many requests|throttl|too many tokens, please wait")
SLOW = _re(r"timed[ -]?out|took too long|deadline[ _]exceeded|timeout(?!\w*[:`])")
UNBOUND = _re(
    r"bound to a different conversation|invalid `?signature`? in `?thinking`?"
    r"|thinking`? blocks in the latest assistant message cannot be modified"
)
SUMMARY = "compaction_"
UNKNOWN = _re(
    # Anthropic; OpenAI and its dialects; Ollama; OpenRouter; DeepSeek; Bedrock; Vertex
    r"(?<!\S)model: \S+\s*$|model_not_found|model [`'\"]?[^\s`'\"]{1,200}[`'\"]? (?:does not exist|not found)"
    r"|is not a valid model|model not exist|model identifier is invalid|publisher model .{1,300} was not found"
    r"|(?:not have access to|access denied to|no access to) (?:the )?model"
)
FILES = _re(r"image|picture|pdf|document|media|vision|multimodal|content.type")
"""Words of a refusal that is one of files."""
BLIND = _re(
    r"(?:not|n't) (?:support|accept|take) (?:the |any )?(?:image|picture|pdf|document|media|vision|multimodal)(?! (?:format|type))"
    r"|(?:image|picture|pdf|document|vision|multimodal)s?(?: inputs?| content| blocks?)? (?:is|are) not (?:supported|enabled)"
    r"|not a (?:vision|multimodal)|at most 0 image|does not match any of the expected tags|unknown variant"
)
"""Words of one that holds of every file."""
_PLACE = re.compile(r"messages\.(\d+)\.content\.(\d+)")
OUTPUT = _re(
    r"max_tokens: \d+ > <limit>|maximum allowed number of output tokens"
    r"|maximum tokens you requested exceeds|input and output tokens exceed your context limit"
    r"|max_(?:completion|output)_tokens`? (?:is|are) too (?:large|high)"
)

OVERFLOW = tuple(
    map(
        _re,
        (
            # Anthropic, Bedrock, Vertex
            r"prompt is too long(?:: <tokens> tokens > <window> maximum)?",
            r"input length and `?max_tokens`? exceed context limit: <tokens> \+ <output> > <window>",
            r"input length exceeds context window",
            r"input is too (?:long|large)",
            r"too many total text bytes",
            r"model_context_window_exceeded|context_?window_?exceeded",
            # OpenAI's sentence and its dialects: vLLM, Mantle, DeepSeek, OpenRouter
            (
                r"maximum context length is <window> tokens.*?requested <output> output tokens"
                r".*?prompt contains at least <tokens> input tokens"
            ),
            (
                r"maximum context length is <window> tokens.*?requested \d+ tokens"
                r" \(<tokens> in the messages, <output> in the completion"
            ),
            (
                r"maximum context length is <window> tokens.*?requested about \d+ tokens"
                r" \(<tokens> of text input,.*?<output> in the output"
            ),
            r"maximum context length is <window> tokens.*?(?:requested about|resulted in) <tokens> tokens",
            r"maximum context length is <window>",
            r"context_length_exceeded|exceeds the context window of this model",
            # Gemini, Poolside, Groq, xAI, Together, Mistral, Copilot, MiniMax, Kimi
            r"input token count <tokens> exceeds the maximum number of tokens allowed <window>",
            r"input length <tokens> exceeds the maximum allowed input length of <window>",
            r"reduce the length of the messages",
            r"maximum prompt length is <window> but the request contains <tokens> tokens",
            r"input <tokens> tokens\) is longer than the model'?s context length <window> tokens",
            r"prompt contains <tokens> tokens.*?too large for model with <window> maximum context length",
            r"prompt token count of <tokens> exceeds the limit of <window>",
            r"context window exceeds limit",
            r"exceeded model token limit: <window> \(requested: <tokens>",
            # LM Studio, llama.cpp, Ollama
            r"tokens to keep from the initial prompt is greater than the context length",
            r"exceeds the (?:available )?context size",
            r"prompt too long; exceeded (?:max )?context length",
        ),
    )
)

STATUS_OF_TYPE = {
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
    "api_error": 500,
    "invalid_request_error": 400,
}
OVERLOADED = frozenset({503, 529})
OF_A_REQUEST = frozenset({200, 400, 409, 422})
"""Statuses under which an endpoint for messages refuses one; any other below 500 that is not known says that there is none."""
_CERTAIN = frozenset(STATUS_OF_TYPE) - {"api_error", "invalid_request_error", "not_found_error"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed answer of the provider: `status` is None where no answer came, 200 where the stream failed."""

    status: int | None
    type: str | None = None
    code: str | None = None
    words: str = ""
    empty: bool = False
    retry_after: float | None = None
    should_retry: bool | None = None
    request_id: str | None = None


def read(
    status: int | None, body: object, headers: Mapping[str, str] | None = None, *, now: float = 0.0
) -> Failure:
    """A failure from a response: the body as parsed JSON, or its text. Headers' names in lower case or any."""
    headers = headers or {}
    found = _ErrorBody()
    found.take(body)
    should = headers.get("x-should-retry")
    return Failure(
        status=status,
        type=found.type,
        code=found.code,
        words=" ".join(found.words)[:READ],
        empty=body is None or body == "",
        retry_after=wait_of(headers, now),
        should_retry={"true": True, "false": False}.get(should or ""),
        request_id=headers.get("request-id") or headers.get("x-request-id") or found.request_id,
    )


def wait_of(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait, of `retry-after-ms` or `retry-after` (seconds or a date); None where it is not readable."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        raw = headers.get(name)
        if raw is None:
            continue
        try:
            seconds = float(raw) * unit
        except ValueError:
            try:
                seconds = parsedate_to_datetime(raw).timestamp() - now
            except (ValueError, OverflowError):
                continue
        if math.isfinite(seconds):
            return min(max(0.0, seconds), MAX_WAIT)
    return None


class _ErrorBody:
    """The words of an error body in whatever form: Anthropic's, OpenAI's, Google's, Bedrock's, JSON in JSON."""

    def __init__(self) -> None:
        self.type: str | None = None
        self.code: str | None = None
        self.request_id: str | None = None
        self.words: list[str] = []

    def take(self, body: object, depth: int = 5) -> None:
        if depth < 0:
            return
        if isinstance(body, list):
            self.take(body[0] if body else None, depth - 1)
        elif isinstance(body, dict):
            self._take_object(body, depth)
        elif isinstance(body, str):
            self._take_words(body, depth)

    def _take_object(self, body: Mapping[str, Any], depth: int) -> None:
        kind = body.get("type") or body.get("__type")
        if isinstance(kind, str) and kind != "error":
            self.type = kind[:100]
        details = body.get("details")
        code = details.get("error_code") if isinstance(details, Mapping) else None
        code = code or body.get("code") or body.get("status")
        if isinstance(code, str):
            self.code = code[:100]
        if isinstance(body.get("request_id"), str):
            self.request_id = body["request_id"][:100]
        for key in ("error", "message", "Message", "detail", "msg"):
            if body.get(key) is not None:
                self.take(body[key], depth - 1)

    def _take_words(self, words: str, depth: int) -> None:
        stripped = words.strip()
        at = stripped.find("{")
        if 0 <= at < 40 and len(stripped) < READ * 4:  # `413 {"error": …}`
            try:
                self.take(json.loads(stripped[at:]), depth - 1)
            except (ValueError, RecursionError):
                pass
            else:
                return
        if stripped[:1] != "<":  # a page of a proxy says nothing that its status does not
            self.words.append(stripped[:READ])


def classify(failure: Failure) -> errors.ModelError:
    """The error that this failure is. Its text is for the operator and bounded."""
    error = _of_summary(failure) or _of_words(failure) or _of_status(failure, effective_status(failure))
    if failure.should_retry is False:
        error.retryable = False
    return error


def effective_status(failure: Failure) -> int | None:
    """The status that tells most: a certain type counts more than the status of the proxy that carried it."""
    if failure.type in _CERTAIN:
        return STATUS_OF_TYPE[failure.type]
    if failure.status is not None and failure.status >= 300:
        return failure.status
    return STATUS_OF_TYPE.get(failure.type or "")


def _of_summary(failure: Failure) -> errors.ModelError | None:
    """Errors of a summary made by the provider; they have codes of their own."""
    status = effective_status(failure)
    if status is None or not (failure.code or "").startswith(SUMMARY):
        return None
    if status >= 500:
        return errors.SummaryUnavailable(
            describe(failure), retry_after=failure.retry_after, **_where(failure)
        )
    return errors.SummaryRefused(describe(failure), **_where(failure))


def _of_words(failure: Failure) -> errors.ModelError | None:
    """Errors that only the words tell apart. Exclusions come first."""
    status = effective_status(failure)
    said = f"{failure.type or ''} {failure.code or ''} {failure.words}"
    line = describe(failure)
    if status == 402 or SPENT.search(said):
        return errors.SpendLimit(line, **_where(failure))
    if status in {400, 403, 404} and UNKNOWN.search(said):
        return errors.ModelUnknown(line, **_where(failure))
    if status in {401, 403}:
        return None
    for statuses, pattern, kind in _PASSING:
        if status in statuses or pattern.search(said):
            return kind(line, retry_after=failure.retry_after, **_where(failure))
    if UNBOUND.search(said):
        return errors.ThinkingUnbound(line, **_where(failure))
    return _overflow(said, failure, line)


_PASSING: tuple[tuple[frozenset[int], re.Pattern[str], type[errors.RateLimited | errors.Overloaded]], ...] = (
    (frozenset({429}), THROTTLED, errors.RateLimited),
    (frozenset({408, 499, 504}), SLOW, errors.ProviderFailing),
)


def _overflow(said: str, failure: Failure, line: str) -> errors.ContextOverflow | None:
    if (found := OUTPUT.search(said)) is not None:
        limit = found["limit"]
        return errors.OutputOverflow(
            line, limit=int(limit.replace(",", "")) if limit else None, **_where(failure)
        )
    for pattern in OVERFLOW:
        match = pattern.search(said)
        if match is None:
            continue
        numbers = {name: int(value.replace(",", "")) for name, value in match.groupdict().items() if value}
        tokens, window = numbers.get("tokens"), numbers.get("window")
        # Where the prompt alone would fit, it is the room asked for the answer that is too large.
        fits = "output" in numbers and tokens is not None and window is not None and tokens < window
        kind = errors.OutputOverflow if fits else errors.ContextOverflow
        return kind(line, tokens=tokens, window=window, **_where(failure))
    if failure.status == 400 and failure.empty:  # Cerebras says no more than this
        return errors.ContextOverflow(line, **_where(failure))
    return None


def _of_status(failure: Failure, status: int | None) -> errors.ModelError:
    line = describe(failure)
    if status is None:
        return errors.StreamBroken(line, **_where(failure))
    if status in {401, 403}:
        return errors.ModelRefused(line, **_where(failure))
    if status == 413:
        return errors.RequestTooLarge(line, **_where(failure))
    if status >= 500:
        kind = errors.Overloaded if status in OVERLOADED else errors.ProviderFailing
        return kind(line, retry_after=failure.retry_after, **_where(failure))
    if status not in OF_A_REQUEST:
        return errors.ModelMisconfigured(f"{line}. Is llm.baseUrl right?", **_where(failure))
    about_files = FILES.search(f"{failure.type} {failure.code} {failure.words}") is not None
    blind = about_files and BLIND.search(failure.words) is not None
    named = _PLACE.search(failure.words)
    place = (int(named[1]), int(named[2])) if named is not None else None
    return errors.RequestInvalid(line, about_files=about_files, blind=blind, place=place, **_where(failure))


def describe(failure: Failure) -> str:
    """One bounded line for the operator."""
    names = " ".join(part for part in (failure.type, failure.code) if part)
    head = f"The provider answered {failure.status}" if failure.status else "The provider failed"
    words = text.preview(failure.words, SHOWN)
    return head + (f" {names}" if names else "") + (f": {words}" if words else "")


def _where(failure: Failure) -> dict[str, Any]:
    return {"status": failure.status, "request_id": failure.request_id}


WITHHELD = "(the provider's words repeat the conversation and are withheld)"
WINDOW = 16
"""A run of this many characters that stands in both is no accident."""
STRIDE = 4
SHORT = 4
LOOKED_AT = 2_000_000  # characters of a conversation


def withhold_quotes(line: str, request: ModelRequest, secrets: Iterable[str] = ()) -> str:
    """The line, without secrets and without words that repeat the request's messages."""
    for secret in secrets:
        if len(secret) >= 8:
            line = line.replace(secret, "…")
    head, mark, words = line.partition(": ")
    if not mark:
        return line
    pieces = {words[at : at + WINDOW] for at in range(0, max(1, len(words) - WINDOW + 1), STRIDE)}
    left = LOOKED_AT
    for said in _texts(request):
        if left <= 0:
            break
        seen = said[:left]
        left -= len(seen)
        short = seen.strip()
        if (SHORT <= len(short) < WINDOW + STRIDE and short in words) or any(
            piece in seen for piece in pieces
        ):
            return f"{head}: {WITHHELD}"
    return line


def _texts(request: ModelRequest) -> Iterator[str]:
    """Texts of people, the model and tools, newest first; what the gateway says as the system is nobody's."""
    for message in reversed(request.messages):
        if message.get("role") != "system":
            yield from _strings(message.get("content"))


def _strings(value: object, depth: int = 8) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth > 0 and isinstance(value, dict):
        for key, item in value.items():
            if key not in _NOT_SAID:
                yield from _strings(item, depth - 1)
    elif depth > 0 and isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item, depth - 1)


_NOT_SAID = frozenset(
    {"type", "role", "id", "tool_use_id", "name", "signature", "data", "cache_control", "media_type"}
)
