"""The app's home: the tab that a person opens to see what the bot does for them."""

from __future__ import annotations

import asyncio

from slack_sdk.web.async_client import AsyncWebClient

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.channel import HomeSection, Intake
from bot.contracts.environment import Log, cancel_all
from bot.contracts.inbound import Inbound
from channels.slack import events, failures
from channels.slack.blocks import escape
from channels.slack.inbound import BotIdentity, ChannelId, Payload, UserId, parse
from channels.slack.user_names import UserNames

TITLE, SECTION = 150, 3_000
"""Characters of a header and of a section."""


class _Opened(Payload):
    user: UserId
    channel: ChannelId
    tab: str


def read(body: Json, me: BotIdentity, now: float) -> Inbound | None:
    """The person who has opened the home, and their direct chat; None for anything else. Raises `inbound.Unreadable`."""
    event = body.get("event")
    if not isinstance(event, dict) or event.get("type") != events.HOME or event.get("tab") != "home":
        return None
    opened = parse(_Opened, event)
    target = {"channel": opened.channel}
    return me.inbound(opened.channel, None, opened.user, keys=(), ts=int(now * 1000), target=target)


class HomeTab:
    """Publishes the home of whoever opens it, one view of a person at a time: opened meanwhile, it is made once more."""

    def __init__(self, names: UserNames, log: Log) -> None:
        self._names = names
        self._log = log
        self._publishing: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def open(self, opened: Inbound, intake: Intake, client: AsyncWebClient) -> None:
        """Begin to publish; Slack need not wait for that."""
        user = opened.user_id
        if user in self._publishing:
            self._again.add(user)
            return
        task = self._publishing[user] = asyncio.create_task(self._publish(opened, intake, client))
        task.add_done_callback(lambda _: self._publishing.pop(user, None))

    async def close(self) -> None:
        await cancel_all(self._publishing.values())

    async def _publish(self, opened: Inbound, intake: Intake, client: AsyncWebClient) -> None:
        user = opened.user_id
        try:
            await self._names.learn(user, client)
            self._names.renew(user, client)
            again = True
            while again:
                self._again.discard(user)
                profile = self._names.profile(user)
                known = {"user_name": profile.name, "language": profile.locale, "zone": profile.zone}
                sections = await intake.home(opened.model_copy(update=known))
                await client.views_publish(user_id=user, view=view(sections))
                again = user in self._again
        except (*failures.CALL_ERRORS, errors.ShipmateError) as error:
            self._log.write(
                "channel",
                f"Slack did not take the home of a person ({type(error).__name__})",
                level="warn",
                channel="slack",
            )


def view(sections: tuple[HomeSection, ...]) -> Json:
    """The sections as a view of Slack."""
    blocks: list[Json] = []
    for section in sections:
        title = text.head(section.title, TITLE)
        lines = text.head("\n".join(f"• {escape(line)}" for line in section.lines), SECTION)
        blocks += [
            {"type": "header", "text": {"type": "plain_text", "text": title}},
            {"type": "section", "text": {"type": "mrkdwn", "text": lines, "verbatim": True}},
        ]
    return {"type": "home", "blocks": blocks}
