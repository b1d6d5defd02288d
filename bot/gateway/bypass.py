"""Carries out what passes every queue: stops, and commands that do not touch the conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from bot.contracts.inbound import Inbound
from bot.gateway.background import BackgroundTasks
from bot.gateway.commands import Commands, beside
from bot.gateway.effects import EffectRunner
from bot.gateway.in_flight import InFlight

MOST = 1_000
"""Commands that run beside the queues; more of them wait in those as everything does. A stop never waits."""


class Bypass:
    """Carries out inbounds beside the queues, at once."""

    def __init__(
        self, commands: Commands, effects: EffectRunner, in_flight: InFlight, tasks: BackgroundTasks
    ) -> None:
        self._commands = commands
        self._effects = effects
        self._in_flight = in_flight
        self._tasks = tasks

    def takes(self, inbound: Inbound) -> bool:
        """True where an inbound passes every queue."""
        return inbound.is_stop or (beside(inbound) and len(self._in_flight.beside) < MOST)

    def carry_out(self, inbound: Inbound) -> None:
        """Carry out a stop, or a command."""
        command = partial(self._commands.carry_out, inbound)
        self.start(inbound, partial(self._effects.handle, inbound, command))

    def start(self, inbound: Inbound, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work of an inbound beside the queues."""

        async def done() -> None:
            try:
                await work()
            finally:
                self._in_flight.beside.discard(inbound.request_id)

        self._in_flight.beside.add(inbound.request_id)
        self._tasks.start(done())
