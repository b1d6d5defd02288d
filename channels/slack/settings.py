"""`channels.slack` of ship.json."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from bot.contracts.channel import LOOPBACK, ChannelSettings, Streaming, Webhook


class SlackSettings(ChannelSettings):
    """Settings of the Slack channel."""

    bot_token: str | None = None
    """Bot token (`xoxb-…`). Default: `${SLACK_BOT_TOKEN}`."""
    app_token: str | None = None
    """App token (`xapp-…`) with `connections:write`, for Socket Mode. Default: `${SLACK_APP_TOKEN}`."""
    webhook: Webhook | None = None
    """Receive events over HTTP. Default: through Socket Mode, which needs no address that Slack can reach."""
    signing_secret: str | None = None
    """Signing secret of the app, with which Slack signs the events that it posts to the webhook. Default:
    `${SLACK_SIGNING_SECRET}`.
    """
    base_url: str = "https://slack.com/api/"
    """Address of the Web API."""
    allow: list[str] = Field(default_factory=list)
    """Ids of people, groups and channels that may talk to the bot; `*` allows everyone. `shipmate allow`
    adds ids here.
    """
    direct: Literal["threads", "one"] = "threads"
    """How direct messages form conversations. `threads`: each message outside threads starts a conversation,
    which is the message and its thread. `one`: all direct messages of a person are one conversation.
    """
    streaming: Streaming = Streaming()
    """Answers and progress that are shown while they change."""

    @field_validator("base_url")
    @classmethod
    def _safe_address(cls, value: str) -> str:
        # Every call sends the token to this address.
        parts = urlsplit(value)
        here = parts.scheme == "http" and parts.hostname in LOOPBACK
        if not parts.hostname or not (here or parts.scheme == "https"):
            raise ValueError("must be an https:// address, or http:// on this machine")
        return value
