"""Settings and chatKeys of the console channel."""

from __future__ import annotations

from bot.contracts.channel import ChannelSettings
from channels.local import LocalKeys

NAME = "console"
KEYS = LocalKeys(NAME)


class ConsoleSettings(ChannelSettings):
    """Settings of the terminal: `shipmate chat`."""
