"""Shipmate's archive search, run on a conversation of the benchmark."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine
from bot.core.sqlite_log import SqliteLog
from bot.features.search import index, ranking
from bot.features.search.ranking import Weights
from bot.system import SystemClock
from bot.testing.log import MemoryLog
from bot.tools.context import RecallQuery
from tests.bench.recall_form import Conversation, Question
from tests.talk import indexed


class Searched:
    """A conversation written as one chat of a log, with its index. The search weights may be
    changed between questions.
    """

    def __init__(self, conversation: Conversation, weights: Weights = ranking.DEFAULT) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="recall-")
        folder = Path(self._folder.name)
        self._key = ChatKey("console", str(conversation.id))
        lines = [
            ArchiveLine.model_validate(
                {
                    "ts": turn.ts,
                    "channel": "console",
                    "chatId": conversation.id,
                    "chatKey": self._key,
                    "messageId": turn.id,
                    "role": turn.role,
                    "text": turn.text,
                    "meta": {"username": turn.speaker} if turn.speaker != turn.role else None,
                }
            )
            for turn in conversation.turns
        ]

        async def build() -> None:
            log = SqliteLog(folder / "log.db", clock=SystemClock(), log=MemoryLog())
            await indexed(folder / "index.db", lines, log)
            await log.close()

        began = time.perf_counter()
        asyncio.run(build())
        self.built = time.perf_counter() - began
        """Seconds that building the index and the log took."""
        self._db = index.opened(folder / "index.db")
        self.weights = weights

    def search(self, question: Question, limit: int) -> list[tuple[str, float]]:
        """Return the ids and scores of the best lines."""
        query = RecallQuery((question.text, *question.phrasings), question.asked_at, limit=limit)
        hits = ranking.recall(self._db, [str(self._key)], query, self.weights).hits
        return [(str(hit.line.message_id), hit.score) for hit in hits]

    def close(self) -> None:
        self._db.close()
        self._folder.cleanup()
