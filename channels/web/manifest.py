"""Manifest, settings and chatKeys of the web channel."""

from __future__ import annotations

import re

from pydantic import Field

from bot.contracts.channel import ChannelSettings, EditPace, Manifest, Streaming
from channels import ChatKeys, lazy
from channels.local import CHAT_ID

NAME = "web"
KEYS = ChatKeys(NAME, valid=CHAT_ID)
FIRST = "first"
"""Id of a person's first conversation (chatKey `web:chat:<user>`). Further chatKeys are `web:chat:<user>:thread:<id>`."""


class WebSettings(ChannelSettings):
    """Settings of the chat page in the browser."""

    host: str = "127.0.0.1"
    """Address on which the server listens. An address that others can reach needs a `token`."""
    port: int = Field(default=3000, ge=0, le=65535)
    """Port on which the server listens; 0 selects a free port."""
    token: str | None = Field(default=None, min_length=8)
    """Secret that people enter once before they may use the page."""
    streaming: Streaming = Streaming()
    """Settings for unfinished answers and progress that are shown while the bot works."""


MANIFEST = Manifest(
    name=NAME,
    settings=WebSettings,
    build=lazy("channels.web.adapter:WebChannel"),
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
