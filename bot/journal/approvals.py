"""Approvals: questions to people, and their decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Iterable
from dataclasses import fields
from typing import Any

from bot import errors, text
from bot.contracts.approvals import (
    GIVEN,
    LASTING,
    OPEN_APPROVAL,
    Approval,
    ApprovalRecord,
    ApprovalState,
    Scope,
    Subject,
    Verdict,
)
from bot.contracts.identity import ChatKey, UserRef
from bot.journal.connection import Connection, Rows
from bot.journal.table import JournalTable, Moves, done, dumps, held, loads, states

_ASK = """INSERT INTO approvals (id, request_id, call_id, chat_key, fingerprint, subject, asked, state, asked_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (request_id, call_id, fingerprint) DO NOTHING"""
_FIELDS = """SELECT id, subject, asked, asked_at, state, decided_by, decided_name, decided_request_id, scope, decided_at
    FROM approvals"""
_THIS = f"{_FIELDS} WHERE request_id = ? AND call_id = ? AND fingerprint = ?"
_ONE = f"{_FIELDS} WHERE id = ?"
_BY_REQUEST = f"{_FIELDS} WHERE decided_request_id = ?"
_MOVE = """UPDATE approvals SET state = ?, decided_by = ?, decided_name = ?, decided_request_id = ?, scope = ?, asked = ?,
    decided_at = ? WHERE id = ?"""
# By `rowid` alone SQLite would look through the whole table in that order.
_OPEN = f"{_FIELDS} WHERE state IN ({states(*OPEN_APPROVAL)}) ORDER BY +rowid"
_DECIDED = f"{_FIELDS} WHERE decided_at >= ? ORDER BY +rowid"
# Of one call there may be thousands that were allowed once.
_LASTING = f"""{_FIELDS} WHERE state IN ({states(*GIVEN)}) AND scope IN ({states(*LASTING)})"""

_NAMES = tuple(field.name for field in fields(Approval) if field.name != "subject")
_Row = tuple[
    str, Subject, str, float, ApprovalState, str | None, str | None, str | None, Scope | None, float | None
]


class SqlApprovals(JournalTable):
    """`contracts.approvals.ApprovalStore`."""

    def ask(self, name: str, asked: Approval) -> Coroutine[Any, Any, ApprovalRecord]:
        values = (
            name,
            asked.request_id,
            asked.call_id,
            str(asked.chat_key),
            asked.fingerprint,
            asked.subject,
            _packed(asked),
            OPEN_APPROVAL[0],
        )
        key, now = asked.key, self._clock.now()

        def work(db: Connection) -> _Row:
            db.execute(_ASK, (*map(text.clean, values), now))
            found: _Row = db.execute(_THIS, tuple(map(text.clean, key))).fetchone()
            return found

        return _given(self.base.run(work))

    def resolve(self, name: str, verdict: Verdict) -> Coroutine[Any, Any, bool]:
        now = self._clock.now()
        moves = ApprovalMoves({name: lambda record: record.resolve(verdict, now)}, now)
        return held(self._writer.run(lambda db: not moves.make(db)))

    async def approval(self, name: str) -> ApprovalRecord | None:
        row = await self._row(_ONE, (name,))
        return _record(row) if row is not None else None

    async def decided_by(self, request_id: str) -> ApprovalRecord | None:
        return next(iter(_records(await self._rows(_BY_REQUEST, (request_id,)))), None)

    async def open_approvals(self) -> list[ApprovalRecord]:
        return _records(await self._rows(_OPEN, ()))

    async def decided_since(self, at: float) -> list[ApprovalRecord]:
        return _records(await self._rows(_DECIDED, (at,)))

    async def lasting(self, fingerprint: str | None = None) -> list[ApprovalRecord]:
        these, values = "", tuple[str, ...]()
        if fingerprint is not None:
            call = fingerprint.partition(":")[0]
            these, values = (
                " AND fingerprint >= ? AND fingerprint < ?",
                (call, f"{call};"),
            )  # ";" is the sign behind ":"
        return _records(await self._rows(f"{_LASTING}{these} ORDER BY +rowid", values))

    def amend_approval(self, record: ApprovalRecord) -> Coroutine[Any, Any, None]:
        statement = "UPDATE approvals SET scope = ?, asked = ? WHERE id = ?"
        return done(self._change(statement, (*_scope(record), record.id)))


class ApprovalMoves(Moves[ApprovalRecord]):
    """Transitions of approvals."""

    def _ask(self, db: Connection, name: str) -> Rows:
        return db.execute(_ONE, (name,))

    def _status(self, rows: list[Any]) -> ApprovalRecord | None:
        return next(iter(_records(rows)), None)

    def _write(self, db: Connection, name: str, _: ApprovalRecord, after: ApprovalRecord) -> None:
        end = after.verdict
        told: tuple[str | None, ...] = (None, None, None, None, _packed(after.asked))
        if end is not None:
            told = (
                *map(text.clean, (str(end.by or ""), end.name)),
                text.clean(end.request_id) or None,
                *_scope(after),
            )
        db.execute(_MOVE, (after.state, *told, after.decided_at, name))


def _records(rows: Iterable[_Row]) -> list[ApprovalRecord]:
    return [record for row in rows if (record := _record(row)) is not None]


def _record(row: _Row) -> ApprovalRecord | None:
    """None where the disk has damaged it, or another Shipmate has written what this one cannot make out."""
    name, subject, asked, asked_at, state, by, called, request_id, scope, decided_at = row
    facts = loads(asked)
    try:
        known = {key: facts[key] for key in _NAMES if key in facts}
        known |= {"chat_key": ChatKey.parse(known["chat_key"]), "step": tuple(known.get("step", ()))}
        approval = Approval(**known | {"subject": subject})
    except (TypeError, KeyError, errors.IdentityInvalid):
        return None
    verdict = None
    if state != "waiting":
        scope = "today" if scope == "chat" and facts.get("day") else scope or "once"
        verdict = Verdict(state, _person(by), scope, called or "", request_id or "")
    return ApprovalRecord(name, approval, asked_at, verdict, decided_at, facts.get("used", 0))


def _packed(asked: Approval, **more: object) -> str:
    return dumps({name: getattr(asked, name) for name in _NAMES} | {"chat_key": str(asked.chat_key)} | more)


def _scope(record: ApprovalRecord) -> tuple[str, str]:
    """The scope of a decision, of which the table knows three, and what was asked."""
    scope = record.verdict.scope if record.verdict is not None else "once"
    day = scope == "today"
    return "chat" if day else scope, _packed(record.asked, used=record.used, day=day)


def _person(kept: str | None) -> UserRef | None:
    """None too where the disk has damaged it: what was decided holds, whoever decided it."""
    try:
        return UserRef.parse(kept) if kept else None
    except errors.IdentityInvalid:
        return None


async def _given(change: Awaitable[_Row]) -> ApprovalRecord:
    record = _record(await change)
    if record is None:
        raise errors.StorageError("what was asked before about this call cannot be read")
    return record
