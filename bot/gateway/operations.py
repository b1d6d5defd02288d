"""Operations: tells operators what goes wrong, connects channels anew that fall silent, and says what a damaged journal has lost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot import errors
from bot.contracts.archive import Archive, ArchiveLine, HistoryQuery
from bot.contracts.base import ChatType
from bot.contracts.channel import Channel, Health, Manifest
from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.identity import UserRef
from bot.contracts.journal import Journal
from bot.contracts.outbound import Address
from bot.contracts.recall import Recalls
from bot.gateway.delivery import Delivery
from bot.gateway.locales import Locales
from bot.gateway.operator_chats import OperatorChats
from bot.gateway.outbox.worker import Alert
from bot.words import Sentence, say, sentence, speaking

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
EVERY = 3_600.0
"""Seconds between two reports on the same subject, across restarts, where nothing else is said."""
DAY = 24 * EVERY
ASK_SECONDS = 5.0
"""The time for the journal to say when the last report was."""
TELL_SECONDS = 30.0
"""The time for a channel to send a report: the broken one may hang."""
MOST = 100
"""Reports under way at once; what comes on top is only logged."""


class OperatorAlerts:
    """Tells operators of trouble. Nothing here waits for a channel or raises. Delivery, which it tells through, puts its own
    trouble into `raised`.

    An operator has to have a direct chat on a channel that runs (`Manifest.direct`); the others find it in the log.
    Every chat is tried: a channel that hears nothing may still be able to send.
    """

    def __init__(
        self,
        chats: OperatorChats,
        *,
        raised: asyncio.Queue[Alert],
        journal: Journal,
        delivery: Delivery,
        locales: Locales,
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self._raised = raised
        self._journal = journal
        self._delivery = delivery
        self._locales = locales
        self._clock = clock
        self._ids = ids
        self._log = log
        self._chats = chats
        self._spells: dict[str, asyncio.Task[bool]] = {}
        self._muted_until: dict[str, float] = {}
        self.tasks: set[asyncio.Task[bool]] = set()
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Tell operators of what was raised, and of what will be until `close`."""
        self._listening = asyncio.create_task(self._listen(), name="alerts")

    async def _listen(self) -> None:
        while True:
            alert = await self._raised.get()
            self.tell(alert.subject, alert.words)

    def tell(self, subject: str, words: Sentence, *, every: float = EVERY) -> asyncio.Task[bool]:
        """Tell operators, where this subject was not reported within `every` seconds, over restarts too; the task says whether
        one was told.
        """
        return self._start(self._tell(subject, words, every))

    def begin(self, subject: str, words: Sentence) -> bool:
        """A spell of trouble begins; it is told once, however often this is called. True where it is a new one."""
        if subject in self._spells:
            return False
        self._spells[subject] = self.tell(subject, words)
        return True

    def end(self, subject: str, words: Sentence) -> bool:
        """A spell is over; operators who were told of it are told of this too. False where there was none."""
        begun = self._spells.pop(subject, None)
        if begun is None:
            return False
        self._start(self._well(begun, words))
        return True

    async def close(self) -> None:
        """Give up what is under way."""
        listening = [self._listening] if self._listening is not None else []
        tasks = [*self.tasks, *listening]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, bool]) -> asyncio.Task[bool]:
        if len(self.tasks) >= MOST:
            work.close()
            work = _nobody()
        task = asyncio.create_task(work, name="report")
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.write(
                "error", f"a report to operators failed: {type(error).__name__}: {error}", level="error"
            )

    async def _tell(self, subject: str, words: Sentence, every: float) -> bool:
        return await self._due(subject, every) and await self._all(words)

    async def _well(self, begun: asyncio.Task[bool], words: Sentence) -> bool:
        await asyncio.wait([begun])
        told = not begun.cancelled() and begun.exception() is None and begun.result()
        return told and await self._all(words)

    async def _due(self, subject: str, every: float) -> bool:
        """True where it is time for a report on this subject. A journal that is in trouble itself need not know."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._journal.once(f"report:{subject}", self._clock.now(), every)
        except (TimeoutError, errors.StorageError):
            now = self._clock.monotonic()
            self._muted_until = {known: until for known, until in self._muted_until.items() if now < until}
            due = subject not in self._muted_until
            self._muted_until.setdefault(subject, now + every)
            return due

    async def _all(self, words: Sentence) -> bool:
        people = self._chats.people(self._ids.ulid())
        told = await asyncio.gather(*(self._one(operator, to, words) for operator, to in people))
        return any(told)

    async def _one(self, operator: UserRef, to: Address, words: Sentence) -> bool:
        try:
            async with asyncio.timeout(TELL_SECONDS):
                with speaking(*self._locales.known(operator)):
                    await self._delivery.send(to, str(words), kind="notice")
        except (TimeoutError, errors.DeliveryFailed) as error:
            cause = str(error) or f"no answer within {TELL_SECONDS:g} s"
            self._log.write(
                "delivery", "an operator could not be told", level="warn", chat_key=to.chat_key, cause=cause
            )
            return False
        return True


async def _nobody() -> bool:
    """There are too many reports under way: nobody is told."""
    return False


LOOK_EVERY = 3.0
"""Seconds between two looks at the channels."""
PATIENCE = 30.0
"""Seconds that a channel gets to mend itself: each of them reconnects on its own, and most breaks are short."""
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 300.0
"""Seconds after a healing until the next one: doubled each time, up to the longest."""
HEAL_SECONDS = 60.0
"""The time for one healing; one that hangs is given up."""


@dataclass(slots=True)
class _Seen:
    """The state of one channel. Times are monotonic: a clock that is set makes nobody deaf."""

    heard: float
    sign: float | None = None
    open: bool = False
    since: float | None = None
    trouble: Sentence | None = None
    told: bool = False
    pause: float = FIRST_PAUSE
    heal_at: float = 0.0
    healings: int = 0
    healing: asyncio.Task[None] | None = field(default=None, repr=False)


class ChannelWatchdog:
    """Looks at each channel's `health` every few seconds for as long as `run` runs."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        manifests: Mapping[str, Manifest],
        reports: OperatorAlerts,
        *,
        clock: Clock,
        log: Log,
    ) -> None:
        self._channels = channels
        self._manifests = manifests
        self._reports = reports
        self._clock = clock
        self._log = log
        now = clock.monotonic()
        self._looked = now
        self.seen = {name: _Seen(now) for name in channels}

    def opened(self, channel: str) -> None:
        """The channel has connected for the first time: from now on it may be healed."""
        seen = self.seen[channel]
        seen.open, seen.heard = True, self._clock.monotonic()

    def silent(self, channel: str) -> float | None:
        """Seconds for which the platform has been silent, where that is longer than it ever is; else None."""
        seen, longest = self.seen[channel], self._manifests[channel].silence
        silence = self._clock.monotonic() - seen.heard
        return silence if seen.open and longest is not None and silence > longest else None

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            while True:
                self.look()
                await self._clock.sleep(LOOK_EVERY)
        finally:
            healing = [seen.healing for seen in self.seen.values() if seen.healing is not None]
            for task in healing:
                task.cancel()
            await asyncio.gather(*healing, return_exceptions=True)

    def look(self) -> None:
        """One look at every channel."""
        now = self._clock.monotonic()
        missed, self._looked = now - self._looked - LOOK_EVERY, now
        if missed > LOOK_EVERY:
            # The process stood still, or the machine slept: nothing could be heard then.
            for seen in self.seen.values():
                seen.heard += missed
        for name, channel in self._channels.items():
            self._look(name, channel.health())

    def _look(self, name: str, health: Health) -> None:
        seen, now = self.seen[name], self._clock.monotonic()
        if health.last_heard != seen.sign:
            seen.sign, seen.heard = health.last_heard, now
        silence = self.silent(name)
        seen.trouble = _trouble(health, silence)
        if not seen.trouble:
            self._well(name, seen, now)
            return
        seen.since = now if seen.since is None else seen.since
        if silence is None and now - seen.since < PATIENCE:
            return
        if not seen.told:
            seen.told = True
            self._tell(name, seen)
        if seen.open and seen.healing is None and now >= seen.heal_at:
            self._heal(name, seen, now)

    def _well(self, name: str, seen: _Seen, now: float) -> None:
        if seen.told and seen.since is not None:
            minutes = (now - seen.since) / 60
            self._log.write("channel", f"{name} is well again", channel=name, healings=seen.healings)
            self._reports.end(name, sentence("operators.channel_again", channel=name, count=round(minutes)))
        seen.since, seen.told, seen.healings = None, False, 0
        seen.pause, seen.heal_at = FIRST_PAUSE, 0.0

    def _tell(self, name: str, seen: _Seen) -> None:
        self._log.write("channel", f"{name} is in trouble: {seen.trouble}", level="error", channel=name)
        self._reports.begin(name, sentence("operators.channel", channel=name, cause=seen.trouble))

    def _heal(self, name: str, seen: _Seen, now: float) -> None:
        seen.healings += 1
        seen.heal_at, seen.pause = now + seen.pause, min(seen.pause * 2, LONGEST_PAUSE)
        self._log.write(
            "channel", f"{name} gets a new connection", level="warn", channel=name, healing=seen.healings
        )

        def ended(task: asyncio.Task[None]) -> None:
            seen.healing = None
            if not task.cancelled() and (error := task.exception()) is not None:
                cause = f"{type(error).__name__}: {error}"
                self._log.write(
                    "channel", f"{name} could not be healed: {cause}", level="error", channel=name
                )

        seen.healing = asyncio.create_task(self._healed(self._channels[name]), name=f"heal {name}")
        seen.healing.add_done_callback(ended)

    @staticmethod
    async def _healed(channel: Channel) -> None:
        async with asyncio.timeout(HEAL_SECONDS):
            await channel.heal()


