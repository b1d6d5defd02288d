"""Converts failures of the provider into `errors.ModelError`s.

The HTTP status decides if it is unambiguous; otherwise the error text decides. No provider has an error code
for "the prompt does not fit", so `provider_errors.toml` lists the known sentences. Throttling, timeouts and spent
budgets are tested first: if one of these failures were mistaken for an overflow, the conversation would lose
its history.

The provider's error text may quote the request. If logging of messages is off, no error may contain such
quotes, so quotes are removed.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from bot import errors, text
from bot.contracts.model import ModelRequest

MAX_READ = 4_000
"""Max characters of the provider's error text that are examined."""
MAX_SHOWN = 300
"""Max characters of the provider's error text that an error contains."""
MAX_WAIT = 7 * 86_400.0
"""Max seconds of a `retry-after` header that are believed."""


def _re(pattern: str) -> re.Pattern[str]:
    """Compile a pattern. `<name>` in the pattern stands for a number, with or without brackets."""
    named = re.sub(r"<(\w+)>", lambda found: f"\\(?(?P<{found[1]}>\\d[\\d,]{{0,15}})\\)?", pattern)
    return re.compile(named, re.IGNORECASE | re.DOTALL)


_TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("provider_errors.toml").read_text("utf-8"))
SPENT, THROTTLED, SLOW, UNBOUND, UNKNOWN, FILES, BLIND, OUTPUT = (
    _re(_TEXTS[name])
    for name in ("spent", "throttled", "slow", "unbound", "unknown", "files", "blind", "output")
)
OVERFLOW = tuple(map(_re, _TEXTS["overflow"]))
_PLACE = re.compile(r"messages\.(\d+)\.content\.(\d+)")

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
REFUSED_REQUEST = frozenset({200, 400, 409, 422})
"""Statuses with which a Messages API endpoint refuses a request. Any other status below 500 that is not
handled elsewhere means that the address is not such an endpoint.
"""
_CERTAIN = frozenset(STATUS_OF_TYPE) - {"api_error", "invalid_request_error", "not_found_error"}


@dataclass(slots=True)
class _Failure:
    """A failed answer, parsed from an error body of Anthropic, OpenAI, Google or Bedrock, including JSON
    nested in JSON.
    """

    http_status: int | None
    """HTTP status. None if there was no answer; 200 if the stream failed after it began."""
    type: str = ""
    code: str = ""
    request_id: str | None = None
    words: str = ""

    def read(self, body: object, depth: int = 5) -> None:
        if isinstance(body, list):
            body = body[0] if body else None
        if depth < 0:
            return
        if isinstance(body, str):
            self._read_text(body.strip(), depth)
        elif isinstance(body, dict):
            self._read_object(body, depth)

    def _read_text(self, words: str, depth: int) -> None:
        at = words.find("{")
        if 0 <= at < 40 and len(words) < MAX_READ * 4:  # `413 {"error": …}`
            with contextlib.suppress(ValueError, RecursionError):
                self.read(json.loads(words[at:]), depth - 1)
                return
        if words[:1] != "<":  # the page of a proxy says nothing beyond its status
            self.words = f"{self.words} {words}".strip()[:MAX_READ]

    def _read_object(self, body: Mapping[str, Any], depth: int) -> None:
        kind = body.get("type") or body.get("__type")
        if isinstance(kind, str) and kind != "error":
            self.type = kind[:100]
        details = body.get("details")
        code = details.get("error_code") if isinstance(details, dict) else None
        code = code or body.get("code") or body.get("status")
        if isinstance(code, str):
            self.code = code[:100]
        if isinstance(body.get("request_id"), str):
            self.request_id = body["request_id"][:100]
        for key in ("error", "message", "Message", "detail", "msg"):
            if body.get(key) is not None:
                self.read(body[key], depth - 1)

    @property
    def status(self) -> int:
        """Return the most specific status, or 0 if it is unknown. A known error type overrides the HTTP
        status, which may come from a proxy.
        """
        if self.type in _CERTAIN:
            return STATUS_OF_TYPE[self.type]
        if self.http_status is not None and self.http_status >= 300:
            return self.http_status
        return STATUS_OF_TYPE.get(self.type, 0)

    def says(self, pattern: re.Pattern[str]) -> bool:
        return pattern.search(f"{self.type} {self.code} {self.words}") is not None


_Rule = tuple[Callable[[_Failure], bool], type[errors.ModelError]]
_BEFORE_OVERFLOW: tuple[_Rule, ...] = (
    (lambda it: it.code.startswith("compaction_") and it.status >= 500, errors.SummaryUnavailable),
    (lambda it: it.code.startswith("compaction_") and it.status > 0, errors.SummaryRefused),
    (lambda it: it.status == 402 or it.says(SPENT), errors.SpendLimit),
    (lambda it: it.status in {400, 403, 404} and it.says(UNKNOWN), errors.ModelUnknown),
    (lambda it: it.status in {401, 403}, errors.ModelRefused),
    (lambda it: it.status == 429 or it.says(THROTTLED), errors.RateLimited),
    (lambda it: it.status in {408, 499, 504} or it.says(SLOW), errors.ProviderFailing),
    (lambda it: it.says(UNBOUND), errors.ThinkingUnbound),
)
_AFTER_OVERFLOW: tuple[_Rule, ...] = (
    (lambda it: it.status == 0, errors.StreamBroken),
    (lambda it: it.status == 413, errors.RequestTooLarge),
    (lambda it: it.status in {503, 529}, errors.Overloaded),
    (lambda it: it.status >= 500, errors.ProviderFailing),
    (lambda it: it.status not in REFUSED_REQUEST, errors.ModelMisconfigured),
)


