"""Heard messages: what people say in groups without speaking to the bot, for platforms that cannot be asked for it later."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class _Heard:
    """One message: its id, when it was heard (monotonic seconds), and its words with those that it passes on."""

    message_id: str | None
    at: float
    said: tuple[Quoted, ...]


class HeardMessages:
    """In memory alone: what was not said to the bot is written down nowhere, and is gone with the process, before anything of
    a person can be erased.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chats: OrderedDict[ChatKey, deque[_Heard]] = OrderedDict()

    def keep(self, inbound: Inbound) -> None:
        """Keep a message that was not for the bot, or what its author has made of it."""
        kept = self._chats.get(inbound.chat_key, deque(maxlen=MOST))
        said = _said(inbound) if inbound.kind != "delete" else ()
        if inbound.kind == "message":
            kept.append(_Heard(inbound.message_id, self._clock.monotonic(), said))
            self._chats[inbound.chat_key] = kept
            self._chats.move_to_end(inbound.chat_key)
        else:
            changed = [
                replace(one, said=said) if one.message_id == inbound.message_id else one for one in kept
            ]
            kept.clear()
            kept.extend(changed)
        while len(self._chats) > CHATS:
            self._chats.popitem(last=False)

    def before(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Messages that were heard in the conversation of an inbound, oldest first."""
        oldest = self._clock.monotonic() - SECONDS
        kept = self._chats.get(inbound.chat_key, ())
        return tuple(quoted for one in kept if one.at >= oldest for quoted in one.said)


def _said(inbound: Inbound) -> tuple[Quoted, ...]:
    own = Quoted(
        user_id=inbound.user_id,
        text=text.shorten_middle(inbound.text, LONGEST),
        user_name=inbound.user_name,
        ts=inbound.ts,
        message_id=inbound.message_id,
        files=tuple(one.name or one.kind for one in inbound.attachments),
    )
    passed_on = (
        one.model_copy(
            update={
                "text": text.shorten_middle(one.text, LONGEST),
                "message_id": inbound.message_id,
                "ts": inbound.ts,
                "brought": False,
            }
        )
        for one in inbound.brought
    )
    return (*([own] if own.text.strip() or own.files else []), *passed_on)
