"""`schedule_create`: creates a job in this chat."""

from __future__ import annotations

from pydantic import Field

from bot import errors
from bot.contracts.inbound import Inbound
from bot.contracts.tools import WRITES, ToolInput
from bot.tools import context
from bot.tools.permissions import taint
from bot.tools.ports import JobRequest, Jobs
from bot.tools.registry import ToolPorts

UNPLACED = "This works only in a chat."


class ScheduleCreateInput(ToolInput):
    prompt: str
    when: str = Field(description="ISO 8601 (person's zone), 5 cron fields, or every 2h.")
    timezone: str = Field(default="", description="IANA, if they name one.")


class ScheduleCreate:
    """Creates a job. The job belongs to the chat of the message that asks for it and has the rights of that
    message's author.
    """

    name = "schedule_create"
    description = "Do the prompt later, in this chat."
    input = ScheduleCreateInput
    effects = WRITES
    timeout_seconds = 60.0
    ages = False

    def __init__(self, jobs: Jobs | None) -> None:
        self._jobs = jobs

    async def run(self, args: ScheduleCreateInput) -> str:
        jobs, inbound = asked_in(self._jobs)
        origin = taint.seen(context.current().view())
        return await jobs.create(JobRequest(inbound, args.prompt, args.when, args.timezone, origin))


def asked_in(jobs: Jobs | None) -> tuple[Jobs, Inbound]:
    """Return the job service and the message that asked. Raises `errors.ToolError` outside a chat."""
    inbound = context.current().inbound
    if jobs is None or inbound is None:
        raise errors.ToolError(UNPLACED)
    return jobs, inbound


def build(ports: ToolPorts) -> ScheduleCreate:
    return ScheduleCreate(ports.jobs)
