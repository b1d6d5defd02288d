"""Archives what people saw of the bot."""

from __future__ import annotations

from collections.abc import Sequence

from bot import errors
from bot.contracts.archive import Archive, ArchiveLine, HistoryQuery
from bot.contracts.environment import Clock, Log
from bot.contracts.outbound import OutboxRow
from bot.gateway.address import Address
from bot.gateway.outbox.rows import REPEATED

BOT_USER = "bot"


class ReplyArchiver:
    """Puts replies that were sent into the archive. Notices never go there: the model must not come to see them."""

    def __init__(self, archive: Archive, clock: Clock, log: Log) -> None:
        self._archive = archive
        self._clock = clock
        self._log = log

    async def put(self, to: Address, rows: Sequence[OutboxRow]) -> None:
        """One line for the sent parts of one message."""
        replies = [row for row in rows if row.kind == "reply"]
        if not replies:
            return
        line = ArchiveLine(
            ts=int(self._clock.now() * 1000),
            channel=to.channel,
            chat_id=to.chat_id,
            chat_key=to.chat_key,
            user_id=BOT_USER,
            message_id=replies[0].message_id,
            role="assistant",
            text="\n".join(row.text.removeprefix(REPEATED) for row in replies),
            meta={
                "requestId": to.request_id,
                "messageIds": [row.message_id for row in replies],
                "outboxIds": [row.id for row in replies],
            },
        )
        try:
            await self._archive.append(line)
        except errors.StorageError as error:
            self._log.write("error", "the archive cannot be written", level="error", cause=str(error))

    async def put_once(self, to: Address, rows: Sequence[OutboxRow]) -> None:
        """The same, of those rows that are not in the archive yet."""
        if not any(row.kind == "reply" for row in rows):
            return

        def other(line: ArchiveLine) -> bool:
            return (line.meta or {}).get("requestId") != to.request_id

        query = HistoryQuery(limit=200, role="assistant", skip=other, everything=True)
        try:
            page = await self._archive.search(to.chat_key, query)
        except errors.StorageError as error:
            self._log.write("error", "the archive cannot be read", level="error", cause=str(error))
            return
        known = {one for line in page.lines for one in (line.meta or {}).get("outboxIds", ())}
        # A repeat is the same part as its original.
        await self.put(to, [row for row in rows if not known & {row.id, row.repeat_of}])
