"""The watchdog of the channels, which reconnects a channel whose platform sends nothing any more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bot.contracts.channel import Health
from bot.contracts.environment import cancel_all
from bot.core.operators import OperatorAlerts
from bot.core.services import Services
from bot.words import Sentence, sentence

LOOK_EVERY = 3.0  # Interval in seconds between two checks of the channels
PATIENCE = 30.0
"""Max seconds for which a channel may try to reconnect by itself. Most interruptions are shorter."""
HEAL_EVERY = 60.0  # Min interval in seconds between the starts of two reconnects of a channel
HEAL_SECONDS = 60.0  # Timeout in seconds of one reconnect by the watchdog


@dataclass(slots=True)
class _Seen:
    """State of one channel. Times are monotonic, so that changing the system clock has no effect."""

    heard: float
    sign: float | None = None
    open: bool = False
    since: float | None = None
    reported: bool = False
    heal_at: float = 0.0
    healing: asyncio.Task[None] | None = None


@dataclass(eq=False)
class ChannelWatchdog:
    """Checks the `health` of each channel every few seconds while `run` runs. It reconnects silent channels and alerts
    operators.
    """

    services: Services
    alerts: OperatorAlerts

    def __post_init__(self) -> None:
        self._looked = self.services.clock.monotonic()
        self.seen = {name: _Seen(self._looked) for name in self.services.channels}

    def opened(self, channel: str) -> None:
        """Record that a channel has connected for the first time. The watchdog never reconnects a channel before this."""
        seen = self.seen[channel]
        seen.open, seen.heard = True, self.services.clock.monotonic()

    def silent(self, channel: str) -> float | None:
        """Return the seconds for which the platform has been silent, if they exceed `Manifest.silence`; otherwise None."""
        seen, longest = self.seen[channel], self.services.manifests[channel].silence
        silence = self.services.clock.monotonic() - seen.heard
        return silence if seen.open and longest is not None and silence > longest else None

    async def run(self) -> None:
        """Check the channels until cancelled."""
        try:
            while True:
                self.look()
                await self.services.clock.sleep(LOOK_EVERY)
        finally:
            await cancel_all(seen.healing for seen in self.seen.values() if seen.healing is not None)

    def look(self) -> None:
        now = self.services.clock.monotonic()
        missed, self._looked = now - self._looked - LOOK_EVERY, now
        for name, channel in self.services.channels.items():
            seen, health = self.seen[name], channel.health()
            if missed > LOOK_EVERY:
                # While the process was frozen or suspended, no message could arrive, so this time is not silence.
                seen.heard += missed
            if health.last_heard is None or health.last_heard != seen.sign:
                seen.sign, seen.heard = health.last_heard, now
            silence = self.silent(name)
            if (trouble := _trouble(health, silence)) is None:
                if seen.reported and seen.since is not None:
                    self.services.log.write("channel", f"{name} is well again", channel=name)
                    minutes = round((now - seen.since) / 60)
                    self.alerts.end(name, sentence("operators.channel_again", channel=name, count=minutes))
                seen.since, seen.reported, seen.heal_at = None, False, 0.0
                continue
            seen.since = now if seen.since is None else seen.since
            if silence is not None or now - seen.since >= PATIENCE:
                self._report(name, seen, trouble, now)

    def _report(self, name: str, seen: _Seen, trouble: Sentence, now: float) -> None:
        """Alert operators once, and give the channel a new connection once a minute."""
        log = self.services.log
        if not seen.reported:
            seen.reported = True
            log.write("channel", f"{name} is in trouble: {trouble}", level="error", channel=name)
            self.alerts.begin(name, sentence("operators.channel", channel=name, cause=trouble))
        if seen.open and seen.healing is None and now >= seen.heal_at:
            seen.heal_at = now + HEAL_EVERY
            log.write("channel", f"{name} gets a new connection", level="warn", channel=name)
            seen.healing = asyncio.create_task(self._heal(name, seen), name=f"heal {name}")

    async def _heal(self, name: str, seen: _Seen) -> None:
        healing = asyncio.create_task(self.services.channels[name].heal())
        try:
            await asyncio.wait([healing], timeout=HEAL_SECONDS)
            cause = f"not done after {HEAL_SECONDS:g} s"
            if healing.done() and not healing.cancelled():
                error = healing.exception()
                cause = f"{type(error).__name__}: {error}" if error else ""
            if cause:
                words = f"{name} could not be healed: {cause}"
                self.services.log.write("channel", words, level="error", channel=name)
        finally:
            healing.cancel()
            seen.healing = None


def _trouble(health: Health, silence: float | None) -> Sentence | None:
    """Return a description of a channel's trouble for operators; None if it works."""
    why = f" ({health.detail})" if health.detail else ""
    if not health.connected:
        return sentence("operators.disconnected", why=why)
    if silence is not None:
        return sentence("operators.silent", seconds=round(silence), why=why)
    return sentence("operators.hindered", detail=health.detail) if health.detail else None
