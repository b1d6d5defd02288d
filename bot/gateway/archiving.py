"""Puts into the archive what people said, and the replies that they saw."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bot import errors
from bot.context import prompt, quotes
from bot.contracts.archive import Archive, ArchiveLine, HistoryQuery
from bot.contracts.environment import Clock, Log
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal
from bot.contracts.outbound import Address, OutboxRow
from bot.gateway.message_versions import completed, has, on_file


class InboundArchive:
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
            await asyncio.wait([writing])

    async def recent(self, chat_key: ChatKey, limit: int) -> list[ArchiveLine]:
        """The last lines of a chat, with all that was taken in before."""
        if writing := [task for (chat, _), task in self._writing.items() if chat == chat_key]:
            await asyncio.wait(writing)
        return (await self._archive.search(chat_key, HistoryQuery(limit=limit, counted=False))).lines

    async def add_missing(self, chat_key: ChatKey, inbounds: Sequence[Inbound]) -> None:
        """Archive those of one chat that did not get there before a crash. Raises `errors.StorageError`."""
        missing = {inbound.request_id: inbound for inbound in inbounds}

        def other(line: ArchiveLine) -> bool:
            return (line.meta or {}).get("requestId") not in missing

        query = HistoryQuery(limit=len(missing), role="user", skip=other, everything=True, counted=False)
        for line in (await self._archive.search(chat_key, query)).lines:
            missing.pop(str((line.meta or {}).get("requestId")), None)
        for inbound in missing.values():
            # A message that comes with its new words needs no second line for them.
            if not any(one.kind == "message" and has(one, inbound) for one in missing.values()):
                await self.add(inbound)

    async def add(self, inbound: Inbound) -> None:
        """Write what a person said."""
        if inbound.kind not in {"message", "edit"} or inbound.command is not None:
            return
        inbound = await self._of_album(inbound)
        words, quoted = quotes.archived(inbound.text, inbound.brought, prompt.iso)
        meta = {
            **quoted,
            "links": [link.model_dump() for link in inbound.links] or None,
            "requestId": inbound.request_id,
            "chatType": inbound.chat_type,
            "username": inbound.user_name,
            "edited": True if inbound.kind == "edit" else None,
            "job": inbound.due.job if inbound.due is not None else None,
            "messageIds": list(inbound.items) or None,
            "attachments": [a.model_dump(by_alias=True, exclude_none=True) for a in inbound.attachments]
            or None,
        }
        told = {key: value for key, value in meta.items() if value is not None}
        line = ArchiveLine.of(inbound, text=words, meta=told)
        try:
            await self._archive.append(line, hurry=False)
        except errors.StorageError as error:
            self._log.write(
                "error",
                "the archive cannot be written; the message is kept in the journal",
                level="error",
                chat_key=inbound.chat_key,
                request_id=inbound.request_id,
                cause=str(error),
            )

    async def _of_album(self, inbound: Inbound) -> Inbound:
        """An edit of one item of an album as what all of it says now."""
        if inbound.changes is None or inbound.items:
            return inbound
        try:
            return completed(inbound, await on_file(self._journal, inbound))
        except errors.StorageError as error:
            self._log.write("error", "what is on file cannot be read", level="error", cause=str(error))
            return inbound


BOT_USER = "bot"


class ReplyArchiver:
    """Puts replies that were sent into the archive. Notices never go there: the model must not come to see them."""

    def __init__(self, archive: Archive, clock: Clock, log: Log) -> None:
        self._archive = archive
        self._clock = clock
        self._log = log

    async def put(self, to: Address, rows: Sequence[OutboxRow], *, again: bool) -> None:
        """Write one line for the sent parts of one message. `again`: the archive may have some of them, which are left out."""
        replies = [row for row in rows if row.kind == "reply"]
        if replies and again:
            replies = await self._missing(to, replies)
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
            text="\n".join(row.archived for row in replies),
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

    async def _missing(self, to: Address, replies: Sequence[OutboxRow]) -> list[OutboxRow]:
        """Those that are not in the archive; none where it cannot be read."""

        def other(line: ArchiveLine) -> bool:
            return (line.meta or {}).get("requestId") != to.request_id

        query = HistoryQuery(limit=200, role="assistant", skip=other, everything=True)
        try:
            page = await self._archive.search(to.chat_key, query)
        except errors.StorageError as error:
            self._log.write("error", "the archive cannot be read", level="error", cause=str(error))
            return []
        known = {one for line in page.lines for one in (line.meta or {}).get("outboxIds", ())}
        # A repeat is the same part as its original.
        return [row for row in replies if not known & {row.id, row.repeat_of}]
