"""Manifest, settings and chatKeys of the console channel."""

from __future__ import annotations

import os

from bot.contracts.channel import Channel, ChannelDeps, ChannelSettings, Manifest
from channels.local import LocalKeys

NAME = "console"
KEYS = LocalKeys(NAME)


class ConsoleSettings(ChannelSettings):
    """Settings of the terminal: `shipmate chat`."""


def _build(_settings: ConsoleSettings, around: ChannelDeps) -> Channel:
    from channels.console.adapter import ConsoleChannel

    return ConsoleChannel(around)


MANIFEST = Manifest(
    name=NAME,
    settings=ConsoleSettings,
    build=_build,
    encode=KEYS.encode,
    decode=KEYS.decode,
    access="local",
    operators=frozenset({str(os.getuid())}),
    valid_id=str.isdecimal,
    rules="The person reads in a terminal that shows text as it is: keep Markdown light, no tables.",
)
