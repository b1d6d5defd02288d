"""Runs the gateway as a separate process, started with faults or through strace, killed and started again."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import asdict

from bot.testing.faults import VARIABLE, Fault, Seam
from tests.blackbox.conftest import Process, World, eventually
from tests.torture.engines import Engine


class Alone:
    """One life of a gateway on a folder. `before` is the command that starts it. If the gateway dies, its process ends,
    so every engine works.
    """

    def __init__(
        self,
        world: World,
        *faults: Fault,
        before: Sequence[str] = (),
        options: Sequence[str] = (),
        engine: Engine | None = None,
    ) -> None:
        self.world = world
        env = {**world.process.env, VARIABLE: json.dumps([asdict(fault) for fault in faults])}
        self.process = world.process = Process(world.root, env)
        self._trace = world.root / "trace.jsonl"
        self.process.faked("--trace", str(self._trace), *options)
        self.process.before = list(before)
        self._ends = {0, -signal.SIGKILL} if faults or before else {0}

    async def start(self) -> Alone:
        """Return when the gateway is ready or dead."""
        (self.world.root / "ship.json").write_text(json.dumps(self.world.config), encoding="utf-8")
        await self.process.start(wait=False)
        await eventually(lambda: self.dead or any(line.startswith("ready ") for line in self.process.lines))
        return self

    @property
    def dead(self) -> bool:
        return not self.process.running

    @property
    def trace(self) -> list[tuple[Seam, str, str]]:
        """Return every operation of all lives on this folder."""
        return [json.loads(line) for line in self._trace.read_bytes().splitlines()]

    def address(self, channel: str) -> str:
        """Return the address of a channel's page; "" while nobody serves the page."""
        if self.dead or not any(line.startswith("ready ") for line in self.process.lines):
            return ""
        return self.process.ready_line.split()[-2]

    @property
    def dashboard(self) -> str:
        return self.process.ready_line.split()[-1]

    async def end(self) -> None:
        """End the gateway: cleanly, unless it is dead."""
        if self.dead:
            await self.process.ended()
        else:
            # A gateway with an armed fault may also die during its clean end.
            assert await self.process.stop() in self._ends, self.process.stderr
