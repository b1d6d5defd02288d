"""What Shipmate knows of the console channel before it starts it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bot.contracts import Channel, ChannelSettings, Manifest, Surroundings

NAME = "console"
CHAT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ConsoleSettings(ChannelSettings):
    """`channels.console` of ship.json."""


def encode(address: Mapping[str, str]) -> str:
    """`console:chat:<id>`; raises ValueError where the id is none."""
    if CHAT_ID.fullmatch(address["chat"]) is None:
        raise ValueError("not the id of a console chat")
    return f"{NAME}:chat:{address['chat']}"


def decode(chat_key: str) -> dict[str, str]:
    """The inverse of `encode`; raises ValueError where the key is of another channel."""
    prefix, _, chat = chat_key.rpartition(":")
    if prefix != f"{NAME}:chat" or CHAT_ID.fullmatch(chat) is None:
        raise ValueError("not the key of a console chat")
    return {"chat": chat}


def build(_settings: ConsoleSettings, around: Surroundings) -> Channel:
    from channels.console.adapter import ConsoleChannel

    return ConsoleChannel(around)


MANIFEST = Manifest(
    name=NAME,
    settings=ConsoleSettings,
    build=build,
    encode=encode,
    decode=decode,
    access="local",
    valid_id=str.isdecimal,
    rules="The person reads in a terminal that shows text as it is: keep Markdown light, no tables.",
)
