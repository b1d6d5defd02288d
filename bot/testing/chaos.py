"""A TCP proxy that imitates a bad network: it cuts, half closes, silences or slows connections at random.

    async with ChaosProxy(server.port, rng=random.Random(7), clock=server.clock) as proxy:
        proxy.chance = 0.02          # each forwarded piece of data breaks its connection with this probability
        proxy.deafen()               # discard the data of all connections, also of new ones until `heal`
        proxy.heal()                 # connections opened from now on work; deaf connections stay deaf
        proxy.strand()               # discard all later data of the open connections, as a NAT that lost its entries does

`struck` counts the faults by kind. The proxy forwards all other bytes unchanged, so it can be placed in front of any
server of this package.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Literal, Self, get_args

from bot.contracts.environment import Clock, cancel_all

Fate = Literal["cut", "half closed", "deaf", "slow"]
"""Kinds of network fault.

`cut` resets both ends. `half closed` sends an EOF to one end. `deaf` discards the data that one or both sides send.
`slow` sends a piece of data in parts with pauses.
"""
FATES: tuple[Fate, ...] = get_args(Fate)
PIECE = 65_536
SLOW_PARTS = 4
SLOWEST = 8.0
"""Max delay of a slow piece, in seconds of the proxy's clock."""


class _Connection:
    """A connection through the proxy. Side 0 is the client, side 1 the server."""

    def __init__(self, proxy: ChaosProxy) -> None:
        self.proxy = proxy
        self.deaf = [False, False]
        """Flags by side; True if the proxy discards the data that this side sends."""
        self.writers: list[asyncio.StreamWriter] = []

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers = [writer]
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.proxy.server_port)
            self.writers.append(server_writer)
            await asyncio.gather(self._pass(0, reader, server_writer), self._pass(1, server_reader, writer))
        except OSError:
            pass  # one end has closed, so the other end is closed below
        finally:
            self.cut()

    def cut(self) -> None:
        """Reset both ends of the connection."""
        for writer in self.writers:
            writer.transport.abort()

    async def _pass(self, side: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one side's data to the other side until the connection ends."""
        while piece := await reader.read(PIECE):
            await self._carry(side, piece, writer)
        # A deaf connection does not forward EOF either, so clients can notice it only by a timeout.
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
    """A TCP proxy that injects network faults. Clients connect to `url` or `port`. The module docstring has an example."""

    def __init__(self, server_port: int, *, rng: random.Random, clock: Clock) -> None:
        self.server_port = server_port
        self.rng = rng
        self.clock = clock
        self.chance = 0.0
        """Probability that a piece of data causes a fault on its connection."""
        self.fates: tuple[Fate, ...] = FATES
        self.struck: Counter[str] = Counter()
        self.swallowed = 0
        self.port = 0
        self._deaf: list[bool] | None = None
        """The `deaf` flags that new connections get; None if new connections work."""
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
        """Return the fault for the next piece of data; None if the piece is to be forwarded."""
        if self.rng.random() >= self.chance:
            return None
        fate = self.rng.choice(self.fates)
        self.struck[fate] += 1
        return fate

    def deafen(self, *, answers_only: bool = False) -> None:
        """Discard all data on open connections, and on connections that are opened before `heal` is called. With
        `answers_only`, discard only the data that the server sends.
        """
        self._deaf = [not answers_only, True]
        self.struck["all deaf"] += 1
        for connection in self._connections:
            connection.deaf = list(self._deaf)

    def heal(self) -> None:
        """Let new connections work again, and set `chance` to 0."""
        self._deaf = None
        self.chance = 0.0

    def strand(self) -> None:
        """Discard all further data on the open connections without closing them."""
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
