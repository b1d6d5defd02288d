"""Outbox rows: `contracts.outbound.OutboxRow` in SQLite."""

from __future__ import annotations

import contextlib
import re
from asyncio import Future
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Any

from bot import text
from bot.contracts.approvals import QuestionButtons
from bot.contracts.identity import ChatKey
from bot.contracts.journal import OPEN_INBOX
from bot.contracts.outbound import OPEN_OUTBOX, OutboxRow, StoredFile
from bot.journal.connection import Connection, Rows
from bot.journal.table import JournalTable, Moves, clean, done, dumps, illegal, loads, read_key, states
from bot.words import DEFAULT

_FIELDS = tuple(field.name for field in fields(OutboxRow) if field.name != "buttons")
_COLUMNS = (*_FIELDS, "question_id", "choices")
_MOVED = (
    "state",
    "text",
    "message_id",
    "reason",
    "not_before",
    "delayed",
    "attempts",
    "untold",
    "closes_as",
)
PUT = f"""INSERT INTO outbox ({", ".join(_COLUMNS)}) VALUES ({", ".join("?" * len(_COLUMNS))})
    ON CONFLICT (id) DO NOTHING"""
_MOVE = f"UPDATE outbox SET {', '.join(f'{name} = ?' for name in _MOVED)}, changed_at = ? WHERE id = ?"
_RECORD = f"SELECT {', '.join(_COLUMNS)} FROM outbox"
_ONE = f"{_RECORD} WHERE id = ?"
_STANDING = f"{_RECORD} WHERE request_id = ? AND message_id = ?"
_DELIVERIES = f"{_RECORD} WHERE request_id = ? ORDER BY rowid"
AT_WORK = f"SELECT request_id FROM inbox WHERE state IN ({states(*OPEN_INBOX)})"
_UNDELIVERED = (
    f"{_RECORD} WHERE state IN ({states(*OPEN_OUTBOX)}) AND request_id NOT IN ({AT_WORK}) ORDER BY rowid"
)
_WITH_FILES = f"{_RECORD} WHERE state IN ({states(*OPEN_OUTBOX)}) AND file IS NOT NULL ORDER BY rowid"
_BEFORE = 2_000
"""Rows before one among which another may have a message that is like its own."""
# The row itself is not there where the disk has refused it.
_CLAIMED = f"""SELECT message_id FROM outbox
    WHERE rowid > coalesce((SELECT rowid FROM outbox WHERE id = :id), (SELECT max(rowid) FROM outbox)) - {_BEFORE}
    AND id <> :id AND message_id IS NOT NULL
    AND (chat_key = :chat OR chat_key > :below AND chat_key < :behind)"""
# By `rowid` alone SQLite would look through the whole table in that order.
_UNTOLD = f"{_RECORD} WHERE untold = 1 ORDER BY +rowid"
_SHOWN = "SELECT request_id FROM outbox WHERE state = 'sent' AND kind = 'reply' AND chat_key = ?"
_SHOWN_AS = f"{_SHOWN} AND message_id = ? ORDER BY rowid DESC LIMIT 1"
_NEWEST = "SELECT request_id FROM outbox WHERE kind = 'reply' AND chat_key = ? ORDER BY rowid DESC LIMIT 1"
# The threads of a chat go on with ":" behind its key, which ";" follows.
_NEAR = """SELECT request_id FROM outbox WHERE rowid IN (
        SELECT rowid FROM outbox WHERE kind = 'reply' AND chat_key > :below AND chat_key < :behind
        UNION ALL SELECT rowid FROM outbox WHERE kind = 'reply' AND chat_key = :above AND target = :target)
    AND (CAST(:message_id AS TEXT) IS NULL OR state = 'sent' AND message_id = :message_id)
    AND EXISTS (SELECT 1 FROM inbox WHERE inbox.request_id = outbox.request_id AND inbox.user_id = :user_id)
    ORDER BY rowid DESC LIMIT 1"""
_CLOSE = """INSERT INTO closed_targets VALUES (?, ?, ?, ?)
    ON CONFLICT (channel, chat_id) DO UPDATE SET reason = excluded.reason, at = excluded.at"""
_OPEN = "DELETE FROM closed_targets WHERE channel = ? AND chat_id = ?"
_CLOSED = "SELECT channel, chat_id, reason FROM closed_targets"


class OutboxWrites(JournalTable):
    """Writes about messages that go out."""

    def put_outbox(self, rows: Sequence[OutboxRow]) -> Future[None]:
        now = self._clock.now()
        new = [values(row, now) for row in rows]
        replaced = [clean((row.request_id, row.replaces)) for row in rows if row.replaces is not None]
        written: list[tuple[object, Rows]] = []
        ended: list[OutboxRow] = []
        known = self.base.known

        def work(db: Connection) -> Callable[[], None]:
            written[:] = [(row[0], db.execute(PUT, row)) for row in new]
            ended.clear()
            for names in replaced:
                for before in _records(db.execute(_STANDING, names).fetchall()):
                    if (after := before.make_way()) != before:
                        ended.append(before)
                        _move(db, after, now)
                        known.keep((OutboxMoves, before.id), after)
            tokens = [known.expect((OutboxMoves, row.id)) for row in rows]
            return partial(put, tokens)

        def put(tokens: Sequence[object]) -> None:
            for row, token, (_, found) in zip(rows, tokens, written, strict=True):
                known.confirm((OutboxMoves, row.id), token, row, written=bool(found.rowcount))

        def undo(db: Connection) -> None:
            # Whoever wanted to send them knows that they were refused: nobody may send them later.
            names = [(name,) for name, row in written if row.rowcount]
            db.executemany("DELETE FROM outbox WHERE id = ?", names)
            for row in ended:
                _move(db, row, now)

        return self._writer.run(work, undo=undo)

    def update_outbox(self, row: OutboxRow) -> Future[None]:
        moves = OutboxMoves(
            {row.id: lambda before: before.update(row)}, self._clock.now(), known=self.base.known
        )
        return self._writer.run(lambda db: illegal(moves.make(db)))


