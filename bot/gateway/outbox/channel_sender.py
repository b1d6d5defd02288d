"""Sends messages through their channels, changes and finds them: the only caller of a channel's `send`, `edit`, `find` and `draft`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import TypeVar, cast

from bot import errors
from bot.contracts.channel import Channel, Drafts, Edits
from bot.contracts.environment import Clock, Log, storage_errors_logged
from bot.contracts.journal import Journal, Outbox
from bot.contracts.outbound import Address, LiveForm, Outbound, OutboxRow, Sent
from bot.core.leadership import Leadership
from bot.core.rate_limit import UNSAID, RateLimiter
from bot.gateway.outbox.files import OutgoingFiles
from bot.gateway.outbox.rows import OutboxRows, repeated


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
        with storage_errors_logged(self._log, "a closed chat cannot be recorded"):
            await self._journal.close_target(to.channel, to.chat_id, reason)

    async def open(self, channel: str, chat_id: str) -> None:
        """Something came from a chat, so it can be written to."""
        if self._closed.pop((channel, chat_id), None) is None:
            return
        self._log.write("delivery", "a chat can be written to again", channel=channel, chat_id=chat_id)
        with storage_errors_logged(self._log, "a reopened chat cannot be recorded"):
            await self._journal.open_target(channel, chat_id)


T = TypeVar("T")

SEND_SECONDS = 120.0
"""After this a channel that says nothing counts as one that may have sent."""
FILE_SECONDS = 240.0
"""The same for a file."""
LIVE_SECONDS = 10.0
"""The same for what is only for show: an answer waits no longer for it."""
SETTLE_SECONDS = 2.0
"""A message that a platform does not show may still be on its way there: after this it is asked once more."""
JOURNAL_SECONDS = 5.0
"""Until a journal that could not be read is asked again."""
AMENDS = 3
LONGEST_AMEND = 60.0


class ChannelSender:
    """Each call has its time, and only the process that leads makes any. It has with it what each sender needs: the rows, and what
    holds a message back.
    """

    def __init__(
        self,
        channels: Mapping[str, Channel],
        *,
        journal: Journal,
        rows: OutboxRows,
        files: OutgoingFiles,
        limits: RateLimiter,
        closed_chats: ClosedChats,
        leadership: Leadership,
        clock: Clock,
        log: Log,
    ) -> None:
        self._channels = channels
        self._journal = journal
        self.rows = rows
        self._files = files
        self.limits = limits
        self.closed_chats = closed_chats
        self._leadership = leadership
        self._clock = clock
        self._log = log

    def serves(self, channel: str) -> bool:
        """True where a channel runs."""
        return channel in self._channels

    def connected(self, to: Address) -> bool:
        return self._channels[to.channel].health().connected

    def split(self, to: Address, text: str) -> list[str]:
        return self._channels[to.channel].split(text)

    # ------------------------------------------------------------ messages of a batch

    async def send(self, row: OutboxRow, to: Address, place: str | None, *, ends: bool) -> Sent:
        """Send a row, or change the message in whose place it comes; `ends`: it is the last one of a reply. Raises
        `errors.DeliveryFailed` as `Channel.send` and `Edits.edit`.
        """
        message = replace(_message(row, to.target), ends=ends)
        if row.file is not None:
            message = replace(message, file=await self._files.load(row.file))
        await self._leadership.confirmed()
        call = _shown(self._channels[to.channel], message, place)
        if message.file is None:
            return await _within(SEND_SECONDS, call)
        # It is shown at the end alone: a process that leads no more by then must not end it.
        return await _within(FILE_SECONDS, self._leadership.while_leading(call))

    async def find(self, row: OutboxRow, to: Address) -> Sent | None:
        """Find a row whose send has an unknown outcome in the chat; None where it is not there.

        Raises `errors.DeliveryUncertain` where the platform cannot tell, `errors.DeliveryThrottled` where it will
        be able to, later.
        """
        channel = self._channels[to.channel]
        message = await self._sought(row, to.target)
        if row.file is not None:
            try:
                message = replace(message, file=await self._files.load(row.file))
            except errors.FileRefused as error:
                raise errors.DeliveryUncertain(str(error)) from None
        found = await _asked(channel, message)
        if found is None:
            await self._clock.sleep(SETTLE_SECONDS)
            found = await _asked(channel, message)
        return found

    async def _sought(self, row: OutboxRow, target: Mapping[str, str]) -> Outbound:
        """A row as a message that its channel is asked for. Raises `errors.DeliveryThrottled`."""
        try:
            claimed = await self._journal.claimed_ids(row)
        except errors.StorageError as error:
            raise errors.DeliveryThrottled(
                f"the journal cannot be read: {error}", retry_after=JOURNAL_SECONDS
            ) from None
        return replace(_message(row, target), claimed=claimed)

    # ------------------------------------------------------------ live messages, and what was sent

    def spare(self, to: Address, *, reserve: int = 1, edit: bool = False) -> bool:
        """Take a slot for something cosmetic; False where none is free, and where nothing may go out at all."""
        return not self.closed_chats.closed(to) and self.limits.spare(to, reserve=reserve, edit=edit)

    async def create(self, to: Address, row: OutboxRow, form: LiveForm) -> OutboxRow:
        """Create a live message, once its row is on file: else it would count as never shown after a crash.

        Raises `errors.StorageError`, and an `errors.DeliveryFailed` as `Channel.send` does: after `DeliveryUncertain` the
        row, still `sending`, can be looked for with `locate`.
        """
        row = row.begin()
        await self._journal.put_outbox([row])
        message = _live(row, to.target, form)
        await self._leadership.confirmed()
        try:
            sent = await _within(LIVE_SECONDS, self._channels[to.channel].send(message))
        except errors.DeliveryUncertain:
            raise
        except errors.DeliveryFailed as error:
            if isinstance(error, errors.DeliveryThrottled):
                self.limits.freeze(to, error, cosmetic=True)
            await self.rows.update(row.fail(error.code))
            raise
        row = row.appear(sent.message_id)
        await self.rows.update(row)
        return row

    async def change(self, to: Address, row: OutboxRow, form: LiveForm) -> None:
        """Show the words of a row in the place where it is in the chat; without any, it is taken away. Nobody waits for the disk: the row is on its way there,
        and what a crash leaves says what people saw, or what they were about to see. A disk that refuses writes is not
        given more of them. Raises an `errors.DeliveryFailed` as `Edits.edit`.
        """
        if not self._journal.pending_writes:
            self._journal.post.update_outbox(row)
        message = _live(row, to.target, form)
        await self._leadership.confirmed()
        try:
            await _within(LIVE_SECONDS, _shown(self._channels[to.channel], message, row.message_id))
        except errors.DeliveryThrottled as error:
            self.limits.freeze(to, error, cosmetic=True)
            raise

    async def draft(self, to: Address, words: str) -> bool:
        """Show words as being written: no row, since a crash leaves nothing of them. False where the channel cannot do that here."""
        channel = self._channels[to.channel]
        if not isinstance(channel, Drafts):
            return False
        message = Outbound(to.request_id, to.request_id, to.chat_key, to.target, words, "preview")
        await self._leadership.confirmed()
        try:
            return await _within(LIVE_SECONDS, channel.draft(message))
        except errors.DeliveryFailed as error:
            if isinstance(error, errors.DeliveryThrottled):
                self.limits.freeze(to, error, cosmetic=True)
            return True

    async def locate(self, to: Address, row: OutboxRow) -> OutboxRow:
        """Find the outcome of a live message whose creation has an unknown outcome. Where nobody can tell, it is not asked for again,
        and may stand in the chat as it is.
        """
        try:
            message = await self._sought(row, to.target)
            found = await _within(LIVE_SECONDS, self._channels[to.channel].find(message))
        except errors.DeliveryFailed:
            row = row.lose("uncertain")
        else:
            row = row.fail("not found") if found is None else row.appear(found.message_id)
        await self.rows.update(row)
        return row

    async def look_for(self, row: OutboxRow) -> OutboxRow:
        """A row whose send has an unknown outcome, with the id of its message where its channel finds that."""
        channel = self._channels.get(row.chat_key.channel)
        if channel is None or row.target is None:
            return row
        try:
            message = await self._sought(row, row.target)
            found = await _within(LIVE_SECONDS, channel.find(message))
        except errors.DeliveryFailed:
            return row
        return row if found is None else row.locate(found.message_id)

    async def end_live(self, row: OutboxRow) -> None:
        """A live message stays as it is, or was never created."""
        await self.rows.update(
            row.arrive(row.message_id) if row.message_id and row.text else row.fail("not shown")
        )

    async def amend(self, row: OutboxRow) -> None:
        """Give a message that was sent the words and buttons that its row has now, where its channel can do that; a second
        time where its platform asks to wait. Where it cannot be changed it stays. Its row then has the words that people see.
        """
        channel: object = self._channels.get(row.chat_key.channel)
        if row.file is not None or row.message_id is None or row.target is None:
            return
        if not isinstance(channel, Edits):
            return
        message = _message(row, row.target)
        for _ in range(AMENDS):
            await self._leadership.confirmed()
            try:
                await _within(LIVE_SECONDS, channel.edit(message, row.message_id))
            except errors.DeliveryThrottled as error:
                await self._clock.sleep(min(error.retry_after, LONGEST_AMEND))
            except errors.DeliveryUncertain:
                continue
            except errors.DeliveryFailed as error:
                self._log.write("delivery", "a message could not be changed", level="debug", cause=str(error))
                return
            else:
                await self.rows.update(row)
                return


def _message(row: OutboxRow, target: Mapping[str, str]) -> Outbound:
    words = "" if row.file is not None else row.text
    if row.repeat_of is not None:
        words = repeated(row) + words
    return Outbound(
        row.id,
        row.request_id,
        row.chat_key,
        target,
        words,
        row.kind,
        repeat_of=row.repeat_of,
        buttons=row.buttons,
        language=row.language,
        meant_at=row.created_at,
    )


def _live(row: OutboxRow, target: Mapping[str, str], form: LiveForm) -> Outbound:
    message = _message(row, target)
    return replace(
        message,
        text=message.text + form.mark,
        title=form.title,
        cards=form.cards,
        sure=form.sure,
        goes_on=form.goes_on,
    )


async def _shown(channel: Channel, message: Outbound, place: str | None) -> Sent:
    if place is None:
        return await channel.send(message)
    edits = cast("Edits", channel)
    await (edits.edit if message.text else edits.delete)(message, place)
    return Sent(place)


async def _asked(channel: Channel, message: Outbound) -> Sent | None:
    try:
        async with asyncio.timeout(SEND_SECONDS):
            return await channel.find(message)
    except TimeoutError:
        raise errors.DeliveryThrottled("the channel does not answer", retry_after=UNSAID) from None
    except (errors.DeliveryThrottled, errors.DeliveryUncertain):
        raise
    except errors.DeliveryFailed as error:
        raise errors.DeliveryUncertain(f"the platform refuses to say: {error}") from None


async def _within(seconds: float, call: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError:
        raise errors.DeliveryUncertain(f"the channel said nothing for {seconds:g} s") from None
