"""Stores jobs as facts of the log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.core.chats import Chats, Fact
from bot.core.events import FactSet
from bot.features.jobs.job import ScheduledJob

JOB = "job"
"""Kind of the facts."""


class JobBook:
    """The jobs. A change takes effect with its append, without locks or reads."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self._read: dict[str, tuple[Json | None, ScheduledJob | None]] = {}
        self._draft: tuple[ChatKey, list[Fact]] | None = None

    def all(self) -> list[ScheduledJob]:
        """Return the readable jobs in order of creation."""
        found = [job for name in self._chats.facts.all(JOB) if (job := self.get(name)) is not None]
        return sorted(found, key=lambda job: job.made_by)

    def get(self, name: str) -> ScheduledJob | None:
        spec = self._chats.facts.get(JOB, name)
        before, job = self._read.get(name, (None, None))
        if spec is not before:
            job = None if spec is None else _job(spec)
            self._read[name] = (spec, job)
        return job

    @contextlib.contextmanager
    def drafting(self, chat: ChatKey) -> Iterator[list[Fact]]:
        """Collect the changes made in the block for the end of a command in this chat. The block must not await."""
        self._draft = (chat, [])
        try:
            yield self._draft[1]
        finally:
            self._draft = None

    def fact(self, job: ScheduledJob, *, over: bool = False) -> Fact:
        """Return the fact that stores a job, appended with the turn that changed it; an `over` job is deleted."""
        spec = None if over else job.model_dump(by_alias=True, mode="json")
        return Fact(job.chat_key, FactSet(JOB, job.id, spec), job.made_by)

    async def put(self, job: ScheduledJob, /) -> ScheduledJob:
        await self._append(self.fact(job))
        return job

    async def remove(self, job: ScheduledJob, /) -> None:
        await self._append(self.fact(job, over=True))

    async def _append(self, fact: Fact) -> None:
        if self._draft is not None:
            chat, facts = self._draft
            facts.append(replace(fact, chat=chat))
            return
        await self._chats.get(fact.chat)
        self._chats.append(fact)


def _job(spec: Json) -> ScheduledJob | None:
    """Parse a stored job; None if this version cannot."""
    try:
        job = ScheduledJob.model_validate(spec)
        job.plan.following(0.0)  # a zone or an expression that is none is found here
    except (ValueError, KeyError):
        return None
    return job
