"""Unaddressed messages: what people say in groups without speaking to the bot, for platforms that cannot be asked for it later."""

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
class _RecentMessage:
    """One message: its id, when it was heard (monotonic seconds), and its words with those that it passes on."""

    message_id: str | None
    at: float
    said: tuple[Quoted, ...]


class UnaddressedMessages:
    """In memory alone: what was not said to the bot is written down nowhere, and is gone with the process, before anything of
    a person can be erased.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chats: OrderedDict[ChatKey, deque[_RecentMessage]] = OrderedDict()

    def keep(self, inbound: Inbound) -> None:
        """Keep a message that was not for the bot, once; or what its author has made of one that is kept."""
        kept = self._chats.get(inbound.chat_key, deque(maxlen=MOST))
        said = _said(inbound) if inbound.kind != "delete" else ()
        if inbound.kind == "message" and self.author(inbound.chat_key, inbound.message_id) is None:
            kept.append(_RecentMessage(inbound.message_id, self._clock.monotonic(), said))
            self._chats[inbound.chat_key] = kept
            self._chats.move_to_end(inbound.chat_key)
        else:
            _change(kept, inbound.message_id, said)
        while len(self._chats) > CHATS:
            self._chats.popitem(last=False)

    def author(self, chat_key: ChatKey, message_id: str | None) -> str | None:
        """The person whose message with this id is kept; None where there is none."""
        kept = self._chats.get(chat_key, ()) if message_id is not None else ()
        said = (quoted for one in kept if one.message_id == message_id for quoted in one.said)
        return next((one.user_id for one in said), None)

    def forget(self, chat_key: ChatKey, message_id: str) -> None:
        """Keep the message with this id no longer."""
        _change(self._chats.get(chat_key, deque()), message_id, ())

    def before(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Messages that were heard in the conversation of an inbound, oldest first."""
        oldest = self._clock.monotonic() - SECONDS
        kept = self._chats.get(inbound.chat_key, ())
        return tuple(quoted for one in kept if one.at >= oldest for quoted in one.said)


def _change(kept: deque[_RecentMessage], message_id: str | None, said: tuple[Quoted, ...]) -> None:
    for at, one in enumerate(kept):
        if one.message_id == message_id:
            kept[at] = replace(one, said=said)


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
