"""Jobs as the journal keeps them."""

from __future__ import annotations

import asyncio

from bot.contracts.environment import Log
from bot.contracts.journal import Job, JobRows
from bot.features.jobs.job import ScheduledJob

MOST_SPANS = 20


class JournalJob(ScheduledJob):
    """A job with what the journal knows of its times.

    `firing` is a time whose message is being written down (with `missed` before it), `open` one whose turn is not known to be over.
    `served` are spans of times that have had their turn, from the first to the last of each. `tell` is what the chat has still to be told.
    """

    firing: float | None = None
    missed: int = 0
    open: float | None = None
    served: tuple[tuple[float, float], ...] = ()
    tell: str = ""

    def has_served(self, due: float) -> bool:
        return any(first <= due <= last for first, last in self.served)

    def serving(self, due: float) -> JournalJob:
        """With one more time that has had its turn."""
        spans = list(self.served)
        if spans and self.plan.following(spans[-1][1]) == due:
            spans[-1] = (spans[-1][0], due)
        else:
            spans.append((due, due))
        return self.model_copy(update={"served": tuple(spans[-MOST_SPANS:])})


class JobStore:
    """The jobs of one journal, in memory too. What is changed is on disk first."""

    def __init__(self, journal: JobRows, log: Log) -> None:
        self.lock = asyncio.Lock()
        """Whoever changes a job holds it."""
        self._journal = journal
        self._log = log
        self._jobs: dict[str, JournalJob] = {}
        self._doubtful: set[str] = set()
        self._loaded = False

    async def load(self) -> None:
        """Read them, once; what was refused since then is made certain. Raises `errors.StorageError`."""
        for name in list(self._doubtful):
            await self._written(name, self._jobs.get(name))
        await self.read()

    async def read(self) -> None:
        """Read them, once, also while nothing can be written. Raises `errors.StorageError`."""
        if self._loaded:
            return
        for row in await self._journal.jobs():
            try:
                self._take(row)
            except (ValueError, KeyError) as error:
                # It stays on file: a later version may read it.
                self._log.write(
                    "schedule", "a job cannot be read", level="error", job=row.id, cause=type(error).__name__
                )
        self._loaded = True

    def _take(self, row: Job) -> None:
        job = JournalJob.model_validate(row.spec)
        job.plan.following(0.0)  # a zone or an expression that is none is found here
        self._jobs[row.id] = job

    def all(self) -> list[JournalJob]:
        """In the order in which they were made."""
        return list(self._jobs.values())

    def get(self, name: str) -> JournalJob | None:
        return self._jobs.get(name)

    async def put(self, made: ScheduledJob) -> JournalJob:
        job = made if isinstance(made, JournalJob) else JournalJob(**dict(made))
        await self._written(job.id, job)
        self._jobs[job.id] = job
        return job

    async def remove(self, job: ScheduledJob) -> None:
        await self._written(job.id, None)
        self._jobs.pop(job.id, None)

    async def _written(self, name: str, job: JournalJob | None) -> None:
        """Put a job on file, or take it from there. Of a change that is refused nobody knows whether it is there after
        all: what is in memory counts, and is written again.
        """
        self._doubtful.add(name)
        if job is None:
            await self._journal.remove_job(name)
        else:
            await self._journal.put_job(Job(name, job.chat_key, job.model_dump(by_alias=True, mode="json")))
        self._doubtful.discard(name)
