"""The index of the archive: written from the archive's own lines, in their order, as far as it has come."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bot import errors
from bot.contracts import ArchiveLine, Disk
from bot.history import analysis, indexfile
from bot.history.ranking import PLACE_BITS, ROW_BITS, length_class
from bot.history.revisions import is_edit, is_removal, moment_of
from bot.history.streams import Stream, Streams
from bot.history.window import read_line

SESSION_GAP = 3_600_000
"""Milliseconds of silence after which another session begins."""
SLICE = 2_000
"""Lines that are taken in in one transaction."""
_BULK = 20_000  # the same where nobody else waits
_CHAT_BITS, _SESSION_BITS = 20, 24
_PLACES = (1 << PLACE_BITS) - 1
ROLES = ("user", "assistant")


@dataclass(slots=True)
class Chat:
    """A chat's row: how far it is indexed, and where its next line goes. `lines` and `tokens` count what can be found."""

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

    @property
    def prefix(self) -> str:
        """What every token of this chat begins with."""
        return f"{self.id:x}:"

    @property
    def first_session(self) -> int:
        return self.id << _SESSION_BITS

    def row_range(self) -> tuple[int, int]:
        bits = _SESSION_BITS + PLACE_BITS + ROW_BITS
        return self.id << bits, (self.id + 1 << bits) - 1


_FIELDS = "id, name, size, last_at, last_hash, lines, tokens, session, place, last_ts, mark"


def chat_named(db: sqlite3.Connection, name: str) -> Chat | None:
    row = db.execute(f"SELECT {_FIELDS} FROM chats WHERE name = ?", (name,)).fetchone()  # noqa: S608 - a constant
    return None if row is None else Chat(*row)


def message_token(message_id: str) -> str:
    """Under which the lines of one message are found."""
    return f"={hashlib.blake2b(message_id.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


class Index:
    """What is written. Blocking, for one thread; raises `sqlite3.Error` and `OSError`."""

    def __init__(self, db: sqlite3.Connection, streams: Streams) -> None:
        self._db = db
        self._streams = streams

    @classmethod
    def opened(cls, path: Path | None, folder: Path, disk: Disk) -> Index:
        """The index of a folder in `path` (None: in memory), with its tables made where they are not as they should.

        A file that is damaged is taken away: nothing is in it that the archive does not have.
        """
        try:
            db = indexfile.current(path)
        except sqlite3.DatabaseError as error:
            if path is None or not indexfile.damaged(error):
                raise
            indexfile.remove(path)
            db = indexfile.current(path)
        return cls(db, Streams(folder, disk))

    @property
    def db(self) -> sqlite3.Connection:
        return self._db

    @property
    def streams(self) -> Streams:
        return self._streams

    def close(self) -> None:
        self._db.close()

    def catch_up(self, name: str, most: int = SLICE) -> bool:
        """Take in at most so many lines of a chat that are not indexed yet; True where more are left."""
        with self._streams.open(name) as stream:
            known = chat_named(self._db, name)
            if known is not None and known.size == stream.size and _continues(known, stream):
                return False
            with indexfile.transaction(self._db):
                chat = self._chat(name, stream)
                taken = 0
                filling = _Filling(self._db, chat, stream)
                for at, raw in stream.lines(chat.size):
                    filling.take(at, raw)
                    taken += 1
                    if taken == most:
                        break
                filling.flush()
                self._save(chat)
        return taken == most

    def all(self, most: int = SLICE) -> Iterable[str]:
        """Catch up with every chat, a slice at a time; gives the name after each slice."""
        for name in self._streams.names():
            while self.catch_up(name, most):
                yield name
            yield name

    def begin_near_the_end(self, name: str, size: int) -> None:
        """Leave out all of a chat that is not indexed yet but its newest `size` bytes."""
        with self._streams.open(name) as stream:
            begin = stream.size - size
            if begin <= 0 or chat_named(self._db, name) is not None:
                return
            at, raw = next(stream.lines(begin), (0, b""))
            self._db.execute(
                "INSERT INTO chats (name, size, last_at, last_hash) VALUES (?, ?, ?, ?)",
                (name, at + len(raw), at, _hash(raw)),
            )

    def behind(self, name: str) -> int:
        """Bytes of a chat that are not indexed yet (an unfinished last line included)."""
        with self._streams.open(name) as stream:
            chat = chat_named(self._db, name)
            return stream.size if chat is None or not _continues(chat, stream) else stream.size - chat.size

    def counted(self) -> tuple[int, int]:
        """How many chats are indexed, and how many lines."""
        chats, lines = self._db.execute("SELECT count(*), total(lines) FROM chats WHERE lines > 0").fetchone()
        return int(chats), int(lines)

    def last_times(self) -> dict[str, int]:
        """When each chat was last spoken in, by name, as far as it is indexed."""
        rows = self._db.execute("SELECT name, last_ts FROM chats WHERE last_ts IS NOT NULL")
        return dict(rows.fetchall())

    def _chat(self, name: str, stream: Stream) -> Chat:
        chat = chat_named(self._db, name)
        if chat is not None and _continues(chat, stream):
            return chat
        if chat is not None:
            self._forget(chat)
        found = self._db.execute("INSERT INTO chats (name) VALUES (?)", (name,)).lastrowid or 0
        if found >> _CHAT_BITS:
            raise sqlite3.DatabaseError("the index has no more numbers for chats")
        return Chat(found, name)

    def _forget(self, chat: Chat) -> None:
        """What was indexed is no longer what the files hold. Its number is never given again, so the tokens that stay
        behind are found by nobody.
        """
        first, last = chat.row_range()
        self._db.execute(
            "DELETE FROM lines WHERE line BETWEEN ? AND ?", (first >> ROW_BITS, last >> ROW_BITS)
        )
        self._db.execute(
            "DELETE FROM sessions WHERE id BETWEEN ? AND ?",
            (chat.first_session, last >> ROW_BITS + PLACE_BITS),
        )
        self._db.execute("DELETE FROM revised WHERE key BETWEEN ? AND ?", (chat.prefix, f"{chat.prefix}~"))
        self._db.execute("DELETE FROM chats WHERE id = ?", (chat.id,))

    def _save(self, chat: Chat) -> None:
        self._db.execute(
            "UPDATE chats SET size = ?, last_at = ?, last_hash = ?, lines = ?, tokens = ?, session = ?, place = ?, "
            "last_ts = ?, mark = ? WHERE id = ?",
            (
                chat.size,
                chat.last_at,
                chat.last_hash,
                chat.lines,
                chat.tokens,
                chat.session,
                chat.place,
                chat.last_ts,
                chat.mark,
                chat.id,
            ),
        )


