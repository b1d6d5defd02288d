"""What the journal has to be told and does not take now: owed, and told in order as soon as it takes something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from bot import errors
from bot.contracts.environment import Log
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal
from bot.contracts.outbound import OutboxRow

Change = Callable[[], Awaitable[object]]


class Arrears:
    """Changes of the journal that are made whatever the disk says. One that refuses keeps no message from people and
    ends no turn; what it refuses is owed, and what comes after it too: else what is in the chat would count as not yet
    sent, and what was answered as not yet answered.
    """

    def __init__(self, journal: Journal, log: Log) -> None:
        self._journal = journal
        self._log = log
        self._owed: list[tuple[Change, bool]] = []
        self._settling = asyncio.Lock()
        self.closing: set[str] = set()
        """The requestIds of what is over, and may still be open on file."""
        self.refused = asyncio.Event()
        """Set when something is owed: who hears it tries again by `settle`."""

    @property
    def owes(self) -> bool:
        """Whether something is not on disk yet."""
        return bool(self._owed)

    async def claim(self, request_id: str) -> None:
        """As `contracts.journal.Inbox.claim`."""
        await self._made(lambda: self._journal.claim(request_id))

    async def finish(self, request_id: str, outcome: str) -> None:
        """As `contracts.journal.Inbox.finish`."""

        async def finished() -> None:
            await self._journal.finish(request_id, outcome)
            self.closing.discard(request_id)

        self.closing.add(request_id)
        await self._made(finished, closes=True)

    async def amend(self, inbound: Inbound) -> bool:
        """As `contracts.journal.Inbox.amend`; True too where that is owed."""
        return await self._made(lambda: self._journal.amend(inbound)) is not False

    async def put_outbox(self, rows: Sequence[OutboxRow]) -> None:
        """As `contracts.journal.Outbox.put_outbox`."""
        await self._made(lambda: self._journal.put_outbox(rows))

    async def update_outbox(self, row: OutboxRow) -> None:
        """As `contracts.journal.Outbox.update_outbox`."""
        await self._made(lambda: self._journal.update_outbox(row))

    async def settle(self) -> bool:
        """Make what is owed; False where the disk still refuses it."""
        async with self._settling:
            while self._owed:
                # At once, which the journal writes as one: a message must not be on file as meant to be sent, and not
                # as sent, for longer than it takes. Alone where an inbound is closed: nothing of it may come after that.
                count = (
                    next((at for at, (_, closes) in enumerate(self._owed) if closes), len(self._owed)) or 1
                )
                done = await asyncio.gather(
                    *(change() for change, _ in self._owed[:count]), return_exceptions=True
                )
                failed = [result for result in done if isinstance(result, BaseException)]
                if any(not isinstance(result, errors.StorageError) for result in failed):
                    raise next(one for one in failed if not isinstance(one, errors.StorageError))
                if failed:
                    return False
                del self._owed[:count]
            return True

    async def _made(self, change: Change, *, closes: bool = False) -> object:
        """Make a change, or owe it; what the journal says to it, None where it was owed."""
        if self._owed:
            self._owed.append((change, closes))
            await self.settle()
            return None
        try:
            return await change()
        except errors.StorageError as error:
            self._owed.append((change, closes))
            self._log.write(
                "error",
                "a change waits until the journal can be written",
                level="error",
                cause=str(error),
                owed=len(self._owed),
            )
            self.refused.set()
            return None
