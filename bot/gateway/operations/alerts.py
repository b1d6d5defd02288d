"""Alerts: operators hear of trouble in their direct chats, once for each subject and spell, in plain words."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from bot import errors
from bot.contracts.channel import Channel, Manifest
from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.identity import UserRef
from bot.contracts.journal import Journal
from bot.gateway.address import Address
from bot.gateway.delivery import Delivery

EVERY = 3_600.0
"""Seconds between two reports on the same subject, across restarts."""
ASK_SECONDS = 5.0
"""The time for the journal to say when the last report was."""
TELL_SECONDS = 30.0
"""The time for a channel to send a report: the broken one may hang."""
MOST = 100
"""Reports under way at once; what comes on top is only logged."""


class OperatorAlerts:
    """Tells operators of trouble. Nothing here waits for a channel or raises.

    An operator has to have a direct chat on a channel that runs (`Manifest.direct`); the others find it in the log.
    Every chat is tried: a channel that hears nothing may still be able to send.
    """

    def __init__(
        self,
        operators: Iterable[str],
        channels: Mapping[str, Channel],
        manifests: Mapping[str, Manifest],
        *,
        journal: Journal,
        delivery: Delivery,
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self._journal = journal
        self._delivery = delivery
        self._clock = clock
        self._ids = ids
        self._log = log
        self._chats = {
            operator: target
            for operator in map(UserRef.parse, sorted(operators))
            if (target := _direct(operator, channels, manifests)) is not None
        }
        self._manifests = manifests
        self._spells: dict[str, asyncio.Task[bool]] = {}
        self._told: dict[str, float] = {}
        self._tasks: set[asyncio.Task[bool]] = set()

    def tell(self, subject: str, words: str) -> asyncio.Task[bool]:
        """Tell operators, where this subject was not reported within the hour; the task says whether one was told."""
        return self._start(self._tell(subject, words))

    def begin(self, subject: str, words: str) -> bool:
        """A spell of trouble begins; it is told once, however often this is called. True where it is a new one."""
        if subject in self._spells:
            return False
        self._spells[subject] = self.tell(subject, words)
        return True

    def end(self, subject: str, words: str) -> bool:
        """A spell is over; operators who were told of it are told of this too. False where there was none."""
        begun = self._spells.pop(subject, None)
        if begun is None:
            return False
        self._start(self._well(begun, words))
        return True

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, bool]) -> asyncio.Task[bool]:
        if len(self._tasks) >= MOST:
            work.close()
            work = _nobody()
        task = asyncio.create_task(work, name="report")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.write(
                "error", f"a report to operators failed: {type(error).__name__}: {error}", level="error"
            )

    async def _tell(self, subject: str, words: str) -> bool:
        return await self._due(subject) and await self._all(words)

    async def _well(self, begun: asyncio.Task[bool], words: str) -> bool:
        await asyncio.wait([begun])
        told = not begun.cancelled() and begun.exception() is None and begun.result()
        return told and await self._all(words)

    async def _due(self, subject: str) -> bool:
        """True where it is time for a report on this subject. A journal that is in trouble itself need not know."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._journal.once(f"report:{subject}", self._clock.now(), EVERY)
        except (TimeoutError, errors.StorageError):
            now = self._clock.monotonic()
            self._told = {known: at for known, at in self._told.items() if now - at < EVERY}
            due = subject not in self._told
            self._told.setdefault(subject, now)
            return due

    async def _all(self, words: str) -> bool:
        told = await asyncio.gather(
            *(self._one(operator, target, words) for operator, target in self._chats.items())
        )
        return any(told)

    async def _one(self, operator: UserRef, target: dict[str, str], words: str) -> bool:
        chat_key = self._manifests[operator.channel].encode(target)
        to = Address(operator.channel, chat_key.chat_id, chat_key, "direct", target, self._ids.ulid())
        try:
            async with asyncio.timeout(TELL_SECONDS):
                await self._delivery.send(to, words, kind="notice")
        except (TimeoutError, errors.DeliveryFailed) as error:
            cause = str(error) or f"no answer within {TELL_SECONDS:g} s"
            self._log.write(
                "delivery", "an operator could not be told", level="warn", operator=str(operator), cause=cause
            )
            return False
        return True


def _direct(
    operator: UserRef, channels: Mapping[str, Channel], manifests: Mapping[str, Manifest]
) -> dict[str, str] | None:
    """The target of an operator's direct chat; None where there is none."""
    direct = manifests[operator.channel].direct if operator.channel in channels else None
    return direct(operator.user_id) if direct is not None else None


async def _nobody() -> bool:
    """There are too many reports under way: nobody is told."""
    return False