class OutboxMoves(Moves[OutboxRow]):
    """Transitions of rows."""

    def _ask(self, db: Connection, name: str) -> Rows:
        return db.execute(_ONE, (name,))

    def _status(self, rows: list[Any]) -> OutboxRow | None:
        return next(iter(_records(rows)), None)

    def _write(self, db: Connection, _: str, __: OutboxRow, after: OutboxRow) -> None:
        _move(db, after, self._now)


class SqlOutbox(OutboxWrites):
    """`contracts.journal.Outbox`."""

    async def deliveries(self, request_id: str) -> list[OutboxRow]:
        return _records(await self._rows(_DELIVERIES, (request_id,)))

    async def undelivered(self) -> list[OutboxRow]:
        return _records(await self._rows(_UNDELIVERED, ()))

    async def with_files(self) -> list[OutboxRow]:
        return _records(await self._rows(_WITH_FILES, ()))

    async def claimed_ids(self, row: OutboxRow) -> frozenset[str]:
        chat = text.clean(str(row.chat_key.chat))
        values = {"id": text.clean(row.id), "chat": chat, "below": f"{chat}:", "behind": f"{chat};"}
        rows = await self.base.read(lambda db: db.execute(_CLAIMED, values).fetchall())
        return frozenset(message_id for (message_id,) in rows)

    async def untold(self) -> list[OutboxRow]:
        return _records(await self._rows(_UNTOLD, ()))

    async def delivered_as(self, chat_key: ChatKey, message_id: str | None) -> str | None:
        if message_id is None:
            row = await self._row(_NEWEST, (str(chat_key),))
        else:
            row = await self._row(_SHOWN_AS, (str(chat_key), message_id))
        return row[0] if row else None

    async def delivered_near(
        self, chat_key: ChatKey, user_id: str, target: Mapping[str, str], message_id: str | None
    ) -> str | None:
        here = text.clean(str(chat_key))
        values = {
            "below": f"{here}:",
            "behind": f"{here};",
            "above": "" if chat_key.thread is None else text.clean(str(chat_key.chat)),
            "target": dumps(dict(target)),
            "message_id": None if message_id is None else text.clean(message_id),
            "user_id": text.clean(user_id),
        }
        row = await self.base.read(lambda db: db.execute(_NEAR, values).fetchone())
        return row[0] if row else None

    def close_target(self, channel: str, chat_id: str, reason: str) -> Coroutine[Any, Any, None]:
        return done(self._change(_CLOSE, (channel, chat_id, reason, self._clock.now())))

    def open_target(self, channel: str, chat_id: str) -> Coroutine[Any, Any, None]:
        return done(self._change(_OPEN, (channel, chat_id)))

    async def closed_targets(self) -> dict[tuple[str, str], str]:
        return {(channel, chat_id): reason for channel, chat_id, reason in await self._rows(_CLOSED, ())}


def values(row: OutboxRow, now: float) -> list[object]:
    """The row in the order of the columns, as `PUT` takes it."""
    facts = {name: getattr(row, name) for name in _FIELDS} | {
        "chat_key": str(row.chat_key),
        "target": dumps(dict(row.target or {})),
        "created_at": now,
        "changed_at": now,
        "file": None if row.file is None else dumps(asdict(row.file)),
        "question_id": None if row.buttons is None else row.buttons.question_id,
        "choices": None if row.buttons is None else dumps(row.buttons.choices),
    }
    return clean(list(facts.values()))


def _move(db: Connection, row: OutboxRow, now: float) -> None:
    db.execute(_MOVE, clean([*(getattr(row, name) for name in _MOVED), now, row.id]))


def _records(rows: Sequence[tuple[Any, ...]]) -> list[OutboxRow]:
    return [record for row in rows if (record := _record(row)) is not None]


def _record(row: tuple[Any, ...]) -> OutboxRow | None:
    """None where the disk has damaged its chat."""
    *found, question_id, choices = row
    facts = dict(zip(_FIELDS, found, strict=True))
    if (key := read_key(facts["chat_key"])) is None:
        return None
    facts |= {name: bool(facts[name]) for name in ("delayed", "untold", "own_zone")}
    facts |= {
        "chat_key": key,
        "target": loads(facts["target"]),
        "language": facts["language"] or DEFAULT,
        "file": _file(facts["file"]),
    }
    buttons = None if question_id is None else QuestionButtons(question_id, tuple(loads(choices) or ()))
    return OutboxRow(**facts, buttons=buttons)


def _file(raw: str | None) -> StoredFile | None:
    """One that the disk has damaged, or that names a file elsewhere, is a file that cannot be had any more."""
    if raw is None:
        return None
    with contextlib.suppress(TypeError):
        found = StoredFile(**loads(raw))
        if re.fullmatch(r"[0-9a-f]{64}", found.sha256) and isinstance(found.size, int):
            return found
    return StoredFile("file", "application/octet-stream", 0, "")
