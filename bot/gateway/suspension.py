"""Turns that wait for a person: their slot is for others meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Literal

from bot.contracts.identity import ChatKey
from bot.contracts.journal import PostedWrites
from bot.gateway.conversation import Resumed, Suspended, Turn
from bot.gateway.scheduler import Scheduler


class TurnSuspension:
    """Suspends the turn of a chat, for one question at a time."""

    def __init__(self, scheduler: Scheduler, post: PostedWrites) -> None:
        self._scheduler = scheduler
        self._post = post
        self._locks: dict[ChatKey, asyncio.Lock] = {}
        self._asking: Counter[ChatKey] = Counter()

    def turn(self, chat_key: ChatKey) -> Turn | None:
        """The turn that runs in a chat."""
        return self._scheduler.running(chat_key)

    def asking(self, chat_key: ChatKey) -> int:
        """The number of questions in a chat: the one that is asked, and those that wait for it."""
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

    @contextlib.contextmanager
    def waiting(self, turn: Turn, waits_for: Literal["approval", "question"]) -> Iterator[bool]:
        """Take what the person of a turn says in the block for what the turn waits for. False where it need not wait: its
        person has said more already, which the turn takes up, or the turn has ended (a tool may outlive it).
        """
        chat_key = turn.first.chat_key
        if self._scheduler.running(chat_key) is not turn:
            yield False
            return
        if self._scheduler.apply(chat_key, Suspended(waits_for)):
            yield False
            return
        self._post.suspend_turn(turn.first.request_id)
        try:
            yield True
        finally:
            self._post.resume_turn(turn.first.request_id)
            if self._scheduler.running(chat_key) is turn:
                self._scheduler.apply(chat_key, Resumed())

    def suspended(self) -> AbstractAsyncContextManager[None]:
        """The slot of the turn is for others for the block."""
        return self._scheduler.suspended()
