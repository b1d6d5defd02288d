"""Conversations for tests, written as events of a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine, Inbound
from bot.core import events
from bot.core.event_log import Entry, EventLog, Position
from bot.core.events import Event, EventData, encode
from bot.core.sqlite_log import SqliteLog
from bot.features.search import Search, index, ranking
from bot.system import SystemClock
from bot.testing.log import MemoryLog as Lines
from bot.tools.context import Recalled, RecallQuery
from tests.memory_log import MemoryLog


class Talk:
    """Appends the events that produce given archive lines: messages of people, answers, edits
    (`meta.edited`) and deletions (`meta.deleted`).
    """

    def __init__(self, log: EventLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.seqs = Counter[ChatKey]()

    def append(self, chat: ChatKey, *data: EventData, turn: str = "", at: float = 1.5) -> None:
        entries = list[Entry]()
        for one in data:
            self.seqs[chat] += 1
            name = f"{chat}-{self.seqs[chat]}"
            event = Event(name, chat, at, one, turn or name, "7", self.seqs[chat])
            entries.append(Entry(event, Position(0), encode(one)))
        self.log.append(entries)

    def say(self, line: ArchiveLine) -> None:
        """Append the events that produce this archive line."""
        chat, meta = line.chat_key, line.meta or {}
        request = str(meta.get("requestId") or f"r{self.seqs[chat] + 1}")
        if line.role == "assistant":
            queued = events.Queued(request, {}, line.text, channel=line.channel, chat_id=line.chat_id)
            ended = events.RowEnded(request, "sent", line.message_id)
            self.append(chat, queued, ended, turn=request, at=line.ts / 1000)
            return
        inbound = Inbound(
            channel=line.channel,
            chat_id=line.chat_id,
            chat_key=chat,
            chat_type="direct",
            user_id=line.user_id or "7",
            user_name=meta.get("username"),
            keys=(f"{chat}-{self.seqs[chat]}",),
            ts=line.ts,
            target={},
            kind="delete" if meta.get("deleted") else "edit" if meta.get("edited") else "message",
            text=line.text,
            message_id=line.message_id,
            request_id=request,
        )
        kinds = {"delete": events.Deleted, "edit": events.Edited, "message": events.Received}
        self.append(chat, kinds[inbound.kind](inbound), at=line.ts / 1000)


async def logged(path: Path, lines: Iterable[ArchiveLine]) -> None:
    """Write a log with the events that produce these archive lines."""
    log = SqliteLog(path, clock=SystemClock(), log=Lines())
    talk = Talk(log)
    for line in lines:
        talk.say(line)
    await log.committed()
    await log.close()


async def indexed(path: Path, lines: Iterable[ArchiveLine], log: EventLog | None = None) -> None:
    """Build a search index of these archive lines."""
    talk = Talk(log)
    for line in lines:
        talk.say(line)
    await talk.log.committed()
    search = Search(path, talk.log, clock=SystemClock(), log=Lines(), wait=None)
    search.exporter.start()
    await search.exporter.close()


class Found:
    """A search index in a file, opened for queries."""

    def __init__(self, path: Path) -> None:
        self.db = index.opened(path)

    def recall(self, names: Iterable[str], query: RecallQuery) -> Recalled:
        return ranking.recall(self.db, names, query)

    def close(self) -> None:
        self.db.close()
