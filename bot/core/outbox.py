"""Sends outbox rows: one at a time for each target, within the platforms' rate limits. If a platform did not confirm a
send, this module finds out whether the message arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

from bot import errors
from bot.contracts.approvals import QuestionButtons
from bot.contracts.base import Level
from bot.contracts.channel import Channel, Edits
from bot.contracts.environment import Clock
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.outbound import Card, Outbound, Sent
from bot.core import events
from bot.core.chats import Chats, Fact
from bot.core.event_log import EventLog
from bot.core.outgoing import OutboxRow
from bot.core.outgoing_files import OutgoingFiles
from bot.core.rate_limit import RateLimiter
from bot.words import Sentence, say, sentence, speaking


@dataclass(frozen=True, slots=True)
class LiveForm:
    """Display options of a preview or progress message. `Outbound` explains the fields. `mark` is shown after an incomplete
    text and is not stored.
    """

    title: str = ""
    cards: tuple[Card, ...] = ()
    sure: str = ""
    goes_on: bool = False
    mark: str = ""


PLAIN = LiveForm()
SEND_SECONDS = 120.0
"""Timeout in seconds of a send. After a time-out, the message may still have been sent."""
FILE_SECONDS = 240.0
"""Timeout in seconds of sending a file."""
FILE_PATIENCE = 40.0
"""If a connected platform does not accept a file, the bot retries to send it for this many seconds. Then it sends a notice
instead, so that later messages are not delayed any longer.
"""
AGAIN_SECONDS = 5.0
"""Interval in seconds between retries of an edit whose outcome is unknown."""
REPEAT_SECONDS = (0.0, 8.0, 64.0, 600.0, 3_600.0)
"""Intervals in seconds before the repeats of a message that may not have arrived. The intervals grow, because each
repeat may be a duplicate.
"""

_T = TypeVar("_T")


class Leadership(Protocol):
    """Leader election among processes that share one event log."""

    @property
    def epoch(self) -> int:
        """Return the number of the current leadership. Each new leader increases it; 0 means that there was no leader yet."""
        ...

    async def confirmed(self) -> None:
        """Return as soon as this process is certainly the leader. If another process has become the leader, never return,
        so that this process sends nothing more.
        """
        ...

    async def while_leading(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a long call. If this process may no longer be the leader, cancel the call and raise
        `errors.DeliveryUncertain`.
        """
        ...

    def role(self) -> str:
        """Return a description of the leadership state for operators; "" if there is nothing to report."""
        ...


class SoleLeader:
    """Leadership of the only process that uses a `.ship` folder."""

    epoch = 0

    async def confirmed(self) -> None:
        pass

    async def while_leading(self, call: Coroutine[Any, Any, _T]) -> _T:
        return await call

    def role(self) -> str:
        return ""


