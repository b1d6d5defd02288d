"""Keeps messages of a group that were not for the bot, in memory, for platforms without a history API."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace

from bot import text
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, Quoted

MOST_KEPT = 30
"""Max messages kept for each conversation."""
KEPT_SECONDS = 3_600.0
"""Max age in seconds of a kept message."""
MOST_CHATS = 200
"""Max conversations with kept messages; the least recent conversations are dropped."""
LONGEST_KEPT = 2_000
"""Max characters of a kept message."""


@dataclass(frozen=True, slots=True)
class _RecentMessage:
    """A kept message: the time at which it was received (monotonic seconds), and its current text with quotes."""

    inbound: Inbound
    at: float
    said: tuple[Quoted, ...]

    @property
    def message_id(self) -> str | None:
        return self.inbound.message_id


class UnaddressedMessages:
    """Keeps messages that were not for the bot, in memory only. These messages are never stored and are lost
    when the process ends.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chats: OrderedDict[ChatKey, deque[_RecentMessage]] = OrderedDict()

    def keep(self, inbound: Inbound) -> None:
        """Keep a message that was not for the bot, or the author's edit of a kept message."""
        kept = self._chats.get(inbound.chat_key, deque(maxlen=MOST_KEPT))
        said = _said(inbound) if inbound.kind != "delete" else ()
        if inbound.kind == "message" and self.author(inbound.chat_key, inbound.message_id) is None:
            kept.append(_RecentMessage(inbound, self._clock.monotonic(), said))
            self._chats[inbound.chat_key] = kept
            self._chats.move_to_end(inbound.chat_key)
        else:
            _change(kept, inbound.message_id, said)
        while len(self._chats) > MOST_CHATS:
            self._chats.popitem(last=False)

    def author(self, chat_key: ChatKey, message_id: str | None) -> str | None:
        """Return the author of a kept message; None if the author is unknown."""
        kept = self._chats.get(chat_key, ()) if message_id is not None else ()
        said = (quoted for one in kept if one.message_id == message_id for quoted in one.said)
        return next((one.user_id for one in said), None)

    def forget(self, chat_key: ChatKey, message_id: str) -> None:
        """Drop the message with this id."""
        _change(self._chats.get(chat_key, deque()), message_id, ())

    def early(self, opening: Inbound) -> list[Inbound]:
        """Return the messages of a thread that precede the message which brought the bot into the thread."""
        kept = self._chats.get(opening.chat_key, ()) if not opening.overheard else ()
        early = (one.inbound for one in kept if one.said and one.inbound.ts >= opening.ts)
        return [one for one in early if one.addressed == "thread"]

    def before(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Return the messages that precede this message in its conversation, oldest first."""
        oldest = self._clock.monotonic() - KEPT_SECONDS
        kept = self._chats.get(inbound.chat_key, ())
        return tuple(quoted for one in kept if one.at >= oldest for quoted in one.said)


def _change(kept: deque[_RecentMessage], message_id: str | None, said: tuple[Quoted, ...]) -> None:
    for at, one in enumerate(kept):
        if one.message_id == message_id:
            kept[at] = replace(one, said=said)


def _said(inbound: Inbound) -> tuple[Quoted, ...]:
    own = Quoted(
        user_id=inbound.user_id,
        text=text.shorten_middle(inbound.text, LONGEST_KEPT),
        user_name=inbound.user_name,
        ts=inbound.ts,
        message_id=inbound.message_id,
        files=tuple(one.name or one.kind for one in inbound.attachments),
    )
    passed_on = (
        one.model_copy(
            update={
                "text": text.shorten_middle(one.text, LONGEST_KEPT),
                "message_id": inbound.message_id,
                "ts": inbound.ts,
                "brought": False,
            }
        )
        for one in inbound.brought
    )
    return (*([own] if own.text.strip() or own.files else []), *passed_on)
