"""Sends outbox rows: one at a time for each target, within the platforms' rate limits. If a platform did not confirm a
send, the outbox finds out whether the message arrived. The outbox also edits live messages, such as previews of an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from bot import errors
from bot.contracts.approvals import QuestionButtons
from bot.contracts.base import Json, Level
from bot.contracts.channel import Manifest, Pace
from bot.contracts.environment import Clock, OperatorNotices
from bot.contracts.messages import Card, Inbound, Outbound, OutboundKind, Sent
from bot.core import events
from bot.core.attachments import OutgoingFiles
from bot.core.chat import Chat
from bot.core.chats import Chats, Fact
from bot.core.event_log import EventLog
from bot.core.outgoing import Address, OutboxRow
from bot.core.services import Services
from bot.words import say, sentence, speaking

# ------------------------------------------------------------ rate limits

MOST_BUDGETS = 4_096  # Max rate-limit budgets in memory. If there are more, unused budgets are removed.
LONGEST_WAIT = 24 * 3600.0
SHORTEST_WAIT = 0.1
UNSAID = 1.0  # Seconds to wait if a platform asks the bot to wait, but does not say how long
UNLIMITED = Pace(burst=1_000_000, every=0.000_001)
MAX_WAIT = 60.0
"""Max seconds for which a message waits at a platform's request. If the platform asks for a longer wait, the message is postponed."""
_DUE = 1e-6  # max seconds by which a sleep may end too early


def patience(seconds: float) -> float:
    """Return the wait that a platform asks for, cut to the allowed range; `UNSAID` if `seconds` is no positive number."""
    if math.isnan(seconds) or seconds <= 0:
        return UNSAID
    return min(max(seconds, SHORTEST_WAIT), LONGEST_WAIT)


@dataclass(slots=True)
class _Bucket:
    """Token bucket of one budget. If no more tokens are taken, the bucket is full again at the time `full_at`. The lock
    `turn` keeps waiting messages in order, and `waiting` is their number.
    """

    pace: Pace
    full_at: float = -math.inf
    frozen_until: float = -math.inf
    waiting: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def free_at(self, reserve: int = 0) -> float:
        """Return the earliest time at which the bucket has tokens for 1 + `reserve` messages."""
        return max(self.full_at - (self.pace.burst - 1 - reserve) * self.pace.every, self.frozen_until)

    def take(self, now: float) -> None:
        self.full_at = max(self.full_at, now) + self.pace.every