def _trouble(health: Health, silence: float | None) -> Sentence | None:
    """The trouble of a channel, for operators; None where there is none."""
    why = f" ({health.detail})" if health.detail else ""
    if not health.connected:
        return sentence("operators.disconnected", why=why)
    if silence is not None:
        return sentence("operators.silent", seconds=round(silence), why=why)
    return sentence("operators.hindered", detail=health.detail) if health.detail else None


RECENT = 24 * 3600.0
"""Seconds for which somebody may still wait for an answer."""
NEW = 3600.0
"""Seconds for which a loss that nobody suffers from is told to operators."""
LINES = 100
"""The last lines of a chat that are looked at."""


class LostMessages:
    """Goes by the archive: chats in which a person said something that has no answer, and that the journal does not know.
    Each is told once, over kills and restarts too: what tells them is in the outbox under the id of what they said.
    """

    def __init__(
        self,
        manifests: Mapping[str, Manifest],
        *,
        journal: Journal,
        archive: Archive,
        recall: Recalls,
        delivery: Delivery,
        locales: Locales,
        reports: OperatorAlerts,
        clock: Clock,
        log: Log,
    ) -> None:
        self._manifests = manifests
        self._journal = journal
        self._archive = archive
        self._recall = recall
        self._delivery = delivery
        self._locales = locales
        self._reports = reports
        self._clock = clock
        self._log = log

    async def tell(self, channel: str) -> None:
        """Tell the people of a channel that is connected, and operators. Raises nothing."""
        lost = self._journal.lost()
        if lost is None or self._clock.now() - lost.at > RECENT:
            return
        try:
            found = await self._unanswered(channel, lost.at)
        except errors.StorageError as error:
            self._log.write("error", "who lost a message is not known", level="error", cause=str(error))
            return
        if found is None:
            return  # nothing was ever said here
        if found or self._clock.now() - lost.at < NEW:
            self._reports.tell("journal lost", sentence(f"operators.journal_{lost.what}"))
        for to, person, said in found:
            self._log.write(
                "storage", "a message may be lost; its person is told", level="error", chat_key=to.chat_key
            )
            try:
                with speaking(*self._locales.known(person, chat_type=to.chat_type)):
                    words = say("delivery.lost_records")
                    await self._delivery.send(to, words, kind="notice", must_arrive=True, repeat_of=said)
            except errors.DeliveryFailed as error:
                self._log.write(
                    "delivery",
                    "whose message may be lost could not be told",
                    level="error",
                    chat_key=to.chat_key,
                    cause=str(error),
                )

    async def _unanswered(self, channel: str, at: float) -> list[tuple[Address, UserRef, str | None]] | None:
        """The chats in which somebody is told, that person, and the row that may have told it before. None where nothing was said on this channel before the loss."""
        spoken, found = False, list[tuple[Address, UserRef, str | None]]()
        for chat_key in await self._recall.kept(channel):
            query = HistoryQuery(limit=LINES, before=int(at * 1000), counted=False)
            # A platform's own time may lie before that at which a message was taken in.
            lines = [
                line
                for line in (await self._archive.search(chat_key, query)).lines
                if _named_at(_request(line)) < at
            ]
            spoken = spoken or bool(lines)
            for line in self._left(lines):
                name = _request(line)
                if await self._journal.inbound(name) is not None:
                    continue
                rows = [row for row in await self._journal.deliveries(name) if row.kind == "notice"]
                if all(row.state != "sent" for row in rows):
                    target = self._manifests[channel].decode(chat_key)
                    to = Address(channel, line.chat_id, chat_key, _type(line), target, name)
                    doubtful = (row.original for row in rows if row.state in {"sending", "unknown"})
                    found.append((to, UserRef(channel, line.user_id or ""), next(doubtful, None)))
                    break
        return found if spoken else None

    def _left(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        """The messages of people after the last message that has an answer, newest first. The answer may stand behind it: what
        was said meanwhile waited for it.
        """
        since = (self._clock.now() - RECENT) * 1000
        answered = {_request(line) for line in lines if line.role == "assistant"}
        said = [line for line in reversed(lines) if line.role == "user" and line.ts >= since]
        return list(itertools.takewhile(lambda line: _request(line) not in answered, said))


def _request(line: ArchiveLine) -> str:
    return str((line.meta or {}).get("requestId", ""))


def _named_at(request_id: str) -> float:
    """The time at which a requestId was given (epoch seconds); 0 where it is none. The row that said so is what was lost."""
    value = 0
    for char in request_id[:10]:
        value = value * 32 + max(_CROCKFORD.find(char), 0)
    return value / 1000


def _type(line: ArchiveLine) -> ChatType:
    return "direct" if (line.meta or {}).get("chatType") == "direct" else "group"
