"""The search index: archive lines and their tokens, derived from the log. If somebody deletes the file, it is rebuilt.

Each token in the index has its chat's number as a prefix, so that a query in one chat cannot find lines of another chat. A
line's number consists of its chat, its session and its place in the session, so adjacent lines have adjacent numbers. A row
id of the table `tokens` consists of the line's number and the line's length class.
"""

from __future__ import annotations

import contextlib
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot import text
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine
from bot.core import exports
from bot.core.archive_files import NAMES_SHOWN, SEQ, is_dated, is_edit, is_removal, moment_of, read_line
from bot.core.chats import LONGEST_TITLE
from bot.core.exports import ExportLost
from bot.features.search import analysis
from bot.tools.context import ChatQuery, ListedChat, ListedChats

FILE = "index.db"
VERSION = f"6.{analysis.VERSION}"
BUSY_SECONDS = 5.0
SESSION_GAP = 3_600_000  # milliseconds without a message after which a new session begins
ROLES = ("user", "assistant")
NAMED_BY = 20  # max lines at each end of a chat that are read to find its first words and its speakers' names
MOST_TOKENS = 12  # max tokens of a search for conversations; further tokens are ignored
_BEFORE, _EXCERPT = (
    40,
    160,
)  # max characters of an excerpt before its first matching word, and of the whole excerpt
CHAT_BITS, SESSION_BITS, PLACE_BITS = 20, 24, 8
"""Bits in a line's number for the chat, for the session, and for the place in the session."""
ROW_BITS = 4  # bits in a row id for the line's length class
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Max number of a line's tokens, for each length class."""
PLACES = (1 << PLACE_BITS) - 1
_TABLES = """
CREATE TABLE state (version TEXT NOT NULL, cursor INTEGER NOT NULL);
CREATE TABLE chats (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL DEFAULT 0, lines INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0, session INTEGER NOT NULL DEFAULT 0, place INTEGER NOT NULL DEFAULT 0, last_ts INTEGER,
    first TEXT NOT NULL DEFAULT '', people TEXT NOT NULL DEFAULT ''
);
CREATE TABLE lines (line INTEGER PRIMARY KEY, ts INTEGER NOT NULL, role TEXT NOT NULL, message TEXT, raw TEXT NOT NULL);
CREATE INDEX messages ON lines (message) WHERE message IS NOT NULL;
CREATE INDEX times ON lines (ts);
CREATE TABLE removed (message TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE VIRTUAL TABLE tokens USING fts5(
    t, content='', columnsize=0, detail=none, tokenize="ascii tokenchars '._-+#@:/=~&'"
);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab(tokens, row);
INSERT INTO tokens(tokens, rank) VALUES ('hashsize', 16777216);
"""


@dataclass(slots=True)
class IndexedChat:
    """State of a chat in the index: the newest indexed event (`seq`), the totals of lines and tokens, and the session, place
    and time (epoch ms) of the newest line.
    """

    id: int
    name: str
    seq: int = 0
    lines: int = 0
    tokens: int = 0
    session: int = 0
    place: int = 0
    last_ts: int | None = None

    @property
    def prefix(self) -> str:
        return f"{self.id:x}:"

    @property
    def first_line(self) -> int:
        """Return the lowest number that a line of the chat can have."""
        return self.id << SESSION_BITS + PLACE_BITS

    @property
    def last_line(self) -> int:
        return (self.id + 1 << SESSION_BITS + PLACE_BITS) - 1


def chat_named(db: sqlite3.Connection, name: str) -> IndexedChat | None:
    row = db.execute(
        "SELECT id, name, seq, lines, tokens, session, place, last_ts FROM chats WHERE name = ?", (name,)
    ).fetchone()
    return None if row is None else IndexedChat(*row)


def speaker_token(token: str) -> str:
    """Return the token that finds the lines of all people with `token` in their names."""
    return f"@{token}"


