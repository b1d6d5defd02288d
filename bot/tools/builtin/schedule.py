"""`schedule_create`, `schedule_list` and `schedule_cancel`: jobs of the asking chat. A job has the rights of
the person who asked for it; operators can cancel any job of the chat.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bot import errors
from bot.contracts.inbound import Inbound
from bot.contracts.tools import WRITES, ToolInput
from bot.tools import context
from bot.tools.builtin import BuiltinTool
from bot.tools.context import JobRequest, Jobs
from bot.tools.permissions import taint

UNPLACED = "This works only in a chat."


class ScheduleCreateInput(ToolInput):
    prompt: str
    when: str = Field(description="ISO 8601 (person's zone), 5 cron fields, or every 2h.")
    timezone: str = Field(default="", description="IANA, if they name one.")


class ScheduleCancelInput(ToolInput):
    job: str


class _ScheduleTool(BuiltinTool):
    async def run(self, args: Any) -> str:
        inbound = context.current().inbound
        if self.ports.jobs is None or inbound is None:
            raise errors.ToolError(UNPLACED)
        return await self.done(self.ports.jobs, inbound, args)

    async def done(self, jobs: Jobs, inbound: Inbound, args: Any) -> str:
        raise NotImplementedError


class ScheduleCreate(_ScheduleTool):
    name = "schedule_create"
    description = "Do the prompt later, in this chat."
    input = ScheduleCreateInput
    effects = WRITES
    timeout_seconds = 60.0
    ages = False

    async def done(self, jobs: Jobs, inbound: Inbound, args: ScheduleCreateInput) -> str:
        origin = taint.seen(context.current().view())
        return await jobs.create(JobRequest(inbound, args.prompt, args.when, args.timezone, origin))


class ScheduleList(_ScheduleTool):
    name = "schedule_list"
    description = "The jobs of this chat."

    async def done(self, jobs: Jobs, inbound: Inbound, _: ToolInput) -> str:
        found = await jobs.listed(inbound)
        context.report_provenance(found.origin)
        return found.words


class ScheduleCancel(_ScheduleTool):
    name = "schedule_cancel"
    description = "Cancel a job."
    input = ScheduleCancelInput
    effects = WRITES
    ages = False

    async def done(self, jobs: Jobs, inbound: Inbound, args: ScheduleCancelInput) -> str:
        return await jobs.cancel(inbound, args.job)


TOOLS = (ScheduleCreate, ScheduleList, ScheduleCancel)
