"""The search that Shipmate's search is compared with: plain BM25 of SQLite's FTS5 with the Porter stemmer,
one index per conversation.
"""

from __future__ import annotations

import re
import sqlite3

from tests.bench.recall_form import Conversation, Question

_WORDS = re.compile(r"\w+")
_UNSPACED = re.compile("([\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff])")


class PlainBm25:
    """Searches the same lines for any of the question's words, and does nothing else.

    FTS5 treats a Chinese sentence as one word. With `spaced`, each Chinese or Japanese character is a word instead.
    """

    def __init__(self, conversation: Conversation, *, spaced: bool = False) -> None:
        self._spaced = spaced
        self._ids = [turn.id for turn in conversation.turns]
        self._db = sqlite3.connect(":memory:")
        self._db.execute("CREATE VIRTUAL TABLE lines USING fts5(text, tokenize='porter unicode61')")
        self._db.executemany(
            "INSERT INTO lines(rowid, text) VALUES (?, ?)",
            enumerate(self._text(turn.text) for turn in conversation.turns),
        )

    def search(self, question: Question, limit: int) -> list[tuple[str, float]]:
        words = dict.fromkeys(_WORDS.findall(self._text(question.text).replace("_", " ")))
        if not words:
            return []
        rows = self._db.execute(
            "SELECT rowid, bm25(lines) AS score FROM lines WHERE lines MATCH ? ORDER BY score, rowid LIMIT ?",
            (" OR ".join(f'"{word}"' for word in words), limit),
        )
        return [(self._ids[number], -score) for number, score in rows]

    def _text(self, text: str) -> str:
        return _UNSPACED.sub(r" \1 ", text) if self._spaced else text

    def close(self) -> None:
        self._db.close()
