"""Jobs by id, and which of their due times have been served."""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine
from typing import Any

from bot import text
from bot.contracts import Job
from bot.journal.part import Part, done, dumps, held, loads

# A job that is put again keeps its place and what was served of it.
_PUT = """INSERT INTO jobs (id, chat_key, spec) VALUES (?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET chat_key = excluded.chat_key, spec = excluded.spec"""
_SERVE = "UPDATE jobs SET served = ? WHERE id = ?"
_SERVED = "SELECT served FROM jobs WHERE id = ?"


class SqliteSchedule(Part):
    """`contracts.Schedule`."""

    def put_job(self, job: Job) -> Coroutine[Any, Any, None]:
        return done(self._change(_PUT, (job.id, job.chat_key, dumps(job.spec))))

    def remove_job(self, job_id: str) -> Coroutine[Any, Any, bool]:
        return held(self._change("DELETE FROM jobs WHERE id = ?", (job_id,)))

    async def jobs(self) -> list[Job]:
        """A job whose description the disk has damaged is left out."""
        rows = await self._rows("SELECT id, chat_key, spec FROM jobs ORDER BY rowid", ())
        jobs = [(name, chat_key, loads(spec)) for name, chat_key, spec in rows]
        return [Job(name, chat_key, spec) for name, chat_key, spec in jobs if spec is not None]

    def serve(self, job_id: str, due: float) -> Coroutine[Any, Any, bool]:
        name = text.clean(job_id)
        before: list[float | None] = []

        def work(db: sqlite3.Connection) -> bool:
            before[:] = [served for (served,) in db.execute(_SERVED, (name,))]
            if not before or (before[0] is not None and due <= before[0]):
                before.clear()
                return False
            db.execute(_SERVE, (due, name))
            return True

        def undo(db: sqlite3.Connection) -> None:
            # Whoever asked was told that it could not be written, so nobody has done the job.
            db.executemany(_SERVE, [(served, name) for served in before])

        return held(self._base.run(work, undo=undo))
