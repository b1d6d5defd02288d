from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.channel import ChannelDeps
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound, Outbound
from bot.http_server import Connections
from bot.system import SystemClock, SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.intake import RecordingIntake
from bot.testing.log import MemoryLog
from bot.testing.slack import SlackServer
from channels.slack.adapter import SlackChannel
from channels.slack.manifest import SlackSettings

ADA, GRACE, CHANNEL, PRIVATE = "U0ADA", "U0GRACE", "C0TEAM", "G0SECRET"


class Intake(RecordingIntake):
    """An intake whose next `broken` writes fail. It reports each event to the server's waiters."""

    def __init__(self, server: SlackServer) -> None:
        super().__init__()
        self.broken = 0
        self._server = server

    @property
    def tries(self) -> int:
        return len(self.offered)

    async def accept(self, inbound: Inbound) -> bool:
        self.failure = errors.StorageError() if self._breaks() else None
        try:
            return await super().accept(inbound)
        finally:
            await self._server.changed()

    async def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> None:
        if self._breaks():
            raise errors.StorageError
        await super().keep_dead_letter(channel, key, raw, reason)
        await self._server.changed()

    def _breaks(self) -> bool:
        broken = self.broken > 0
        self.broken -= broken
        return broken


@dataclass
class Stage:
    """A workspace with two people, their direct messages, a public and a private channel, and a Slack channel connected to
    it.
    """

    server: SlackServer
    clock: FakeClock
    log: MemoryLog
    intake: Intake
    slack: SlackChannel
    make: Callable[..., SlackChannel]
    direct: str
    made: list[SlackChannel] = field(default_factory=list)
    ada: str = ADA
    grace: str = GRACE
    channel: str = CHANNEL
    private: str = PRIVATE

    async def arrived(self, count: int = 1) -> list[Inbound]:
        """Wait until all events are acknowledged and the intake has accepted `count` messages."""
        await self.server.until(lambda: not self.server.unacked() and len(self.intake.accepted) >= count)
        return self.intake.accepted

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition in the client, which reports no changes."""
        async with asyncio.timeout(90):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def settled(self) -> list[Inbound]:
        """Wait until all events are acknowledged."""
        return await self.arrived(0)


def outbound(text: str, channel: str, thread_ts: str | None = None) -> Outbound:
    target = {"channel": channel} | ({"thread_ts": thread_ts} if thread_ts else {})
    return Outbound(
        id="OUT1", request_id="REQ1", chat_key=ChatKey.parse("slack:chat:X"), target=target, text=text
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def server(clock: FakeClock) -> AsyncIterator[SlackServer]:
    server = SlackServer(clock=clock)
    for user, name in ((ADA, "Ada 🚢"), (GRACE, "غريس")):
        server.add_user(user, name=name)
    server.add_channel(CHANNEL, members=[ADA, GRACE])
    server.add_channel(PRIVATE, kind="group", members=[ADA])
    server.add_im(ADA)
    async with server:
        yield server


@pytest.fixture
async def idle(server: SlackServer, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Stage]:
    """A stage whose channel has not started."""
    log = MemoryLog()
    made: list[SlackChannel] = []

    def make(**settings: Any) -> SlackChannel:
        given = {"bot_token": server.bot_token, "app_token": server.app_token, "base_url": server.api_url}
        outside = ChannelDeps(
            clock=clock,
            log=log,
            rng=random.Random(1),
            home=tmp_path,
            root=tmp_path,
            disk=SystemDisk(),
            serve=Connections(100, clock=SystemClock(), log=log).server,
        )
        made.append(SlackChannel(SlackSettings(**(given | settings)), outside))
        return made[-1]

    yield Stage(server, clock, log, Intake(server), make(), make, f"D{ADA[1:]}", made)
    for channel in made:
        await channel.stop()


@pytest.fixture
async def stage(idle: Stage) -> Stage:
    await idle.slack.start(idle.intake)
    return idle


@pytest.fixture
def out() -> Callable[..., Outbound]:
    return outbound
