"""Long polling: an update is confirmed to Telegram only after the intake has it on disk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from telegram.error import Conflict, InvalidToken, TelegramError

from bot import errors
from bot.contracts.channel import ChannelDeps, Health
from channels.telegram import inbound
from channels.telegram.bot_api import Bot, TooManyRequests
from channels.telegram.updates import UNWRITTEN, UpdateIntake, has_id

HOLD = 10
"""Seconds for which Telegram keeps a poll open while nothing happens. One that hangs is given up soon after that."""
LATE = 5.0
"""Seconds that the answer to a poll may take besides."""
FAREWELL = 3.0
"""Seconds for telling Telegram at the end what was taken in; without that it comes again, and is dropped."""
LONGEST_PAUSE = 3.0
"""Seconds between two polls in trouble: nothing comes in meanwhile, and a poll costs little."""
REFUSED_PAUSE = 30.0
"""The same where the token is refused, which does not pass by itself."""
DISK_PAUSE = 0.5
"""Seconds of rest while what comes in cannot be written down: a stop is carried out all the same, and has to be heard."""
LONGEST_RETRY_AFTER = 600.0
"""Seconds for which the poll rests at most, whatever Telegram asks for: nothing comes in meanwhile."""
CALM = 30
"""Seconds without a conflict after which it is over: the other one rests at times too."""
CONTESTED = 30.0
"""Seconds of conflict after which the channel no longer counts as connected; a restart beside us is over by then."""
CONFLICT = "another process polls with this bot's token (409)"
AGAIN = 5.0
"""Seconds before the loop restarts after an unexpected error."""


@dataclass(slots=True)
class _TokenConflict:
    """Another process polls with our token: `began` on the monotonic clock, `since` in words, `calm_since` after the
    last conflict.
    """

    began: float
    since: str
    calm_since: float | None = None


class UpdatePoller:
    """From `start` to `stop`; `health` says how it goes."""

    def __init__(self, bot: Bot, updates: UpdateIntake, around: ChannelDeps, *, patience: float) -> None:
        self._bot = bot
        self._updates = updates
        self._clock, self._log, self._rng = around.clock, around.log, around.rng
        self._patience = patience
        self._connected = True
        self._heard = self._clock.now()
        self._trouble = ""
        self._in_conflict = False
        """True if that is another process that polls."""
        self._failures = 0
        self._token_conflict: _TokenConflict | None = None
        self._offset: int | None = None
        self._confirmed: int | None = None
        self._stopping = False
        self._waiting = False
        self._polling = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take a webhook down, which keeps what waited for it, and begin to poll. Raises `TelegramError`."""
        await self._bot.delete_webhook(drop_pending_updates=False)
        self._begin()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._run(), name="telegram poll")
        self._task.add_done_callback(self._ended)

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    def health(self) -> Health:
        if not self.running:
            return Health(connected=False, last_heard=self._heard, detail="stopped")
        conflict = self._token_conflict
        lost = conflict is not None and self._clock.monotonic() - conflict.began >= CONTESTED
        return Health(self._connected and not lost, self._heard, self._trouble)

    async def renew(self) -> None:
        """Give up the poll that is open and begin another one; what is being taken in is not cut."""
        task = self._task
        if task is None or not self._polling:
            return
        task.cancel()
        await asyncio.wait({task})
        if self._task is task and not self._stopping:
            self._begin()

    async def stop(self) -> None:
        """End after the update that is being taken in, and confirm what was taken in."""
        self._stopping = True
        self._updates.stop()
        task, self._task = self._task, None
        if task is None:
            return
        if self._waiting:
            task.cancel()
        await asyncio.wait({task})
        if self._offset != self._confirmed:
            with contextlib.suppress(TelegramError, TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._fetch(0, limit=1)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (exc := task.exception()) is not None:
            message = f"Telegram's poll loop ended: {type(exc).__name__}; it begins again"
            self._log.write("error", message, level="error", channel="telegram")
            self._connected = False
            if not self._stopping:
                self._task = asyncio.create_task(self._begin_again(), name="telegram poll")
                self._task.add_done_callback(self._ended)

    async def _begin_again(self) -> None:
        with self._may_be_cut():
            await self._clock.sleep(AGAIN)
        await self._run()

    # -- the loop --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._stopping:
            try:
                began = self._clock.monotonic()
                pause = await self._round()
                self._well(began)
            except (TelegramError, errors.StorageError) as exc:
                pause = self._failed(exc)
            if pause and not self._stopping:
                with self._may_be_cut():
                    await self._clock.sleep(pause)

    async def _round(self) -> float:
        """One poll and what came of it; the seconds to wait before the next one."""
        with self._may_be_cut():
            self._polling = True
            try:
                raws = await self._fetch(self._hold())
            finally:
                self._polling = False
        self._heard = self._clock.now()
        self._connected = True
        return await self._take(raws)

    def _hold(self) -> int:
        """Seconds a poll waits at Telegram: 0 after trouble, so that its end shows at once. After a conflict a whole
        poll is held, since only that proves that no other process polls any more.
        """
        return 0 if self._trouble and not self._in_conflict else HOLD

    async def _fetch(self, hold: int, limit: int = 100) -> list[Any]:
        offset = self._offset
        found = await self._bot.raw_updates(
            offset,
            hold=hold,
            patience=min(self._patience, LATE),
            kinds=list(inbound.HANDLED),
            limit=limit,
        )
        self._confirmed = offset
        return found

    @contextlib.contextmanager
    def _may_be_cut(self) -> Iterator[None]:
        """Mark an await in which `stop` may end the loop without losing anything."""
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    async def _take(self, raws: Sequence[Any]) -> float:
        """Hand over what is whole, in order; the seconds to wait before the next poll."""
        try:
            return await self._updates.take(raws)
        finally:
            self._advance(sorted(raw["update_id"] for raw in raws if has_id(raw)))

    def _advance(self, numbers: Sequence[int]) -> None:
        """Move the offset behind what was taken in, up to the first update that was not."""
        for number in numbers:
            if number not in self._updates.taken:
                break
            self._offset = number + 1
        self._updates.forget_before(self._offset)

    # -- trouble ---------------------------------------------------------------------------------------------

    def _failed(self, exc: TelegramError | errors.StorageError) -> float:
        """Note what went wrong, once for as long as it lasts; the seconds to wait."""
        self._in_conflict = isinstance(exc, Conflict)
        if self._in_conflict:
            trouble = self._conflict()
        else:
            trouble = _described(exc)
            if not isinstance(exc, errors.StorageError):
                self._connected = False
        if trouble != self._trouble:
            self._log.write("channel", f"Telegram: {trouble}", level="warn", channel="telegram")
        self._trouble = trouble
        self._failures = min(self._failures + 1, 10)
        longest = LONGEST_PAUSE
        if isinstance(exc, errors.StorageError):
            longest = DISK_PAUSE
        elif isinstance(exc, InvalidToken):
            longest = REFUSED_PAUSE
        pause = min(longest, 2.0 ** (self._failures - 1) * (1 + self._rng.random() / 4))
        return max(pause, min(exc.wait, LONGEST_RETRY_AFTER)) if isinstance(exc, TooManyRequests) else pause

    def _conflict(self) -> str:
        """Note that another process polls: Telegram answers, and gives each update to one of the two."""
        now = self._heard = self._clock.now()
        if self._token_conflict is None:
            self._token_conflict = _TokenConflict(
                self._clock.monotonic(), f"{datetime.fromtimestamp(now, UTC):%F %T} UTC"
            )
        self._token_conflict.calm_since = None
        return f"{CONFLICT} since {self._token_conflict.since}"

    def _well(self, began: float) -> None:
        """After a round without trouble that began at `began`. A conflict is over once nothing was seen of it for a
        while: the other one rests at times too.
        """
        conflict = self._token_conflict
        if conflict is not None:
            conflict.calm_since = began if conflict.calm_since is None else conflict.calm_since
            if self._clock.monotonic() - conflict.calm_since < CALM:
                return
            self._token_conflict = None
        if self._trouble:
            self._log.write("channel", "Telegram: all is well again", channel="telegram")
        self._trouble, self._in_conflict = "", False
        self._failures = 0


def _described(exc: TelegramError | errors.StorageError) -> str:
    match exc:
        case errors.StorageError():
            return UNWRITTEN
        case InvalidToken():
            return "the token is refused"
        case TooManyRequests():
            return "asked to poll less often"
    return f"cannot be reached ({exc})"
