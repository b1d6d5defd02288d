"""Manifest of the web channel, which is read before the channel is started."""

from __future__ import annotations

import re

from bot.contracts.channel import Channel, ChannelDeps, EditPace, Manifest
from channels.web.settings import KEYS, NAME, WebSettings


def build(settings: WebSettings, around: ChannelDeps) -> Channel:
    """Build the channel. Raises `errors.ConfigError` if strangers could reach a page without a token."""
    from channels.web.adapter import WebChannel

    return WebChannel(settings, around)


MANIFEST = Manifest(
    name=NAME,
    settings=WebSettings,
    build=build,
    encode=KEYS.encode,
    decode=KEYS.decode,
    buttons=True,
    files=True,
    separate=True,
    access="local",
    valid_id=lambda text: re.fullmatch(r"[0-9a-f]{16}", text) is not None,
    edits=EditPace({"direct": 0.25}),
    rules="The person reads in a web page that shows Markdown: headings, bold, italics, lists, tables, "
    "quotes, links and code with its language. It shows no images and no HTML.",
)
