"""Turns that wait for a person: their slot is for others meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.gateway.conversation import QueueMode
from bot.gateway.lanes import Lanes
from bot.gateway.relations import person, plain
from bot.gateway.running import Running, Turn


class TurnSuspension:
    """Suspends the turn of a chat, for one question at a time."""

    def __init__(self, running: Running, lanes: Lanes, mode: QueueMode) -> None:
        self._running = running
        self._lanes = lanes
        self._mode = mode
        self._locks: dict[ChatKey, asyncio.Lock] = {}
        self._asking: Counter[ChatKey] = Counter()

    def turn(self, chat_key: ChatKey) -> Turn | None:
        """The turn that runs in a chat."""
        return self._running.get(chat_key)

    def asking(self, chat_key: ChatKey) -> int:
        """How many questions there are in a chat, the one that is asked and those that wait for it."""
        return self._asking[chat_key]

    @contextlib.asynccontextmanager
    async def alone(self, chat_key: ChatKey) -> AsyncIterator[None]:
        """Nothing else is asked in a chat for the block."""
        lock = self._locks.setdefault(chat_key, asyncio.Lock())
        self._asking[chat_key] += 1
        try:
            async with lock:
                yield
        finally:
            self._asking[chat_key] -= 1
            if not self._asking[chat_key]:
                del self._asking[chat_key], self._locks[chat_key]

    def suspended(self) -> AbstractAsyncContextManager[None]:
        """The turn waits for a person for the block."""
        return self._lanes.parked()

    def unread(self, first: Inbound) -> bool:
        """Whether the person of a turn has said more, which that will take up."""
        return self._mode.steers and self._lanes.find(first.chat_key, person(first), plain) is not None
