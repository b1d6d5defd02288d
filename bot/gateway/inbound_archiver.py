"""Puts into the archive what people said."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.archive import GatewayArchive as Archive
from bot.contracts.environment import Log, storage_errors_logged
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal
from bot.core.archive import lines
from bot.gateway.message_versions import completed, has, on_file


class InboundArchiver:
    """Writes inbounds to the archive, side by side. The journal has them already: a full disk delays this only."""

    def __init__(self, *, journal: Journal, archive: Archive, log: Log) -> None:
        self._journal = journal
        self._archive = archive
        self._log = log
        self._writing: dict[tuple[ChatKey, str], asyncio.Task[None]] = {}

    def begin(self, inbound: Inbound) -> asyncio.Task[None]:
        """Begin to write what a person said; the task ends once that was tried."""
        name = (inbound.chat_key, inbound.request_id)
        task = self._writing[name] = asyncio.ensure_future(self.add(inbound))
        task.add_done_callback(lambda _: self._writing.pop(name))
        return task

    async def archived(self, inbound: Inbound) -> None:
        """Wait until a message is in the archive: before that its row in the journal must not be closed."""
        if (writing := self._writing.get((inbound.chat_key, inbound.request_id))) is not None:
            await self._tried([writing])

    async def recent(self, chat_key: ChatKey, limit: int) -> list[ArchiveLine]:
        """The last lines of a chat, with all that was taken in before."""
        if writing := [task for (chat, _), task in self._writing.items() if chat == chat_key]:
            await self._tried(writing)
        return (await self._archive.search(chat_key, HistoryQuery(limit=limit, counted=False))).lines

    async def _tried(self, writing: Collection[asyncio.Task[None]]) -> None:
        """Wait for lines on their way, which then wait for no others."""
        await asyncio.sleep(0)  # one that has just begun has its line in the queue then
        await self._archive.flush()
        await asyncio.wait(writing)

    async def add_missing(self, chat_key: ChatKey, inbounds: Sequence[Inbound]) -> None:
        """Archive those of one chat that did not get there before a crash. Raises `errors.StorageError`."""
        missing = {inbound.request_id: inbound for inbound in inbounds}

        def other(line: ArchiveLine) -> bool:
            return line.request_id not in missing

        query = HistoryQuery(limit=len(missing), role="user", skip=other, everything=True, counted=False)
        for line in (await self._archive.search(chat_key, query)).lines:
            missing.pop(line.request_id, None)
        for inbound in missing.values():
            # A message that comes with its new words needs no second line for them.
            if not any(one.kind == "message" and has(one, inbound) for one in missing.values()):
                await self.add(inbound, hurry=True)

    async def add(self, inbound: Inbound, *, hurry: bool = False) -> None:
        """Write what a person said; new words for something have always to `hurry`."""
        if not lines.has_line(inbound):
            return
        inbound = await self._of_album(inbound)
        with storage_errors_logged(
            self._log,
            "the archive cannot be written; the message is kept in the journal",
            chat_key=inbound.chat_key,
            request_id=inbound.request_id,
        ):
            await self._archive.append(lines.said(inbound), hurry=hurry or inbound.kind == "edit")

    async def _of_album(self, inbound: Inbound) -> Inbound:
        """An edit of one item of an album as what all of it says now."""
        if inbound.changes is None or inbound.items:
            return inbound
        with storage_errors_logged(self._log, "what is on file cannot be read"):
            return completed(inbound, await on_file(self._journal, inbound))
        return inbound
