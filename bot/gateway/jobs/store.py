"""Jobs as the journal keeps them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from bot import text
from bot.contracts.base import ChatType, Frozen
from bot.contracts.environment import Log
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Job, JobRows
from bot.contracts.provenance import ANYBODYS, Provenance, Taint
from bot.core.plans import Plan

MOST_SPANS = 20
ASK_SECONDS = 15.0
"""The time for a platform to say something of a person."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """`most` jobs in one chat; `least` seconds between two times of one; `grace` seconds that one may run late."""

    most: int = 20
    least: float = 300.0
    grace: float = 7_200.0


class ScheduledJob(Frozen):
    """One job. Times are epoch seconds.

    `next` is the time that is waited for. `firing` is one whose message is being written down (with `missed` before it),
    `open` one whose turn is not known to be over. `served` are spans of times that have had their turn, from the first
    to the last of each. `paused` says whether it is, for its failures or by a person, `tell` what the chat has still to be told.
    """

    v: int = 1
    id: str
    prompt: str
    plan: Plan
    channel: str
    chat_id: str
    chat_key: ChatKey
    chat_type: ChatType
    target: dict[str, str]
    user_id: str
    user_name: str | None = None
    words_of: tuple[str, ...] | None = None
    taint: Taint = Taint.NONE
    made_by: str
    """The requestId of the turn that made it."""
    next: float | None
    firing: float | None = None
    missed: int = 0
    open: float | None = None
    served: tuple[tuple[float, float], ...] = ()
    failures: int = 0
    paused: Literal["", "failed", "person"] = ""
    tell: str = ""

    @property
    def origin(self) -> Provenance:
        """The people whose words were in view when it was made."""
        return Provenance(frozenset(self.words_of), self.taint) if self.words_of is not None else ANYBODYS

    @property
    def person(self) -> UserRef:
        return UserRef(self.channel, self.user_id)

    @property
    def title(self) -> str:
        return text.preview(self.prompt, 60)

    def key(self, due: float) -> str:
        """The key of the inbound of one due time: the journal takes in none twice."""
        # What counts elapsed time begins anew where a clock was set back, and then comes to the same times again.
        since = f"{self.plan.begin:.3f}+" if self.plan.kind == "every" else ""
        return f"job:{self.id}:{since}{due:.3f}"

    def has_served(self, due: float) -> bool:
        return any(first <= due <= last for first, last in self.served)

    def serving(self, due: float) -> ScheduledJob:
        """With one more time that has had its turn."""
        spans = list(self.served)
        if spans and self.plan.following(spans[-1][1]) == due:
            spans[-1] = (spans[-1][0], due)
        else:
            spans.append((due, due))
        return self.model_copy(update={"served": tuple(spans[-MOST_SPANS:])})

    def of(self, inbound: Inbound) -> bool:
        """True where it belongs to the place of a message, or to a thread there."""
        return inbound.chat_key.contains(self.chat_key)


class JobStore:
    """The jobs of one journal, in memory too. What is changed is on disk first."""

    def __init__(self, journal: JobRows, log: Log) -> None:
        self.lock = asyncio.Lock()
        """Whoever changes a job holds it."""
        self._journal = journal
        self._log = log
        self._jobs: dict[str, ScheduledJob] = {}
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
        job = ScheduledJob.model_validate(row.spec)
        job.plan.following(0.0)  # a zone or an expression that is none is found here
        self._jobs[row.id] = job

    def all(self) -> list[ScheduledJob]:
        """In the order in which they were made."""
        return list(self._jobs.values())

    def get(self, name: str) -> ScheduledJob | None:
        return self._jobs.get(name)

    async def put(self, job: ScheduledJob) -> ScheduledJob:
        await self._written(job.id, job)
        self._jobs[job.id] = job
        return job

    async def remove(self, job: ScheduledJob) -> None:
        await self._written(job.id, None)
        self._jobs.pop(job.id, None)

    async def _written(self, name: str, job: ScheduledJob | None) -> None:
        """Put a job on file, or take it from there. Of a change that is refused nobody knows whether it is there after
        all: what is in memory counts, and is written again.
        """
        self._doubtful.add(name)
        if job is None:
            await self._journal.remove_job(name)
        else:
            await self._journal.put_job(Job(name, job.chat_key, job.model_dump(by_alias=True, mode="json")))
        self._doubtful.discard(name)