def cursor_of(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT cursor FROM state").fetchone()[0])


@dataclass(frozen=True, slots=True)
class Entry:
    """A change of the index. `line` is a new line; if `replaces` is true, it replaces the line of the event `seq`. `gone`
    are ids of requests and turns whose lines are removed. Lines older than `since` (epoch ms) are removed too.
    """

    chat: str
    seq: int
    line: ArchiveLine | None = None
    replaces: bool = False
    gone: frozenset[str] = frozenset()
    since: int = 0


def write(db: sqlite3.Connection, due: Sequence[Entry], known: int, cursor: int) -> None:
    """In one transaction, apply changes and store the `cursor` (the position in the log up to which events are
    indexed). Raises `ExportLost` if the stored position is before `known`, the position at the last write.
    """
    with transaction(db):
        if cursor_of(db) < known:
            raise ExportLost("the search index was begun anew")
        for name in dict.fromkeys(one.chat for one in due):
            _Writer(db, name).take(one for one in due if one.chat == name)
        db.execute("UPDATE state SET cursor = ?", (cursor,))
    if any(one.gone or one.since for one in due):
        # Only this step erases the removed text from the file.
        db.execute("INSERT INTO tokens(tokens) VALUES ('optimize')")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class _Writer:
    """Writes lines of one chat, inside a transaction."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db = db
        chat = chat_named(db, name)
        if chat is None:
            number = db.execute("INSERT INTO chats (name) VALUES (?)", (name,)).lastrowid or 0
            if number >= 1 << CHAT_BITS:
                raise sqlite3.DatabaseError("the index has no more numbers for chats")
            chat = IndexedChat(number, name)
        self._chat = chat

    def take(self, entries: Iterator[Entry]) -> None:
        """Apply these entries in order. Skip lines that are indexed already."""
        chat = self._chat
        for one in entries:
            for name in one.gone:
                found = self._indexed("instr(raw, ?)", name)
                self._remove(*(old for old in found if old[1].request_id == name))
            if one.since:
                self._remove(*self._indexed("ts < ?", one.since))
            elif one.line is not None and one.replaces:
                for number, old in self._indexed("message = ?", f"{chat.prefix}{one.line.message_id}"):
                    if (old.meta or {}).get(SEQ) == one.seq:
                        self._remove((number, old))
                        self._insert(number, one.line, one.seq)
            elif one.line is not None and one.seq > chat.seq and is_dated(one.line):
                chat.seq = one.seq
                self._add(one.line, one.seq)
        totals = chat.seq, chat.lines, chat.tokens, chat.session, chat.place, chat.last_ts
        self._db.execute(
            "UPDATE chats SET seq = ?, lines = ?, tokens = ?, session = ?, place = ?, last_ts = ?, first = ?, people = ? WHERE id = ?",
            (*totals, *self._named(), chat.id),
        )

    def _named(self) -> tuple[str, str]:
        where = self._chat.first_line, self._chat.last_line, NAMED_BY
        said = "SELECT raw ->> '{}' AS it FROM (SELECT role, raw FROM lines WHERE line BETWEEN ? AND ? ORDER BY line {} LIMIT ?) WHERE role = 'user' AND it <> ''"
        opening = self._db.execute(said.format("$.text", ""), where).fetchone()
        people = self._db.execute(said.format("$.meta.username", "DESC"), where)
        names = dict.fromkeys(str(name).replace(",", "") for (name,) in people)
        return text.preview(str(opening[0]), LONGEST_TITLE) if opening else "", ", ".join(
            list(names)[:NAMES_SHOWN]
        )

    def _add(self, line: ArchiveLine, seq: int) -> None:
        """Index a line. An edited line takes the place of the original line, between the same neighbours."""
        if line.message_id is not None:
            key = self._chat.prefix + line.message_id
            found = self._indexed("message = ?", key)
            if is_removal(line):
                self._remove(*found)
                self._db.execute("INSERT OR IGNORE INTO removed VALUES (?)", (key,))
                return
            if self._db.execute("SELECT 1 FROM removed WHERE message = ?", (key,)).fetchone():
                return
            mine = [(number, old) for number, old in found if old.role == line.role]
            edits = [old for _, old in mine if is_edit(old)]
            if any(not is_edit(line) or moment_of(line) < moment_of(old) for old in edits):
                return
            if is_edit(line) and mine:
                self._remove(*mine)
                self._insert(mine[0][0], line, seq)
                return
        if line.role in ROLES:
            self._insert(self._next(line), line, seq)

    def _indexed(self, condition: str, value: str | int) -> list[tuple[int, ArchiveLine]]:
        found = self._db.execute(
            f"SELECT line, raw FROM lines WHERE line BETWEEN ? AND ? AND {condition} ORDER BY line",  # noqa: S608 - a constant
            (self._chat.first_line, self._chat.last_line, value),
        ).fetchall()
        return [(number, line) for number, raw in found if (line := read_line(raw.encode())) is not None]

    def _next(self, line: ArchiveLine) -> int:
        chat = self._chat
        if chat.last_ts is None or abs(line.ts - chat.last_ts) > SESSION_GAP or chat.place == PLACES:
            chat.session, chat.place = min(chat.session + 1, (1 << SESSION_BITS) - 1), 0
        else:
            chat.place += 1
        chat.last_ts = line.ts
        return chat.first_line | chat.session << PLACE_BITS | chat.place

    def _insert(self, number: int, line: ArchiveLine, seq: int) -> None:
        message = None if line.message_id is None else self._chat.prefix + line.message_id
        said = exports.dumped(line, seq).decode()
        self._db.execute(
            "INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?)", (number, line.ts, line.role, message, said)
        )
        self._tokens("INSERT INTO tokens(rowid, t) VALUES (?, ?)", number, line, 1)

    def _remove(self, *old: tuple[int, ArchiveLine]) -> None:
        for number, line in old:
            self._db.execute("DELETE FROM lines WHERE line = ?", (number,))
            self._tokens("INSERT INTO tokens(tokens, rowid, t) VALUES ('delete', ?, ?)", number, line, -1)

    def _tokens(self, statement: str, number: int, line: ArchiveLine, lines: int) -> None:
        """Write a line's tokens, or delete them if `lines` is -1."""
        found = analysis.tokens(line.text)
        speaker = (line.meta or {}).get("username")
        names = analysis.tokens(speaker) if isinstance(speaker, str) else []
        words = dict.fromkeys([*found, *map(speaker_token, names)])
        length = min(bisect_left(LENGTHS, len(found)), len(LENGTHS) - 1)
        said = " ".join(self._chat.prefix + word for word in words)
        self._db.execute(statement, (number << ROW_BITS | length, said))
        self._chat.lines += lines
        self._chat.tokens += lines * len(found)


# ------------------------------------------------------------ the file


def opened(path: Path) -> sqlite3.Connection:
    """Open the index file and create missing tables. The connection serves one thread. Raises `sqlite3.Error` and OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    db = sqlite3.connect(path, BUSY_SECONDS, 0, None, check_same_thread=False)
    try:
        # A power failure may lose the last rows and the cursor together, because both are in this file. The rows are
        # then indexed again.
        db.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-16384; "
            "PRAGMA secure_delete=ON"
        )
        begun = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'state'").fetchone()
        if begun is None or db.execute("SELECT version FROM state").fetchall() != [(VERSION,)]:
            make_anew(db)
    except sqlite3.Error:
        db.close()
        raise
    return db


def make_anew(db: sqlite3.Connection) -> None:
    """Delete everything in the index."""
    with transaction(db):
        kept = db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
            "AND name NOT GLOB 'tokens_*' ORDER BY name DESC"
        ).fetchall()
        for (name,) in kept:
            db.execute(f'DROP TABLE "{name}"')
        for statement in filter(str.strip, _TABLES.split(";\n")):
            db.execute(statement)
        db.execute("INSERT INTO state VALUES (?, 0)", (VERSION,))


def verdict(path: Path) -> str:
    """Return a sentence that says why an index file is unusable; "" if it is usable. Blocks, and changes nothing."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        ) as db:
            if db.execute("SELECT version FROM state").fetchall() != [(VERSION,)]:
                return "it is of another version"
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return "" if found == "ok" else str(found)


def counted(db: sqlite3.Connection) -> tuple[int, int]:
    """Return the numbers of indexed chats and lines."""
    chats, found = db.execute("SELECT count(*), total(lines) FROM chats WHERE lines > 0").fetchone()
    return int(chats), int(found)


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, mode: str = "IMMEDIATE") -> Iterator[None]:
    """Run the block as a transaction. The mode DEFERRED is for consistent reads. Raises `sqlite3.Error`."""
    db.execute(f"BEGIN {mode}")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


