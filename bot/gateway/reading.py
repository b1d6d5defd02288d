"""Reads what a turn begins with beside its message: the earlier messages of a thread, and the text of files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from bot import errors
from bot.contracts.agent import Agent
from bot.contracts.channel import Channel
from bot.contracts.environment import Log
from bot.contracts.inbound import Inbound, Quoted, SeenFile
from bot.gateway.access import InboundCleaner
from bot.gateway.attachments import FileReader, unread
from bot.gateway.conversation import Turn

CONTEXT_SECONDS = 20.0
"""The time for a platform to show the earlier messages of a thread; after that the turn begins without them."""
_R = TypeVar("_R")


class Reading:
    """Reads for turns, without what strangers said before."""

    def __init__(
        self,
        agent: Agent,
        channels: Mapping[str, Channel],
        files: FileReader,
        cleaner: InboundCleaner,
        log: Log,
    ) -> None:
        self._agent = agent
        self._channels = channels
        self._files = files
        self._cleaner = cleaner
        self._log = log
        self._tasks: dict[str, asyncio.Future[Any]] = {}

    def cancel(self, turn: Turn) -> None:
        """A turn is stopped: read nothing more for it."""
        if (reading := self._tasks.get(turn.first.request_id)) is not None:
            reading.cancel()

    async def thread(self, turn: Turn) -> tuple[Quoted, ...]:
        """The earlier messages that a turn begins with; none where it was stopped meanwhile."""
        return await self._unless_stopped(turn, partial(self._context, turn.first)) or ()

    async def files(self, turn: Turn) -> bool:
        """Read the files of all its messages; whether these say anything then, or did before a crash."""
        for inbound in (one for one in turn.all if one.attachments):
            await self._unless_stopped(turn, partial(self.seen, turn, inbound))
        read = [one.artifact for inbound in turn.left for one in turn.seen.get(inbound.request_id, ())]
        if any(read) or any(inbound.says for inbound in turn.left):
            return True
        return turn.first.request_id in await self._agent.cut_off(turn.first.chat_key)

    async def seen(self, turn: Turn, inbound: Inbound) -> tuple[SeenFile, ...]:
        """The outcome of the files of a message of this turn; what was not read goes below its next answer. Of a message
        that is gone, nothing.
        """
        name = inbound.request_id
        if name in turn.withdrawn or name in turn.seen:
            return turn.seen[name] if name not in turn.withdrawn else ()
        try:
            seen = await self._files.read(inbound)
        finally:
            if name in turn.withdrawn:
                await self._files.forget(inbound)  # it came in after all else of it had been removed
        if name in turn.withdrawn:
            return ()
        turn.seen[name] = seen
        if words := unread(inbound.attachments, seen):
            turn.below.append(words)
        return seen

    async def _unless_stopped(self, turn: Turn, work: Callable[[], Coroutine[Any, Any, _R]]) -> _R | None:
        """Do something that a stop ends; None where there was one."""
        if turn.stopped:
            return None
        name = turn.first.request_id
        reading = self._tasks[name] = asyncio.ensure_future(work())
        try:
            await asyncio.wait([reading])
        finally:
            reading.cancel()
            del self._tasks[name]
        return None if reading.cancelled() else reading.result()

    async def _context(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Earlier messages of a thread the bot is new to, without those of strangers."""
        if (await self._agent.describe(inbound.chat_key)).messages:
            return ()
        try:
            async with asyncio.timeout(CONTEXT_SECONDS):
                earlier = await self._channels[inbound.channel].context(inbound)
        except (TimeoutError, errors.ShipmateError) as error:
            self._log.write(
                "inbound",
                f"the earlier messages of the thread cannot be read: {type(error).__name__}: {error}",
                level="warn",
            )
            return ()
        return self._cleaner.admitted(inbound, earlier)
