"""Loopback services for the commands of a project. The commands run on a thread of this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.testing import telegram_service
from bot.testing.anthropic import KEY, AnthropicServer
from bot.testing.slack import APP_TOKEN, BOT_TOKEN, SlackServer
from bot.testing.telegram import TelegramServer

from .conftest import Done, Shipmate

TOKENS = {
    "ANTHROPIC_API_KEY": KEY,
    "TELEGRAM_BOT_TOKEN": telegram_service.TEST_TOKEN,
    "SLACK_BOT_TOKEN": BOT_TOKEN,
    "SLACK_APP_TOKEN": APP_TOKEN,
}


@dataclass
class Services:
    """Loopback servers of Slack, Telegram and the model, and a ship.json with their addresses."""

    root: Path
    shipmate: Shipmate
    slack: SlackServer = field(default_factory=SlackServer)
    telegram: TelegramServer = field(default_factory=TelegramServer)
    model: AnthropicServer = field(default_factory=AnthropicServer)
    config: dict[str, Any] = field(default_factory=dict)

    async def run(self, *words: str | Path) -> Done:
        (self.root / "ship.json").write_text(json.dumps(self.config), encoding="utf-8")
        return await asyncio.to_thread(self.shipmate, *words)


@asynccontextmanager
async def started(root: Path, shipmate: Shipmate) -> AsyncIterator[Services]:
    made = Services(root, shipmate)
    async with AsyncExitStack() as stack:
        for server in (made.slack, made.telegram, made.model):
            await stack.enter_async_context(server)
        made.config = {
            "llm": {"provider": "anthropic", "baseUrl": made.model.url},
            "channels": {
                "telegram": {"enabled": True, "baseUrl": made.telegram.url},
                "slack": {"enabled": True, "baseUrl": made.slack.api_url},
                "web": {"enabled": False},
                "console": {"enabled": False},
            },
            "dashboard": {"enabled": False},
        }
        yield made
