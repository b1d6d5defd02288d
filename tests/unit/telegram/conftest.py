"""The channel on the real library against the loopback server, both on one clock that the test moves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bot.contracts import Inbound, Outbound, Surroundings
from bot.testing.clock import FakeClock
from bot.testing.intake import RecordingIntake, RecordingLog
from bot.testing.telegram import TelegramServer
from channels.telegram.adapter import TelegramChannel
from channels.telegram.manifest import TelegramSettings

GROUP = -100200


class Bed:
    """A bot and the people who write to it."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.server = TelegramServer(clock=self.clock)
        self.intake = RecordingIntake()
        self.log = RecordingLog()
        self.folder = folder
        self.channel = self.build()

    def build(self, *, patience: float = 20.0, **changes: Any) -> TelegramChannel:
        """Another channel for the same bot; `changes` are settings."""
        given = {"bot_token": self.server.token, "base_url": self.server.url, **changes}
        around = Surroundings(self.clock, self.log, random.Random(1), self.folder, self.folder)
        return TelegramChannel(TelegramSettings(**given), around, patience=patience)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop run until something holds that no server tells of."""
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0)

    async def polling(self) -> None:
        """Wait until a poll is open at the server and nothing else is going on."""
        await self.until(lambda: self.server._poll is not None and not self.server._poll.done())

    async def pausing(self) -> None:
        """Wait until the channel sleeps before its next poll."""
        await self.until(lambda: self.clock.sleeping > 0 and self.server._poll is None)

    async def taken(self, count: int = 1) -> Inbound:
        """Wait until the intake was offered so many inbound; the last."""
        return await self.intake.offers(count)

    async def restart(self) -> None:
        """A new process: another channel, the same intake."""
        self.channel = self.build()
        await self.channel.start(self.intake)


def message(text: str, target: dict[str, str] | None = None) -> Outbound:
    return Outbound("0" * 26, "0" * 26, "telegram:chat:1001", target or {"chat_id": "1001"}, text)


@pytest.fixture
async def idle(tmp_path: Path) -> AsyncIterator[Bed]:
    """Everything but the start of the channel."""
    made = Bed(tmp_path)
    async with made.server:
        made.channel = made.build()
        yield made
        await made.channel.stop()


@pytest.fixture
async def bed(idle: Bed) -> Bed:
    await idle.channel.start(idle.intake)
    await idle.polling()
    return idle
