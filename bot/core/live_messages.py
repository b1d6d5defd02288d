"""Live messages, such as previews of an answer, are edited while a turn runs. Its outbox row exists from before its
creation until its final form. The edits in between are not stored as events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, cast

from bot import errors
from bot.contracts.channel import Channel, Drafts, Edits
from bot.contracts.environment import Clock, Ids
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import OutboundKind
from bot.core import events
from bot.core.chat import Chat
from bot.core.chats import Chats, Fact
from bot.core.event_log import EventLog
from bot.core.events import Event
from bot.core.outbox import PLAIN, LiveForm, Outbox
from bot.core.outgoing import Address, OutboxRow
from bot.core.rate_limit import RateLimiter
from bot.words import speaking

LIVE_SECONDS = 10.0
"""Timeout in seconds of creating or editing a live message. A hanging edit delays an answer by no more than this."""
SETTLE_SECONDS = 2.0
"""Seconds for which an edit that the platform did not answer may still arrive. Meanwhile, its target gets nothing."""

LastWords = Callable[[OutboxRow, str], tuple[str, LiveForm]]
"""Function that returns a live message's final text and display form. A text of "" deletes the message."""


@dataclass(eq=False)
class LiveMessages:
    """Creates, edits and finishes live messages within a chat's rate limits. Failures are only logged."""

    outbox: Outbox
    channels: Mapping[str, Channel]
    chats: Chats
    event_log: EventLog
    limits: RateLimiter
    _: KW_ONLY
    boot: str
    clock: Clock
    ids: Ids
    log: OperatorLog

    def __post_init__(self) -> None:
        self._seen: dict[str | None, dict[str, tuple[str, str]]] = {}
        """Text and marker that people see now, by turn and outbox row."""
        self.last_words: dict[OutboundKind, LastWords] = {}
        """Functions for the final text, by form of message. A message of another form is deleted at the end."""

    # ------------------------------------------------------------ current live messages

    def of(self, chat: Chat, turn: str, form: OutboundKind) -> list[OutboxRow]:
        """Return the outbox rows of a turn's live messages of one form, in order, even those not created yet."""
        rows = chat.outbox.values()
        return [row for row in rows if (row.turn, row.form, row.outdated) == (turn, form, False)]

    def shows(self, row: OutboxRow, words: str, form: LiveForm = PLAIN) -> bool:
        return self._seen.get(row.turn, {}).get(row.id) == (words, form.mark)

    def forget(self, turn: str) -> None:
        self._seen.pop(turn, None)

    def _has_room(self, chat: Chat, row: OutboxRow, *, edit: bool) -> bool:
        """Take a rate-limit slot for a change that can be skipped. Return False if no slot is free or another message
        waits for the same target.
        """
        waits = any(other.place == row.place and not other.live for other in chat.outbox.values())
        return not (waits or self.outbox.busy(row)) and self.limits.spare(row.address, edit=edit)

    def start(self, showing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that shows something. Log its failure."""

        def over(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                cause = f"{type(error).__name__}: {error}"
                self.log.write("error", f"a turn cannot be shown any more: {cause}", level="error")

        task = asyncio.create_task(showing)
        task.add_done_callback(over)
        return task

    # ------------------------------------------------------------ changes

    async def show(
        self, chat: Chat, to: Inbound, kind: OutboundKind, words: str, form: LiveForm, *, number: int = 0
    ) -> bool | None:
        """Show text in the turn's live message with this number. Create the message if there is none. Return True on
        success, False if the text cannot be shown now, None if it can never be shown.
        """
        rows = self.of(chat, to.request_id, kind)
        form = replace(form, goes_on=True)
        if number >= len(rows):
            renews = to.renews if kind == "preview" and not number else None
            return await self._create(chat, _row(to, chat, self.ids.ulid(), kind, words), form, renews)
        row = rows[number]
        if self.shows(row, words, form):
            return True
        if row.message_id is None or not self._has_room(chat, row, edit=True):
            return False
        async with self.outbox.alone(row):
            return await self._edit(row, words, form) if row.id in chat.outbox else False

    async def _create(self, chat: Chat, row: OutboxRow, form: LiveForm, renews: str | None) -> bool | None:
        """Create a live message, or edit the message with the platform id `renews` to become one."""
        if not self._has_room(chat, row, edit=False):
            return False
        async with self.outbox.alone(row):
            self._append(row, row.queued(row.id, replaces=renews), events.Sending(row.id, self.boot, renews))
            end: events.EventData = events.Uncertain(row.id)
            try:
                await self.event_log.committed()
                channel, message = self.channels[row.channel], self.outbox.message(row, row.text, form)
                if renews is None:
                    shown = (await self.outbox.within(LIVE_SECONDS, channel.send(message))).message_id
                else:
                    shown = renews
                    await self.outbox.within(LIVE_SECONDS, cast("Edits", channel).edit(message, renews))
            except errors.DeliveryFailed as error:
                if not isinstance(error, errors.DeliveryUncertain):
                    end = events.RowEnded(row.id, "failed", reason=error.code)
                return self._failed(row, error)
            else:
                self.outbox.seen(row)
                self._see(row, row.text, form)
                end = events.Shown(row.id, shown)
                return True
            finally:
                self._append(row, end)

    async def _edit(self, row: OutboxRow, words: str, form: LiveForm) -> bool | None:
        channel = cast("Edits", self.channels[row.channel])
        change = channel.edit if words else channel.delete
        message = self.outbox.message(row, words, form)
        try:
            await self.outbox.within(LIVE_SECONDS, change(message, row.message_id or ""))
        except errors.DeliveryUncertain:
            await self.clock.sleep(SETTLE_SECONDS)
            return False
        except errors.DeliveryFailed as error:
            return self._failed(row, error)
        self._see(row, words, form)
        return True

    async def draft(self, chat: Chat, to: Inbound, words: str) -> bool | None:
        """Show text as the channel's draft, which disappears by itself and so needs no outbox row. Return the same
        values as `show`; None if the channel has no drafts in this chat.
        """
        row = _row(to, chat, to.request_id, "preview", words)
        channel = self.channels[to.channel]
        if not isinstance(channel, Drafts):
            return None
        if not self._has_room(chat, row, edit=True):
            return False
        try:
            draft = channel.draft(self.outbox.message(row, words, PLAIN))
            shown = await self.outbox.within(LIVE_SECONDS, draft)
        except errors.DeliveryFailed as error:
            self._failed(row, error)
            return False
        if shown:
            self.outbox.seen(row)
        return shown or None

    async def end(self, row: OutboxRow) -> None:
        """Make a live message's last edit, or delete the message. Wait for a rate-limit slot if necessary."""
        chat = await self.chats.get(row.chat)
        async with self.outbox.alone(row):
            if row.id not in chat.outbox:
                return
            seen, _ = self._seen.get(row.turn, {}).get(row.id, (row.text, ""))
            ending = self.last_words.get(row.form)
            words, form = "", PLAIN
            if ending is not None and not row.outdated:
                with speaking(row.language):
                    words, form = ending(row, seen)
            if not await self.limits.slot(row.address):
                await self._edit(row, words, form)
            kept = events.RowEnded(row.id, "sent", row.message_id)
            self._append(row, kept if words else replace(kept, state="failed", reason="not shown"))

    # ------------------------------------------------------------ helpers

    def _see(self, row: OutboxRow, words: str, form: LiveForm) -> None:
        self._seen.setdefault(row.turn, {})[row.id] = (words, form.mark)

    def _append(self, row: OutboxRow, *data: events.EventData) -> None:
        self.chats.append(*(Fact(row.chat, one, row.turn) for one in data))

    def _failed(self, row: OutboxRow, error: errors.DeliveryFailed) -> bool | None:
        """Log a failure. Return False if a later attempt may succeed, None if none can."""
        if isinstance(error, errors.DeliveryThrottled):
            self.limits.freeze(row.address, error, cosmetic=True)
            return False
        cause = f"{type(error).__name__}: {error}"
        self.log.write("delivery", f"no {row.form} is shown any more", level="debug", cause=cause)
        return None


def _row(to: Inbound, chat: Chat, name: str, kind: OutboundKind, words: str) -> OutboxRow:
    queued = Address.of(to).queued(name, words, form=kind)
    return OutboxRow.of(queued, Event(name, chat.key, 0.0, queued, to.request_id))
