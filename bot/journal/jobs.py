"""The tables of jobs and of people's locales. What is in a job only `bot.gateway.jobs` knows."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from bot.contracts.identity import UserRef
from bot.contracts.journal import Job, Locale
from bot.journal.table import JournalTable, done, dumps, held, loads, read_key

# A job that is put again keeps its place.
_PUT = """INSERT INTO jobs (id, chat_key, spec) VALUES (?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET chat_key = excluded.chat_key, spec = excluded.spec"""

_PUT_LOCALE = """INSERT INTO locales (channel, user_id, language, language_chosen, zone, zone_chosen) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (channel, user_id) DO UPDATE SET language = excluded.language,
        language_chosen = excluded.language_chosen, zone = excluded.zone, zone_chosen = excluded.zone_chosen"""
_LOCALES = "SELECT channel, user_id, language, language_chosen, zone, zone_chosen FROM locales"


class SqlJobs(JournalTable):
    """`contracts.journal.JobRows` and `LocaleRows`."""

    def put_job(self, job: Job) -> Coroutine[Any, Any, None]:
        return done(self._change(_PUT, (job.id, str(job.chat_key), dumps(job.spec))))

    def remove_job(self, job_id: str) -> Coroutine[Any, Any, bool]:
        return held(self._count("DELETE FROM jobs WHERE id = ?", (job_id,)))

    async def jobs(self) -> list[Job]:
        """A job that the disk has damaged is left out."""
        rows = await self._rows("SELECT id, chat_key, spec FROM jobs ORDER BY rowid", ())
        jobs = [(name, read_key(chat_key), loads(spec)) for name, chat_key, spec in rows]
        return [Job(name, key, spec) for name, key, spec in jobs if key is not None and spec is not None]

    def put_locale(self, person: UserRef, locale: Locale) -> Coroutine[Any, Any, None]:
        facts = (locale.language, locale.language_chosen, locale.zone, locale.zone_chosen)
        return done(self._change(_PUT_LOCALE, (person.channel, person.user_id, *facts)))

    async def locales(self) -> dict[UserRef, Locale]:
        rows = await self._rows(_LOCALES, ())
        return {
            UserRef(channel, user_id): Locale(language, bool(language_chosen), zone, bool(zone_chosen))
            for channel, user_id, language, language_chosen, zone, zone_chosen in rows
        }
