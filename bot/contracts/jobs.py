"""The port at which tools plan jobs: work for later, in the chat where it was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bot.contracts.inbound import Inbound
from bot.contracts.provenance import ANYBODYS, NOBODYS, Provenance


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to plan. `inbound` is the message that asks: it fixes place and rights. `when` is a time (ISO 8601), a cron
    expression of five fields or `every 2h`; `timezone` the one that the person has named, else "". `origin` is the
    provenance of what was in view.
    """

    inbound: Inbound
    prompt: str
    when: str
    timezone: str = ""
    origin: Provenance = ANYBODYS


@dataclass(frozen=True, slots=True)
class JobList:
    """The jobs of a place, in `words`; `origin` as in `JobRequest`, for all that they repeat."""

    words: str
    origin: Provenance = NOBODYS


class Jobs(Protocol):
    """Planned jobs (`bot.features.jobs`). Each call returns its result in words for the model."""

    async def create(self, asked: JobRequest) -> str:
        """Plan a job. Raises `errors.ToolError` where it cannot be, with what is expected; `errors.StorageError`."""
        ...

    async def listed(self, inbound: Inbound) -> JobList:
        """The jobs of the place of a message. Raises `errors.StorageError`."""
        ...

    async def cancel(self, inbound: Inbound, job: str) -> str:
        """Take a job back, on behalf of who wrote. Raises `errors.ToolError` where they may not; `errors.StorageError`."""
        ...


@runtime_checkable
class KnowsZones(Protocol):
    """Optional ability of a `Channel`: knows the time zones of people."""

    async def zone_of(self, user_id: str) -> str | None:
        """The name of a zone of the tz database, None where the platform does not say. Raises an
        `errors.ChannelError` where it cannot be asked.
        """
        ...
