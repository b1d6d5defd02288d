"""`channels.slack` of ship.json."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from bot.contracts.channel import ChannelSettings, Streaming

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class SlackSettings(ChannelSettings):
    """`channels.slack` of ship.json."""

    bot_token: str | None = None
    app_token: str | None = None
    base_url: str = "https://slack.com/api/"
    allow: list[str] = Field(default_factory=list)
    streaming: Streaming = Streaming()

    @field_validator("base_url")
    @classmethod
    def _safe_address(cls, value: str) -> str:
        # The token goes there with every call.
        parts = urlsplit(value)
        here = parts.scheme == "http" and parts.hostname in LOOPBACK
        if not parts.hostname or not (here or parts.scheme == "https"):
            raise ValueError("must be an https:// address, or http:// on this machine")
        return value