@dataclass(eq=False)
class RateLimiter:
    """Applies the rate limits in the channels' manifests. If `limits` is False, nothing is limited. A message waits for
    a slot. A cosmetic change, such as a preview's update, is dropped if no slot is free. Within w seconds, a budget
    assigns at most `burst + w / every` slots.
    """

    manifests: Mapping[str, Manifest]
    clock: Clock
    _: KW_ONLY
    limits: bool
    buckets: dict[str, _Bucket] = field(default_factory=dict)

    async def slot(self, to: Address) -> float:
        """Wait for a slot in the budgets of the chat and the channel, take it, and return 0. Callers get slots in the order of
        their calls. If the platform has asked to wait longer than `MAX_WAIT`, take no slot and return the seconds to wait.
        """
        near, far = self._of(to)
        near.waiting, far.waiting = near.waiting + 1, far.waiting + 1
        try:
            async with near.turn:
                while True:
                    if wait := await self._wait_for_slot(near):
                        return wait
                    async with far.turn:
                        if wait := await self._wait_for_slot(far):
                            return wait
                        now = self.clock.monotonic()
                        # If the chat was frozen meanwhile, release the channel's lock, so that other chats can send.
                        if near.frozen_until <= now + _DUE:
                            near.take(now)
                            far.take(now)
                            return 0.0
        finally:
            near.waiting, far.waiting = near.waiting - 1, far.waiting - 1

    async def _wait_for_slot(self, bucket: _Bucket) -> float:
        while (now := self.clock.monotonic()) < (free := bucket.free_at()) - _DUE:
            if bucket.frozen_until - now > MAX_WAIT:
                return bucket.frozen_until - now
            await self.clock.sleep(free - now)
        return 0.0

    def spare(self, to: Address, *, reserve: int = 1, edit: bool = False) -> bool:
        """Take a slot for a cosmetic change, and return True. If a budget has fewer than 1 + `reserve` free slots, take none and
        return False. Because of the reserve, no message has to wait after the change.
        """
        now, buckets = self.clock.monotonic(), [*self._of(to), self._cosmetic(to)]
        edits = self.manifests[to.channel].edits if edit and self.limits else None
        if edits is not None and edits.total is not None:
            buckets.append(self._bucket(f"{to.channel} edits", edits.total))
        if any(one.waiting or one.free_at(reserve) > now for one in buckets):
            return False
        for one in buckets:
            one.take(now)
        return True

    def freeze(self, to: Address, error: errors.DeliveryThrottled, *, cosmetic: bool = False) -> None:
        """Stop sending for as long as the platform asks. Stop only `cosmetic` calls if the limit is for these, in all chats."""
        chat, total = self._of(to)
        bucket = (self._cosmetic(to) if cosmetic else total) if error.everywhere else chat
        bucket.frozen_until = max(bucket.frozen_until, self.clock.monotonic() + patience(error.retry_after))

    def _of(self, to: Address) -> tuple[_Bucket, _Bucket]:
        """Return the two buckets of an address: its chat's bucket, which all threads share, and its channel's bucket."""
        manifest, limits = self.manifests[to.channel], self.limits
        chat = self._bucket(f"{to.channel}:{to.chat_id}", manifest.pace.get(to.chat_type) if limits else None)
        return chat, self._bucket(to.channel, manifest.total if limits else None)

    def _cosmetic(self, to: Address) -> _Bucket:
        return self._bucket(f"{to.channel} signs", None)

    def _bucket(self, name: str, pace: Pace | None) -> _Bucket:
        if name not in self.buckets:
            if len(self.buckets) > MOST_BUDGETS:
                now, known = self.clock.monotonic(), self.buckets.items()
                self.buckets = {
                    key: one for key, one in known if one.waiting or max(one.full_at, one.frozen_until) > now
                }
            self.buckets[name] = _Bucket(UNLIMITED)
        self.buckets[name].pace = pace or UNLIMITED
        return self.buckets[name]


# ------------------------------------------------------------ sending

SEND_SECONDS = 120.0  # Timeout in seconds of a send. After a time-out, the message may still have been sent.
FILE_SECONDS = 240.0  # Timeout in seconds of sending a file
FILE_PATIENCE = 40.0
"""Max seconds for which sending a file is retried while the platform is connected. After that, the chat gets a notice
instead, so that the file does not delay later messages any longer.
"""
AGAIN_SECONDS = 5.0  # Interval in seconds between retries of an edit whose outcome is unknown
REPEAT_SECONDS = (0.0, 8.0, 64.0, 600.0, 3_600.0)
"""Seconds before each repeat of a message that may not have arrived. The waits grow, because a repeat may be a duplicate."""
LIVE_SECONDS = 10.0
"""Timeout in seconds of creating or editing a live message. A hanging edit delays an answer by at most this time."""
SETTLE_SECONDS = 2.0
"""An edit that got no answer may still take effect for this many seconds. Until then, nothing else is sent to the chat or thread."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LiveText:
    """Content of a live message. `mark` is shown after an incomplete text and is not stored. `Outbound` explains the other fields.
    Contents with the same visible text are equal.
    """

    words: str
    mark: str = ""
    title: str = field(default="", compare=False)
    cards: tuple[Card, ...] = field(default=(), compare=False)
    sure: str = field(default="", compare=False)


LastWords = Callable[[OutboxRow, str], LiveText]
"""Function that returns a live message's final content, given the text that people see. A text of "" deletes the message."""


