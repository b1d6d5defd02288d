"""Names and languages of people, looked up when they first write and remembered for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from slack_sdk.web.async_client import AsyncWebClient

from bot import text
from bot.contracts.environment import Clock, Log
from channels.slack import failures

MOST = 1_000
PATIENCE = 1.0
"""Seconds for which a message waits for the name of its author. Slack wants to hear of it within three."""


class UserNames:
    """Display names and locales by user id. What Slack does not give is remembered as None."""

    def __init__(self, log: Log, clock: Clock, most: int = MOST) -> None:
        self._log = log
        self._clock = clock
        self._most = most
        self._known: OrderedDict[str, tuple[str | None, str | None]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._late: set[str] = set()
        """Those of them that nothing waits for any more."""

    def get(self, user: str | None) -> str | None:
        return self._of(user)[0]

    def locale(self, user: str | None) -> str | None:
        """The tag of the language of a person's client, as in `en-US`."""
        return self._of(user)[1]

    def _of(self, user: str | None) -> tuple[str | None, str | None]:
        if user is None or user not in self._known:
            return None, None
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
        if (asking := self._asked.get(user)) is None:
            asking = self._asked[user] = asyncio.create_task(self._ask(user, client))
            asking.add_done_callback(lambda _: self._done(user))
        too_late = asyncio.create_task(self._clock.sleep(PATIENCE))
        try:
            await asyncio.wait([asking, too_late], return_when=asyncio.FIRST_COMPLETED)
        finally:
            too_late.cancel()
        if not asking.done():
            self._late.add(user)

    def _done(self, user: str) -> None:
        self._asked.pop(user, None)
        self._late.discard(user)

    async def zone(self, user: str, client: AsyncWebClient) -> str | None:
        """The time zone of a profile, asked anew each time: people travel. Raises what the library raises."""
        found = (await client.users_info(user=user)).get("user")
        zone = found.get("tz") if isinstance(found, dict) else None
        return zone if isinstance(zone, str) and zone else None

    async def close(self) -> None:
        asked = list(self._asked.values())
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    async def _ask(self, user: str, client: AsyncWebClient) -> None:
        try:
            answer = await client.users_info(user=user, include_locale=True)
            found = _name(answer.get("user")), _locale(answer.get("user"))
        except failures.CALL_ERRORS as error:
            self._log.write(
                "inbound", "A name is not known", level="debug", user=user, error=failures.name(error)
            )
            if failures.error_code(error) is None or failures.is_rate_limited(error):
                return
            found = None, None
        self._known[user] = found
        if len(self._known) > self._most:
            self._known.popitem(last=False)


def _locale(user: object) -> str | None:
    locale = user.get("locale") if isinstance(user, dict) else None
    return text.head(text.clean(locale), 20) if isinstance(locale, str) and locale else None


def _name(user: object) -> str | None:
    profile = user.get("profile") if isinstance(user, dict) else None
    if not isinstance(profile, dict):
        return None
    for key in ("display_name", "real_name"):
        value = profile.get(key)
        if isinstance(value, str) and value.strip():
            return text.head(" ".join(text.clean(value).split()), 100)
    return None
