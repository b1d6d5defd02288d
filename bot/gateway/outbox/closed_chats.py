"""Chats that can no longer be written to, over restarts: nothing is sent there until something comes from them."""

from __future__ import annotations

from bot import errors
from bot.contracts.environment import Log
from bot.contracts.journal import Outbox
from bot.contracts.outbound import Address


class ClosedChats:
    """The closed ones, in memory as in the journal."""

    def __init__(self, journal: Outbox, log: Log) -> None:
        self._journal = journal
        self._log = log
        self._closed: dict[tuple[str, str], str] = {}

    async def load(self) -> None:
        """Read the closed chats from the journal. Raises `errors.StorageError`."""
        self._closed = {**await self._journal.closed_targets(), **self._closed}

    def check(self, to: Address) -> None:
        """Raises `errors.TargetGone` where this chat is known to be closed."""
        reason = self._closed.get((to.channel, to.chat_id))
        if reason is not None:
            raise errors.TargetGone(f"known to be gone: {reason}")

    def closed(self, to: Address) -> bool:
        return (to.channel, to.chat_id) in self._closed

    async def close(self, to: Address, reason: str) -> None:
        """The platform says that a chat is gone; it counts from this moment on, and after a restart."""
        self._closed[to.channel, to.chat_id] = reason
        self._log.write(
            "delivery",
            "a chat can no longer be written to; nothing is sent there until something comes from it",
            level="warn",
            channel=to.channel,
            chat_id=to.chat_id,
            cause=reason,
        )
        try:
            await self._journal.close_target(to.channel, to.chat_id, reason)
        except errors.StorageError as error:
            self._log.write("error", "a closed chat cannot be recorded", level="error", cause=str(error))

    async def open(self, channel: str, chat_id: str) -> None:
        """Something came from a chat, so it can be written to."""
        if self._closed.pop((channel, chat_id), None) is None:
            return
        self._log.write("delivery", "a chat can be written to again", channel=channel, chat_id=chat_id)
        try:
            await self._journal.open_target(channel, chat_id)
        except errors.StorageError as error:
            self._log.write("error", "a reopened chat cannot be recorded", level="error", cause=str(error))
