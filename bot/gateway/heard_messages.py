"""Heard messages: what people say in groups without speaking to the bot, for platforms that cannot be asked for it later."""

from __future__ import annotations

from collections import OrderedDict, deque

from bot import text
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, Quoted

MOST = 30
"""Messages of one conversation that are kept."""
SECONDS = 3_600.0
"""Age of a message at which it is kept no longer."""
CHATS = 200
"""Conversations whose messages are kept: those that were last spoken in."""
LONGEST = 2_000
"""Characters of one message."""


class HeardMessages:
    """In memory alone: what was not said to the bot is written down nowhere, and is gone with the process, before anything of
    a person can be erased.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chats: OrderedDict[ChatKey, deque[tuple[float, Quoted]]] = OrderedDict()

    def keep(self, inbound: Inbound) -> None:
        """Keep a message that was not for the bot, or what its author has made of it."""
        kept = self._chats.get(inbound.chat_key, deque(maxlen=MOST))
        if inbound.kind == "message":
            if inbound.says or inbound.attachments:
                kept.append((self._clock.monotonic(), _quoted(inbound)))
                self._chats[inbound.chat_key] = kept
                self._chats.move_to_end(inbound.chat_key)
        else:
            changed = [
                (at, _quoted(inbound) if inbound.kind == "edit" else None)
                if one.message_id == inbound.message_id
                else (at, one)
                for at, one in kept
            ]
            kept.clear()
            kept.extend((at, one) for at, one in changed if one is not None)
        while len(self._chats) > CHATS:
            self._chats.popitem(last=False)

    def before(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Messages that were heard in the conversation of an inbound before it, oldest first."""
        oldest = self._clock.monotonic() - SECONDS
        kept = self._chats.get(inbound.chat_key, ())
        return tuple(one for at, one in kept if at >= oldest and (one.ts or 0) <= inbound.ts)


def _quoted(inbound: Inbound) -> Quoted:
    return Quoted(
        user_id=inbound.user_id,
        text=text.shorten_middle(
            "\n".join([inbound.text, *(one.text for one in inbound.brought)]).strip(), LONGEST
        ),
        user_name=inbound.user_name,
        ts=inbound.ts,
        message_id=inbound.message_id,
        files=tuple(one.name or one.kind for one in inbound.attachments),
    )
