"""Messages that a damaged journal has lost: tells the people whose they were."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from bot import errors, ulids
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.archive import GatewayArchive as Archive
from bot.contracts.base import ChatType
from bot.contracts.channel import Manifest
from bot.contracts.environment import Clock, Log, storage_errors_logged
from bot.contracts.identity import UserRef
from bot.contracts.journal import Journal
from bot.contracts.outbound import Address
from bot.contracts.recall import Recalls
from bot.core.locales import Locales
from bot.gateway.delivery import Delivery
from bot.gateway.operators import OperatorAlerts
from bot.words import say, sentence, speaking

RECENT = 24 * 3600.0
"""Seconds for which somebody may still wait for an answer."""
NEW = 3600.0
"""Seconds for which a loss that nobody suffers from is told to operators."""
LINES = 100
"""The last lines of a chat that are looked at."""


class LostMessages:
    """Goes by the archive: chats in which a person said something that has no answer, and that the journal does not know.
    Each is told once, over kills and restarts too: what tells them is in the outbox under the id of what they said.
    """

    def __init__(
        self,
        manifests: Mapping[str, Manifest],
        *,
        journal: Journal,
        archive: Archive,
        recall: Recalls,
        delivery: Delivery,
        locales: Locales,
        reports: OperatorAlerts,
        clock: Clock,
        log: Log,
    ) -> None:
        self._manifests = manifests
        self._journal = journal
        self._archive = archive
        self._recall = recall
        self._delivery = delivery
        self._locales = locales
        self._reports = reports
        self._clock = clock
        self._log = log

    async def begin(self) -> None:
        """Before anything is taken in: a new journal beside an empty archive has lost nothing, which no later start has to find
        out by a look at every chat. Raises nothing.
        """
        lost = self._journal.lost()
        if lost is None or lost.what != "gone":
            return
        with storage_errors_logged(self._log, "whether messages were lost is not known"):
            for channel in self._manifests:
                if await self._recall.kept(channel):
                    return
            await self._journal.forget_loss()

    async def tell(self, channel: str) -> None:
        """Tell the people of a channel that is connected, and operators. Raises nothing."""
        lost = self._journal.lost()
        if lost is None or self._clock.now() - lost.at > RECENT:
            return
        try:
            found = await self._unanswered(channel, lost.at)
        except errors.StorageError as error:
            self._log.write("error", "who lost a message is not known", level="error", cause=str(error))
            return
        if found is None:
            return  # nothing was ever said here
        if found or self._clock.now() - lost.at < NEW:
            self._reports.tell("journal lost", sentence(f"operators.journal_{lost.what}"))
        for to, person, said in found:
            self._log.write(
                "storage", "a message may be lost; its person is told", level="error", chat_key=to.chat_key
            )
            try:
                with speaking(*self._locales.of_person(person, chat_type=to.chat_type)):
                    words = say("delivery.lost_records")
                    await self._delivery.send(to, words, kind="notice", must_arrive=True, repeat_of=said)
            except errors.DeliveryFailed as error:
                self._log.write(
                    "delivery",
                    "whose message may be lost could not be told",
                    level="error",
                    chat_key=to.chat_key,
                    cause=str(error),
                )

    async def _unanswered(self, channel: str, at: float) -> list[tuple[Address, UserRef, str | None]] | None:
        """The chats in which somebody is told, that person, and the row that may have told it before. None where nothing was said on this channel before the loss."""
        spoken, found = False, list[tuple[Address, UserRef, str | None]]()
        for chat_key in await self._recall.kept(channel):
            query = HistoryQuery(limit=LINES, before=int(at * 1000), counted=False)
            # A platform's own time may lie before that at which a message was taken in.
            lines = [
                line
                for line in (await self._archive.search(chat_key, query)).lines
                if ulids.made_at(line.request_id) < at
            ]
            spoken = spoken or bool(lines)
            for line in self._left(lines):
                name = line.request_id
                if await self._journal.inbound(name) is not None:
                    continue
                rows = [row for row in await self._journal.deliveries(name) if row.kind == "notice"]
                if all(row.state != "sent" for row in rows):
                    target = self._manifests[channel].decode(chat_key)
                    to = Address(channel, line.chat_id, chat_key, _type(line), target, name)
                    doubtful = (row.original for row in rows if row.state in {"sending", "unknown"})
                    found.append((to, UserRef(channel, line.user_id or ""), next(doubtful, None)))
                    break
        return found if spoken else None

    def _left(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        """The messages of people after the last message that has an answer, newest first. The answer may stand behind it: what
        was said meanwhile waited for it.
        """
        since = (self._clock.now() - RECENT) * 1000
        answered = {line.request_id for line in lines if line.role == "assistant"}
        said = [line for line in reversed(lines) if line.role == "user" and line.ts >= since]
        return list(itertools.takewhile(lambda line: line.request_id not in answered, said))


def _type(line: ArchiveLine) -> ChatType:
    return "direct" if (line.meta or {}).get("chatType") == "direct" else "group"
