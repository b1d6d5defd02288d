"""Every model and tool call of a turn, with its result."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from bot.contracts.base import Json
from bot.contracts.journal import StepRecord
from bot.journal.table import JournalTable, done, dumps, loads

_BEGIN = """INSERT INTO steps (request_id, id, kind, name, began_at, ended_at, result, parent_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (request_id, id) DO NOTHING"""
_END = "UPDATE steps SET ended_at = ?, result = ? WHERE request_id = ? AND id = ? AND ended_at IS NULL"
_STEPS = """SELECT request_id, id, kind, name, began_at, ended_at, result, parent_id FROM steps
    WHERE request_id = ? ORDER BY rowid"""


class SqlSteps(JournalTable):
    """`contracts.journal.Steps`. Steps are in no hurry: what is more urgent takes them along."""

    def begin_step(self, step: StepRecord) -> Coroutine[Any, Any, None]:
        result = None if step.result is None else dumps(step.result)
        values = (
            step.request_id,
            step.id,
            step.kind,
            step.name,
            step.began_at,
            step.ended_at,
            result,
            step.parent_id,
        )
        return done(self._change(_BEGIN, values, hurry=False))

    def end_step(self, request_id: str, step_id: str, result: Json) -> Coroutine[Any, Any, None]:
        """The first result counts."""
        values = (self._clock.now(), dumps(result), request_id, step_id)
        return done(self._change(_END, values, hurry=False))

    async def steps(self, request_id: str) -> list[StepRecord]:
        """A result that the disk has damaged is None."""
        rows = await self._rows(_STEPS, (request_id,))
        return [StepRecord(*(*row[:6], loads(row[6]), row[7])) for row in rows]
