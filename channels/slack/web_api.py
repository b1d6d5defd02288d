"""Slack's Web API client, extended to report missing scopes, and the conversion of its errors."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot import errors
from bot.contracts.channel import Intake
from bot.contracts.environment import Log
from bot.words import sentence
from channels.slack.app import SCOPES

CALL_ERRORS = (SlackClientError, aiohttp.ClientError, OSError, ValueError, AttributeError)
"""Exceptions of a call of Slack's library. ValueError and AttributeError mean that the response is no JSON object."""
_GONE = frozenset(
    [
        "channel_not_found",
        "is_archived",
        "not_in_channel",
        "user_is_bot",
        "user_disabled",
        "user_not_found",
        "messages_tab_disabled",
        "restricted_action",
        "restricted_action_read_only_channel",
    ]
)
"""Error codes of a conversation that accepts no message at all. A locked thread is not included, because other threads of
its conversation accept messages.
"""
# Error codes after which a call may have succeeded. Slack documents this for `fatal_error` and `internal_error`.
_UNSURE = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable"})
UNSUPPORTED = frozenset(
    [
        "missing_scope",
        "not_allowed",
        "not_allowed_token_type",
        "not_authorized",
        "unknown_method",
        "access_denied",
    ]
)
"""Error codes of lasting refusals: the app is not set up as an agent, its token lacks a scope, or Slack lacks the method."""
CONFLICT = "streaming_state_conflict"
"""Error code for an edit of a message whose stream is open. Slack itself stops a stream within five minutes."""
_CONFLICT_SECONDS = 5.0
_OF_CONVERSATION = re.compile(r"/chat\.(post|update|stopStream)|/files\.")
"""Pattern of methods with a rate limit per conversation."""
SHORT = 1.0  # Seconds before a retry if the response has no `Retry-After`
_LONGEST = 3_600.0  # Max seconds of a `Retry-After`


class WebClient(AsyncWebClient):
    """The library's client. It reports each missing scope to `intake`, and knows which features the workspace lacks."""

    def __init__(self, log: Log, intake: Intake, **options: Any) -> None:
        # The library must not retry. After a lost response, a retry would post the message a second time.
        super().__init__(logger=_LibraryLog(log), retry_handlers=[], **options)
        self._log = log
        self._intake = intake
        self.lacking: set[str] = set()

    def lacks(self, feature: str, error: BaseException) -> None:
        self.lacking.add(feature)
        self._log.write("delivery", f"Slack shows no {feature}", level="warn", error=name(error))

    async def api_call(self, api_method: str, **options: Any) -> AsyncSlackResponse:
        try:
            return await super().api_call(api_method, **options)
        except SlackApiError as error:
            if lacks_right(error):
                needed, provided = (
                    {scope.strip()[:60] for scope in str(error.response.get(name) or "").split(",")}
                    for name in ("needed", "provided")
                )
                for scope in sorted(needed - provided - {""}):
                    what = sentence(f"rights.{scope if scope in SCOPES else 'unknown'}")
                    words = sentence("operators.lacks_scope", what=what, scope=scope)
                    self._intake.report_missing_right("slack", scope, words)
            raise


