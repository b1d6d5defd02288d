"""Manifest, settings and chatKeys of the console channel."""

from __future__ import annotations

import os

from bot.contracts.channel import ChannelSettings, Manifest
from channels import lazy
from channels.local import LocalKeys

NAME = "console"
KEYS = LocalKeys(NAME)


class ConsoleSettings(ChannelSettings):
    """Settings of the terminal: `shipmate chat`."""


MANIFEST = Manifest(
    name=NAME,
    settings=ConsoleSettings,
    build=lambda _, around: lazy("channels.console.adapter:ConsoleChannel")(around),
    encode=KEYS.encode,
    decode=KEYS.decode,
    access="local",
    operators=frozenset({str(os.getuid())}),
    valid_id=str.isdecimal,
    rules="The person reads in a terminal that shows text as it is: keep Markdown light, no tables.",
)
