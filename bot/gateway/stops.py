"""Stops: who may end what runs in a place, and what goes with it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable

from bot.contracts import Agent, Inbound
from bot.gateway.access import Access
from bot.gateway.lanes import Lanes
from bot.gateway.queueing import person, place
from bot.gateway.running import Running, Turn

STOPPED = "Stopped."
NOTHING_RUNS = "There is nothing to stop: I am not working on anything here."
NOT_YOURS = "I am working on somebody else's message: they can stop it, or an operator."


def is_stop(inbound: Inbound) -> bool:
    """Whether it is a command or a platform's signal to stop."""
    return inbound.kind == "stop" or (inbound.command is not None and inbound.command.name == "stop")


def stops(stop: Inbound, other: Inbound) -> bool:
    """Whether a stop reaches a waiting inbound: it is of the same person, in the same chat or place."""
    return person(other) == person(stop) and _reaches(stop, other)


def _reaches(stop: Inbound, other: Inbound) -> bool:
    return other.chat_key == stop.chat_key or (
        other.channel == stop.channel and other.chat_id == stop.chat_id and place(other) == place(stop)
    )


class Stops:
    """Ends turns, and what their person has waiting. `off_file` sees to what waits in the journal alone."""

    def __init__(
        self,
        *,
        agent: Agent,
        lanes: Lanes,
        running: Running,
        access: Access,
        finish: Callable[[Inbound, str], Awaitable[None]],
        off_file: Callable[[Inbound], Awaitable[int]],
    ) -> None:
        self._agent = agent
        self._lanes = lanes
        self._running = running
        self._access = access
        self._finish = finish
        self._off_file = off_file

    async def stop(self, inbound: Inbound) -> str:
        """Stop the turn of this chat or place, and what the same person has waiting there; what to say of it.

        In a group a turn is its person's, and the operators', to stop. A command that finds nothing in its own place
        ends what its person has in the threads of that.
        """
        turn = self._turn(inbound)
        chat_keys = {inbound.chat_key} | ({turn.first.chat_key} if turn is not None else set())
        here = functools.partial(stops, inbound)
        count = await self._drop(chat_keys, here) + await self._off_file(inbound)
        if turn is None and not count and inbound.command is not None:
            return STOPPED if await self._below(inbound) else NOTHING_RUNS
        if turn is not None and not self._may(inbound, turn):
            return STOPPED if count else NOT_YOURS
        stopped = turn is not None and await self.end(turn)
        return STOPPED if stopped or count else NOTHING_RUNS

    async def end(self, turn: Turn) -> bool:
        """Stop one turn, wherever it is; False where it has ended already."""
        chat_key = turn.first.chat_key
        if turn.over:
            return False
        turn.stopped = True
        if turn.reading is not None:
            turn.reading.cancel()
        if not turn.asked:
            return True  # it sees that it was stopped before it asks the agent
        return await self._agent.stop(chat_key)

    async def _below(self, inbound: Inbound) -> bool:
        """Stop what a person has in the threads of a place: some platforms take commands outside of threads only."""
        inside = f"{inbound.chat_key}:"

        def own(other: Inbound) -> bool:
            return person(other) == person(inbound)

        turns = [turn for key, turn in self._running.items() if key.startswith(inside) and own(turn.first)]
        dropped = await self._drop([key for key in self._lanes.chats() if key.startswith(inside)], own)
        ended = [await self.end(turn) for turn in turns]
        return bool(dropped) or any(ended)

    async def _drop(self, chat_keys: Iterable[str], wanted: Callable[[Inbound], bool]) -> int:
        count = 0
        for chat_key in chat_keys:
            for other in self._lanes.take(chat_key, wanted):
                await self._finish(other, "stopped")
                count += 1
        return count

    def _turn(self, inbound: Inbound) -> Turn | None:
        here = self._running.get(inbound.chat_key)
        if here is not None:
            return here
        return next((turn for turn in self._running.values() if _reaches(inbound, turn.first)), None)

    def _may(self, inbound: Inbound, turn: Turn) -> bool:
        return (
            inbound.chat_type == "direct"
            or person(inbound) == person(turn.first)
            or self._access.is_operator(inbound.channel, inbound.user_id)
        )