class _LibraryLog(logging.Logger):
    """Logs only function and exception type, because the library's texts contain messages and URLs."""

    def __init__(self, log: Log) -> None:
        super().__init__("shipmate.slack", logging.ERROR)
        self._operator_log = log

    def handle(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        error, words = None if kind is None else kind.__name__, "Slack's library reports trouble"
        self._operator_log.write("channel", words, level="warn", where=record.funcName, error=error)


async def pages(first: AsyncSlackResponse, most: int) -> AsyncGenerator[AsyncSlackResponse]:
    """Yield at most `most` pages. The library replaces `first` by each next page, so that `first` is the last page at the end."""
    count = 0
    async for page in first:
        yield page
        count += 1
        if count == most:
            return


def has_more(page: AsyncSlackResponse) -> bool:
    return bool((page.get("response_metadata") or {}).get("next_cursor"))


# -- failures ------------------------------------------------------------------------------------------------------


class NotConnected(SlackClientError):
    """Error of a channel that is not connected: it is starting, has failed to start, or was stopped. Nothing was sent."""


def error_code(error: BaseException) -> str | None:
    data = getattr(getattr(error, "response", None), "data", None)
    found = data.get("error") if isinstance(data, dict) else None
    return found if isinstance(found, str) else None


def _status(error: BaseException) -> int:
    # The response is the library's, or aiohttp's if the body is no JSON.
    response = getattr(error, "response", error)
    found = getattr(response, "status_code", None) or getattr(response, "status", None)
    return found if isinstance(found, int) else 0


def retry_after(error: BaseException) -> float:
    """Return the seconds in the response's `Retry-After` header, at most an hour; 1 if the header is missing or invalid."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        seconds = float(headers.get("Retry-After", SHORT))
    except (TypeError, ValueError):
        return SHORT
    return min(seconds, _LONGEST) if seconds > 0 else SHORT


def is_rate_limited(error: BaseException) -> bool:
    return _status(error) == 429 or error_code(error) in {"ratelimited", "rate_limited"}


def lacks_right(error: BaseException) -> bool:
    return error_code(error) == "missing_scope"


def may_pass(error: BaseException) -> bool:
    """Return True if a later call may succeed; False after a permanent refusal."""
    code = error_code(error)
    return code is None or code in _UNSURE or is_rate_limited(error) or _status(error) >= 500


def name(error: BaseException) -> str:
    """Return a short description of an error for operators. Leaves out text from the platform or from people."""
    if (code := error_code(error)) is not None:
        return code[:80]
    if status := _status(error):
        return f"HTTP {status}"
    if isinstance(error, NotConnected):
        return "not connected"
    garbled = isinstance(error, ValueError | AttributeError)
    return "the response is not Slack's" if garbled else errors.connection_reason(error)


@contextlib.contextmanager
def raised_as(translate: Callable[[BaseException], errors.ShipmateError]) -> Iterator[None]:
    try:
        yield
    except CALL_ERRORS as error:
        raise translate(error) from None


def call_error(error: BaseException) -> errors.ChannelError:
    """Return the gateway's error for a failed connection or lookup."""
    if may_pass(error):
        return errors.ChannelUnreachable(name(error))
    kind = errors.RightMissing if lacks_right(error) else errors.ChannelRefused
    return kind(f"Slack refuses it: {name(error)}")


def send_error(error: BaseException) -> errors.DeliveryFailed:
    """Return the gateway's error for a failure to post a message. `DeliveryUncertain` means that Slack may have posted it."""
    if is_rate_limited(error):
        url = getattr(getattr(error, "response", None), "api_url", "")
        everywhere, wait = _OF_CONVERSATION.search(url) is None, retry_after(error)
        return errors.DeliveryThrottled("Slack asks to wait", retry_after=wait, everywhere=everywhere)
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, NotConnected)):
        return errors.DeliveryThrottled(f"Slack was not reached: {name(error)}", retry_after=SHORT)
    if isinstance(error, SlackApiError) and not may_pass(error):
        kind = errors.TargetGone if error_code(error) in _GONE else errors.DeliveryFailed
        return kind(f"Slack: {name(error)}")
    return errors.DeliveryUncertain(f"Slack's answer was lost: {name(error)}")


def edit_error(error: BaseException) -> errors.DeliveryFailed:
    """Return the gateway's error for a failed edit. `EditRefused` means that no later edit of the message can succeed."""
    if error_code(error) == CONFLICT:
        return errors.DeliveryThrottled(f"Slack: {name(error)}", retry_after=_CONFLICT_SECONDS)
    failure = send_error(error)
    return errors.EditRefused(str(failure)) if type(failure) is errors.DeliveryFailed else failure


def find_error(error: BaseException) -> errors.DeliveryFailed:
    """Return the gateway's error for a failed search: `DeliveryUncertain` after a permanent refusal, else `DeliveryThrottled`."""
    if not may_pass(error):
        return errors.DeliveryUncertain(f"Slack will not tell: {name(error)}")
    wait = retry_after(error) if is_rate_limited(error) else SHORT
    return errors.DeliveryThrottled(f"Slack cannot be asked now: {name(error)}", retry_after=wait)
