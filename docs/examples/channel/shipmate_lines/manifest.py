"""The manifest of the channel `lines`. Importing it must not import the platform's library."""

from __future__ import annotations

from bot.contracts.channel import Channel, ChannelDeps, Manifest
from bot.contracts.identity import ChatKey
from shipmate_lines.settings import LinesSettings


def build(settings: LinesSettings, deps: ChannelDeps) -> Channel:
    from shipmate_lines.adapter import Lines

    return Lines(settings, deps)


MANIFEST = Manifest(
    name="lines",
    settings=LinesSettings,
    build=build,
    encode=lambda address: ChatKey("lines", address["chat"]),
    decode=lambda key: {"chat": key.chat_id},
    access="local",
)
