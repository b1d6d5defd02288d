"""Runs the whole gateway inside this process and lets it die at a failpoint. A hundred deaths then take as long as one
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bot import app, lifecycle
from bot.composition import Gateway
from bot.contracts.environment import Clock, Disk
from bot.core import event_log
from bot.core.event_log import EventLog
from bot.core.services import Environment
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.testing.faults import Fault, Faults, Seam
from tests.blackbox.conftest import START_SECONDS, World
from tests.torture.engines import Engine


def quick_ends(patch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for dead gateways, and keep the objects of imported modules visible to the garbage collector."""
    patch.setattr(lifecycle, "DRAIN_SECONDS", 0.0)
    patch.setattr(event_log, "RETRY_SECONDS", 0.05)
    patch.setattr("gc.freeze", lambda: None)


class Inside:
    """One life of a gateway on a folder. After its death, nothing that the gateway does reaches disk, log or people."""

    def __init__(
        self,
        world: World,
        *faults: Fault,
        clock: Clock | None = None,
        disk: Disk | None = None,
        event_log: Callable[[EventLog], EventLog] = lambda made: made,
        engine: Engine | None = None,
    ) -> None:
        self.world = world
        self._engine = engine or Engine()
        self._disk = disk or SystemDisk()
        self._event_log = event_log
        self.trace: list[tuple[Seam, str, str]] = []
        self.died = asyncio.Event()
        self.said: list[str] = []
        self.faults = Faults(faults, die=self._die, seen=lambda *what: self.trace.append(what))
        self._loop = asyncio.get_running_loop()
        self._clock = clock or SystemClock()
        self._over = asyncio.Event()
        self._up = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self.gateway: Gateway | None = None

    def _die(self) -> None:
        for seam, kind in (("disk", "*"), ("log", "commit"), ("channel", "*")):
            self.faults.arm(Fault(seam, kind, then="error", times=None))  # type: ignore[arg-type]
        self._engine.depose()
        self._loop.call_soon_threadsafe(self.died.set)

    async def start(self) -> Inside:
        """Return when the gateway is ready or dead."""
        (self.world.root / "ship.json").write_text(json.dumps(self.world.config), encoding="utf-8")
        self._life = asyncio.create_task(self._live())
        await self._first(self._up, self.died)
        return self

    async def _first(self, *events: asyncio.Event) -> None:
        waiting: list[asyncio.Task[Any]] = [asyncio.create_task(event.wait()) for event in events]
        assert self._life is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.wait({*waiting, self._life}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if self._life.done() and not self.died.is_set():
            self._life.result()

    async def _live(self) -> None:
        environment = Environment(
            clock=self._clock,
            disk=self.faults.disk(self._disk),
            ids=UlidSource(self._clock),
            wrap_log=lambda made: self._event_log(self.faults.event_log(made)),
            wrap_channel=self.faults.channel,
        )
        stop = asyncio.Event()
        async with app.started(
            self.world.root, self.said.append, stop, environment=environment
        ) as self.gateway:
            self._up.set()
            await self._over.wait()

    @property
    def dead(self) -> bool:
        return self.died.is_set()

    def kill(self) -> None:
        """Let the gateway die now, at any point of its work."""
        self._die()

    def address(self, channel: str) -> str:
        """Return the address of a channel's page; "" while nobody serves the page."""
        if self.gateway is None or self.died.is_set() or channel not in self.gateway.channels:
            return ""
        return next(iter(self.gateway.channels[channel].addresses), "")

    @property
    def dashboard(self) -> str:
        assert self.gateway is not None
        assert self.gateway.dashboard is not None
        return self.gateway.dashboard.address

    async def end(self) -> None:
        """End the gateway: cleanly, unless it is dead."""
        assert self._life is not None
        if self.died.is_set() or not self._up.is_set():
            self._life.cancel()
            await asyncio.wait([self._life])
            if not self._life.cancelled():
                self._life.exception()  # a dead gateway may end with any exception
            return
        self._over.set()
        await asyncio.wait([self._life])
        if not self.died.is_set():  # not if it died during the clean end
            self._life.result()


@contextlib.contextmanager
def environment(world: World) -> Iterator[None]:
    """Put the world's tokens into this process's environment."""
    before = {name: os.environ.get(name) for name in world.process.env}
    os.environ.update(world.process.env)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
