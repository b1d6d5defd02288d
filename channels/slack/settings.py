"""`channels.slack` of ship.json."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from bot.contracts.channel import LOOPBACK, ChannelSettings, Streaming, Webhook


class SlackSettings(ChannelSettings):
    """Slack."""

    bot_token: str | None = None
    """`xoxb-…`. Absent: `${SLACK_BOT_TOKEN}`."""
    app_token: str | None = None
    """`xapp-…`, with `connections:write`, for Socket Mode. Absent: `${SLACK_APP_TOKEN}`."""
    webhook: Webhook | None = None
    """Take events in over HTTP; absent: through Socket Mode, which needs no address that Slack can reach."""
    signing_secret: str | None = None
    """The app's signing secret, with which Slack signs what it posts to the webhook. Absent: `${SLACK_SIGNING_SECRET}`."""
    base_url: str = "https://slack.com/api/"
    """Address of the Web API."""
    allow: list[str] = Field(default_factory=list)
    """Ids of people, groups and channels that may talk to it; `*` is everyone. `shipmate allow` adds to these."""
    direct: Literal["threads", "one"] = "threads"
    """Conversations in direct messages: `threads` makes each message outside of threads one of its own, together with its
    thread; `one` makes all of them one."""
    streaming: Streaming = Streaming()
    """Answers and progress that are shown while they change."""

    @field_validator("base_url")
    @classmethod
    def _safe_address(cls, value: str) -> str:
        # The token goes there with every call.
        parts = urlsplit(value)
        here = parts.scheme == "http" and parts.hostname in LOOPBACK
        if not parts.hostname or not (here or parts.scheme == "https"):
            raise ValueError("must be an https:// address, or http:// on this machine")
        return value