def classify(
    status: int | None, body: object, headers: Mapping[str, str] | None = None, *, now: float = 0.0
) -> errors.ModelError:
    """Return the error for a failed response. `body` is parsed JSON or text. The error's message is written
    for operators and has a limited length.
    """
    headers = headers or {}
    failure = _Failure(status)
    failure.read(body)
    request_id = headers.get("request-id") or headers.get("x-request-id") or failure.request_id
    where: dict[str, Any] = {"status": status, "request_id": request_id}
    line = f"The provider answered {status}" if status else "The provider failed"
    line += "".join(f" {name}" for name in (failure.type, failure.code) if name)
    line += f": {text.preview(failure.words, MAX_SHOWN)}" if failure.words else ""

    def found(rules: Iterable[_Rule]) -> errors.ModelError | None:
        kind = next((kind for applies, kind in rules if applies(failure)), None)
        if kind is not None and issubclass(kind, errors.ProviderBusy):
            return kind(line, retry_after=_retry_after(headers, now), **where)
        is_address = kind is errors.ModelMisconfigured
        return (
            None if kind is None else kind(f"{line}. Is llm.baseUrl right?" if is_address else line, **where)
        )

    is_empty = body is None or body == ""
    error = (
        found(_BEFORE_OVERFLOW)
        or _overflow(failure, line, where, is_empty=is_empty)
        or found(_AFTER_OVERFLOW)
        or _invalid(failure, line, where)
    )
    if headers.get("x-should-retry") == "false":
        error.retryable = False
    return error


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds in the header `retry-after-ms` or `retry-after` (a number or a date). Return None
    if the header is unreadable.
    """
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


def _overflow(
    failure: _Failure, line: str, where: Mapping[str, Any], *, is_empty: bool
) -> errors.ContextOverflow | None:
    said = f"{failure.type} {failure.code} {failure.words}"
    if (found := OUTPUT.search(said)) is not None:
        limit = found["limit"]
        return errors.OutputOverflow(line, limit=int(limit.replace(",", "")) if limit else None, **where)
    match = next(filter(None, (pattern.search(said) for pattern in OVERFLOW)), None)
    if match is None:
        # For an overflow Cerebras sends only the status 400.
        return errors.ContextOverflow(line, **where) if is_empty and failure.http_status == 400 else None
    numbers = {name: int(value.replace(",", "")) for name, value in match.groupdict().items() if value}
    tokens, window = numbers.get("tokens"), numbers.get("window")
    # If the prompt alone would fit, the requested `max_tokens` is too large.
    fits = "output" in numbers and tokens is not None and window is not None and tokens < window
    kind = errors.OutputOverflow if fits else errors.ContextOverflow
    return kind(line, tokens=tokens, window=window, **where)


def _invalid(failure: _Failure, line: str, where: Mapping[str, Any]) -> errors.RequestInvalid:
    about_files = failure.says(FILES)
    blind = about_files and BLIND.search(failure.words) is not None
    named = _PLACE.search(failure.words)
    place = (int(named[1]), int(named[2])) if named is not None else None
    return errors.RequestInvalid(line, about_files=about_files, blind=blind, place=place, **where)


WITHHELD = "(the provider's words repeat the conversation and are withheld)"
WINDOW = 16
"""Min characters that the error text and the request must share before the shared text counts as a quote."""
STRIDE = 4
SHORT = 4
MAX_SEARCHED = 2_000_000
"""Max characters of a conversation that are searched for quotes."""
_NOT_SAID = frozenset(
    {"type", "role", "id", "tool_use_id", "name", "signature", "data", "cache_control", "media_type"}
)
"""Keys of a request whose values were written by nobody, so they cannot be quotes."""


def withhold_quotes(line: str, request: ModelRequest, secrets: Iterable[str] = ()) -> str:
    """Return a line of error text with its secrets removed. If the line quotes the request's messages, the
    quotes are removed too.
    """
    for secret in secrets:
        if len(secret) >= 8:
            line = line.replace(secret, "…")
    head, mark, words = line.partition(": ")
    if not mark:
        return line
    pieces = {words[at : at + WINDOW] for at in range(0, max(1, len(words) - WINDOW + 1), STRIDE)}
    left = MAX_SEARCHED
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
    """Yield the texts of people, of the model and of tools, newest first. System messages are skipped
    because the gateway writes them.
    """
    for message in reversed(request.messages):
        if message.get("role") != "system":
            yield from _strings(message.get("content"))


def _strings(value: object, depth: int = 8) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth > 0 and isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            if key not in _NOT_SAID:
                yield from _strings(item, depth - 1)
