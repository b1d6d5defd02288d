"""Settings of the channel (`channels.lines` in ship.json)."""

from __future__ import annotations

from pydantic import Field

from bot.contracts.channel import ChannelSettings


class LinesSettings(ChannelSettings):
    port: int = Field(default=0, ge=0, le=65535, description="Port on 127.0.0.1; 0 takes a free one.")
    greeting: str = Field(default="hello", description="First line that each client reads.")
