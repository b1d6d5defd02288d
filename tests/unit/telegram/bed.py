"""A Telegram channel with the real library, connected to the loopback server. Tests move the clocks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from bot.contracts.channel import ChannelDeps
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import Inbound, Outbound
from bot.http_server import Connections
from bot.system import SystemClock, SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.intake import RecordingIntake
from bot.testing.log import MemoryLog
from bot.testing.telegram import TelegramServer
from channels.telegram.adapter import TelegramChannel
from channels.telegram.manifest import TelegramSettings
from channels.telegram.updates import UpdatePoller

GROUP = -100200
PATIENCE = 20.0
"""Timeout in seconds of each request, by the event loop's clock."""


class Bed:
    """A bot and the people who write to it."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        # The server has its own clock, so that only the channel sleeps on `clock`.
        self.server = TelegramServer(clock=FakeClock())
        self.intake = RecordingIntake()
        self.log = MemoryLog()
        self.folder = folder
        self.channel = self.build()

    def build(self, *, operators: Collection[UserRef] = (), **changes: Any) -> TelegramChannel:
        """Return a new channel for the same bot. `changes` are settings."""
        given = {"bot_token": self.server.token, "base_url": self.server.url, **changes}
        around = ChannelDeps(
            self.clock,
            self.log,
            random.Random(1),
            self.folder,
            self.folder,
            SystemDisk(),
            operators=operators,
            serve=Connections(100, clock=SystemClock(), log=self.log).server,
        )
        return TelegramChannel(TelegramSettings(**given), around, patience=PATIENCE)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Run the event loop until the condition is true. This is for conditions whose change no server reports."""
        async with asyncio.timeout(90):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0)

    async def polling(self) -> None:
        """Wait until a poll is open and the server has no update for it."""
        await self.until(lambda: self.server.poll is not None and not self.server.poll.done())

    async def pausing(self) -> None:
        """Wait until the channel sleeps before its next poll."""
        await self.until(lambda: self.clock.sleeping > 0)

    async def wake(self) -> float:
        """Move the clock to the end of the channel's sleep. Return the seconds of the sleep."""
        await self.pausing()
        due = min(self.clock.wakes)
        slept = due - self.clock.monotonic()
        await self.clock.advance(slept)
        return slept

    async def taken(self, count: int = 1) -> Inbound:
        """Wait until the intake was offered `count` messages. Return the last."""
        return await self.intake.offers(count)

    async def kill(self) -> None:
        """Simulate a kill: the channel finishes nothing and confirms nothing."""
        poll, bot = self.channel._updates, self.channel._bot
        assert isinstance(poll, UpdatePoller)
        assert poll._task is not None
        assert bot is not None
        poll._task.cancel()
        await asyncio.wait({poll._task})
        await bot.shutdown()

    async def restart(self) -> None:
        """Simulate a new process: another channel with the same intake."""
        self.channel = self.build()
        await self.channel.start(self.intake)


def message(text: str, target: dict[str, str] | None = None) -> Outbound:
    return Outbound(
        "0" * 26, "0" * 26, ChatKey.parse("telegram:chat:1001"), target or {"chat_id": "1001"}, text
    )