@dataclass(eq=False)
class Outbox:
    """Sends, finds and edits the messages of outbox rows. Only `Outbox` and `LiveMessages` call a channel's `send`, `edit`
    and `find`.
    """

    channels: Mapping[str, Channel]
    chats: Chats
    event_log: EventLog
    files: OutgoingFiles
    limits: RateLimiter
    _: KW_ONLY
    alert: Callable[[str, Sentence], object]
    leadership: Leadership = field(default_factory=SoleLeader)
    boot: str
    clock: Clock
    log: OperatorLog

    def __post_init__(self) -> None:
        self._places: dict[object, asyncio.Lock] = {}

    @contextlib.asynccontextmanager
    async def alone(self, row: OutboxRow) -> AsyncIterator[None]:
        """Lock a row's target. During the `with` block, no other message is sent to this target or edited there."""
        lock = self._places.setdefault(row.place, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._places.pop(row.place, None)
            if row.file is not None:
                await self.files.sweep()

    async def within(self, seconds: float, call: Coroutine[Any, Any, _T]) -> _T:
        """Run a channel call as soon as this process is certainly the leader, and return its result. Raises
        `errors.DeliveryUncertain` after `seconds` seconds, or if another process may have become the leader.
        """
        try:
            # If this process does not become the leader, the call never starts and must be closed.
            with contextlib.closing(call):
                await self.leadership.confirmed()
                async with asyncio.timeout(seconds):
                    return await self.leadership.while_leading(call)
        except TimeoutError:
            raise errors.DeliveryUncertain(f"the channel said nothing for {seconds:g} s") from None

    def busy(self, row: OutboxRow) -> bool:
        lock = self._places.get(row.place)
        return lock is not None and lock.locked()

    async def send(self, row: OutboxRow) -> None:
        async with self.alone(row):
            if wait := await self.limits.slot(row.address):
                self._append(row, events.Deferred(row.id, self.clock.now() + wait))
                return
            chat = self.chats.loaded(row.chat)
            if chat is None or row.id not in chat.outbox:
                return  # the row's question was decided meanwhile
            shown = next(filter(row.takes, chat.outbox.values()), None)
            if shown is not None and row.replaces in {None, shown.message_id}:
                row = replace(row, replaces=shown.message_id)
                self._append(shown, events.RowEnded(shown.id, "sent", shown.message_id))
            self._append(row, events.Sending(row.id, self.boot, row.replaces))
            await self.event_log.committed()
            await self._attempt(row)

    async def _attempt(self, row: OutboxRow) -> None:
        began = self.clock.monotonic()
        try:
            sent = await self.within(SEND_SECONDS if row.file is None else FILE_SECONDS, self._shown(row))
        except errors.DeliveryThrottled as error:
            self.limits.freeze(row.address, error)
            self._note(row, f"the platform asks to wait {error.retry_after:g} s", "throttled", level="warn")
            if self._overdue(row):
                self._tell_of_file(row, error, "refused")
            else:
                self._append(row, events.Deferred(row.id, self.clock.now() + error.retry_after))
        except errors.EditRefused as error:
            self.log.write("delivery", "a preview cannot be changed", level="warn", cause=str(error))
            self._append(row, events.Returned(row.id, error.code))
        except errors.DeliveryUncertain as error:
            self._note(row, "a send got no answer", "uncertain", level="warn", cause=str(error))
            if row.replaces is None:
                self._append(row, events.Uncertain(row.id))
            else:  # a repeated edit is harmless
                self._append(row, events.Deferred(row.id, self.clock.now() + AGAIN_SECONDS))
        except errors.DeliveryFailed as error:
            if row.file is not None and type(error) in {errors.DeliveryFailed, errors.FileRefused}:
                forbidden = isinstance(error, errors.FileRefused) and error.forbidden
                self._tell_of_file(row, error, "forbidden" if forbidden else "refused")
                return
            self._note(row, "a message was not delivered", "failed", level="error", cause=str(error))
            self._lost(row, error, events.RowEnded(row.id, "failed", reason=error.code))
        else:
            self._sent(row, sent, (self.clock.monotonic() - began) * 1000)

    async def find(self, row: OutboxRow) -> None:
        """Ask the platform whether a row's message was delivered. If it was not, queue the row again. If the platform does not
        know, queue a copy that is marked as a repeat. A preview or progress message is never sent again.
        """
        try:
            found = await self.within(SEND_SECONDS, self.channels[row.channel].find(await self._loaded(row)))
        except errors.DeliveryThrottled as error:
            await self.clock.sleep(error.retry_after)
        except errors.DeliveryFailed as error:
            self._unsure(row, error)
        else:
            if row.live:
                gone = events.RowEnded(row.id, "failed", reason="not found")
                self._append(row, gone if found is None else events.Shown(row.id, found.message_id))
            elif found is not None:
                self._sent(row, found, 0.0)
            elif self._overdue(row):
                self._tell_of_file(row, errors.FileRefused("the platform does not take it"), "refused")
            else:
                self._append(row, events.Returned(row.id))
        if row.file is not None:
            await self.files.sweep()

    async def revise(self, row: OutboxRow, outcome: Callable[[], str]) -> None:
        """Edit the message of a decided question: show the outcome and remove the buttons. A message that the platform
        cannot edit stays unchanged.
        """
        with speaking(row.language, row.zone, row.own_zone):
            words = "\n\n".join(filter(None, (row.closes_as or row.text, outcome())))
        message = replace(self.message(row), text=words, buttons=QuestionButtons("", ()))
        try:
            await self.within(
                SEND_SECONDS, cast("Edits", self.channels[row.channel]).edit(message, row.message_id or "")
            )
        except errors.DeliveryThrottled as error:
            await self.clock.sleep(error.retry_after)
            return
        except errors.DeliveryUncertain:
            await self.clock.sleep(AGAIN_SECONDS)
            return
        except errors.DeliveryFailed as error:
            self.log.write(
                "delivery", "a question cannot be changed", level="warn", chat_key=row.chat, cause=str(error)
            )
        self._append(row, events.Revised(row.id, words, row.queued_at))

    # ------------------------------------------------------------ helpers

    def _append(self, row: OutboxRow, *data: events.EventData) -> None:
        self.chats.append(*(Fact(row.chat, one, row.turn) for one in data))

    def seen(self, row: OutboxRow) -> None:
        """Record how long the person has waited, if this row shows the first words of an answer."""
        chat = self.chats.loaded(row.chat)
        waited = None if chat is None else chat.waited(row, self.clock.now())
        if waited is None:
            return
        self._append(row, waited)
        spent = waited.parts.get
        self.log.write(
            "answer_shown",
            "the person sees the answer",
            chat_key=row.chat,
            request_id=row.turn,
            waited_ms=waited.ms,
            queue_ms=spent("queue"),
            approval_ms=spent("approval"),
            model_ms=spent("model"),
            tools_ms=spent("tools"),
            delivery_ms=spent("delivery"),
        )

    def _note(self, row: OutboxRow, words: str, state: str, *, level: Level = "info", **details: Any) -> None:
        self.log.write(
            "delivery",
            words,
            level=level,
            chat_key=row.chat,
            request_id=row.turn,
            outbound_id=row.id,
            state=state,
            **details,
        )

    def _sent(self, row: OutboxRow, sent: Sent, took: float) -> None:
        self.seen(row)
        self._append(row, events.RowEnded(row.id, "sent", sent.message_id))
        self._note(
            row,
            f"{row.form} delivered",
            "sent",
            duration=took,
            message_id=sent.message_id,
            length=len(row.text),
        )

    def _unsure(self, row: OutboxRow, error: errors.DeliveryFailed) -> None:
        """Queue a repeat of a row that may not have arrived. After the last repeat, record that the outcome is unknown."""
        unknown = events.RowEnded(row.id, "unknown", reason="uncertain")
        repeats = len(row.id) - len(row.id.rstrip("'"))
        twice = row.file is not None and row.repeat_of is not None and not row.boot
        if not row.live and (twice or self._overdue(row)):
            self._tell_of_file(row, error, "unsure")
        elif not row.live and repeats < len(REPEAT_SECONDS):
            wait = REPEAT_SECONDS[repeats]
            again = row.queued(
                f"{row.id}'",
                call=None,
                replaces=None,
                part_of=row.part_of or row.id,
                repeat_of=row.repeat_of or row.id,
                not_before=self.clock.now() + wait if wait else None,
            )
            self._append(row, again, unknown)
        else:
            self._note(
                row, "the outcome of a message is not known", "unknown", level="warn", cause=str(error)
            )
            self._lost(row, error, unknown)

    def _lost(self, row: OutboxRow, error: errors.DeliveryFailed, end: events.RowEnded) -> None:
        """Record that a row is not sent again. If the row is part of an answer, alert operators."""
        self._append(row, end)
        if row.form == "reply":
            request = row.turn or row.id
            words = sentence("operators.delivery", channel=row.channel, cause=error, request=request)
            self.alert(f"deliveries of {row.channel}", words)

    def _overdue(self, row: OutboxRow) -> bool:
        """Return True if a row's file has waited longer than `FILE_PATIENCE` and its platform is connected."""
        late = row.file is not None and self.clock.now() - row.queued_at > FILE_PATIENCE
        return late and self.channels[row.channel].health().connected

    def _tell_of_file(self, row: OutboxRow, error: errors.DeliveryFailed, why: str) -> None:
        """Queue a notice in place of a file that cannot be sent. If the file replaced a passage of the answer, add the passage."""
        name = "" if row.file is None else row.file.name
        with speaking(row.language):
            words = say(f"delivery.file_{why}", name=name)
            parts = self.channels[row.channel].split(f"{words}\n\n{row.text}") if row.text else [words]
            told = [
                row.address.queued(f"{row.id}/told/{at}", part, form=row.form, part_of=row.part_of or row.id)
                for at, part in enumerate(parts)
            ]
        missing = "" if row.text else name
        self._append(
            row,
            *told,
            events.RowEnded(row.id, "failed", reason=errors.FileRefused.code, missing=missing),
        )
        self.log.write(
            "delivery",
            "a file cannot be sent; its chat is told",
            level="error",
            chat_key=row.chat,
            request_id=row.turn,
            code=errors.FileRefused.code,
            cause=str(error),
        )

    async def _shown(self, row: OutboxRow) -> Sent:
        channel = self.channels[row.channel]
        if row.replaces is None:
            return await channel.send(await self._loaded(row))
        await cast("Edits", channel).edit(self.message(row), row.replaces)
        return Sent(row.replaces)

    async def _loaded(self, row: OutboxRow) -> Outbound:
        """Return the message of a row, including its file. Raises `errors.FileRefused` if the file is missing or damaged."""
        message = self.message(row)
        if row.file is None:
            return message
        chat = self.chats.loaded(row.chat)
        claimed = frozenset(chat.files_sent if chat is not None else ())
        return replace(message, file=await self.files.load(row.file), claimed=claimed)

    def message(self, row: OutboxRow, words: str | None = None, form: LiveForm = PLAIN) -> Outbound:
        own = row.text if row.file is None else ""
        words = own if words is None else words
        if row.repeat_of is not None:
            with speaking(row.language):
                words = f"{say('delivery.repeated')}\n\n{words}"
        return Outbound(
            row.id,
            row.turn or row.id,
            row.chat,
            row.target,
            words + form.mark,
            row.form,
            form.title,
            form.cards,
            form.sure,
            form.goes_on,
            ends=row.ends and row.last,
            repeat_of=row.repeat_of,
            buttons=row.buttons,
            language=row.language,
            meant_at=row.queued_at,
        )
