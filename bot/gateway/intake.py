"""Intake: every inbound is authorised, de-duplicated and written down before the platform is told it arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from bot import errors, text
from bot.context import prompt, quotes
from bot.contracts.approvals import OpenQuestion
from bot.contracts.archive import Archive, ArchiveLine, HistoryQuery
from bot.contracts.environment import Clock, Ids, Log, Redact
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Command, Inbound, Link, Quoted
from bot.contracts.journal import InboxRecord, Journal
from bot.gateway.access import Access, Verdict
from bot.gateway.address import Address
from bot.gateway.approvals import ApprovalService
from bot.gateway.delivery import Delivery
from bot.gateway.operations.alerts import OperatorAlerts
from bot.gateway.revisions import as_changed, completed, on_file, withdrawn

AT_ONCE = 1_000
"""Events that are taken in side by side; a channel that brings more waits with them."""
MOST_KNOWN = 10_000
STOP_PATIENCE = 0.4
"""Seconds for which a stop waits for the disk before it does its work all the same."""
GREET_EVERY = 24 * 3600.0
"""Seconds between two lines to the same stranger."""
_R = TypeVar("_R")


class Pending(Protocol):
    """Where strangers are noted for `shipmate pending`."""

    def note(self, channel: str, user_id: str) -> None: ...


class GatewayIntake:
    """`contracts.channel.Intake`. `queue` takes what was written down, with what is on file about its message, in the order in
    which it came in each chat; `beside` takes work that nobody waits for; `halt` what cannot be written down, or not
    at once, since a stop does its work all the same.
    """

    def __init__(
        self,
        *,
        access: Access,
        journal: Journal,
        archive: Archive,
        delivery: Delivery,
        pending: Pending,
        redact: Redact,
        queue: Callable[[Inbound, Sequence[InboxRecord]], None],
        beside: Callable[[Awaitable[None]], None],
        halt: Callable[[Inbound], Awaitable[None]],
        alerts: OperatorAlerts,
        approvals: ApprovalService,
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self._access = access
        self._journal = journal
        self._archive = archive
        self._delivery = delivery
        self._pending = pending
        self._redact = redact
        self._queue = queue
        self._clock = clock
        self._ids = ids
        self._log = log
        self._beside = beside
        self._halt = halt
        self._alerts = alerts
        self._approvals = approvals
        self._tasks: set[asyncio.Task[bool]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._asking: dict[ChatKey, asyncio.Future[bool]] = {}
        self._known: dict[ChatKey, None] = {}
        self._last: dict[ChatKey, asyncio.Future[None]] = {}
        self._archiving: dict[tuple[ChatKey, str], asyncio.Task[None]] = {}
        self.in_flight: set[str] = set()
        """The requestIds of what is being written down."""
        self.first = ""
        """The first requestId of this process; "" before there is one."""

    async def accept(self, inbound: Inbound) -> bool:
        inbound = self._normalised(inbound)
        verdict = self._access.judge(inbound)
        async with self._room:
            if not verdict.allowed:
                await self._refuse(inbound, verdict)
                return False
            if not await self._taking_part(inbound):
                return False
            inbound = inbound.model_copy(
                update={"request_id": self._ids.ulid(), "quoted": self.admitted(inbound, inbound.quoted)}
            )
            self.first = self.first or inbound.request_id
            # A channel may give up while this runs, as when its connection breaks. What is written down must be queued
            # all the same: brought again by the platform, it is a duplicate, and nobody would ever answer it.
            task = asyncio.ensure_future(self._take_in(inbound))
            self._tasks.add(task)
            task.add_done_callback(self._taken_in)
            return await asyncio.shield(task)

    async def _taking_part(self, inbound: Inbound) -> bool:
        """Whether it is for the bot: what only stands in a thread is where the bot takes part in that. What comes
        after it in the same chat waits for the answer, so that it stays behind it.
        """
        chat_key = inbound.chat_key
        while (asking := self._asking.get(chat_key)) is not None:
            await asyncio.wait([asking])
        if inbound.addressed != "thread" or chat_key in self._known:
            return True
        asking = self._asking[chat_key] = asyncio.ensure_future(self._journal.knows(chat_key))
        try:
            known = await asyncio.shield(asking)
        finally:
            del self._asking[chat_key]
        if known:
            self._knows(chat_key)
        return known

    def _knows(self, chat_key: ChatKey) -> None:
        """The bot takes part here; it never stops to."""
        self._known[chat_key] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def _taken_in(self, task: asyncio.Task[bool]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # for who waits; where nobody does any more, the platform was not told

    async def _take_in(self, inbound: Inbound) -> bool:
        chat_key, name = inbound.chat_key, inbound.request_id
        before, queued = self._last.get(chat_key), asyncio.get_running_loop().create_future()
        self._last[chat_key] = queued
        self.in_flight.add(name)
        try:
            try:
                writing = self._written(inbound)
                fresh, records = await (self._in_time(inbound, writing) if inbound.is_stop else writing)
            except errors.StorageError:
                await self._halt(inbound)
                raise
            finally:
                if before is not None:
                    await before
            archived = await self._queued(inbound, records) if fresh else None
        finally:
            self.in_flight.discard(name)
            queued.set_result(None)
            if self._last[chat_key] is queued:
                del self._last[chat_key]
        if archived is not None and inbound.kind != "message":
            await archived
        return fresh

    async def _in_time(self, stop: Inbound, writing: Awaitable[_R]) -> _R:
        """Await the writing of a stop, which the disk may keep waiting: then it does its work meanwhile."""
        written = asyncio.ensure_future(writing)
        patience = asyncio.ensure_future(self._clock.sleep(STOP_PATIENCE))
        try:
            await asyncio.wait([written, patience], return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        if not written.done():
            await self._halt(stop)
        return await written

    async def _written(self, inbound: Inbound) -> tuple[bool, list[InboxRecord]]:
        """Whether it is new, and what is on file about its message."""
        if inbound.message_id is None:
            return await self._journal.receive(inbound), []
        # In one go with the writing: nobody waits for it. The question is on its way before the writing begins, and
        # stands behind it all the same.
        about = asyncio.ensure_future(self._about(inbound, inbound.message_id))
        received = asyncio.ensure_future(self._journal.receive(inbound))
        fresh, records = await asyncio.gather(received, about, return_exceptions=True)
        if isinstance(fresh, BaseException):
            raise fresh
        if isinstance(records, BaseException):
            self._log.write("error", "what is on file cannot be read", level="error", cause=str(records))
            records = []
        return fresh, records

    def _about(self, inbound: Inbound, name: str) -> Coroutine[Any, Any, list[InboxRecord]]:
        if inbound.items:
            return on_file(self._journal, inbound)
        return self._journal.about(inbound.chat_key, name, inbound.changes)

    async def _queued(self, inbound: Inbound, records: list[InboxRecord]) -> asyncio.Future[None] | None:
        """Hand on what was written down, as its author has changed it meanwhile; returns its way to the archive."""
        self._log.write(
            "inbound",
            f"{inbound.kind} taken in",
            chat_key=inbound.chat_key,
            request_id=inbound.request_id,
            channel=inbound.channel,
            user_id=inbound.user_id,
            message_id=inbound.message_id,
            addressed=inbound.addressed,
            command=inbound.command.name if inbound.command is not None else None,
            length=len(inbound.text),
            attachments=len(inbound.attachments),
            brought=len(inbound.brought) or None,
        )
        self._knows(inbound.chat_key)
        if inbound.due is None:  # a job says nothing about its chat
            await self._delivery.reopen(inbound.channel, inbound.chat_id)
        current = as_changed(inbound, records) if inbound.kind == "message" else inbound
        if current is None:
            await self._delivery.arrears.finish(inbound.request_id, "withdrawn")
            return None
        if current is not inbound:
            await self._recorded(self._journal.amend(current))
        # Before its turn begins, so that the archive has the question before the answer. Nobody waits for it here: in
        # a burst every chat's file has to be brought to the disk, and the platform must hear of its events meanwhile.
        archived = None
        if current.kind == "delete" or not withdrawn(current, records):
            name = (inbound.chat_key, inbound.request_id)
            archived = self._archiving[name] = asyncio.ensure_future(self.archive(current))
            archived.add_done_callback(lambda _: self._archiving.pop(name))
        self._queue(current, records)
        return archived

    async def archived(self, inbound: Inbound) -> None:
        """Wait until a message is in the archive: before that its row in the journal must not be closed."""
        if (writing := self._archiving.get((inbound.chat_key, inbound.request_id))) is not None:
            await asyncio.wait([writing])

    async def _recorded(self, change: Awaitable[object]) -> None:
        """Await a change that a restart would make again where it cannot be recorded."""
        try:
            await change
        except errors.StorageError as error:
            self._log.write("error", "a change could not be recorded", level="error", cause=str(error))

    async def bury(self, channel: str, key: str, raw: str, reason: str) -> None:
        await self._journal.bury(channel, key, self._redact(text.clean(raw)), reason)
        self._log.write(
            "error",
            "an event could not be read and went to the dead letters",
            level="error",
            channel=channel,
            key=key,
            reason=reason,
        )
        self._alerts.tell(
            f"dead letters of {channel}",
            f"An event of {channel} could not be read and is among the dead letters: {reason} (event {key}). What "
            "came after it goes on as usual. If there are more of this kind within the hour, `shipmate logs --level "
            "error` shows them.",
        )

    async def questions(self, channel: str, chat_key: ChatKey, user_id: str) -> list[OpenQuestion]:
        return await self._approvals.open_in(chat_key, f"{channel}:{user_id}")

    async def recent(self, chat_key: ChatKey, limit: int) -> list[ArchiveLine]:
        if writing := [task for (chat, _), task in self._archiving.items() if chat == chat_key]:
            await asyncio.wait(writing)
        return (await self._archive.search(chat_key, HistoryQuery(limit=limit, counted=False))).lines

    def admitted(self, inbound: Inbound, quoted: Iterable[Quoted]) -> tuple[Quoted, ...]:
        """The quoted messages whose authors may talk to the bot here: a stranger's words reach it by no door."""
        return tuple(
            self._clean_quote(message)
            for message in quoted
            if message.from_self
            or self._access.standing(
                inbound.channel, message.user_id, inbound.chat_id, inbound.chat_type
            ).allowed
        )

    async def archive_missing(self, chat_key: ChatKey, inbounds: Sequence[Inbound]) -> None:
        """Archive those of one chat that did not get there before a crash. Raises `errors.StorageError`."""
        missing = {inbound.request_id: inbound for inbound in inbounds}

        def other(line: ArchiveLine) -> bool:
            return (line.meta or {}).get("requestId") not in missing

        query = HistoryQuery(limit=len(missing), role="user", skip=other, everything=True, counted=False)
        for line in (await self._archive.search(chat_key, query)).lines:
            missing.pop(str((line.meta or {}).get("requestId")), None)
        for inbound in missing.values():
            await self.archive(inbound)

    async def archive(self, inbound: Inbound) -> None:
        """Write what the person said to the archive. The journal has it already: a full disk delays this only."""
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
        line = ArchiveLine(
            ts=inbound.ts,
            channel=inbound.channel,
            chat_id=inbound.chat_id,
            chat_key=inbound.chat_key,
            user_id=inbound.user_id,
            message_id=inbound.message_id,
            role="user",
            text=words,
            meta={key: value for key, value in meta.items() if value is not None},
        )
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

    def _normalised(self, inbound: Inbound) -> Inbound:
        """Text that UTF-8 can carry; no secret of ours in it."""
        return inbound.model_copy(
            update={
                "text": self._clean(inbound.text),
                "user_name": self._cleaned(inbound.user_name),
                "command": self._clean_command(inbound.command),
                "links": tuple(
                    Link(text=self._clean(link.text), url=self._clean(link.url)) for link in inbound.links
                ),
                "items": {name: self._clean(words) for name, words in inbound.items.items()},
                "attachments": tuple(map(self._clean_attachment, inbound.attachments)),
            }
        )

    def _clean_command(self, command: Command | None) -> Command | None:
        if command is None:
            return None
        return Command(name=self._clean(command.name), args=self._clean(command.args))

    def _clean_attachment(self, attachment: Attachment) -> Attachment:
        update = {"name": self._cleaned(attachment.name), "mime": self._cleaned(attachment.mime)}
        return attachment.model_copy(update=update)

    def _clean_quote(self, message: Quoted) -> Quoted:
        origin = message.origin
        if origin is not None:
            names = {"name": self._cleaned(origin.name), "chat": self._cleaned(origin.chat)}
            origin = origin.model_copy(update=names)
        update = {
            "text": self._clean(message.text),
            "user_name": self._cleaned(message.user_name),
            "part": self._cleaned(message.part),
            "files": tuple(map(self._clean, message.files)),
            "origin": origin,
        }
        return message.model_copy(update=update)

    def _cleaned(self, words: str | None) -> str | None:
        return self._clean(words) if words is not None else None

    def _clean(self, words: str) -> str:
        return self._redact(text.clean(words))

    async def _refuse(self, inbound: Inbound, verdict: Verdict) -> None:
        """A stranger is told once a day how to be let in; nothing they wrote is kept."""
        self._log.write(
            "denied",
            f"refused: {verdict.reason}",
            chat_key=inbound.chat_key,
            channel=inbound.channel,
            user_id=inbound.user_id,
            reason=verdict.reason,
        )
        if verdict.reason != "stranger" or inbound.addressed == "thread" or inbound.kind != "message":
            return
        key = f"stranger:{inbound.channel}:{inbound.user_id}"
        if not await self._journal.once(key, self._clock.now(), GREET_EVERY):
            return
        # Beside: a platform that asks to wait with this must not hold up what others write.
        self._beside(self._greet(inbound))

    async def _greet(self, inbound: Inbound) -> None:
        try:
            await asyncio.to_thread(self._pending.note, inbound.channel, inbound.user_id)
            await self._delivery.send(Address.of(inbound), greeting(inbound), kind="notice")
        except (OSError, errors.ShipmateError) as error:
            self._log.write("error", "a stranger could not be greeted", level="warn", cause=str(error))


def greeting(inbound: Inbound) -> str:
    """What a stranger is told."""
    return (
        f"Hello. I only talk with people on my list. Your id here is {inbound.user_id}. Whoever runs me can let "
        f"you in with: shipmate allow {inbound.channel} {inbound.user_id}"
    )
