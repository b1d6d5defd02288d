"""What Shipmate knows of the web channel before it starts it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import Field

from bot.contracts import Channel, ChannelSettings, Manifest, Surroundings

NAME = "web"
CHAT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class WebSettings(ChannelSettings):
    """`channels.web` of ship.json."""

    host: str = "127.0.0.1"
    """Any address that is not this machine's own demands a `token`."""
    port: int = Field(default=3000, ge=0, le=65535)
    """0 takes a free one."""
    token: str | None = Field(default=None, min_length=8)
    """What people have to give once before they may use the page."""


def encode(address: Mapping[str, str]) -> str:
    """`web:chat:<id>`; raises ValueError where the id is none."""
    if CHAT_ID.fullmatch(address["chat"]) is None:
        raise ValueError("not the id of a web chat")
    return f"{NAME}:chat:{address['chat']}"


def decode(chat_key: str) -> dict[str, str]:
    """The inverse of `encode`; raises ValueError where the key is of another channel."""
    prefix, _, chat = chat_key.rpartition(":")
    if prefix != f"{NAME}:chat" or CHAT_ID.fullmatch(chat) is None:
        raise ValueError("not the key of a web chat")
    return {"chat": chat}


def build(settings: WebSettings, around: Surroundings) -> Channel:
    """Raises `errors.ConfigError` where strangers could reach a page without a token."""
    from channels.web.adapter import WebChannel

    return WebChannel(settings, around)


MANIFEST = Manifest(
    name=NAME,
    settings=WebSettings,
    build=build,
    encode=encode,
    decode=decode,
    access="local",
    valid_id=lambda text: re.fullmatch(r"[0-9a-f]{16}", text) is not None,
    rules="The person reads in a web page that shows Markdown: headings, bold, italics, lists, tables, "
    "quotes, links and code with its language. It shows no images and no HTML.",
)
