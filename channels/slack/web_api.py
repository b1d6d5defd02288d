"""Calls Slack's Web API: a client that reports missing scopes, the conversion of errors, and lookups of people."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot import errors, text
from bot.contracts.channel import Intake, MembershipAnswer
from bot.contracts.environment import Clock, Log, cancel_all, ends_within
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound
from bot.words import sentence
from channels.slack.app import NO_AGENT, SCOPES
from channels.slack.manifest import is_direct

CALL_ERRORS = (SlackClientError, aiohttp.ClientError, OSError, ValueError, AttributeError)
"""Exceptions of a call of Slack's library. ValueError and AttributeError mean that the response is no JSON object."""
_GONE = re.compile(
    "channel_not_found|is_archived|not_in_channel|user_(is_bot|disabled|not_found)|messages_tab_disabled|"
    "restricted_action(_read_only_channel)?"
)
"""Error codes of a conversation that accepts no messages at all. Codes of a locked thread are not included, because other
threads of the conversation accept messages.
"""
# Error codes after which a call may have succeeded. Slack documents this for `fatal_error` and `internal_error`.
_UNSURE = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable"})
UNSUPPORTED = NO_AGENT | {"missing_scope", "not_allowed_token_type"}
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

    session: aiohttp.ClientSession

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
    """Yield at most `most` pages of a listing, beginning with `first`. The library loads each next page into the object `first`."""
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
    """Error if the channel is not connected: it is starting, has failed to start, or was stopped. Nothing was sent."""


def error_code(error: BaseException) -> str | None:
    data = getattr(getattr(error, "response", None), "data", None)
    found = data.get("error") if isinstance(data, dict) else None
    return found if isinstance(found, str) else None


def _status(error: BaseException) -> int:
    # The response is an object of the library, or of aiohttp if the body is no JSON.
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
    if may_pass(error):
        return errors.ChannelUnreachable(name(error))
    kind = errors.RightMissing if lacks_right(error) else errors.ChannelRefused
    return kind(f"Slack refuses it: {name(error)}")


def send_error(error: BaseException) -> errors.DeliveryFailed:
    """Return the gateway's error for a failure to post a message. `DeliveryUncertain` means that Slack may have posted the message."""
    if is_rate_limited(error):
        url = getattr(getattr(error, "response", None), "api_url", "")
        everywhere, wait = _OF_CONVERSATION.search(url) is None, retry_after(error)
        return errors.DeliveryThrottled("Slack asks to wait", retry_after=wait, everywhere=everywhere)
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, NotConnected)):
        return errors.DeliveryThrottled(f"Slack was not reached: {name(error)}", retry_after=SHORT)
    if isinstance(error, SlackApiError) and not may_pass(error):
        kind = errors.TargetGone if _GONE.fullmatch(error_code(error) or "") else errors.DeliveryFailed
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


# -- people ---------------------------------------------------------------------------------------------------------

