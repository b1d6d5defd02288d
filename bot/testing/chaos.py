"""A bad network on loopback: a TCP proxy whose connections are cut, half closed, deaf or slow, as a seed says.

    async with ChaosProxy(server.port, rng=random.Random(7), clock=server.clock) as proxy:
        proxy.chance = 0.02          # each piece that passes may be the one at which its connection breaks
        proxy.deafen()               # every connection that stands, and every new one, swallows what it gets …
        proxy.heal()                 # … until here; those that had gone deaf stay so, new ones are well
        proxy.strand()               # those that are idle now swallow what is sent on them next, as behind a NAT

`struck` counts what was done. Bytes pass unchanged otherwise, so it stands before any server of this package.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Literal, Self, get_args

from bot.contracts.environment import Clock, cancel_all

Fate = Literal["cut", "half closed", "deaf", "slow"]
"""`cut`: both ends are reset. `half closed`: one end sees EOF. `deaf`: data of one or both sides is
discarded. `slow`: a piece arrives in parts with pauses.
"""
FATES: tuple[Fate, ...] = get_args(Fate)
PIECE = 65_536
SLOW_PARTS = 4
SLOWEST = 8.0
"""Max seconds of a slow piece, on the proxy's clock."""


class _Connection:
    """Two streams and their state. Side 0 is the client, side 1 the server."""

    def __init__(self, proxy: ChaosProxy) -> None:
        self.proxy = proxy
        self.deaf = [False, False]
        """By side: what it sends is discarded."""
        self.writers: list[asyncio.StreamWriter] = []

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers = [writer]
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.proxy.server_port)
            self.writers.append(server_writer)
            await asyncio.gather(self._pass(0, reader, server_writer), self._pass(1, server_reader, writer))
        except OSError:
            pass  # one end is gone: so is the other
        finally:
            self.cut()

    def cut(self) -> None:
        """Reset both ends."""
        for writer in self.writers:
            writer.transport.abort()

    async def _pass(self, side: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one side's data to the other until the connection ends."""
        while piece := await reader.read(PIECE):
            await self._carry(side, piece, writer)
        # A deaf connection does not carry its end either: only a timeout finds out.
        if not self.deaf[side] and not writer.is_closing():
            writer.write_eof()

    async def _carry(self, side: int, piece: bytes, writer: asyncio.StreamWriter) -> None:
        fate = None if self.deaf[side] else self.proxy.fate()
        if fate == "deaf":
            self.deaf = self.proxy.rng.choice([[True, True], [True, False], [False, True]])
        if self.deaf[side]:
            self.proxy.swallowed += len(piece)
            return
        if fate == "cut" and self.proxy.rng.random() < 0.5:
            self.cut()
            return
        parts = [piece]
        if fate == "slow":
            step = len(piece) // SLOW_PARTS + 1
            parts = [piece[at : at + step] for at in range(0, len(piece), step)]
        for part in parts:
            if fate == "slow":
                await self.proxy.clock.sleep(self.proxy.rng.random() * SLOWEST / SLOW_PARTS)
            if self.deaf[side] or writer.is_closing():
                return
            writer.write(part)
            await writer.drain()
        if fate == "cut":
            self.cut()
        elif fate == "half closed" and not writer.is_closing():
            self.deaf[side] = True
            writer.write_eof()


class ChaosProxy:
    """See the module. `port` is its own; clients connect to `url`."""

    def __init__(self, server_port: int, *, rng: random.Random, clock: Clock) -> None:
        self.server_port = server_port
        self.rng = rng
        self.clock = clock
        self.chance = 0.0
        """Probability that a piece breaks its connection."""
        self.fates: tuple[Fate, ...] = FATES
        self.struck: Counter[str] = Counter()
        self.swallowed = 0
        self.port = 0
        self._deaf: list[bool] | None = None
        """Sides whose data new connections discard; None if they work."""
        self._server: asyncio.Server | None = None
        self._connections: dict[_Connection, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None  # noqa: S101  it was entered
        self._server.close()
        await cancel_all(self._connections.values())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def fate(self) -> Fate | None:
        """Return the fault for the next piece; None to forward it."""
        if self.rng.random() >= self.chance:
            return None
        fate = self.rng.choice(self.fates)
        self.struck[fate] += 1
        return fate

    def deafen(self, *, answers_only: bool = False) -> None:
        """Discard data of all connections, and of new ones until `heal`; with `answers_only`, requests still arrive."""
        self._deaf = [not answers_only, True]
        self.struck["all deaf"] += 1
        for connection in self._connections:
            connection.deaf = list(self._deaf)

    def heal(self) -> None:
        """New connections work again, and random faults stop."""
        self._deaf = None
        self.chance = 0.0

    def strand(self) -> None:
        """Current connections discard further data without closing."""
        self.struck["stranded"] += 1
        for connection in self._connections:
            connection.deaf = [True, True]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self)
        if self._deaf is not None:
            connection.deaf = list(self._deaf)
        task = asyncio.create_task(connection.run(reader, writer))
        self._connections[connection] = task
        task.add_done_callback(lambda _: self._connections.pop(connection))