def rebuild(path: Path, folder: Path, disk: Disk) -> tuple[int, int]:
    """Make the index of a folder anew; how many chats and lines it has then. Raises `errors.StorageError`."""
    try:
        index = Index.opened(path, folder, disk)
        try:
            indexfile.make_anew(index.db)
            for _ in index.all(_BULK):
                pass
            return index.counted()
        finally:
            index.close()
    except (sqlite3.Error, OSError) as error:
        raise errors.StorageError(f"the search index cannot be made: {error}") from error


def _continues(chat: Chat, stream: Stream) -> bool:
    """Whether the files still hold what was indexed, as far as its last line tells."""
    if not chat.size:
        return True
    if chat.size > stream.size:
        return False
    return _hash(stream.read(chat.last_at, chat.size - chat.last_at)) == chat.last_hash


def _hash(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=8).digest()


class _Filling:
    """A slice of a chat's lines on its way into the tables."""

    def __init__(self, db: sqlite3.Connection, chat: Chat, stream: Stream) -> None:
        self._db = db
        self._chat = chat
        self._stream = stream
        self._last = b""
        self._tokens: list[tuple[int, str]] = []
        self._lines: list[tuple[int, int, int, int, int]] = []
        self._sessions: dict[int, tuple[int, int]] = {}
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
        line = read_line(raw) if raw.strip() else None
        if line is None:
            return
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
        """Whether a line was not removed or replaced, perhaps before it came (as in `bot.history.revisions`)."""
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
            self._chat.last_hash = _hash(self._last)
        self._db.executemany("INSERT INTO tokens(rowid, t) VALUES (?, ?)", self._tokens)
        self._db.executemany("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?)", self._lines)
        self._db.executemany(
            "INSERT INTO sessions VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "first_ts = min(first_ts, excluded.first_ts), last_ts = max(last_ts, excluded.last_ts)",
            [(session, *times) for session, times in self._sessions.items()],
        )
        self._tokens, self._lines, self._sessions = [], [], {}

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
        words = list(set(found))
        if len(words) < len(found):
            words += [f"~{word}" for word, count in Counter(found).items() if count > 1]
        if line.message_id:
            words.append(message_token(line.message_id))
        prefix = self._chat.prefix
        role = ROLES.index(line.role)
        row = place << ROW_BITS | role << 4 | length_class(len(found))
        return row, prefix + f" {prefix}".join(words) if words else "", len(found)

    def _places(self, message_id: str | None, role: str | None = None) -> list[tuple[int, ArchiveLine]]:
        """Where the lines of a message stand, and what they say."""
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
        self._chat.lines -= 1
        self._chat.tokens -= count
