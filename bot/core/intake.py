"""The door of the core, as channels see it: judges, recognises what is brought twice, writes down."""

from __future__ import annotations

from bot.contracts.approvals import OpenQuestion
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.channel import HomeSection
from bot.contracts.environment import Ids
from bot.contracts.environment import Log as OperatorLog
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.core import events
from bot.core.access import Access, InboundCleaner
from bot.core.archive.store import ChatStore
from bot.core.chats import Chats, Fact
from bot.core.event_log import EventLog
from bot.words import Sentence


class Intake:
    """`contracts.channel.Intake`."""

    def __init__(
        self,
        chats: Chats,
        event_log: EventLog,
        access: Access,
        cleaner: InboundCleaner,
        *,
        archive: ChatStore,
        model: str,
        ids: Ids,
        log: OperatorLog,
    ) -> None:
        self._chats = chats
        self._event_log = event_log
        self._access = access
        self._cleaner = cleaner
        self._archive = archive
        self._model = model
        self._ids = ids
        self._log = log
        self._coming = set[str]()
        """Keys of what is being taken in."""

    async def accept(self, inbound: Inbound) -> bool:
        inbound = self._cleaner.cleaned(inbound)
        if not self._access.judge(inbound).allowed or not self._coming.isdisjoint(inbound.keys):
            return False
        self._coming.update(inbound.keys)
        try:
            if await self._event_log.known(inbound.keys):
                # Perhaps it is not on disk yet: then the platform must not be told that it arrived.
                await self._event_log.committed(patient=False)
                return False
            chat = await self._chats.get(inbound.chat_key)
            inbound = inbound.model_copy(update={"request_id": self._ids.ulid()})
            self._chats.append(Fact(chat.key, _event(inbound), person=inbound.user_id, id=inbound.request_id))
            self._log.write(
                "inbound",
                "message taken in",
                chat_key=chat.key,
                request_id=inbound.request_id,
                channel=inbound.channel,
                user_id=inbound.user_id,
                message_id=inbound.message_id,
                addressed=inbound.addressed,
                length=len(inbound.text),
                attachments=len(inbound.attachments),
            )
            await self._event_log.committed(patient=False)
        finally:
            self._coming.difference_update(inbound.keys)
        return True

    async def hears_all(self, chat: ChatKey) -> bool:
        del chat
        return False

    async def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> None:
        """Write down an event that cannot be read, in the log of what belongs to no chat."""
        chat = await self._chats.get(NO_CHAT)
        self._chats.append(Fact(chat.key, events.Unreadable(channel, key, raw, reason)))
        self._log.write(
            "error", "an event could not be read", level="error", channel=channel, key=key, reason=reason
        )
        await self._event_log.committed(patient=False)

    def report_missing_right(self, channel: str, right: str, words: Sentence) -> None:
        self._log.write("channel", f"{channel} lacks the right {right}", level="warn", cause=str(words))

    async def recent(self, chat_key: ChatKey, limit: int) -> list[ArchiveLine]:
        return (await self._archive.search(chat_key, HistoryQuery(limit=limit, counted=False))).lines

    async def home(self, opened: Inbound) -> tuple[HomeSection, ...]:
        del opened
        return ()

    async def model(self, chat_key: ChatKey) -> str:
        del chat_key
        return self._model

    async def questions(self, chat_key: ChatKey, person: UserRef) -> list[OpenQuestion]:
        del chat_key, person
        return []


NO_CHAT = ChatKey("shipmate", "gateway")
"""The key of the log of what belongs to no chat."""


def _event(inbound: Inbound) -> events.EventData:
    if inbound.kind == "edit":
        return events.Edited(inbound)
    if inbound.kind == "delete":
        return events.Deleted(inbound)
    if inbound.is_stop:
        return events.Stop(inbound)
    return events.Received(inbound)
