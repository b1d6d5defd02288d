"""`channels.telegram` of ship.json."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from bot.contracts.channel import ChannelSettings, Streaming


class TelegramSettings(ChannelSettings):
    """`channels.telegram` of ship.json."""

    bot_token: str | None = Field(default=None, repr=False)
    base_url: str = "https://api.telegram.org"
    """Root of the Bot API: methods under `<baseUrl>/bot<token>/`, files under `<baseUrl>/file/bot<token>/`."""
    allow: list[str] = Field(default_factory=list)
    streaming: Streaming = Streaming()

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("an address that begins with https:// or http:// is expected")
        return value.rstrip("/")
