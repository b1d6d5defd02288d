"""What Shipmate has to know of Telegram before the library is imported."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from bot.contracts import Channel, ChannelSettings, Manifest, Pace, Surroundings
from channels.telegram import address


class TelegramSettings(ChannelSettings):
    """`channels.telegram` of ship.json."""

    bot_token: str | None = Field(default=None, repr=False)
    base_url: str = "https://api.telegram.org"
    """Root of the Bot API: methods under `<baseUrl>/bot<token>/`, files under `<baseUrl>/file/bot<token>/`."""
    allow: list[str] = Field(default_factory=list)

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("an address that begins with https:// or http:// is expected")
        return value.rstrip("/")


def _build(settings: TelegramSettings, around: Surroundings) -> Channel:
    from channels.telegram.adapter import TelegramChannel

    return TelegramChannel(settings, around)


MANIFEST = Manifest(
    name="telegram",
    settings=TelegramSettings,
    build=_build,
    encode=address.encode,
    decode=address.decode,
    tokens=("bot_token",),
    valid_id=address.valid_id,
    # GroupAnonymousBot and Channel_Bot: whoever hides behind them cannot be told apart.
    never_admit=frozenset({"1087968824", "136817688"}),
    pace={"direct": Pace(burst=3, every=1.0), "group": Pace(burst=3, every=3.0)},
    rules=(
        "Telegram shows Markdown: **bold**, *italics*, ~~strikethrough~~, `code`, fenced code with its "
        "language, [links](https://…), lists, > quotes. Headings become bold lines, tables monospaced text; "
        "images are not shown. A message holds about 4,000 characters, longer ones are split: keep it short."
    ),
)
