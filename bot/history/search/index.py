"""The index of the archive: written from the archive's own lines, in their order, as far as it has come."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bot import errors
from bot.contracts.environment import Disk
from bot.history.search import index_file
from bot.history.search.chat_indexer import MOST_CHATS, ChatIndexer, IndexedChat, line_hash
from bot.history.search.ranking import PLACE_BITS, ROW_BITS
from bot.history.search.streams import Stream, Streams

SLICE = 2_000
"""Lines that are taken in in one transaction."""
_BULK = 20_000  # the same if no search waits
_FIELDS = "id, name, size, last_at, last_hash, lines, tokens, session, place, last_ts, mark, count, newest"


def chat_named(db: sqlite3.Connection, name: str) -> IndexedChat | None:
    row = db.execute(f"SELECT {_FIELDS} FROM chats WHERE name = ?", (name,)).fetchone()  # noqa: S608 - a constant
    return None if row is None else IndexedChat(*row)


class Index:
    """Writes the search index. Blocking, for one thread; raises `sqlite3.Error` and `OSError`."""

    def __init__(self, db: sqlite3.Connection, streams: Streams) -> None:
        self.db = db
        self.streams = streams

    @classmethod
    def opened(cls, path: Path | None, folder: Path, disk: Disk) -> Index:
        """The index of a folder in `path` (None: in memory), with its tables made where they are not as they should.

        A file that is damaged is taken away: nothing is in it that the archive does not have.
        """
        try:
            db = index_file.current(path)
        except sqlite3.DatabaseError as error:
            if path is None or not index_file.damaged(error):
                raise
            index_file.remove(path)
            db = index_file.current(path)
        return cls(db, Streams(folder, disk))

    def close(self) -> None:
        self.db.close()

    def catch_up(self, name: str, most: int = SLICE) -> bool:
        """Take in at most so many lines of a chat that are not indexed yet; True where more are left."""
        return bool(self.catch_up_together([name], most))

    def catch_up_together(self, names: Sequence[str], most: int = SLICE) -> Sequence[str]:
        """The same with several chats in one transaction, which costs a third less than one for each; returns those of which more
        may be left.
        """
        with ExitStack() as until:
            for place, name in enumerate(names):
                with self.streams.open(name) as stream:
                    known = chat_named(self.db, name)
                    if known is not None and known.size == stream.size and _continues(known, stream):
                        continue
                    if not self.db.in_transaction:
                        until.enter_context(index_file.transaction(self.db))
                    most -= self._take(name, stream, most)
                if not most:
                    return names[place:]
        return ()

    def _take(self, name: str, stream: Stream, most: int) -> int:
        """Take in at most so many lines; returns how many there were."""
        chat = self._chat(name, stream)
        taken = 0
        indexer = ChatIndexer(self.db, chat, stream)
        for at, raw in stream.lines(chat.size):
            indexer.take(at, raw)
            taken += 1
            if taken == most:
                break
        indexer.flush()
        self._save(chat)
        return taken

    def all(self, most: int = SLICE) -> Iterable[str]:
        """Catch up with every chat, a slice at a time; gives the name after each slice."""
        for name in self.streams.names():
            while self.catch_up(name, most):
                yield name
            yield name

    def begin_near_the_end(self, name: str, size: int) -> None:
        """Leave out all of a chat that is not indexed yet but its newest `size` bytes."""
        with self.streams.open(name) as stream:
            begin = stream.size - size
            if begin <= 0 or chat_named(self.db, name) is not None:
                return
            at, raw = next(stream.lines(begin), (0, b""))
            self.db.execute(
                "INSERT INTO chats (name, size, last_at, last_hash) VALUES (?, ?, ?, ?)",
                (name, at + len(raw), at, line_hash(raw)),
            )

    def behind(self, name: str) -> int:
        """Bytes of a chat that are not indexed yet (an unfinished last line included)."""
        with self.streams.open(name) as stream:
            chat = chat_named(self.db, name)
            return stream.size if chat is None or not _continues(chat, stream) else stream.size - chat.size

    def counted(self) -> tuple[int, int]:
        """Return the numbers of indexed chats and lines."""
        chats, lines = self.db.execute("SELECT count(*), total(lines) FROM chats WHERE lines > 0").fetchone()
        return int(chats), int(lines)

    def last_times(self) -> dict[str, int]:
        """Return the time (ms) of each chat's last indexed line, by name."""
        rows = self.db.execute("SELECT name, last_ts FROM chats WHERE last_ts IS NOT NULL")
        return dict(rows.fetchall())

    def newest_lines(self) -> dict[str, tuple[int, int | None]]:
        """Return each chat's number of indexed lines, and the time (ms) of its last readable one."""
        rows = self.db.execute("SELECT name, count, newest FROM chats")
        return {name: (count, newest) for name, count, newest in rows}

    def _chat(self, name: str, stream: Stream) -> IndexedChat:
        chat = chat_named(self.db, name)
        if chat is not None and _continues(chat, stream):
            return chat
        if chat is not None:
            self._forget(chat)
        found = self.db.execute("INSERT INTO chats (name) VALUES (?)", (name,)).lastrowid or 0
        if found >= MOST_CHATS:
            raise sqlite3.DatabaseError("the index has no more numbers for chats")
        return IndexedChat(found, name)

    def _forget(self, chat: IndexedChat) -> None:
        """Forget a chat whose files no longer hold what was indexed. Its number is never given again, so no search finds
        the tokens that stay behind.
        """
        first, last = chat.row_range()
        self.db.execute("DELETE FROM lines WHERE line BETWEEN ? AND ?", (first >> ROW_BITS, last >> ROW_BITS))
        self.db.execute(
            "DELETE FROM sessions WHERE id BETWEEN ? AND ?",
            (chat.first_session, last >> ROW_BITS + PLACE_BITS),
        )
        self.db.execute("DELETE FROM revised WHERE key BETWEEN ? AND ?", (chat.prefix, f"{chat.prefix}~"))
        self.db.execute("DELETE FROM runs WHERE chat = ?", (chat.id,))
        self.db.execute("DELETE FROM chats WHERE id = ?", (chat.id,))

    def _save(self, chat: IndexedChat) -> None:
        self.db.execute(
            "UPDATE chats SET size = ?, last_at = ?, last_hash = ?, lines = ?, tokens = ?, session = ?, place = ?, "
            "last_ts = ?, mark = ?, count = ?, newest = ? WHERE id = ?",
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
                chat.count,
                chat.newest,
                chat.id,
            ),
        )


def rebuild(path: Path, folder: Path, disk: Disk) -> tuple[int, int]:
    """Make the index of a folder anew; how many chats and lines it has then. Raises `errors.StorageError`."""
    with errors.as_storage_error("the search index cannot be made", sqlite3.Error, OSError):
        index = Index.opened(path, folder, disk)
        try:
            index_file.make_anew(index.db)
            for _ in index.all(_BULK):
                pass
            return index.counted()
        finally:
            index.close()


def _continues(chat: IndexedChat, stream: Stream) -> bool:
    """True if the files still hold what was indexed, as far as its last line tells."""
    if not chat.size:
        return True
    if chat.size > stream.size:
        return False
    return line_hash(stream.read(chat.last_at, chat.size - chat.last_at)) == chat.last_hash
