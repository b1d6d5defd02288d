"""Names of channels, and names, languages and time zones of people, looked up when they first write and again after an hour."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace

from slack_sdk.web.async_client import AsyncWebClient

from bot import text
from bot.contracts.environment import Clock, Log, cancel_all, ends_within
from channels.slack import failures

MOST = 1_000
PATIENCE = 1.0
"""Seconds for which a message waits for the name of its author. Slack wants to hear of it within three."""
FRESH = 3_600.0
"""Seconds after which a person who writes is looked up again, beside their message: people travel."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A person as Slack tells of them, and when it was asked (monotonic seconds)."""

    name: str | None = None
    locale: str | None = None
    zone: str | None = None
    asked_at: float = 0.0


_NOBODY = Profile()


class UserNames:
    """Profiles by user id. What Slack does not give is remembered as None."""

    def __init__(self, log: Log, clock: Clock, most: int = MOST) -> None:
        self._log = log
        self._clock = clock
        self._most = most
        self._known: OrderedDict[str, Profile] = OrderedDict()
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._late: set[str] = set()
        """Those of them that nothing waits for any more."""

    def get(self, user: str | None) -> str | None:
        return self.profile(user).name

    def profile(self, user: str | None) -> Profile:
        """All that is known of a person."""
        if user is None or user not in self._known:
            return _NOBODY
        self._known.move_to_end(user)
        return self._known[user]

    def has_asked(self, user: str) -> bool:
        """True where nothing is to be waited for: the name is known, or there is none, or it takes long."""
        return user in self._known or user in self._late

    async def learn(self, user: str, client: AsyncWebClient) -> None:
        """Ask for a name that is not known yet, and wait for it `PATIENCE` seconds; after that it is asked for in the
        background.
        """
        if self.has_asked(user):
            return
        asking = self._asking(user, client)
        if not await ends_within(PATIENCE, asking, self._clock):
            self._late.add(user)

    def renew(self, user: str, client: AsyncWebClient) -> None:
        """Look up a person again who was looked up long ago. Nothing waits for it."""
        known = self._known.get(user)
        if known is not None and self._clock.monotonic() - known.asked_at > FRESH:
            self._asking(user, client)

    def _asking(self, user: str, client: AsyncWebClient) -> asyncio.Task[None]:
        if (asking := self._asked.get(user)) is None:
            asking = self._asked[user] = asyncio.create_task(self._ask(user, client))
            asking.add_done_callback(lambda _: self._done(user))
        return asking

    def _done(self, user: str) -> None:
        self._asked.pop(user, None)
        self._late.discard(user)

    async def zone(self, user: str, client: AsyncWebClient) -> str | None:
        """The time zone of a profile, asked anew each time. Raises what the library raises."""
        return _field((await client.users_info(user=user)).get("user"), "tz")

    async def close(self) -> None:
        await cancel_all(self._asked.values())

    async def _ask(self, user: str, client: AsyncWebClient) -> None:
        now = self._clock.monotonic()
        try:
            if user[0] in "CG":
                answer = await client.conversations_info(channel=user)
            else:
                answer = await client.users_info(user=user, include_locale=True)
        except failures.CALL_ERRORS as error:
            self._log.write(
                "inbound", "A name is not known", level="debug", user=user, error=failures.name(error)
            )
            unsure = failures.error_code(error) is None or failures.is_rate_limited(error)
            if unsure and user not in self._known:
                return
            self._known[user] = replace(self.profile(user), asked_at=now)
        else:
            told = answer.get("user") or answer.get("channel")
            self._known[user] = Profile(_name(told), _field(told, "locale"), _field(told, "tz"), now)
        if len(self._known) > self._most:
            self._known.popitem(last=False)


def _field(user: object, name: str) -> str | None:
    """A short text of a profile: the tag of the language of a person's client, or the name of their time zone."""
    value = user.get(name) if isinstance(user, dict) else None
    return text.head(text.clean(value), 60) if isinstance(value, str) and value else None


def _name(user: object) -> str | None:
    profile = user.get("profile", user) if isinstance(user, dict) else None
    if not isinstance(profile, dict):
        return None
    for key in ("display_name", "real_name", "name"):
        value = profile.get(key)
        if isinstance(value, str) and value.strip():
            return text.head(" ".join(text.clean(value).split()), 100)
    return None
