"""Publishes the app's Home tab for each person who opens it."""

from __future__ import annotations

from slack_sdk.web.async_client import AsyncWebClient

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.channel import HomeSection, Intake
from bot.contracts.environment import Log
from bot.contracts.inbound import Inbound
from channels.slack import failures
from channels.slack.blocks import escape
from channels.slack.inbound import HOME_OPENED, BotIdentity, ChannelId, Payload, UserId, parse
from channels.slack.user_names import UserNames

MAX_TITLE, MAX_SECTION = 150, 3_000
"""Max characters of a header and of a section, as Slack allows."""


class _Opened(Payload):
    user: UserId
    channel: ChannelId
    tab: str


def read(body: Json, me: BotIdentity, now: float) -> Inbound | None:
    """Return an inbound with the person who opened the Home tab and the person's direct chat; None for any
    other event. Raises `inbound.Unreadable`.
    """
    event = body.get("event")
    if not isinstance(event, dict) or event.get("type") != HOME_OPENED or event.get("tab") != "home":
        return None
    opened = parse(_Opened, event)
    target = {"channel": opened.channel}
    return me.inbound(opened.channel, None, opened.user, keys=(), ts=int(now * 1000), target=target)


async def publish(
    opened: Inbound, names: UserNames, intake: Intake, client: AsyncWebClient, log: Log
) -> None:
    """Publish the Home tab for the person who opened it. A failure is only logged."""
    try:
        await names.learn([opened.user_id])
        names.renew(opened.user_id)
        sections = await intake.home(names.named(opened))
        await client.views_publish(user_id=opened.user_id, view=view(sections))
    except (*failures.CALL_ERRORS, errors.ShipmateError) as error:
        log.write(
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
