"""Looks up people in Slack: names, languages and time zones, which are cached for an hour, and the conversations of a person."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from slack_sdk.web.async_client import AsyncWebClient

from bot import text
from bot.contracts.channel import MembershipAnswer
from bot.contracts.environment import Clock, Log, cancel_all, ends_within
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound
from channels.slack import web_api
from channels.slack.manifest import is_direct

MAX_KNOWN = 1_000
PATIENCE = 1.0
"""Timeout in seconds of a lookup for which a message waits. Slack expects a response within 3 s."""
MAX_AGE = 3_600.0  # Max age in seconds of a cached profile, because people travel to other time zones
PAGE = 200
PAGES = 25  # Max pages of a person's list of conversations that are requested
_KINDS = "public_channel,private_channel,mpim"


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of a person, or name of a channel. `asked_at` is the time of the last lookup in monotonic seconds."""

    name: str | None = None
    locale: str | None = None
    zone: str | None = None
    asked_at: float = float("-inf")


class People:
    """Looks up people and channels. It caches their profiles by id."""

    def __init__(self, client: AsyncWebClient, log: Log, clock: Clock) -> None:
        self._client = client
        self._log = log
        self._clock = clock
        self._known: OrderedDict[str, Profile] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[None]] = {}

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
        now = self._clock.monotonic()
        due = [user for user in dict.fromkeys(users) if now - self._profile(user).asked_at > MAX_AGE][:most]
        for user in set(due) - self._lookups.keys():
            lookup = self._lookups[user] = asyncio.create_task(self._ask(user))
            lookup.add_done_callback(partial(self._lookups.pop, user))
        if not due:
            return
        lookups = asyncio.gather(*(self._lookups[user] for user in due))
        if not await ends_within(PATIENCE, lookups, self._clock):
            for user in due:
                # The lookup continues. Store its time, so that the next message does not wait for it too.
                self._known.setdefault(user, Profile(asked_at=now))

    async def _ask(self, user: str) -> None:
        now = self._clock.monotonic()
        try:
            if user[0] in "CG":
                found = (await self._client.conversations_info(channel=user)).get("channel")
            else:
                found = (await self._client.users_info(user=user, include_locale=True)).get("user")
        except web_api.CALL_ERRORS as error:
            reason = web_api.name(error)
            self._log.write("inbound", "A name is not known", level="debug", user=user, error=reason)
            if web_api.may_pass(error) and self._profile(user).name is None:
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
        """Return a person's current time zone, not from the cache. Raises one of `web_api.CALL_ERRORS`."""
        return _field((await self._client.users_info(user=user)).get("user"), "tz")

    async def chats_of(self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool) -> MembershipAnswer:
        """Return the chatKeys from `chat_keys` whose conversations the person is a member of now. `unanswered` in the result
        has the chatKeys that may be on pages that were not read. Raises one of `web_api.CALL_ERRORS`.
        """
        types = f"{_KINDS},im" if direct else _KINDS
        answer = await self._client.users_conversations(user=user_id, types=types, limit=PAGE)
        found: set[str] = set()
        async for page in web_api.pages(answer, PAGES):
            found.update(
                one["id"]
                for one in page.get("channels") or ()
                # Slack also lists the bot's direct chats with other people, which are left out.
                if not is_direct(one["id"]) or (direct and one.get("user") == user_id)
            )
        ours = [key for key in chat_keys if key.channel == "slack"]
        others = [key for key in ours if key.chat_id not in found and (direct or not is_direct(key.chat_id))]
        unanswered = others if web_api.has_more(answer) else []
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
