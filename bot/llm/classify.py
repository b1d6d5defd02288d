"""Converts failures of the provider into `errors.ModelError`s, by the HTTP status and the patterns in `provider_errors.toml`.
The rules for throttling, timeouts and spent budgets come before the rule for an overflow of the context window. If such a
failure were mistaken for an overflow, the conversation would lose its history.
"""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from bot import errors, text

MAX_READ = 4_000  # Max characters that are examined of the provider's error text
MAX_SHOWN = 300  # Max characters of the provider's text in the message of an error
MAX_WAIT = 7 * 86_400.0
"""Max seconds that a `retry-after` header may demand. A longer wait is shortened to this value."""


def _re(pattern: str) -> re.Pattern[str]:
    """Compile a pattern. `<name>` in the pattern stands for a number, with or without brackets."""
    named = re.sub(r"<(\w+)>", lambda found: f"\\(?(?P<{found[1]}>\\d[\\d,]{{0,15}})\\)?", pattern)
    return re.compile(named, re.IGNORECASE | re.DOTALL)


_TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("provider_errors.toml").read_text("utf-8"))
_OVERFLOW = [_re(one) for one in _TEXTS.pop("overflow")]
_PLACE = re.compile(r"messages\.(\d+)\.content\.(\d+)")

_STATUS: dict[str, int] = _TEXTS.pop("status")
_SAYS = {name: _re(pattern) for name, pattern in _TEXTS.items()}
_UNCERTAIN = frozenset({"api_error", "invalid_request_error", "not_found_error"})
REFUSED_REQUEST = frozenset({200, 400, 409, 422})
"""HTTP statuses with which a Messages API endpoint refuses a request. Any other status below 500 that no rule matches shows
that an address or setting is wrong.
"""


@dataclass(slots=True)
class _Failure:
    """A failed answer, parsed from an error body of Anthropic, OpenAI, Google or Bedrock. The body may be JSON inside JSON."""

    http_status: int | None
    """HTTP status. None if there was no answer; 200 if the stream failed after it began."""
    type: str = ""
    code: str = ""
    request_id: str | None = None
    words: str = ""

    def read(self, body: object, depth: int = 7) -> None:
        if isinstance(body, list):
            body = body[0] if body else None
        if depth and isinstance(body, dict):
            kind, details = body.get("type") or body.get("__type"), body.get("details")
            if isinstance(kind, str) and kind != "error":
                self.type = kind[:100]
            code = details.get("error_code") if isinstance(details, dict) else None
            if isinstance(code := code or body.get("code") or body.get("status"), str):
                self.code = code[:100]
            if isinstance(found := body.get("request_id"), str):
                self.request_id = found[:100]
            for key in ("error", "message", "Message", "detail", "msg"):
                self.read(body.get(key), depth - 1)
        elif depth and isinstance(body, str) and not body.lstrip().startswith("<"):  # not a proxy's HTML page
            at = body.find("{")
            if 0 <= at < 40:  # a short text precedes the JSON, as in `413 {"error": …}`
                with contextlib.suppress(ValueError, RecursionError):
                    self.read(json.loads(body[at:]), depth - 1)
                    return
            self.words = f"{self.words} {body.strip()}".strip()[:MAX_READ]

    @property
    def status(self) -> int:
        """Return the HTTP status, or 0 if it is unknown. The status of a known error type takes precedence, since proxies change statuses."""
        by_type = _STATUS.get(self.type, 0)
        if self.type not in _UNCERTAIN and by_type:
            return by_type
        return self.http_status if self.http_status is not None and self.http_status >= 300 else by_type

    @property
    def said(self) -> str:
        return f"{self.type} {self.code} {self.words}"

    def says(self, name: str) -> bool:
        return _SAYS[name].search(self.said) is not None


