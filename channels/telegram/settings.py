"""`channels.telegram` of ship.json."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from bot.contracts.channel import ChannelSettings, Streaming, Webhook

PLATFORM = "https://api.telegram.org"
PORTS = (443, 80, 88, 8443)
"""Ports to which Telegram posts."""


class TelegramSettings(ChannelSettings):
    """Settings of the Telegram channel."""

    bot_token: str | None = Field(default=None, repr=False)
    """Bot token from @BotFather. Default: `${TELEGRAM_BOT_TOKEN}`."""
    webhook: Webhook | None = None
    """Receive updates over HTTP. Default: by polling, which needs no address that Telegram can reach."""
    base_url: str = PLATFORM
    """Address of the Bot API. Methods are under `<baseUrl>/bot<token>/`, files under `<baseUrl>/file/bot<token>/`."""
    allow: list[str] = Field(default_factory=list)
    """Ids of people, groups and channels that may talk to the bot; `*` allows everyone. `shipmate allow`
    adds ids here.
    """
    streaming: Streaming = Streaming()
    """Answers and progress that are shown while they change."""

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.webhook is not None and self.base_url == PLATFORM:
            parts = urlsplit(self.webhook.url)
            if parts.scheme != "https" or (parts.port or 443) not in PORTS:
                ports = ", ".join(map(str, PORTS))
                raise ValueError(f"webhook.url must be an https:// address with one of the ports {ports}")
        return self

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("an address that begins with https:// or http:// is expected")
        return value.rstrip("/")
