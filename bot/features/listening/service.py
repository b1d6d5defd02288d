"""Listening settings, stored as facts of the chat."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, Quoted
from bot.core.chat import Chat, Turn
from bot.core.chats import Fact
from bot.core.events import FactSet, TurnEndState
from bot.core.feature import Done, Runtime
from bot.features.listening.before import CONTEXT_SECONDS, PlatformHistory, around
from bot.features.listening.participation import (
    HEARD,
    LISTENING,
    SKEW,
    Listening,
    Participation,
    UnaddressedMessages,
)
from bot.words import paragraph, say

LISTENS = "listening"
"""Kind of the facts that store which messages a chat's bot listens to."""
UNSEEN = "unseen"
"""Kind of the facts that store when a chat was told that its messages cannot be read."""
DAY = 24 * 3_600.0


class ListeningService(Participation):
    """Filters group inbounds, runs `/listen`, and provides earlier messages to turns."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._run = runtime
        self._unaddressed = UnaddressedMessages(runtime.clock)
        self._platforms = PlatformHistory(runtime.channels, runtime.clock)
        self._unseen = set[str]()
        """Turns that started without earlier messages, because reading them is not permitted."""

    # ------------------------------------------------------------ what comes in

    async def counted(self, inbound: Inbound) -> Sequence[Inbound]:
        """Return an inbound for the bot, after earlier messages of its thread; () if it is not for the bot."""
        counts = await self.counts(inbound)
        if not counts or inbound.kind in {"edit", "delete"}:
            self._unaddressed.keep(inbound)
        if not counts:
            return ()
        if inbound.kind == "message":
            self.joined(inbound.chat_key)
        found = [inbound]
        for early in self._unaddressed.early(inbound):
            self._unaddressed.forget(early.chat_key, early.message_id or "")
            if await self.counts(early):
                found.append(early.model_copy(update={"request_id": ""}))
            else:
                self._unaddressed.keep(early)
        return found

    async def listening(self, chat: ChatKey) -> Listening:
        chosen = self._run.chats.facts.get(LISTENS, str(chat.chat))
        return HEARD if chosen is None else cast("Listening", chosen["to"])

    async def hears_all(self, chat: ChatKey) -> bool:
        """Return True if every message of a chat is for the bot."""
        return await self.listening(chat) == "always"

    async def _heard(self, chat_key: ChatKey) -> bool:
        return chat_key in await self._run.event_log.spoken_in(chat_key)

    async def _concerns(self, change: Inbound) -> bool:
        chat = await self._run.chats.get(change.chat_key)
        if any(one.message_id == change.message_id for one in chat.said):
            return True
        since = change.ts / 1000 - SKEW
        return change.kind == "delete" and bool(
            await self._run.event_log.spoken_in(change.chat_key.chat, since)
        )

    # ------------------------------------------------------------ the command

    async def listen(self, inbound: Inbound) -> Done:
        """`/listen`: show what the bot listens to in a group; operators change it."""
        asked, operator = inbound.args.casefold(), inbound.person in self._run.operators
        if inbound.chat_type == "direct":
            return Done(say("listen.direct"))
        if not asked:
            prefix = self._run.manifests[inbound.channel].command_prefix
            how = say("listen.change", choices=", ".join(LISTENING), prefix=prefix) if operator else ""
            return Done(paragraph(say(f"listen.{await self.listening(inbound.chat_key)}"), how))
        if not operator:
            return Done(say("commands.operators_listen"))
        if asked not in LISTENING:
            return Done(say("listen.unknown", choices=", ".join(LISTENING)))
        chosen = FactSet(LISTENS, str(inbound.chat_key.chat), {"to": asked})
        return Done(say(f"listen.{asked}"), (Fact(inbound.chat_key, chosen),))

    # ------------------------------------------------------------ before a turn

    async def before(self, chat: Chat, inbound: Inbound) -> Sequence[Quoted]:
        """Return earlier messages if the bot is new to a conversation or mentioned in a group."""
        known = chat.context.head is not None or len(chat.context) > 0
        mentioned = inbound.chat_type == "group" and inbound.addressed == "mention"
        if not mentioned and (known or inbound.opens):
            return ()
        told: Sequence[Quoted] = ()
        try:
            async with asyncio.timeout(CONTEXT_SECONDS):
                told = await self._platforms.before(inbound)
        except (TimeoutError, errors.ShipmateError) as error:
            why = f"{type(error).__name__}: {error}"
            self._run.log.write("inbound", f"the earlier messages cannot be read: {why}", level="warn")
            if isinstance(error, errors.RightMissing):
                self._unseen.add(inbound.request_id)
        earlier = [one.ts for one in chat.said if one.request_id < inbound.request_id]
        since = max(earlier, default=0) if known else None
        return around(inbound, told, self._unaddressed.before(inbound), since)

    def turn_ends(self, turn: Turn, _: TurnEndState) -> Done:
        """Tell a chat once a day that its messages cannot be read."""
        if turn.id not in self._unseen:
            return Done()
        self._unseen.discard(turn.id)
        key, now = str(turn.first.chat_key.chat), self._run.clock.now()
        told = self._run.chats.facts.get(UNSEEN, key)
        if told is not None and now - told["at"] < DAY:
            return Done()
        return Done(say("turn.unseen"), (Fact(turn.first.chat_key, FactSet(UNSEEN, key, {"at": now})),))
