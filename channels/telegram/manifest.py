"""Manifest, settings and chatKeys of the Telegram channel. Does not import Telegram's library."""

from __future__ import annotations

import re
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from bot.contracts.channel import (
    ChannelSettings,
    Claim,
    EditPace,
    Manifest,
    Pace,
    Streaming,
    TokenForm,
    Webhook,
)
from bot.words import sentence
from channels import ChatKeys, lazy

PLATFORM = "https://api.telegram.org"
PORTS = (443, 80, 88, 8443)  # Ports to which Telegram can post
_ID = re.compile(r"-?[1-9][0-9]{0,18}")


class TelegramSettings(ChannelSettings):
    """Settings of the Telegram channel."""

    bot_token: str | None = Field(default=None, repr=False)
    """Bot token from @BotFather. Default: `${TELEGRAM_BOT_TOKEN}`."""
    webhook: Webhook | None = None
    """Receive updates over HTTP. Default: by polling, which needs no address that Telegram can reach."""
    base_url: str = PLATFORM
    """Address of the Bot API. Methods are under `<baseUrl>/bot<token>/`, files under `<baseUrl>/file/bot<token>/`."""
    allow: list[str] = Field(default_factory=list)
    """Ids of people, groups and channels that may talk to the bot; `*` allows everyone. `shipmate allow` adds ids here."""
    streaming: Streaming = Streaming()
    """Settings for unfinished answers and progress that are shown while the bot works."""

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


KEYS = ChatKeys("telegram", "chat_id", "message_thread_id", "topic", _ID)
encode, decode = KEYS.encode, KEYS.decode


def valid_id(value: str) -> bool:
    return _ID.fullmatch(value) is not None


MANIFEST = Manifest(
    name="telegram",
    settings=TelegramSettings,
    build=lazy("channels.telegram.adapter:TelegramChannel"),
    encode=encode,
    decode=decode,
    buttons=True,
    tokens=("bot_token",),
    token_forms={"bot_token": TokenForm(r"\d+:[\w-]+", "123456789:ABC…")},
    valid_id=valid_id,
    where_id=sentence("operators.id_telegram"),
    # Ids of GroupAnonymousBot and Channel_Bot. Messages of many different people have these ids.
    never_admit=frozenset({"1087968824", "136817688"}),
    pace={"direct": Pace(burst=3, every=1.0), "group": Pace(burst=3, every=3.0)},
    total=Pace(burst=30, every=1 / 30),
    # In Telegram's rate limits, an edit counts as a message.
    edits=EditPace({"direct": 1.5, "group": 3.0}),
    examples=True,
    files=True,
    # Only Telegram Passport and httpx's command line use these packages. Not importing them saves 12 MB.
    unused=frozenset({"cryptography", "pygments", "rich"}),
    silence=45.0,  # Telegram answers a poll within 10 s, and the poll times out 5 s later
    direct=lambda user: {"chat_id": user},
    examine=lazy("channels.telegram.examination:examine"),
    claim=Claim(
        invite=lazy("channels.telegram.examination:invite"), look=lazy("channels.telegram.examination:look")
    ),
    connect=lambda _name, _posts_to: (
        "For Telegram, write /newbot to @BotFather and take the token that it gives you."
    ),
    rules=(
        "Telegram shows Markdown: **bold**, *italics*, ~~strikethrough~~, ||spoilers||, `code`, fenced code with its "
        "language, [links](https://…), lists, tasks (- [x]), > quotes. Headings become bold lines, tables monospaced text; "
        "images are not shown. A message holds about 4,000 characters, longer ones are split: keep it short."
    ),
)
