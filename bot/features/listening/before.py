"""Messages from before one that speaks to the bot: as its platform shows them, and as they were heard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot import errors
from bot.contracts.channel import Channel
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, Quoted

CONTEXT_SECONDS = 20.0
"""Timeout for a platform to show the earlier messages of a thread; after that the turn begins without them."""
FIRST_REST, LONGEST_REST = 60.0, 3_600.0
"""Seconds for which a platform that has refused to show the messages of a chat is not asked again: doubled each time."""
MOST_RESTING = 1_000
"""Limit of chats that are left alone."""


class PlatformHistory:
    """Asks platforms for what was said before a message."""

    def __init__(self, channels: Mapping[str, Channel], clock: Clock) -> None:
        self._channels = channels
        self._clock = clock
        self._refused: dict[ChatKey, tuple[float, float]] = {}
        """Chats that their platform does not show: until when it is left alone (monotonic), and for how long that was."""

    async def before(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """The messages that a platform shows of before an inbound; () while it is left alone after a refusal."""
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
    """The messages from before an inbound, by what its platform has `told` and by what was `heard`, without those that it brings;
    of a conversation that is known the new ones of people, `since` the last message there (ms).
    """
    quoted = {one.message_id for one in inbound.quoted}
    found = [one for one in told if one.message_id is None or one.message_id not in quoted]
    shown = quoted | {one.message_id for one in found}
    if inbound.addressed == "mention":
        found += [one for one in heard if one.message_id not in shown]
    return tuple(one for one in found if since is None or ((one.ts or 0) > since and not one.from_self))