# ------------------------------------------------------------ conversations


def chats_of(db: sqlite3.Connection, channel: str) -> list[ChatKey]:
    """Return the chats of a channel that have indexed lines, the most recently active first."""
    found = db.execute(
        "SELECT name FROM chats WHERE lines > 0 AND name >= ? AND name < ? ORDER BY last_ts DESC",
        (f"{channel}:", f"{channel};"),
    )
    return [ChatKey.parse(name) for (name,) in found]


def chats_saying(db: sqlite3.Connection, chat: ChatKey, words: Sequence[str]) -> frozenset[ChatKey]:
    """Return the conversations of a chat and its threads in which one line contains all of these case-folded words."""
    bits = SESSION_BITS + PLACE_BITS
    said = db.execute(
        "SELECT name, raw ->> '$.text' FROM chats JOIN lines ON line BETWEEN id << ?2 AND (id + 1 << ?2) - 1 "
        "WHERE name = ?1 OR name > ?1 || ':' AND name < ?1 || ';'",
        (str(chat), bits),
    )
    found = {
        name for name, line in said for folded in (text.folded(line),) if all(one in folded for one in words)
    }
    return frozenset(map(ChatKey.parse, found))


def listed(db: sqlite3.Connection, query: ChatQuery) -> ListedChats:
    """Return a page of conversations for operators, the most recently active first."""
    every = "SELECT id, name, people, first, lines, last_ts FROM chats WHERE lines > 0 ORDER BY last_ts DESC, id DESC"
    words = text.folded(query.words).split()
    tokens = list(dict.fromkeys(analysis.tokens(query.words)))[:MOST_TOKENS]
    channels, found = set[str](), list[tuple[ListedChat, int]]()
    with transaction(db, "DEFERRED"):
        for number, name, people, first, count, last_ts in db.execute(every).fetchall():
            one = ListedChat(name, people, query.names.get(name, first), count, last_ts)
            channels.add(one.channel)
            if query.channel not in {"", one.channel} or (
                query.among is not None and name not in query.among
            ):
                continue
            # The chat's newest line with all of the tokens.
            row = (
                tokens
                and db.execute(
                    "SELECT rowid FROM tokens WHERE tokens MATCH ? ORDER BY rowid DESC LIMIT 1",
                    (" AND ".join(f'"{number:x}:{token}"' for token in tokens),),
                ).fetchone()
            )
            line = row[0] >> ROW_BITS if row else 0
            names = text.folded(f"{name}\n{people}\n{one.title}")
            if line or all(word in names for word in words):
                found.append((one, line))
        page = [
            replace(one, found=_excerpt(db, line, words)) if line else one
            for one, line in found[query.offset : query.offset + query.limit]
        ]
    return ListedChats(page, len(found), sorted(channels))


def _excerpt(db: sqlite3.Connection, line: int, words: Sequence[str]) -> str:
    row = db.execute("SELECT raw ->> '$.text' FROM lines WHERE line = ?", (line,)).fetchone()
    said = str(row[0]) if row else ""
    folded = said.casefold()
    at = min((place for word in words if (place := folded.find(word)) >= 0), default=0)
    begin = text.border(said, max(0, min(at, len(said)) - _BEFORE))
    return ("…" if begin else "") + text.preview(said[begin:], _EXCERPT)
