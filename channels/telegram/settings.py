"""`channels.telegram` of ship.json."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from bot.contracts.channel import ChannelSettings, Streaming


class TelegramSettings(ChannelSettings):
    """Telegram."""

    bot_token: str | None = Field(default=None, repr=False)
    """The token of @BotFather. Absent: `${TELEGRAM_BOT_TOKEN}`."""
    base_url: str = "https://api.telegram.org"
    """Address of the Bot API: methods under `<baseUrl>/bot<token>/`, files under `<baseUrl>/file/bot<token>/`."""
    allow: list[str] = Field(default_factory=list)
    """Ids of people, groups and channels that may talk to it; `*` is everyone. `shipmate allow` adds to these."""
    streaming: Streaming = Streaming()
    """Answers and progress that are shown while they change."""
    rich_messages: bool = False
    """Send answers with tables or headings as Telegram's rich messages. Apps from before June 2026 show a note in their place."""

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("an address that begins with https:// or http:// is expected")
        return value.rstrip("/")
