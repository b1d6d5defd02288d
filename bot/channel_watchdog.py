"""Reconnects channels whose platform has fallen silent, and alerts operators."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.contracts.channel import Channel, Health, Manifest
from bot.contracts.environment import Clock, Log
from bot.core.operators import OperatorAlerts
from bot.words import Sentence, sentence

LOOK_EVERY = 3.0
"""Interval in seconds between two checks of the channels."""
PATIENCE = 30.0
"""Seconds for which a channel may try to reconnect by itself. Most interruptions are short."""
FIRST_PAUSE = 30.0
LONGEST_PAUSE = 300.0
"""Max interval in seconds between two reconnects. The interval doubles after each reconnect."""
HEAL_SECONDS = 60.0
"""Timeout in seconds of one reconnect."""


@dataclass(slots=True)
class _Seen:
    """State of one channel. Times are monotonic, so that changing the system clock has no effect."""

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
    """Checks the `health` of each channel every few seconds while `run` is running."""

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
        """Record that the channel has connected for the first time. Only then may the watchdog reconnect it."""
        seen = self.seen[channel]
        seen.open, seen.heard = True, self._clock.monotonic()

    def silent(self, channel: str) -> float | None:
        """Return how many seconds the platform has been silent, if that is longer than `Manifest.silence`;
        None otherwise.
        """
        seen, longest = self.seen[channel], self._manifests[channel].silence
        silence = self._clock.monotonic() - seen.heard
        return silence if seen.open and longest is not None and silence > longest else None

    async def run(self) -> None:
        """Check the channels until cancelled."""
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
        """Check every channel once."""
        now = self._clock.monotonic()
        missed, self._looked = now - self._looked - LOOK_EVERY, now
        if missed > LOOK_EVERY:
            # The process was frozen or the machine was suspended, so no message could arrive.
            for seen in self.seen.values():
                seen.heard += missed
        for name, channel in self._channels.items():
            self._look(name, channel.health())

    def _look(self, name: str, health: Health) -> None:
        seen, now = self.seen[name], self._clock.monotonic()
        if health.last_heard is None or health.last_heard != seen.sign:
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
    """Return a description of the channel's trouble, for operators."""
    why = f" ({health.detail})" if health.detail else ""
    if not health.connected:
        return sentence("operators.disconnected", why=why)
    if silence is not None:
        return sentence("operators.silent", seconds=round(silence), why=why)
    return sentence("operators.hindered", detail=health.detail) if health.detail else None
