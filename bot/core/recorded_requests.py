"""Records the requests that are sent to the model, in a separate database.

A request body is split into pieces at message boundaries. A piece that several requests of a chat contain is stored
only once. So each further request of a conversation adds only its new messages. All methods block on disk access.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sqlite3
import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.contracts.base import Json

FILE = "requests.db"
CHAT_BYTES = 32 * 1024 * 1024
"""Max total bytes of the pieces of one chat. Above the limit, the chat's oldest requests are deleted."""
REMOVED = "words were removed from this conversation since"
DAMAGED = "its record is damaged"
REDACTED = "it held a secret, which is not recorded"
DIFFERENT = "what is recorded is not what was sent"
_SCHEMA = Path(__file__).with_suffix(".sql").read_text("utf-8")
_BORDER = re.compile(rb'\{"role":|,"cache_control":|\}\]\}')
_LEVEL = 1
_FOUND = "SELECT id, chat, turn, task, purpose, model, sha256, redacted, body, answer FROM requests WHERE turn = ? OR task = ? ORDER BY id"
_SIZE = (
    "SELECT (SELECT coalesce(sum(length(bytes)), 0) FROM pieces WHERE chat = ?), "
    "(SELECT count(*) FROM requests WHERE chat = ?)"
)
_OLDEST = "DELETE FROM requests WHERE id IN (SELECT id FROM requests WHERE chat = ? ORDER BY id LIMIT ?)"
_ERASED = "chat = ? AND id >= ? AND (id <= ? OR task IS NOT NULL AND turn <= ?)"


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A stored request. `id` is a ULID; for `purpose` see `contracts.model.ModelRequest`; `task` is the id of the subagent
    task that sent the request. `body` is None if it is unavailable. `wrong` is the reason why the body is unavailable or
    differs from the body that was sent. `answer` contains stop reason, usage, cost and content.
    """

    id: str
    chat_key: str
    request_id: str | None
    task: str | None
    purpose: str
    model: str
    sha256: str
    body: bytes | None
    wrong: str | None = None
    answer: Json | None = None


TROUBLE = (sqlite3.Error, OSError)
"""Exceptions that the methods of `RecordedRequests` raise."""


class RecordedRequests:
    """Database of recorded requests. Methods raise `sqlite3.Error` and OSError."""

    def __init__(self, path: Path, *, readonly: bool = False) -> None:
        self._db = sqlite3.connect(
            f"{path.absolute().as_uri()}{'?mode=ro' if readonly else ''}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=5.0,
        )
        self._erased = False
        if not readonly:
            self._db.executescript(_SCHEMA)

    def close(self) -> None:
        self._db.close()

    def transaction(self, work: Callable[[], object]) -> None:
        """Run `work` in a transaction. Content that `work` erases is removed from the write-ahead log too."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            work()
        if self._erased:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._erased = False

    # ------------------------------------------------------------ writing

    def record(self, asked: RecordedRequest, kept: bytes) -> None:
        """Record a request that is about to be sent. `kept` is the request's body, in which secrets are redacted."""
        late = (
            asked.task is not None
            and self._db.execute(
                "SELECT 1 FROM removals WHERE chat = ? AND until > ?", (asked.chat_key, asked.request_id)
            ).fetchone()
        )
        self._db.execute(
            "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (
                asked.id,
                asked.chat_key,
                asked.request_id,
                asked.task,
                asked.purpose,
                asked.model,
                asked.sha256,
                hashlib.sha256(kept).hexdigest(),
                # If a task was ordered before a removal, its request may still contain the removed text. Do not store its body.
                None if late else self._pieces(asked.chat_key, kept),
            ),
        )

    def answered(self, request: str, facts: Json) -> None:
        """Record the outcome of a request: stop reason, usage, cost and content."""
        packed = zlib.compress(json.dumps(facts, ensure_ascii=False).encode("utf-8", "replace"), _LEVEL)
        self._db.execute(
            "UPDATE requests SET answer = ? WHERE id = ? AND body IS NOT NULL", (packed, request)
        )

    def _pieces(self, chat: str, body: bytes) -> bytes:
        borders = [0, *(found.start() for found in _BORDER.finditer(body)), len(body)]
        parts = [body[begin:end] for begin, end in itertools.pairwise(borders) if begin < end]
        names = array("q")
        for part in parts:
            digest = hashlib.blake2b(part, digest_size=16).digest()
            known = self._db.execute(
                "SELECT id FROM pieces WHERE chat = ? AND digest = ?", (chat, digest)
            ).fetchone()
            if known is None:
                added = self._db.execute(
                    "INSERT INTO pieces (chat, digest, bytes) VALUES (?, ?, ?)",
                    (chat, digest, zlib.compress(part, _LEVEL)),
                )
                names.append(added.lastrowid or 0)
            else:
                names.append(known[0])
        return zlib.compress(names.tobytes(), _LEVEL)

    # ------------------------------------------------------------ removing

    def remove(self, chat: str, since: str, until: str) -> None:
        """Erase body and answer of a chat's requests from `since` to `until` (ULIDs), and of later requests of tasks that
        were ordered before `until`.
        """
        self._db.execute("INSERT OR IGNORE INTO removals VALUES (?, ?)", (chat, until))
        self._db.execute(
            f"UPDATE requests SET body = NULL, answer = NULL WHERE {_ERASED}",  # noqa: S608 - a constant
            (chat, since, until, until),
        )
        self._prune(chat)

    def forget(self, chat: str) -> None:
        """Delete all recorded requests of a chat."""
        self._erased = True
        for table in ("requests", "pieces", "removals"):
            self._db.execute(f"DELETE FROM {table} WHERE chat = ?", (chat,))  # noqa: S608 - constants

    def chats(self) -> list[str]:
        return [chat for (chat,) in self._db.execute("SELECT DISTINCT chat FROM requests")]

    def sweep(self, chat: str, before: str) -> int:
        """Delete a chat's requests older than the ULID `before`, then the oldest requests until the chat has at most
        `CHAT_BYTES`. Returns the number of deleted requests.
        """
        gone = self._db.execute("DELETE FROM requests WHERE chat = ? AND id < ?", (chat, before)).rowcount
        if gone:
            self._prune(chat)
        while True:
            size, count = self._db.execute(_SIZE, (chat, chat)).fetchone()
            if size <= CHAT_BYTES or count < 2:
                return gone
            gone += self._db.execute(_OLDEST, (chat, count // 4 + 1)).rowcount
            self._prune(chat)

    def _prune(self, chat: str) -> None:
        self._erased, used = True, set[int]()
        for (body,) in self._db.execute(
            "SELECT body FROM requests WHERE chat = ? AND body IS NOT NULL", (chat,)
        ):
            used.update(_names(body))
        known = [one for (one,) in self._db.execute("SELECT id FROM pieces WHERE chat = ?", (chat,))]
        self._db.executemany("DELETE FROM pieces WHERE id = ?", [(one,) for one in known if one not in used])

    # ------------------------------------------------------------ reading

    def find(self, name: str) -> list[RecordedRequest]:
        """Return all requests of the turn or task with the id `name`, oldest first."""
        return [self._read(row) for row in self._db.execute(_FOUND, (name, name)).fetchall()]

    def _read(self, row: tuple[Any, ...]) -> RecordedRequest:
        name, chat, turn, task, purpose, model, sha256, redacted, packed, answer = row
        body, wrong = None, REMOVED
        if packed is not None:
            body, wrong = self._body(packed), DAMAGED
        if body is not None:
            digest = hashlib.sha256(body).hexdigest()
            wrong = "" if digest == sha256 else REDACTED if digest == redacted else DIFFERENT
        told = None if answer is None else json.loads(zlib.decompress(answer))
        return RecordedRequest(name, chat, turn, task, purpose, model, sha256, body, wrong or None, told)

    def _body(self, packed: bytes) -> bytes | None:
        parts = list[bytes]()
        for name in _names(packed):
            found = self._db.execute("SELECT bytes FROM pieces WHERE id = ?", (name,)).fetchone()
            if found is None:
                return None
            parts.append(zlib.decompress(found[0]))
        return b"".join(parts)


def _names(packed: bytes) -> array[int]:
    names = array("q")
    names.frombytes(zlib.decompress(packed))
    return names