@dataclass(eq=False)
class Outbox:
    """Sends, finds and edits the messages of outbox rows. Only the outbox calls a channel's `send`, `edit` and `find`.

    A live message is edited while a turn runs. The outbox row of a live message is queued before the message is created,
    and ends with the message's final form. The edits in between are not stored as events. A failure of a live message is
    only logged.
    """

    services: Services
    chats: Chats
    event_log: EventLog
    files: OutgoingFiles
    limits: RateLimiter
    alerts: OperatorNotices

    def __post_init__(self) -> None:
        self._locks = WeakValueDictionary[object, asyncio.Lock]()
        self._seen: dict[str | None, dict[str, LiveText]] = {}
        """Content that people see now in each live message, keyed by turn and outbox row."""
        self.last_words: dict[OutboundKind, LastWords] = {}
        """For each form of live message, the function for its final content. Without a function, the message is deleted at the end."""

    def _lock(self, row: OutboxRow) -> asyncio.Lock:
        return self._locks.setdefault(row.place, asyncio.Lock())

    async def _call(self, seconds: float, call: Coroutine[Any, Any, _T]) -> _T:
        """Run a channel call as soon as this process is certainly the leader, and return its result. Raises
        `errors.DeliveryUncertain` after `seconds` seconds, or if another process may have become the leader.
        """
        try:
            # If this process does not become the leader, the call never starts and must be closed.
            with contextlib.closing(call):
                await self.services.leadership.confirmed()
                async with asyncio.timeout(seconds):
                    return await self.services.leadership.while_leading(call)
        except TimeoutError:
            raise errors.DeliveryUncertain(f"the channel said nothing for {seconds:g} s") from None

    # ------------------------------------------------------------ messages

    async def send(self, row: OutboxRow) -> None:
        async with self._lock(row):
            if wait := await self.limits.slot(row.address):
                self._append(row, events.Deferred(row.id, self.services.clock.now() + wait))
                return
            chat = self.chats.loaded(row.chat)
            if chat is None or row.id not in chat.outbox:
                return  # nothing is sent, because the row's question was decided meanwhile
            shown = next(filter(row.takes, chat.outbox.values()), None)
            if shown is not None and row.replaces in {None, shown.message_id}:
                row = replace(row, replaces=shown.message_id)
                self._append(shown, events.RowEnded(shown.id, "sent", shown.message_id))
            self._append(row, events.Sending(row.id, self.services.boot, row.replaces))
            await self.event_log.committed()
            await self._attempt(row)
        if row.file is not None:
            await self.files.sweep()

    async def _attempt(self, row: OutboxRow) -> None:
        began, channel = self.services.clock.monotonic(), self.services.channels[row.channel]
        seconds = SEND_SECONDS if row.file is None else FILE_SECONDS
        try:
            if row.replaces is None:
                sent = await self._call(seconds, channel.send(await self._with_file(row)))
            else:
                await self._call(seconds, channel.edit(self._message(row), row.replaces))
                sent = Sent(row.replaces)
        except errors.DeliveryThrottled as error:
            self.limits.freeze(row.address, error)
            self._note(row, f"the platform asks to wait {error.retry_after:g} s", "throttled", level="warn")
            if self._overdue(row):
                self._tell_of_file(row, error, "refused")
            else:
                self._append(row, events.Deferred(row.id, self.services.clock.now() + error.retry_after))
        except errors.EditRefused as error:
            self.services.log.write("delivery", "a preview cannot be changed", level="warn", cause=str(error))
            self._append(row, events.Returned(row.id, error.code))
        except errors.DeliveryUncertain as error:
            self._note(row, "a send got no answer", "uncertain", level="warn", cause=str(error))
            if row.replaces is None:
                self._append(row, events.Uncertain(row.id))
            else:  # repeat the edit later, which is harmless
                self._append(row, events.Deferred(row.id, self.services.clock.now() + AGAIN_SECONDS))
        except errors.DeliveryFailed as error:
            if row.file is not None and type(error) in {errors.DeliveryFailed, errors.FileRefused}:
                forbidden = isinstance(error, errors.FileRefused) and error.forbidden
                self._tell_of_file(row, error, "forbidden" if forbidden else "refused")
                return
            self._note(row, "a message was not delivered", "failed", level="error", cause=str(error))
            self._lost(row, error, events.RowEnded(row.id, "failed", reason=error.code))
        else:
            self._sent(row, sent, (self.services.clock.monotonic() - began) * 1000)

    async def find(self, row: OutboxRow) -> None:
        """Ask the platform whether a row's message was delivered. If it was not, queue the row again. If the platform does not
        know, queue a copy that is marked as a repeat. A live message is never sent again.
        """
        try:
            message = await self._with_file(row)
            found = await self._call(SEND_SECONDS, self.services.channels[row.channel].find(message))
        except errors.DeliveryThrottled as error:
            await self.services.clock.sleep(error.retry_after)
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
        message = replace(self._message(row), text=words, buttons=QuestionButtons("", ()))
        edits = self.services.channels[row.channel]
        try:
            await self._call(SEND_SECONDS, edits.edit(message, row.message_id or ""))
        except (errors.DeliveryThrottled, errors.DeliveryUncertain) as error:
            wait = error.retry_after if isinstance(error, errors.DeliveryThrottled) else AGAIN_SECONDS
            await self.services.clock.sleep(wait)
            return
        except errors.DeliveryFailed as error:
            cause = str(error)
            self.services.log.write(
                "delivery", "a question cannot be changed", level="warn", chat_key=row.chat, cause=cause
            )
        self._append(row, events.Revised(row.id, words, row.queued_at))

    # ------------------------------------------------------------ live messages

    def live_rows(self, chat: Chat, turn: str, form: OutboundKind) -> list[OutboxRow]:
        """Return the outbox rows of a turn's live messages of one form, in order, even those not created yet."""
        rows = chat.outbox.values()
        return [row for row in rows if (row.turn, row.form, row.outdated) == (turn, form, False)]

    def shows(self, row: OutboxRow, content: LiveText) -> bool:
        return self._seen.get(row.turn, {}).get(row.id) == content

    def forget(self, turn: str) -> None:
        self._seen.pop(turn, None)

    async def show(
        self, chat: Chat, to: Inbound, form: OutboundKind, content: LiveText, *, number: int = 0
    ) -> bool | None:
        """Show the content in the turn's live message with this number. Create the message if there is none. Return True
        on success, False if the content cannot be shown now, None if it can never be shown.
        """
        rows = self.live_rows(chat, to.request_id, form)
        if number >= len(rows):
            renews = to.renews if form == "preview" and not number else None
            return await self._create(
                chat, _row(to, chat, self.services.ids.ulid(), form, content), content, renews
            )
        row = rows[number]
        if self.shows(row, content):
            return True
        if row.message_id is None or not self._has_room(chat, row, edit=True):
            return False
        async with self._lock(row):
            return await self._edit(row, content, goes_on=True) if row.id in chat.outbox else False

    async def _create(self, chat: Chat, row: OutboxRow, content: LiveText, renews: str | None) -> bool | None:
        """Create a live message. If `renews` is a message's platform id, edit that message instead of sending a new one."""
        if not self._has_room(chat, row, edit=False):
            return False
        channel, message = self.services.channels[row.channel], self._message(row, content, goes_on=True)
        async with self._lock(row):
            self._append(
                row, row.queued(row.id, replaces=renews), events.Sending(row.id, self.services.boot, renews)
            )
            end: events.EventData = events.Uncertain(row.id)
            try:
                await self.event_log.committed()
                if renews is None:
                    shown = (await self._call(LIVE_SECONDS, channel.send(message))).message_id
                else:
                    shown = renews
                    await self._call(LIVE_SECONDS, channel.edit(message, renews))
            except errors.DeliveryFailed as error:
                if not isinstance(error, errors.DeliveryUncertain):
                    end = events.RowEnded(row.id, "failed", reason=error.code)
                return self._not_shown(row, error)
            else:
                self._first_words(row)
                self._seen.setdefault(row.turn, {})[row.id] = content
                end = events.Shown(row.id, shown)
                return True
            finally:
                self._append(row, end)

    async def _edit(self, row: OutboxRow, content: LiveText, *, goes_on: bool = False) -> bool | None:
        channel = self.services.channels[row.channel]
        change = channel.edit if content.words else channel.delete
        message = self._message(row, content, goes_on=goes_on)
        try:
            await self._call(LIVE_SECONDS, change(message, row.message_id or ""))
        except errors.DeliveryUncertain:
            await self.services.clock.sleep(SETTLE_SECONDS)
            return False
        except errors.DeliveryFailed as error:
            return self._not_shown(row, error)
        self._seen.setdefault(row.turn, {})[row.id] = content
        return True

    async def draft(self, chat: Chat, to: Inbound, words: str) -> bool | None:
        """Show text as the channel's draft. A draft disappears by itself, so it needs no outbox row. Return True, False
        or None as `show` does; None also if the channel has no drafts in this chat.
        """
        channel, content = self.services.channels[to.channel], LiveText(words)
        row = _row(to, chat, to.request_id, "preview", content)
        if not self._has_room(chat, row, edit=True):
            return False
        try:
            shown = await self._call(LIVE_SECONDS, channel.draft(self._message(row, content)))
        except errors.DeliveryFailed as error:
            self._not_shown(row, error)
            return False
        if shown:
            self._first_words(row)
        return shown or None

    async def end(self, row: OutboxRow) -> None:
        """Make a live message's last edit, or delete the message. Wait for a rate-limit slot if necessary."""
        chat = await self.chats.get(row.chat)
        async with self._lock(row):
            if row.id not in chat.outbox:
                return
            seen = self._seen.get(row.turn, {}).get(row.id, LiveText(row.text))
            ending, content = self.last_words.get(row.form), LiveText("")
            if ending is not None and not row.outdated:
                with speaking(row.language):
                    content = ending(row, seen.words)
            if not await self.limits.slot(row.address):
                await self._edit(row, content)
            kept = events.RowEnded(row.id, "sent", row.message_id)
            self._append(row, kept if content.words else replace(kept, state="failed", reason="not shown"))

    def _has_room(self, chat: Chat, row: OutboxRow, *, edit: bool) -> bool:
        """Take a rate-limit slot for a change that can be skipped. Return False if no slot is free or another message waits
        for the same target.
        """
        waits = any(other.place == row.place and not other.live for other in chat.outbox.values())
        return not (waits or self._lock(row).locked()) and self.limits.spare(row.address, edit=edit)

    def _not_shown(self, row: OutboxRow, error: errors.DeliveryFailed) -> bool | None:
        """Log the failure of a live message. Return False if a later attempt may succeed, None if none can."""
        if isinstance(error, errors.DeliveryThrottled):
            self.limits.freeze(row.address, error, cosmetic=True)
            return False
        cause = f"{type(error).__name__}: {error}"
        self.services.log.write("delivery", f"no {row.form} is shown any more", level="debug", cause=cause)
        return None

    # ------------------------------------------------------------ outcomes

    def _append(self, row: OutboxRow, *data: events.EventData) -> None:
        self.chats.append(*(Fact(row.chat, one, row.turn) for one in data))

    def _first_words(self, row: OutboxRow) -> None:
        """Record how long the person has waited, if this row shows the first words of an answer."""
        chat = self.chats.loaded(row.chat)
        waited = None if chat is None else chat.waited(row, self.services.clock.now())
        if waited is None:
            return
        self._append(row, waited)
        spent: Json = {f"{part}_ms": ms for part, ms in waited.parts.items()} | {"waited_ms": waited.ms}
        about: Json = {"chat_key": row.chat, "request_id": row.turn}
        self.services.log.write("answer_shown", "the person sees the answer", **about, **spent)

    def _note(self, row: OutboxRow, words: str, state: str, *, level: Level = "info", **details: Any) -> None:
        about: Json = {"chat_key": row.chat, "request_id": row.turn, "outbound_id": row.id, "state": state}
        self.services.log.write("delivery", words, level=level, **about, **details)

    def _sent(self, row: OutboxRow, sent: Sent, took: float) -> None:
        self._first_words(row)
        self._append(row, events.RowEnded(row.id, "sent", sent.message_id))
        words, length = f"{row.form} delivered", len(row.text)
        self._note(row, words, "sent", duration=took, message_id=sent.message_id, length=length)

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
                not_before=self.services.clock.now() + wait if wait else None,
            )
            self._append(row, again, unknown)
        else:
            cause = str(error)
            self._note(row, "the outcome of a message is not known", "unknown", level="warn", cause=cause)
            self._lost(row, error, unknown)

    def _lost(self, row: OutboxRow, error: errors.DeliveryFailed, end: events.RowEnded) -> None:
        """Record that a row is not sent again. If the row is part of an answer, alert operators."""
        self._append(row, end)
        if row.form == "reply":
            request = row.turn or row.id
            words = sentence("operators.delivery", channel=row.channel, cause=error, request=request)
            self.alerts.tell(f"deliveries of {row.channel}", words)

    def _overdue(self, row: OutboxRow) -> bool:
        late = row.file is not None and self.services.clock.now() - row.queued_at > FILE_PATIENCE
        return late and self.services.channels[row.channel].health().connected

    def _tell_of_file(self, row: OutboxRow, error: errors.DeliveryFailed, why: str) -> None:
        """Queue a notice in place of a file that cannot be sent. If the file replaced a passage of the answer, add the passage."""
        name, code = "" if row.file is None else row.file.name, errors.FileRefused.code
        with speaking(row.language):
            words = say(f"delivery.file_{why}", name=name)
            parts = (
                self.services.channels[row.channel].split(f"{words}\n\n{row.text}") if row.text else [words]
            )
            told = [
                row.address.queued(f"{row.id}/told/{at}", part, form=row.form, part_of=row.part_of or row.id)
                for at, part in enumerate(parts)
            ]
        end = events.RowEnded(row.id, "failed", reason=code, missing="" if row.text else name)
        self._append(row, *told, end)
        about: Json = {"chat_key": row.chat, "request_id": row.turn, "code": code, "cause": str(error)}
        self.services.log.write("delivery", "a file cannot be sent; its chat is told", level="error", **about)

    async def _with_file(self, row: OutboxRow) -> Outbound:
        message = self._message(row)
        if row.file is None:
            return message
        chat = self.chats.loaded(row.chat)
        claimed = frozenset(chat.files_sent if chat is not None else ())
        return replace(message, file=await self.files.load(row.file), claimed=claimed)

    def _message(self, row: OutboxRow, content: LiveText | None = None, *, goes_on: bool = False) -> Outbound:
        content = content or LiveText(row.text if row.file is None else "")
        words = content.words
        if row.repeat_of is not None:
            with speaking(row.language):
                words = f"{say('delivery.repeated')}\n\n{words}"
        return Outbound(
            row.id,
            row.turn or row.id,
            row.chat,
            row.target,
            words + content.mark,
            row.form,
            content.title,
            content.cards,
            content.sure,
            goes_on,
            ends=row.ends and row.last,
            repeat_of=row.repeat_of,
            buttons=row.buttons,
            language=row.language,
            meant_at=row.queued_at,
        )


def _row(to: Inbound, chat: Chat, name: str, form: OutboundKind, content: LiveText) -> OutboxRow:
    queued = Address.of(to).queued(name, content.words, form=form)
    return OutboxRow.of(queued, events.Event(name, chat.key, 0.0, queued, to.request_id))
