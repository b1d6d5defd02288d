"""The app's Home tab: published for each person who opens it."""

from __future__ import annotations

import asyncio

from slack_sdk.web.async_client import AsyncWebClient

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.channel import HomeSection, Intake
from bot.contracts.environment import Log, cancel_all
from bot.contracts.inbound import Inbound
from channels.slack import failures
from channels.slack.blocks import escape
from channels.slack.inbound import HOME_OPENED, BotIdentity, ChannelId, Payload, UserId, parse
from channels.slack.user_names import UserNames

MAX_TITLE, MAX_SECTION = 150, 3_000
"""Slack's limits of a header and a section, in characters."""


class _Opened(Payload):
    user: UserId
    channel: ChannelId
    tab: str


def read(body: Json, me: BotIdentity, now: float) -> Inbound | None:
    """The person who opened the Home tab, and their direct chat; None for any other event. Raises `inbound.Unreadable`."""
    event = body.get("event")
    if not isinstance(event, dict) or event.get("type") != HOME_OPENED or event.get("tab") != "home":
        return None
    opened = parse(_Opened, event)
    target = {"channel": opened.channel}
    return me.inbound(opened.channel, None, opened.user, keys=(), ts=int(now * 1000), target=target)


class HomeTab:
    """Publishes views in the background."""

    def __init__(self, names: UserNames, log: Log) -> None:
        self._names = names
        self._log = log
        self._publishing: set[asyncio.Task[None]] = set()

    def open(self, opened: Inbound, intake: Intake, client: AsyncWebClient) -> None:
        task = asyncio.create_task(self._publish(opened, intake, client))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def close(self) -> None:
        await cancel_all(self._publishing)

    async def _publish(self, opened: Inbound, intake: Intake, client: AsyncWebClient) -> None:
        user = opened.user_id
        try:
            await self._names.learn([user], client)
            self._names.renew(user, client)
            sections = await intake.home(self._names.named(opened))
            await client.views_publish(user_id=user, view=view(sections))
        except (*failures.CALL_ERRORS, errors.ShipmateError) as error:
            self._log.write(
                "channel",
                f"Slack did not take the home of a person ({type(error).__name__})",
                level="warn",
                channel="slack",
            )


def view(sections: tuple[HomeSection, ...]) -> Json:
    blocks: list[Json] = []
    for section in sections:
        title = text.head(section.title, MAX_TITLE)
        lines = text.head("\n".join(f"• {escape(line)}" for line in section.lines), MAX_SECTION)
        blocks += [
            {"type": "header", "text": {"type": "plain_text", "text": title}},
            {"type": "section", "text": {"type": "mrkdwn", "text": lines, "verbatim": True}},
        ]
    return {"type": "home", "blocks": blocks}
