"""A slice of a chat's lines on its way into the tables of the index."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from bot.contracts.archive import ArchiveLine
from bot.core.archive.window import is_edit, is_removal, moment_of, read_line
from bot.history.search import analysis, literal
from bot.history.search.ranking import PLACE_BITS, ROW_BITS, length_class
from bot.history.search.streams import Stream

SESSION_GAP = 3_600_000
"""Milliseconds of silence after which another session begins."""
ROLES = ("user", "assistant")
_CHAT_BITS, _SESSION_BITS = 20, 24
MOST_CHATS = 1 << _CHAT_BITS
_PLACES = (1 << PLACE_BITS) - 1


@dataclass(slots=True)
class IndexedChat:
    """A chat's row: how far it is indexed, and where its next line goes. `lines` and `tokens` count what can be found,
    `count` every line that there is; `newest` is the time (ms) of the last one that can be read.
    """

    id: int
    name: str
    size: int = 0
    last_at: int = 0
    last_hash: bytes = b""
    lines: int = 0
    tokens: int = 0
    session: int = 0
    place: int = 0
    last_ts: int | None = None
    mark: str | None = None
    count: int = 0
    newest: int | None = None

    @property
    def prefix(self) -> str:
        """Prefix of every token of this chat."""
        return f"{self.id:x}:"

    @property
    def first_session(self) -> int:
        return self.id << _SESSION_BITS

    def row_range(self) -> tuple[int, int]:
        bits = _SESSION_BITS + PLACE_BITS + ROW_BITS
        return self.id << bits, (self.id + 1 << bits) - 1


def message_token(message_id: str) -> str:
    """Under which the lines of one message are found."""
    return f"={hashlib.blake2b(message_id.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def speaker_token(token: str) -> str:
    """Under which the lines of a person are found, of whose name `token` is one."""
    return f"@{token}"


def speaker_tokens(line: ArchiveLine) -> list[str]:
    """The tokens of the name of the person who wrote a line; none where it is not known."""
    name = (line.meta or {}).get("username")
    return list(dict.fromkeys(analysis.tokens(name))) if isinstance(name, str) else []


def line_hash(raw: bytes) -> bytes:
    """Return the hash by which a line is recognised as the one indexed last."""
    return hashlib.blake2b(raw, digest_size=8).digest()


class ChatIndexer:
    """A slice of a chat's lines on its way into the tables."""

    def __init__(self, db: sqlite3.Connection, chat: IndexedChat, stream: Stream) -> None:
        self._db = db
        self._chat = chat
        self._stream = stream
        self._last = b""
        self._tokens: list[tuple[int, str]] = []
        self._lines: list[tuple[int, int, int, int, int]] = []
        self._sessions: dict[int, tuple[int, int]] = {}
        self._runs: list[tuple[int, str, str]] = []
        self._known = set[str]()
        prefix = chat.prefix
        self._revised = {
            key[len(prefix) :]: (ts, request)
            for key, ts, request in db.execute(
                "SELECT key, ts, request FROM revised WHERE key BETWEEN ? AND ?", (prefix, f"{prefix}~")
            )
        }

    def take(self, at: int, raw: bytes) -> None:
        """The next line of the chat, whatever it is."""
        self._chat.size, self._chat.last_at, self._last = at + len(raw), at, raw
        if not raw.strip():
            return
        self._chat.count += 1
        line = read_line(raw)
        if line is None:
            return
        self._chat.newest = line.ts
        if is_removal(line):
            self._remove(line)
        elif line.role in ROLES and self._counts(line):
            places = self._places(line.message_id, line.role) if is_edit(line) else []
            for place, old in places:
                self._take_out(place, old)
            # An edit stands where its message stood, so that what was said around it stays around it.
            self._put(places[0][0] if places else self._next_place(line), line, at, len(raw))

    def _remove(self, removal: ArchiveLine) -> None:
        if removal.message_id is not None:
            for place, old in self._places(removal.message_id):
                self._take_out(place, old)
            self._note(message_token(removal.message_id), (0, ""))

    def _counts(self, line: ArchiveLine) -> bool:
        """True if a line was not removed or replaced, perhaps before it came (as in `bot.core.archive.window`)."""
        if line.message_id is None or not (self._revised or is_edit(line)):
            return True
        token = message_token(line.message_id)
        edited = f"{token}:{line.role}"
        if token in self._revised:
            return False
        moment = moment_of(line) if is_edit(line) else (-1, "")
        if moment < self._revised.get(edited, moment):
            return False
        if is_edit(line):
            self._note(edited, moment)
        return True

    def _note(self, key: str, moment: tuple[int, str]) -> None:
        self._revised[key] = moment
        self._db.execute(
            "INSERT OR REPLACE INTO revised VALUES (?, ?, ?)", (self._chat.prefix + key, *moment)
        )

    def flush(self) -> None:
        if self._last:
            self._chat.last_hash = line_hash(self._last)
        self._db.executemany("INSERT INTO tokens(rowid, t) VALUES (?, ?)", self._tokens)
        self._db.executemany("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?)", self._lines)
        self._db.executemany(
            "INSERT INTO sessions VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "first_ts = min(first_ts, excluded.first_ts), last_ts = max(last_ts, excluded.last_ts)",
            [(session, *times) for session, times in self._sessions.items()],
        )
        self._db.executemany("INSERT OR IGNORE INTO runs VALUES (?, ?, ?)", self._runs)
        self._tokens, self._lines, self._sessions, self._runs = [], [], {}, []

    def _next_place(self, line: ArchiveLine) -> int:
        chat, mark = self._chat, (line.meta or {}).get("session")
        mark = mark if isinstance(mark, str) else None
        if (
            chat.last_ts is None
            or abs(line.ts - chat.last_ts) > SESSION_GAP
            or mark != chat.mark
            or chat.place == _PLACES
        ):
            chat.session = min(chat.session + 1, (1 << _SESSION_BITS) - 1)
            chat.place = 0
        else:
            chat.place += 1
        chat.last_ts, chat.mark = line.ts, mark
        session = chat.first_session | chat.session
        first, last = self._sessions.get(session, (line.ts, line.ts))
        self._sessions[session] = min(first, line.ts), max(last, line.ts)
        return session << PLACE_BITS | chat.place

    def _put(self, place: int, line: ArchiveLine, at: int, size: int) -> None:
        row, tokens, count = self._entry(place, line)
        self._tokens.append((row, tokens))
        self._lines.append((place, at, size, line.ts, ROLES.index(line.role)))
        self._chat.lines += 1
        self._chat.tokens += count

    def _entry(self, place: int, line: ArchiveLine) -> tuple[int, str, int]:
        """The row of a line, what stands in it, and how many tokens the line has."""
        found = analysis.tokens(line.text)
        distinct = set(found)
        runs, whole = literal.runs(line.text, distinct, self._known)
        self._runs += [(self._chat.id, run, token) for run, token in runs]
        words = [*distinct, *map(speaker_token, speaker_tokens(line))]
        if not whole:
            words.append(literal.ANYTHING)
        if line.message_id:
            words.append(message_token(line.message_id))
        prefix = self._chat.prefix
        row = place << ROW_BITS | length_class(len(found))
        return row, prefix + f" {prefix}".join(words) if words else "", len(found)

    def _places(self, message_id: str | None, role: str | None = None) -> list[tuple[int, ArchiveLine]]:
        """Return the places of a message's lines, with the lines."""
        if message_id is None:
            return []
        self.flush()
        rows = self._db.execute(
            "SELECT rowid FROM tokens WHERE tokens MATCH ?",
            (f'"{self._chat.prefix}{message_token(message_id)}"',),
        ).fetchall()
        found = []
        for (row,) in rows:
            fact = self._db.execute(
                "SELECT at, size FROM lines WHERE line = ?", (row >> ROW_BITS,)
            ).fetchone()
            line = read_line(self._stream.read(*fact)) if fact else None
            if line is not None and line.message_id == message_id and role in {None, line.role}:
                found.append((row >> ROW_BITS, line))
        return found

    def _take_out(self, place: int, line: ArchiveLine) -> None:
        row, tokens, count = self._entry(place, line)
        self._db.execute("INSERT INTO tokens(tokens, rowid, t) VALUES ('delete', ?, ?)", (row, tokens))
        self._db.execute("DELETE FROM lines WHERE line = ?", (place,))
        self._forget(set(analysis.tokens(line.text)))
        self._chat.lines -= 1
        self._chat.tokens -= count

    def _forget(self, tokens: Iterable[str]) -> None:
        """Words that no line of the chat has any more are not kept beside them either."""
        lost = {token for token in tokens if not self._stands(token)}
        self._runs = [run for run in self._runs if run[2] not in lost]
        self._known.clear()
        self._db.executemany(
            "DELETE FROM runs WHERE chat = ? AND token = ?", [(self._chat.id, token) for token in lost]
        )

    def _stands(self, token: str) -> bool:
        """True if some line of the chat has a token."""
        question = (f'"{self._chat.prefix}{token}"',)
        return (
            self._db.execute("SELECT 1 FROM tokens WHERE tokens MATCH ? LIMIT 1", question).fetchone()
            is not None
        )
