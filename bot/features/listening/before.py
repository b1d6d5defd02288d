"""Messages from before one that addresses the bot: from the platform, and as received."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot import errors
from bot.contracts.channel import Channel
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, Quoted

CONTEXT_SECONDS = 20.0
"""Timeout for a platform to return a thread's earlier messages; then the turn starts without them."""
FIRST_REST, LONGEST_REST = 60.0, 3_600.0
"""Seconds before a platform that refused to show a chat's messages is asked again: first value, doubled up
to the second.
"""
MOST_RESTING = 1_000
"""Max chats for which a refusal is remembered."""


class PlatformHistory:
    """Asks platforms for earlier messages."""

    def __init__(self, channels: Mapping[str, Channel], clock: Clock) -> None:
        self._channels = channels
        self._clock = clock
        self._refused: dict[ChatKey, tuple[float, float]] = {}
        """Chats whose platform refused: until when it is not asked (monotonic), and the length of that pause."""

    async def before(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Return the earlier messages that a platform shows; () during the pause after a refusal."""
        chat, now = inbound.chat_key.chat, self._clock.monotonic()
        until, rest = self._refused.pop(chat, (0.0, FIRST_REST / 2))
        if now < until:
            self._refused[chat] = until, rest
            return ()
        try:
            return await self._channels[inbound.channel].context(inbound)
        except errors.ChannelRefused:
            rest = min(rest * 2, LONGEST_REST)
            self._refused[chat] = now + rest, rest
            if len(self._refused) > MOST_RESTING:
                del self._refused[next(iter(self._refused))]
            raise


def around(
    inbound: Inbound, told: Sequence[Quoted], heard: Sequence[Quoted], since: int | None
) -> tuple[Quoted, ...]:
    """Merge earlier messages from the platform (`told`) and as received (`heard`), without quotes of the
    inbound. In a conversation known to the model, only people's messages after `since` (epoch ms).
    """
    quoted = {one.message_id for one in inbound.quoted}
    found = [one for one in told if one.message_id is None or one.message_id not in quoted]
    shown = quoted | {one.message_id for one in found}
    if inbound.addressed == "mention":
        found += [one for one in heard if one.message_id not in shown]
    return tuple(one for one in found if since is None or ((one.ts or 0) > since and not one.from_self))
