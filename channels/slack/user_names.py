"""Names of people, looked up in the background and remembered for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from slack_sdk.web.async_client import AsyncWebClient

from bot import text
from bot.contracts.environment import Log
from channels.slack import failures

MOST = 1_000


class UserNames:
    """Display names by user id. A name that Slack does not give is remembered as None."""

    def __init__(self, log: Log, most: int = MOST) -> None:
        self._log = log
        self._most = most
        self._known: OrderedDict[str, str | None] = OrderedDict()
        self._asked: dict[str, asyncio.Task[None]] = {}

    def get(self, user: str | None) -> str | None:
        if user is None or user not in self._known:
            return None
        self._known.move_to_end(user)
        return self._known[user]

    def learn(self, user: str, client: AsyncWebClient) -> None:
        """Ask for a name that is not known yet; returns at once."""
        if user in self._known or user in self._asked:
            return
        task = asyncio.create_task(self._ask(user, client))
        self._asked[user] = task
        task.add_done_callback(lambda _: self._asked.pop(user, None))

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
            answer = await client.users_info(user=user)
            found = _name(answer.get("user"))
        except failures.CALL_ERRORS as error:
            self._log.write(
                "inbound", "A name is not known", level="debug", user=user, error=failures.name(error)
            )
            if failures.error_code(error) is None or failures.is_rate_limited(error):
                return
            found = None
        self._known[user] = found
        if len(self._known) > self._most:
            self._known.popitem(last=False)


def _name(user: object) -> str | None:
    profile = user.get("profile") if isinstance(user, dict) else None
    if not isinstance(profile, dict):
        return None
    for key in ("display_name", "real_name"):
        value = profile.get(key)
        if isinstance(value, str) and value.strip():
            return text.head(" ".join(text.clean(value).split()), 100)
    return None