MAX_KNOWN = 1_000
PATIENCE = 1.0
"""Timeout in seconds of a lookup for which a message waits. Slack expects a response within 3 s."""
MAX_AGE = 3_600.0  # Max age in seconds of a cached profile, because people travel to other time zones
PAGE = 200
PAGES = 25  # Max pages that are requested of a person's list of conversations
_KINDS = "public_channel,private_channel,mpim"


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of a person, or name of a channel. `asked_at` is the time of the last lookup in monotonic seconds."""

    name: str | None = None
    locale: str | None = None
    zone: str | None = None
    asked_at: float = float("-inf")


@dataclass(eq=False)
class People:
    """Looks up people and channels. It caches their profiles by id."""

    client: AsyncWebClient
    log: Log
    clock: Clock
    _known: OrderedDict[str, Profile] = field(default_factory=OrderedDict)
    _lookups: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def name(self, user: str | None) -> str | None:
        """Return the cached name of a person or channel; None if the name is unknown."""
        return self._profile(user).name

    def _profile(self, user: str | None) -> Profile:
        if user is None or user not in self._known:
            return Profile()
        self._known.move_to_end(user)
        return self._known[user]

    def named(self, inbound: Inbound) -> Inbound:
        """Return the inbound with the cached profile of its sender and the name of its channel."""
        profile, chat_name = self._profile(inbound.user_id), self.name(inbound.chat_id)
        known = {"user_name": profile.name, "language": profile.locale, "zone": profile.zone}
        return inbound.model_copy(update=known | {"chat_name": chat_name and f"#{chat_name}"})

    async def learn(self, users: Iterable[str], most: int | None = None) -> None:
        """Look up at most `most` unknown or expired profiles. A lookup longer than `PATIENCE` continues in the background."""
        now = self.clock.monotonic()
        due = [user for user in dict.fromkeys(users) if now - self._profile(user).asked_at > MAX_AGE][:most]
        for user in set(due) - self._lookups.keys():
            lookup = self._lookups[user] = asyncio.create_task(self._ask(user))
            lookup.add_done_callback(partial(self._lookups.pop, user))
        if not due:
            return
        lookups = asyncio.gather(*(self._lookups[user] for user in due))
        if not await ends_within(PATIENCE, lookups, self.clock):
            for user in due:
                # The lookup continues in the background. Store the time, so that the next message does not wait.
                self._known.setdefault(user, Profile(asked_at=now))

    async def _ask(self, user: str) -> None:
        now = self.clock.monotonic()
        try:
            if user[0] in "CG":
                found = (await self.client.conversations_info(channel=user)).get("channel")
            else:
                found = (await self.client.users_info(user=user, include_locale=True)).get("user")
        except CALL_ERRORS as error:
            reason = name(error)
            self.log.write("inbound", "A name is not known", level="debug", user=user, error=reason)
            if may_pass(error) and self._profile(user).name is None:
                self._known.pop(user, None)
                return
            self._known[user] = replace(self._profile(user), asked_at=now)
        else:
            self._known[user] = Profile(_name(found), _field(found, "locale"), _field(found, "tz"), now)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    async def close(self) -> None:
        await cancel_all(self._lookups.values())

    async def zone_of(self, user: str) -> str | None:
        """Look up a person's current time zone, without the cache. Raises one of `CALL_ERRORS`."""
        return _field((await self.client.users_info(user=user)).get("user"), "tz")

    async def chats_of(self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool) -> MembershipAnswer:
        """Return the chatKeys from `chat_keys` whose conversations the person is a member of now. `unanswered` in the result
        has the chatKeys that may be on pages that were not read. Raises one of `CALL_ERRORS`.
        """
        types = f"{_KINDS},im" if direct else _KINDS
        answer = await self.client.users_conversations(user=user_id, types=types, limit=PAGE)
        found: set[str] = set()
        async for page in pages(answer, PAGES):
            found.update(
                one["id"]
                for one in page.get("channels") or ()
                # Slack also lists the bot's direct chats with other people, which are left out.
                if not is_direct(one["id"]) or (direct and one.get("user") == user_id)
            )
        ours = [key for key in chat_keys if key.channel == "slack"]
        others = [key for key in ours if key.chat_id not in found and (direct or not is_direct(key.chat_id))]
        unanswered = others if has_more(answer) else []
        return MembershipAnswer([key for key in ours if key.chat_id in found], unanswered)


def _field(user: object, name: str) -> str | None:
    value = user.get(name) if isinstance(user, dict) else None
    return text.head(text.clean(value), 60) if isinstance(value, str) and value else None


def _name(user: object) -> str | None:
    facts = user if isinstance(user, dict) else {}
    profile = facts.get("profile", facts)
    values = (profile.get(key) for key in ("display_name", "real_name", "name") if isinstance(profile, dict))
    called = next((value for value in values if isinstance(value, str) and value.strip()), "")
    return text.head(" ".join(text.clean(called).split()), 100) or None
