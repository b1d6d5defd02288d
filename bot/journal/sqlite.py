"""`SqliteJournal`: the journal in one SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bot import text
from bot.contracts import Clock, DeliveryRecord, Inbound, Log, Outbound
from bot.journal.database import Database

_AT_ONCE = 2_000

_FINISH = """UPDATE inbox SET state = ?, outcome = ?, changed_at = ?
    WHERE request_id = ? AND state IN ('received', 'claimed')"""
_UNFINISHED = "SELECT request_id, payload FROM inbox WHERE state IN ('received', 'claimed') ORDER BY rowid"
_DELIVERIES = """SELECT id, request_id, chat_key, text, kind, state, message_id, detail
    FROM outbox WHERE request_id = ? ORDER BY rowid"""
_INTEND = """INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, 'intent', NULL, NULL, ?, ?)
    ON CONFLICT (id) DO NOTHING"""
_MARK = """UPDATE outbox SET state = ?, message_id = coalesce(?, message_id), detail = coalesce(?, detail),
    changed_at = ? WHERE id = ?"""

# Of a turn that is not finished everything stays: resumed, it has to know what it sent.
_SWEEP_INBOX = """DELETE FROM inbox WHERE request_id IN
    (SELECT request_id FROM inbox WHERE state IN ('done', 'dead') AND changed_at < ? LIMIT ?)"""
_SWEEP_OUTBOX = """DELETE FROM outbox WHERE id IN
    (SELECT id FROM outbox WHERE state = 'sent' AND changed_at < ? AND request_id NOT IN
        (SELECT request_id FROM inbox WHERE state IN ('received', 'claimed')) LIMIT ?)"""
_SWEEP_KEYS = """DELETE FROM keys WHERE key IN
    (SELECT key FROM keys WHERE at < ? AND request_id NOT IN
        (SELECT request_id FROM inbox WHERE state IN ('received', 'claimed')) LIMIT ?)"""
_SWEEP_ONCE = "DELETE FROM once WHERE key IN (SELECT key FROM once WHERE until < ? LIMIT ?)"


class SqliteJournal:
    """`contracts.Journal` in `path`. Opens at the first call; one process at a time should own the file."""

    def __init__(self, path: Path, *, clock: Clock, log: Log, busy_seconds: float = 5.0) -> None:
        self._clock = clock
        self._log = log
        self._base = Database(path, clock=clock, log=log, busy_seconds=busy_seconds)

    async def open(self) -> None:
        """Open now rather than at the first call. Raises `errors.StorageError` where that is not possible."""
        await self._base.run(lambda _: None)

    async def newest(self) -> str:
        """The greatest requestId that is known; "" where there is none."""
        row = await self._one("SELECT max(request_id) FROM inbox", ())
        return row[0] or ""

    def health(self) -> str:
        """The last error, or "" where the last batch went through."""
        return self._base.trouble

    async def receive(self, inbound: Inbound) -> bool:
        now = self._clock.now()
        request_id, chat_key = text.clean(inbound.request_id), text.clean(inbound.chat_key)
        keys = {text.clean(f"{inbound.channel}:{key}") for key in inbound.keys}
        row = (request_id, chat_key, text.clean(inbound.user_id), now, now, _payload(inbound))

        def work(db: sqlite3.Connection) -> bool:
            if any(db.execute("SELECT 1 FROM keys WHERE key = ?", (key,)).fetchone() for key in keys):
                return False
            db.execute("INSERT INTO inbox VALUES (?, ?, ?, ?, ?, 'received', NULL, ?)", row)
            db.executemany("INSERT INTO keys VALUES (?, ?, ?)", [(key, request_id, now) for key in keys])
            db.execute("INSERT OR IGNORE INTO chats VALUES (?, ?)", (chat_key, now))
            return True

        def undo(db: sqlite3.Connection) -> None:
            # Refused, so the platform will bring it again: then it must not count as seen.
            db.execute("DELETE FROM keys WHERE request_id = ?", (request_id,))
            db.execute("DELETE FROM inbox WHERE request_id = ?", (request_id,))

        return bool(await self._base.run(work, undo=undo))

    async def claim(self, request_id: str) -> None:
        await self._change(
            "UPDATE inbox SET state = 'claimed', changed_at = ? WHERE request_id = ? AND state = 'received'",
            (self._clock.now(), request_id),
            hurry=False,
        )

    async def finish(self, request_id: str, outcome: str) -> None:
        """The first outcome counts; `dead` makes the inbound a dead one."""
        state = "dead" if outcome == "dead" else "done"
        await self._change(
            _FINISH,
            (state, outcome, self._clock.now(), request_id),
        )

    async def unfinished(self) -> list[Inbound]:
        now = self._clock.now()

        def work(db: sqlite3.Connection) -> list[Inbound]:
            rows = db.execute(_UNFINISHED).fetchall()
            found: list[Inbound] = []
            for request_id, payload in rows:
                try:
                    found.append(Inbound.model_validate_json(payload))
                except ValidationError as error:
                    self._bury_row(db, request_id, payload, now, error)
            return found

        inbounds: list[Inbound] = await self._base.run(work)
        return inbounds

    async def knows(self, chat_key: str) -> bool:
        key = (text.clean(chat_key),)
        return await self._one("SELECT 1 FROM chats WHERE chat_key = ?", key) is not None

    async def bury(self, channel: str, key: str, raw: str, reason: str) -> None:
        await self._change(
            "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?, ?)",
            (channel, key, raw, reason, self._clock.now()),
        )

    async def intend(self, messages: Sequence[Outbound]) -> None:
        """Write messages that are going to be sent, all or none; one whose id is there already stays as it is."""
        now = self._clock.now()
        rows = [
            (
                *map(text.clean, (message.id, message.request_id, message.chat_key)),
                text.clean(json.dumps(dict(message.target), ensure_ascii=False)),
                text.clean(message.text),
                message.kind,
                now,
                now,
            )
            for message in messages
        ]
        await self._base.run(lambda db: db.executemany(_INTEND, rows))

    async def mark(
        self, outbound_id: str, state: str, *, message_id: str | None = None, detail: str | None = None
    ) -> None:
        """Change the state of one message. `message_id` and `detail` stay as they were where they are not given."""
        changed = await self._change(_MARK, (state, message_id, detail, self._clock.now(), outbound_id))
        if not changed:
            self._log.write("storage", f"the outbox has no message {outbound_id}", level="warn", state=state)

    async def deliveries(self, request_id: str) -> list[DeliveryRecord]:
        key = (text.clean(request_id),)
        rows = await self._base.run(lambda db: db.execute(_DELIVERIES, key).fetchall())
        return [DeliveryRecord(*row) for row in rows]

    async def once(self, key: str, now: float, every: float) -> bool:
        cleaned = text.clean(key)

        def work(db: sqlite3.Connection) -> bool:
            row = db.execute("SELECT at FROM once WHERE key = ?", (cleaned,)).fetchone()
            if row is not None and row[0] <= now < row[0] + every:
                return False
            # A time that is still to come tells of a clock set back: counted from now on, it does not bind
            # for longer than `every`.
            db.execute("INSERT OR REPLACE INTO once VALUES (?, ?, ?)", (cleaned, now, now + every))
            return row is None or row[0] <= now

        return bool(await self._base.run(work))

    async def sweep(self, before: float) -> int:
        """As the contract says, but of a turn that is not finished everything stays."""
        await self._sweep(_SWEEP_ONCE, before)
        return sum([await self._sweep(step, before) for step in (_SWEEP_INBOX, _SWEEP_OUTBOX, _SWEEP_KEYS)])

    async def close(self) -> None:
        """Finish what waits and close the file. Safe to call twice."""
        await self._base.close()

    async def _sweep(self, statement: str, before: float) -> int:
        """Few rows at a time, so that nobody waits behind them."""
        total = 0
        while True:
            gone = await self._change(statement, (before, _AT_ONCE))
            total += gone
            if gone < _AT_ONCE:
                return total

    async def _change(self, statement: str, values: Sequence[object], *, hurry: bool = True) -> int:
        bound = [text.clean(value) if isinstance(value, str) else value for value in values]
        return int(await self._base.run(lambda db: db.execute(statement, bound).rowcount, hurry=hurry))

    async def _one(self, statement: str, values: Sequence[object]) -> Any:
        return await self._base.run(lambda db: db.execute(statement, values).fetchone())

    def _bury_row(
        self, db: sqlite3.Connection, request_id: str, payload: str, now: float, error: ValidationError
    ) -> None:
        reason = f"its row cannot be read: {error.error_count()} errors"
        db.execute(
            "INSERT OR REPLACE INTO dead_letters VALUES ('journal', ?, ?, ?, ?)",
            (request_id, payload, reason, now),
        )
        db.execute(
            "UPDATE inbox SET state = 'dead', outcome = 'unreadable', changed_at = ? WHERE request_id = ?",
            (now, request_id),
        )
        self._log.write(
            "storage",
            "an unfinished inbound cannot be read and is now a dead letter",
            level="error",
            request_id=request_id,
        )


def _payload(inbound: Inbound) -> str:
    return text.clean(json.dumps(inbound.model_dump(mode="python", by_alias=True), ensure_ascii=False))
