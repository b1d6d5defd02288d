"""Decides which messages of a group are for the bot, as set by `/listen`; keeps the others in memory for
platforms without a history API.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from typing import Literal

from bot import text
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, Quoted

Listening = Literal["mention", "thread", "always", "never"]
"""The messages of a group that are for the bot, besides commands: those that mention it; also replies to it, and threads that it
takes part in; all; none.
"""


LISTENING: tuple[Listening, ...] = ("mention", "thread", "always", "never")


HEARD: Listening = "thread"
"""The choice where nobody has made one."""


MOST_KNOWN = 10_000
"""Max conversations cached as joined; for others the log is asked."""
SKEW = 300.0
"""Max clock difference to a platform, in seconds."""


class Participation(ABC):
    """Decides for each message whether it is for the bot. Raises `errors.StorageError`."""

    def __init__(self) -> None:
        self._asking: dict[ChatKey, asyncio.Future[bool]] = {}
        self._known: dict[ChatKey, None] = {}

    @abstractmethod
    async def listening(self, chat: ChatKey) -> Listening:
        """Return which messages of a chat are for the bot."""

    @abstractmethod
    async def _heard(self, chat_key: ChatKey) -> bool:
        """Return True if the log has a message of this conversation."""

    @abstractmethod
    async def _concerns(self, change: Inbound) -> bool:
        """Return True if the bot has received the changed message, or may have been shown it as context."""

    def _asks(self, inbound: Inbound) -> bool:  # noqa: ARG002
        """Return True if the person is asked something in this conversation."""
        return False

    async def counts(self, inbound: Inbound) -> bool:
        """Return True if an inbound is for the bot. Later messages of the same conversation wait for the
        answer, to keep their order.
        """
        chat_key = inbound.chat_key
        while (asking := self._asking.get(chat_key)) is not None:
            await asyncio.wait([asking])
        if inbound.addressed in {"direct", "command"} or (
            chat_key in self._known and inbound.addressed == "thread" and not _listened_to(inbound)
        ):
            return True
        asking = self._asking[chat_key] = asyncio.ensure_future(self._decide(inbound))
        try:
            return await asyncio.shield(asking)
        finally:
            del self._asking[chat_key]

    def joined(self, chat_key: ChatKey) -> None:
        """Record that the bot takes part in a conversation, from now on."""
        self._known[chat_key] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    async def _decide(self, inbound: Inbound) -> bool:
        if _listened_to(inbound):
            listening = await self.listening(inbound.chat_key)
            if listening in {"always", "never"}:
                return listening == "always"
            if inbound.addressed == "chat":
                return False
            if listening == "mention" and inbound.addressed != "mention" and not self._asks(inbound):
                return False
            if inbound.overheard and inbound.to_others:
                return False
        elif inbound.overheard:
            # A change belongs to the place of its message, whatever `/listen` said since.
            takes_part = inbound.addressed == "thread" and await self._takes_part(inbound.chat_key)
            return takes_part or await self._concerns(inbound)
        return not inbound.overheard or await self._takes_part(inbound.chat_key)

    async def _takes_part(self, chat_key: ChatKey) -> bool:
        if chat_key in self._known:
            return True
        known = await self._heard(chat_key)
        if known:
            self.joined(chat_key)
        return known


def _listened_to(inbound: Inbound) -> bool:
    """Return True for text; commands and changes always pass."""
    return inbound.kind == "message" and inbound.command is None


MOST_KEPT = 30
"""Max messages kept per conversation."""
KEPT_SECONDS = 3_600.0
"""Max age in seconds of a kept message."""
MOST_CHATS = 200
"""Max conversations with kept messages; the most recent ones."""
LONGEST_KEPT = 2_000
"""Max characters of a kept message."""


@dataclass(frozen=True, slots=True)
class _RecentMessage:
    """A message: when it was received (monotonic seconds), and its current text with quotes."""

    inbound: Inbound
    at: float
    said: tuple[Quoted, ...]

    @property
    def message_id(self) -> str | None:
        return self.inbound.message_id


class UnaddressedMessages:
    """Kept in memory only: what was not addressed to the bot is never stored and is lost with the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chats: OrderedDict[ChatKey, deque[_RecentMessage]] = OrderedDict()

    def keep(self, inbound: Inbound) -> None:
        """Keep a message that was not for the bot, or its author's edit of it."""
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
        """Return the author of a kept message; None if it is unknown."""
        kept = self._chats.get(chat_key, ()) if message_id is not None else ()
        said = (quoted for one in kept if one.message_id == message_id for quoted in one.said)
        return next((one.user_id for one in said), None)

    def forget(self, chat_key: ChatKey, message_id: str) -> None:
        """Drop the message with this id."""
        _change(self._chats.get(chat_key, deque()), message_id, ())

    def early(self, opening: Inbound) -> list[Inbound]:
        """Return messages of a thread that precede the one that brought the bot into it."""
        kept = self._chats.get(opening.chat_key, ()) if not opening.overheard else ()
        early = (one.inbound for one in kept if one.said and one.inbound.ts >= opening.ts)
        return [one for one in early if one.addressed == "thread"]

    def before(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Return earlier messages of an inbound's conversation, oldest first."""
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
