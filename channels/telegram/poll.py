"""Receives updates by long polling. A poll confirms updates to Telegram after the gateway has written them to disk."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Literal

from telegram.error import Conflict, InvalidToken, TelegramError

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import ChannelDeps, Health
from channels.telegram import inbound
from channels.telegram.bot_api import Bot, OutcomeUnknown, TooManyRequests
from channels.telegram.updates import NOT_WRITTEN, NotTaken, UpdateIntake, has_id

HOLD = 10  # Seconds that Telegram waits for an update before it answers a poll
LATE = 5.0  # Timeout in seconds for the answer to a poll, added to `HOLD`
FAREWELL = 3.0
"""Timeout in seconds of the last confirmation when polling stops. Telegram sends unconfirmed updates again, and the gateway
drops the duplicates.
"""
LONGEST_PAUSE = 3.0
"""Max seconds between two polls after a failure. It is short, because no updates arrive in between and a poll is cheap."""
REFUSED_PAUSE = 30.0  # Max seconds between two polls while Telegram refuses the token
DISK_PAUSE = 0.5
"""Max seconds between two polls while no update can be written to disk. It is short, because a stop needs no disk and
must be received.
"""
LONGEST_RETRY_AFTER = 600.0
"""Max seconds of Telegram's `retry_after` that are obeyed, because no updates arrive during the wait."""
CALM = 30.0
"""Seconds without a conflict after which a conflict has ended. The other process may pause between its polls."""
CONTESTED = 30.0
"""Seconds of conflict after which the channel counts as disconnected. At a restart, two processes overlap for less time."""


class UpdatePoller:
    def __init__(self, bot: Bot, updates: UpdateIntake, around: ChannelDeps, *, patience: float) -> None:
        self._bot = bot
        self._updates = updates
        self._clock, self._log, self._rng = around.clock, around.log, around.rng
        self._patience = min(patience, LATE)
        self._connected = True
        self._heard = self._clock.now()
        self._trouble = ""
        self._failures = 0
        self._conflict: tuple[float, float] | None = None
        """Times (monotonic seconds) of the first and the last conflict with another process that polls with the same token.
        Telegram gives each update to only one of the processes.
        """
        self._contested_since = ""
        self._offset: int | None = None  # Id of the first update that is not stored yet
        self._confirmed: int | None = None  # Offset in the last poll that Telegram answered
        self._stopping = False
        self._step: Literal["poll", "take", "pause"] = "pause"
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Remove a webhook, keep its pending updates, and begin to poll. Raises `TelegramError`."""
        await self._bot.call("deleteWebhook", {"drop_pending_updates": False})
        self._task = asyncio.create_task(self._run(), name="telegram poll")

    def health(self) -> Health:
        if self._task is None or self._task.done():
            return Health(connected=False, last_heard=self._heard, detail="stopped")
        lost = self._conflict is not None and self._clock.monotonic() - self._conflict[0] >= CONTESTED
        return Health(self._connected and not lost, self._heard, self._trouble)

    async def renew(self) -> None:
        """Cancel the open poll and begin a new one. Updates that are being processed continue."""
        task = self._task
        if task is None or not (self._step == "poll" or task.done()):
            return
        task.cancel()
        await asyncio.wait({task})
        if self._task is task and not self._stopping:
            self._task = asyncio.create_task(self._run(), name="telegram poll")

    async def stop(self) -> None:
        """Finish the updates that are being processed, and confirm all stored updates to Telegram."""
        self._stopping = True
        self._updates.stop()
        task, self._task = self._task, None
        if task is None:
            return
        if self._step != "take":
            task.cancel()
        await asyncio.wait({task})
        if self._offset != self._confirmed:
            with contextlib.suppress(TelegramError, TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._poll(0, limit=1)

    async def _run(self) -> None:
        while not self._stopping:
            try:
                await self._round()
            except (TelegramError, errors.StorageError, NotTaken) as error:
                pause = self._failed(error)
                if not self._stopping:
                    self._step = "pause"
                    await self._clock.sleep(pause)
            else:
                if self._conflict is None or self._clock.monotonic() - self._conflict[1] >= CALM:
                    if self._trouble:
                        self._log.write("channel", "Telegram: all is well again", channel="telegram")
                    self._trouble, self._conflict, self._failures = "", None, 0

    async def _round(self) -> None:
        # After a failure, Telegram should answer at once, so that the end of the failure is noticed early. After a conflict,
        # Telegram should wait as usual, because only a waiting poll shows that no other process polls.
        hold = 0 if self._trouble and self._conflict is None else HOLD
        self._step = "poll"
        updates = await self._poll(hold)
        self._step = "take"
        self._heard, self._connected = self._clock.now(), True
        taken: set[int] = set()
        try:
            await self._updates.take(updates, taken)
        finally:
            for number in sorted(one["update_id"] for one in updates):
                if number not in taken:
                    break
                self._offset = number + 1

    async def _poll(self, hold: int, limit: int = 100) -> list[Json]:
        offset = self._offset
        fields = {"timeout": hold, "limit": limit, "allowed_updates": list(inbound.HANDLED), "offset": offset}
        found = await self._bot.call("getUpdates", fields, seconds=hold + self._patience)
        if not isinstance(found, list) or not all(map(has_id, found)):
            raise OutcomeUnknown("getUpdates answered without a list of updates")
        self._confirmed = offset
        return found

    def _failed(self, error: TelegramError | errors.StorageError | NotTaken) -> float:
        """Log a failure once, not again while it lasts. Return the seconds until the next poll."""
        longest, wait = LONGEST_PAUSE, 0.0
        match error:
            case Conflict():
                now, self._heard = self._clock.monotonic(), self._clock.now()
                if self._conflict is None:
                    self._contested_since = f"{datetime.fromtimestamp(self._heard, UTC):%F %T} UTC"
                self._conflict = (now if self._conflict is None else self._conflict[0], now)
                trouble = f"another process polls with this bot's token (409) since {self._contested_since}"
            case errors.StorageError():
                trouble, longest = NOT_WRITTEN, DISK_PAUSE
            case NotTaken():
                trouble = str(error)
            case InvalidToken():
                trouble, longest = "the token is refused", REFUSED_PAUSE
            case TooManyRequests():
                trouble, wait = "asked to poll less often", min(error.wait, LONGEST_RETRY_AFTER)
            case _:
                trouble = f"cannot be reached ({error})"
        if isinstance(error, TelegramError) and not isinstance(error, Conflict):
            self._connected = False
        if trouble != self._trouble:
            level: Literal["error", "warn"] = "error" if isinstance(error, NotTaken) else "warn"
            self._log.write("channel", f"Telegram: {trouble}", level=level, channel="telegram")
        self._trouble = trouble
        self._failures = min(self._failures + 1, 10)
        return max(wait, min(longest, 2.0 ** (self._failures - 1) * (1 + self._rng.random() / 4)))
