"""The tables of scheduled jobs and of people's time zones and languages. What is in a job is the scheduler's matter (`bot.gateway.jobs`)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from bot.contracts.identity import UserRef
from bot.contracts.journal import Job, SpokenLanguage
from bot.journal.table import JournalTable, done, dumps, held, loads, read_key

# A job that is put again keeps its place.
_PUT = """INSERT INTO jobs (id, chat_key, spec) VALUES (?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET chat_key = excluded.chat_key, spec = excluded.spec"""

_PUT_ZONE = """INSERT INTO zones (channel, user_id, zone) VALUES (?, ?, ?)
    ON CONFLICT (channel, user_id) DO UPDATE SET zone = excluded.zone"""
_SPEAK = """INSERT INTO languages (channel, user_id, language, chosen) VALUES (?, ?, ?, ?)
    ON CONFLICT (channel, user_id) DO UPDATE SET language = excluded.language, chosen = excluded.chosen"""


class SqlSchedule(JournalTable):
    """`contracts.journal.Schedule`."""

    def put_job(self, job: Job) -> Coroutine[Any, Any, None]:
        return done(self._change(_PUT, (job.id, str(job.chat_key), dumps(job.spec))))

    def remove_job(self, job_id: str) -> Coroutine[Any, Any, bool]:
        return held(self._change("DELETE FROM jobs WHERE id = ?", (job_id,)))

    async def jobs(self) -> list[Job]:
        """A job that the disk has damaged is left out."""
        rows = await self._rows("SELECT id, chat_key, spec FROM jobs ORDER BY rowid", ())
        jobs = [(name, read_key(chat_key), loads(spec)) for name, chat_key, spec in rows]
        return [Job(name, key, spec) for name, key, spec in jobs if key is not None and spec is not None]

    def put_zone(self, person: UserRef, zone: str) -> Coroutine[Any, Any, None]:
        return done(self._change(_PUT_ZONE, (person.channel, person.user_id, zone)))

    async def zones(self) -> dict[UserRef, str]:
        rows = await self._rows("SELECT channel, user_id, zone FROM zones", ())
        return {UserRef(channel, user_id): zone for channel, user_id, zone in rows}

    def speak(self, person: UserRef, spoken: SpokenLanguage) -> Coroutine[Any, Any, None]:
        return done(self._change(_SPEAK, (person.channel, person.user_id, spoken.code, spoken.chosen)))

    async def languages(self) -> dict[UserRef, SpokenLanguage]:
        rows = await self._rows("SELECT channel, user_id, language, chosen FROM languages", ())
        return {
            UserRef(channel, user_id): SpokenLanguage(code, bool(chosen))
            for channel, user_id, code, chosen in rows
        }
