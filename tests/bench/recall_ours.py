"""The search of the archive, asked about a conversation of the benchmark."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from bot.contracts.identity import ChatKey
from bot.core import file_names
from bot.history.search import ranking
from bot.history.search.index import Index
from bot.history.search.ranking import Weights
from bot.history.search.recall import Recall
from bot.system import SystemDisk
from tests.bench.recall_form import Conversation, Question


class Searched:
    """A conversation as an archive of one chat, indexed in memory. `weights` may be set between questions."""

    def __init__(self, conversation: Conversation, weights: Weights = ranking.DEFAULT) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="recall-")
        folder = Path(self._folder.name)
        self._key = ChatKey("console", str(conversation.id))
        with (folder / f"{file_names.encode(self._key)}.jsonl").open("w", encoding="utf-8") as file:
            for turn in conversation.turns:
                line = {
                    "v": 1,
                    "ts": turn.ts,
                    "channel": "console",
                    "chatId": conversation.id,
                    "chatKey": str(self._key),
                    "messageId": turn.id,
                    "role": turn.role,
                    "text": turn.text,
                    "meta": {"username": turn.speaker} if turn.speaker != turn.role else None,
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._index = Index.opened(None, folder, SystemDisk())
        self._recall = Recall(self._index, weights=weights)
        began = time.perf_counter()
        self._recall.catch_up()
        self.built = time.perf_counter() - began
        """Seconds that the index took."""

    def weigh(self, weights: Weights) -> None:
        self._recall = Recall(self._index, weights=weights)

    def search(self, question: Question, limit: int) -> list[tuple[str, float]]:
        """The best lines; by all phrasings of the question where it has some."""
        hits = self._recall.search([self._key], question.text, question.asked_at, limit, question.phrasings)
        return [(str(hit.line.message_id), hit.score) for hit in hits]

    def close(self) -> None:
        self._recall.close()
        self._folder.cleanup()
