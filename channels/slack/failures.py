"""Translates failed Web API calls into the errors of starting the channel and of sending, editing and
finding a message.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError

from bot import errors

CALL_ERRORS = (SlackClientError, aiohttp.ClientError, OSError, ValueError, AttributeError)
"""Exceptions that a call of Slack's library raises. `ValueError` and `AttributeError` mean that the response
is no JSON object.
"""


class NotConnected(SlackClientError):
    """The channel is not signed in: it is starting, its start failed, or it was stopped. Nothing was sent."""


_GONE = frozenset(
    {
        "channel_not_found",
        "is_archived",
        "not_in_channel",
        "user_is_bot",
        "user_disabled",
        "user_not_found",
        "messages_tab_disabled",
        "restricted_action",
        "restricted_action_read_only_channel",
    }
)
"""Error codes that mean that a conversation accepts no message at all. A locked thread is not among them,
since other threads still accept messages.
"""
# Slack's documentation says that after `fatal_error` and `internal_error` the call may have succeeded in part.
_UNSURE = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable"})
UNSUPPORTED = frozenset(
    {
        "missing_scope",
        "not_allowed",
        "not_allowed_token_type",
        "not_authorized",
        "unknown_method",
        "access_denied",
    }
)
"""Error codes of permanent refusals: the app is no agent or lacks the scope, or the workspace lacks the method."""
CONFLICT = "streaming_state_conflict"
"""Error code for an edit of an open stream. Slack stops a stream within five minutes."""
_CONFLICT_SECONDS = 5.0
_MESSAGE = re.compile(r"/chat\.(post|update|stopStream)|/files\.")
"""Methods whose rate limit is per conversation."""
_LIMITED = frozenset({"ratelimited", "rate_limited"})
_SHORT = 1.0
"""Delay in seconds before a retry, if the response has no `Retry-After`."""


def error_code(error: BaseException) -> str | None:
    """Return the `error` field of the response."""
    data = getattr(getattr(error, "response", None), "data", None)
    found = data.get("error") if isinstance(data, dict) else None
    return found if isinstance(found, str) else None


def status(error: BaseException) -> int:
    """Return the HTTP status of the response; 0 if there is no response."""
    response = getattr(error, "response", None)
    for name in ("status_code", "status"):
        value = getattr(response, name, None)
        if isinstance(value, int):
            return value
    return error.status if isinstance(error, aiohttp.ClientResponseError) else 0


def retry_after(error: BaseException) -> float:
    """Return the seconds of the response's `Retry-After` header, at most an hour; 1 if the header is missing
    or no number.
    """
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        seconds = float(headers.get("Retry-After", _SHORT))
    except (TypeError, ValueError):
        return _SHORT
    return min(seconds, 3600.0) if seconds > 0 else _SHORT


def is_rate_limited(error: BaseException) -> bool:
    return status(error) == 429 or error_code(error) in _LIMITED


def name(error: BaseException) -> str:
    """Return a short description of an error for operators, without free text of the platform or of a person."""
    if isinstance(error, NotConnected):
        return "not connected"
    said = error_code(error)
    if said is not None:
        return said[:80]
    if status(error):
        return f"HTTP {status(error)}"
    if isinstance(error, ValueError | AttributeError):
        return "the response is not Slack's"
    return errors.connection_reason(error)


def may_pass(error: BaseException) -> bool:
    """Return True if a later call may succeed, False for a permanent refusal."""
    said = error_code(error)
    return said is None or said in _UNSURE or is_rate_limited(error) or status(error) >= 500


@contextlib.contextmanager
def raised_as(translate: Callable[[BaseException], errors.ShipmateError]) -> Iterator[None]:
    """Catch `CALL_ERRORS` and raise the error that `translate` returns."""
    try:
        yield
    except CALL_ERRORS as error:
        raise translate(error) from None


def connect_error(error: BaseException) -> errors.ChannelError:
    """Return `ChannelRefused` for a permanent refusal, else `ChannelUnreachable`."""
    if may_pass(error):
        return errors.ChannelUnreachable(name(error))
    return errors.ChannelRefused(f"Slack refuses the connection: {name(error)}")


def lacks_right(error: BaseException) -> bool:
    """Return True if the app lacks a scope."""
    return error_code(error) == "missing_scope"


def history_error(error: BaseException) -> errors.ChannelError:
    """Return the error of reading messages: `RightMissing` if the app lacks a scope, `ChannelRefused` for
    another permanent refusal, else `ChannelUnreachable`.
    """
    words = f"Slack does not show it: {name(error)}"
    if may_pass(error):
        return errors.ChannelUnreachable(words)
    return errors.RightMissing(words) if lacks_right(error) else errors.ChannelRefused(words)


def send_error(error: BaseException) -> errors.DeliveryFailed:
    """Return the error of posting a message. `DeliveryUncertain` means that the message may have been posted."""
    if is_rate_limited(error):
        url = getattr(getattr(error, "response", None), "api_url", "")
        return errors.DeliveryThrottled(
            "Slack asks to wait", retry_after=retry_after(error), everywhere=_MESSAGE.search(url) is None
        )
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, NotConnected)):
        return errors.DeliveryThrottled(f"Slack was not reached: {name(error)}", retry_after=_SHORT)
    if isinstance(error, SlackApiError) and not may_pass(error):
        kind = errors.TargetGone if error_code(error) in _GONE else errors.DeliveryFailed
        return kind(f"Slack: {name(error)}")
    return errors.DeliveryUncertain(f"Slack's answer was lost: {name(error)}")


def edit_error(error: BaseException) -> errors.DeliveryFailed:
    """Return the error of editing a message: `EditRefused` if the message cannot be changed, otherwise as
    `send_error` does.
    """
    if error_code(error) == CONFLICT:
        return errors.DeliveryThrottled(f"Slack: {name(error)}", retry_after=_CONFLICT_SECONDS)
    failure = send_error(error)
    if type(failure) is errors.DeliveryFailed:
        return errors.EditRefused(str(failure))
    return failure


def find_error(error: BaseException) -> errors.DeliveryFailed:
    """Return the error of a search for a message: `DeliveryUncertain` for a permanent refusal, else
    `DeliveryThrottled`.
    """
    if not may_pass(error):
        return errors.DeliveryUncertain(f"Slack will not tell: {name(error)}")
    return errors.DeliveryThrottled(
        f"Slack cannot be asked now: {name(error)}",
        retry_after=retry_after(error) if is_rate_limited(error) else _SHORT,
    )
