"""Outbox rows: intent → sending → sent | uncertain | failed."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Unpack

from bot import text
from bot.contracts.identity import ChatKey
from bot.contracts.journal import DeliveryRecord, OutboxFacts
from bot.contracts.outbound import Outbound
from bot.journal.table import JournalTable, clean, done, dumps, loads, read_key

_INTEND = """INSERT INTO outbox
    (id, request_id, chat_key, target, text, kind, state, created_at, changed_at, repeat_of, not_before)
    VALUES (?, ?, ?, ?, ?, ?, 'intent', ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"""
_FACTS = ("message_id", "detail", "not_before", "attempts", "untold")
_MARK = """UPDATE outbox SET state = ?, message_id = coalesce(?, message_id), detail = coalesce(?, detail),
    not_before = coalesce(?, not_before), attempts = coalesce(?, attempts), untold = coalesce(?, untold),
    changed_at = ? WHERE id = ?"""
_RECORD = """SELECT id, request_id, chat_key, text, kind, state, message_id, detail, target, created_at, changed_at,
    not_before, repeat_of, attempts, untold FROM outbox"""
_DELIVERIES = f"{_RECORD} WHERE request_id = ? ORDER BY rowid"
_AT_WORK = """SELECT 1 FROM inbox WHERE inbox.request_id = outbox.request_id
    AND inbox.state IN ('received', 'claimed')"""
_UNDELIVERED = f"{_RECORD} WHERE state IN ('intent', 'sending') AND NOT EXISTS ({_AT_WORK}) ORDER BY rowid"
_UNTOLD = f"{_RECORD} WHERE untold = 1 ORDER BY rowid"
_SHOWN = "SELECT request_id FROM outbox WHERE state = 'sent' AND kind = 'reply' AND chat_key = ?"
_SHOWN_AS = f"{_SHOWN} AND message_id = ? ORDER BY rowid DESC LIMIT 1"
_NEWEST = "SELECT request_id FROM outbox WHERE kind = 'reply' AND chat_key = ? ORDER BY rowid DESC LIMIT 1"
# The threads of a chat go on with ":" behind its key, which ";" follows.
_NEAR = """SELECT request_id FROM outbox WHERE kind = 'reply'
    AND (chat_key > :below AND chat_key < :behind
        OR chat_key = :above AND target = :target)
    AND (:message_id IS NULL OR state = 'sent' AND message_id = :message_id)
    AND EXISTS (SELECT 1 FROM inbox WHERE inbox.request_id = outbox.request_id AND inbox.user_id = :user_id)
    ORDER BY rowid DESC LIMIT 1"""
_CLOSE = "INSERT OR REPLACE INTO closed_targets VALUES (?, ?, ?, ?)"
_OPEN = "DELETE FROM closed_targets WHERE channel = ? AND chat_id = ?"
_CLOSED = "SELECT channel, chat_id, reason FROM closed_targets"


class SqliteOutbox(JournalTable):
    """`contracts.journal.Outbox`."""

    def intend(
        self, messages: Sequence[Outbound], *, not_before: float | None = None
    ) -> Coroutine[Any, Any, None]:
        now = self._clock.now()
        rows = [
            clean(
                (
                    *(message.id, message.request_id, str(message.chat_key)),
                    *(dumps(dict(message.target)), message.text, message.kind, now, now),
                    *(message.repeat_of, not_before),
                )
            )
            for message in messages
        ]
        written: list[object] = []

        def work(db: sqlite3.Connection) -> None:
            written[:] = [row[0] for row in rows if db.execute(_INTEND, row).rowcount]

        def undo(db: sqlite3.Connection) -> None:
            # Whoever wanted to send them knows that they were refused: nobody may send them later.
            db.executemany("DELETE FROM outbox WHERE id = ?", [(name,) for name in written])

        return done(self._base.run(work, undo=undo))

    def mark(self, outbound_id: str, state: str, **facts: Unpack[OutboxFacts]) -> Coroutine[Any, Any, None]:
        values = (state, *(facts.get(name) for name in _FACTS), self._clock.now(), outbound_id)
        return self._marked(self._change(_MARK, values), outbound_id, state)

    async def _marked(self, change: Future[int], outbound_id: str, state: str) -> None:
        if not await change:
            self._log.write("storage", f"the outbox has no message {outbound_id}", level="warn", state=state)

    async def deliveries(self, request_id: str) -> list[DeliveryRecord]:
        return _records(await self._rows(_DELIVERIES, (request_id,)))

    async def undelivered(self) -> list[DeliveryRecord]:
        return _records(await self._rows(_UNDELIVERED, ()))

    async def untold(self) -> list[DeliveryRecord]:
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
        row = await self._base.read(lambda db: db.execute(_NEAR, values).fetchone())
        return row[0] if row else None

    def close_target(self, channel: str, chat_id: str, reason: str) -> Coroutine[Any, Any, None]:
        return done(self._change(_CLOSE, (channel, chat_id, reason, self._clock.now())))

    def open_target(self, channel: str, chat_id: str) -> Coroutine[Any, Any, None]:
        return done(self._change(_OPEN, (channel, chat_id)))

    async def closed_targets(self) -> dict[tuple[str, str], str]:
        return {(channel, chat_id): reason for channel, chat_id, reason in await self._rows(_CLOSED, ())}


def _records(rows: Sequence[tuple[Any, ...]]) -> list[DeliveryRecord]:
    """A target that the disk has damaged is None. A row whose chat it has damaged is left out."""
    return [
        DeliveryRecord(*(*row[:2], key, *row[3:8], loads(row[8]), *row[9:14], bool(row[14])))
        for row in rows
        if (key := read_key(row[2])) is not None
    ]
