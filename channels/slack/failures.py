"""Translates failed calls of Slack's Web API into errors of a start, a send, an edit and a find."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError

from bot import errors

CALL_ERRORS = (SlackClientError, aiohttp.ClientError, OSError, ValueError, AttributeError)
"""Exceptions of a call of the SDK: its own, aiohttp's, time-outs, and those for an answer that is no JSON object
(`ValueError`, `AttributeError`).
"""


class NotConnected(SlackClientError):
    """The channel was not started, or is stopped."""


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
"""Error codes of a closed conversation. A locked thread and a channel that takes threads only are not among them: their
other threads are open.
"""
# Slack says of the first two that a part may have been done all the same.
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
"""Answers that will be the same next time: the app is no agent, has not the right, or Slack not the method."""
CONFLICT = "streaming_state_conflict"
"""Slack's refusal to edit what is a stream still; that ends by itself within five minutes."""
_CONFLICT_SECONDS = 5.0
_MESSAGE = re.compile(r"/chat\.(post|update|stopStream)|/files\.")
"""In the address of a call that brings a message, or changes it for good."""
_LIMITED = frozenset({"ratelimited", "rate_limited"})
_SHORT = 1.0
"""Seconds to wait where Slack does not say how long."""


def error_code(error: BaseException) -> str | None:
    """Slack's own word for what is wrong, where it answered in its own form."""
    data = getattr(getattr(error, "response", None), "data", None)
    found = data.get("error") if isinstance(data, dict) else None
    return found if isinstance(found, str) else None


def status(error: BaseException) -> int:
    """The HTTP status of the answer; 0 where there was none."""
    response = getattr(error, "response", None)
    for name in ("status_code", "status"):
        value = getattr(response, name, None)
        if isinstance(value, int):
            return value
    return error.status if isinstance(error, aiohttp.ClientResponseError) else 0


def retry_after(error: BaseException) -> float:
    """Seconds that Slack asks to wait; a second where it does not say so in numbers."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        seconds = float(headers.get("Retry-After", _SHORT))
    except (TypeError, ValueError):
        return _SHORT
    return min(seconds, 3600.0) if seconds > 0 else _SHORT


def is_rate_limited(error: BaseException) -> bool:
    return status(error) == 429 or error_code(error) in _LIMITED


def name(error: BaseException) -> str:
    """A few words for the operator, with nothing in them that the platform or a person wrote at length."""
    if isinstance(error, NotConnected):
        return "not connected"
    said = error_code(error)
    if said is not None:
        return said[:80]
    if status(error):
        return f"HTTP {status(error)}"
    if isinstance(error, ValueError | AttributeError):
        return "something else than Slack answers"
    return errors.connection_reason(error)


def may_pass(error: BaseException) -> bool:
    """False where Slack refuses for good."""
    said = error_code(error)
    return said is None or said in _UNSURE or is_rate_limited(error) or status(error) >= 500


@contextlib.contextmanager
def raised_as(translate: Callable[[BaseException], errors.ShipmateError]) -> Iterator[None]:
    """Raise a failed call of the SDK as an error of ours."""
    try:
        yield
    except CALL_ERRORS as error:
        raise translate(error) from None


def connect_error(error: BaseException) -> errors.ChannelError:
    """`ChannelUnreachable` for what may pass, `ChannelRefused` for good."""
    if may_pass(error):
        return errors.ChannelUnreachable(name(error))
    return errors.ChannelRefused(f"Slack refuses the connection: {name(error)}")


def lacks_right(error: BaseException) -> bool:
    """True where Slack refuses a call because the app lacks a scope."""
    return error_code(error) == "missing_scope"


def history_error(error: BaseException) -> errors.ChannelError:
    """The failure of a look at what was said before: `ChannelUnreachable` for what may pass, `ChannelRefused` for good,
    `RightMissing` where the app lacks a right.
    """
    words = f"Slack does not show it: {name(error)}"
    if may_pass(error):
        return errors.ChannelUnreachable(words)
    return errors.RightMissing(words) if lacks_right(error) else errors.ChannelRefused(words)


def send_error(error: BaseException) -> errors.DeliveryFailed:
    """The failure of a post, which says how sure it is that nothing was posted."""
    if isinstance(error, NotConnected):
        return errors.DeliveryFailed(f"Slack: {name(error)}")
    if is_rate_limited(error):
        # Slack counts posts by conversation. What it counts by workspace each conversation finds out by itself, but for signs of work.
        url = getattr(getattr(error, "response", None), "api_url", "")
        return errors.DeliveryThrottled(
            "Slack asks to wait", retry_after=retry_after(error), everywhere=_MESSAGE.search(url) is None
        )
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        return errors.DeliveryThrottled(f"Slack was not reached: {name(error)}", retry_after=_SHORT)
    if isinstance(error, SlackApiError) and not may_pass(error):
        kind = errors.TargetGone if error_code(error) in _GONE else errors.DeliveryFailed
        return kind(f"Slack: {name(error)}")
    return errors.DeliveryUncertain(f"Slack's answer was lost: {name(error)}")


def edit_error(error: BaseException) -> errors.DeliveryFailed:
    """The failure of an edit, which says how sure it is that nothing was changed."""
    if error_code(error) == CONFLICT:
        return errors.DeliveryThrottled(f"Slack: {name(error)}", retry_after=_CONFLICT_SECONDS)
    failure = send_error(error)
    if type(failure) is errors.DeliveryFailed:
        return errors.EditRefused(str(failure))
    return failure


def find_error(error: BaseException) -> errors.DeliveryFailed:
    """The failure of a search for a message: `DeliveryUncertain` where Slack refuses for good, `DeliveryThrottled`
    where it can be asked again.
    """
    if not may_pass(error):
        return errors.DeliveryUncertain(f"Slack will not tell: {name(error)}")
    return errors.DeliveryThrottled(
        f"Slack cannot be asked now: {name(error)}",
        retry_after=retry_after(error) if is_rate_limited(error) else _SHORT,
    )