_Rule = tuple[Callable[[_Failure], bool], type[errors.ModelError]]
_BEFORE_OVERFLOW: tuple[_Rule, ...] = (
    (lambda it: it.status == 402 or it.says("spent"), errors.SpendLimit),
    (lambda it: it.status in {400, 403, 404} and it.says("unknown"), errors.ModelUnknown),
    (lambda it: it.status in {401, 403}, errors.ModelRefused),
    (lambda it: it.status == 429 or it.says("throttled"), errors.RateLimited),
    (lambda it: it.status in {408, 499, 504} or it.says("slow"), errors.ProviderFailing),
    (lambda it: it.says("unbound"), errors.ThinkingUnbound),
)
_AFTER_OVERFLOW: tuple[_Rule, ...] = (
    (lambda it: it.status == 0, errors.StreamBroken),
    (lambda it: it.status == 413, errors.RequestTooLarge),
    (lambda it: it.status in {503, 529}, errors.Overloaded),
    (lambda it: it.status >= 500, errors.ProviderFailing),
    (lambda it: it.status not in REFUSED_REQUEST, errors.ModelMisconfigured),
    (lambda it: it.says("no_system"), errors.SystemRefused),
)


def classify(
    status: int | None,
    body: object,
    headers: Mapping[str, str] | None = None,
    *,
    now: float = 0.0,
    secret: str = "",
    quotes: bool = True,
) -> errors.ModelError:
    """Return the error for a failed response. `body` is parsed JSON or text. The error's message is for operators; it never
    contains `secret`, and contains the provider's text only if `quotes` is True.
    """
    headers = headers or {}
    failure = _Failure(status)
    failure.read(body)
    request_id = headers.get("request-id") or headers.get("x-request-id") or failure.request_id
    line = f"The provider answered {status}" if status else "The provider failed"
    line += "".join(f" {name}" for name in (failure.type, failure.code) if name)
    if failure.words:
        words = text.preview(failure.words, MAX_SHOWN) if quotes else "(withheld: llm.logMessages is off)"
        line += f": {words.replace(secret, '…') if secret else words}"
    kind, facts = _classified(failure, is_empty=body is None or body == "")
    if issubclass(kind, errors.ProviderBusy):
        facts["retry_after"] = _retry_after(headers, now)
    if kind is errors.ModelMisconfigured:
        line += ". Is llm.baseUrl right?"
    error = kind(line, status=status, request_id=request_id, **facts)
    if headers.get("x-should-retry") == "false":
        error.retryable = False
    return error


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds in the header `retry-after` (a number or a date); None if the header is missing or unreadable."""
    raw = headers.get("retry-after", "")
    try:
        seconds = float(raw) if raw[:1].isdigit() else parsedate_to_datetime(raw).timestamp() - now
    except ValueError:
        return None
    return min(max(0.0, seconds), MAX_WAIT)


def _classified(it: _Failure, *, is_empty: bool) -> tuple[type[errors.ModelError], dict[str, Any]]:
    """Return the class of the error, and the keyword arguments that only this class takes."""
    if (kind := next((kind for applies, kind in _BEFORE_OVERFLOW if applies(it)), None)) is not None:
        return kind, {}
    if (output := _SAYS["output"].search(it.said)) is not None:
        return errors.OutputOverflow, {"limit": _number(output["limit"])}
    if (match := next(filter(None, (pattern.search(it.said) for pattern in _OVERFLOW)), None)) is not None:
        numbers = {name: _number(value) for name, value in match.groupdict().items()}
        tokens, window = numbers.get("tokens"), numbers.get("window")
        # If the prompt alone would fit into the window, the requested `max_tokens` is too large.
        fits = numbers.get("output") and tokens is not None and window is not None and tokens < window
        return errors.OutputOverflow if fits else errors.ContextOverflow, {"tokens": tokens, "window": window}
    if is_empty and it.http_status == 400:
        return (
            errors.ContextOverflow,
            {},
        )  # after an overflow, the provider Cerebras sends the status 400 without a text
    if (kind := next((kind for applies, kind in _AFTER_OVERFLOW if applies(it)), None)) is not None:
        return kind, {}
    about_files, named = it.says("files"), _PLACE.search(it.words)
    return errors.RequestInvalid, {
        "about_files": about_files,
        "blind": about_files and _SAYS["blind"].search(it.words) is not None,
        "place": (int(named[1]), int(named[2])) if named is not None else None,
    }


def _number(digits: str | None) -> int | None:
    return int(digits.replace(",", "")) if digits else None
