"""`schedule_create`, `schedule_list` and `schedule_cancel`: jobs of the current chat. A job has the rights of the
person who asked for it. Operators can cancel any job of the chat.
"""

from __future__ import annotations

from pydantic import Field

from bot import errors
from bot.contracts.inbound import Inbound
from bot.contracts.tools import WRITES, ToolInput
from bot.tools import context
from bot.tools.builtin import BuiltinTool, ToolPorts
from bot.tools.context import Jobs
from bot.tools.permissions import taint

UNPLACED = "This works only in a chat."


class ScheduleCreateInput(ToolInput):
    prompt: str
    when: str = Field(description="ISO 8601 (person's zone), 5 cron fields, or every 2h.")
    timezone: str = Field(default="", description="IANA, if they name one.")


class ScheduleCancelInput(ToolInput):
    job: str


def _asked(ports: ToolPorts) -> tuple[Jobs, Inbound]:
    inbound = context.current().inbound
    if ports.jobs is None or inbound is None:
        raise errors.ToolError(UNPLACED)
    return ports.jobs, inbound


class ScheduleCreate(BuiltinTool):
    name = "schedule_create"
    description = "Do the prompt later, in this chat."
    input = ScheduleCreateInput
    effects = WRITES
    timeout_seconds = 60.0
    ages = False

    async def run(self, args: ScheduleCreateInput) -> str:
        jobs, inbound = _asked(self.ports)
        origin = taint.seen(context.current().view())
        return await jobs.create(inbound, args.prompt, args.when, timezone=args.timezone, origin=origin)


class ScheduleList(BuiltinTool):
    name = "schedule_list"
    description = "The jobs of this chat."

    async def run(self, _: ToolInput) -> str:
        jobs, inbound = _asked(self.ports)
        words, origin = await jobs.listed(inbound)
        context.report_provenance(origin)
        return words


class ScheduleCancel(BuiltinTool):
    name = "schedule_cancel"
    description = "Cancel a job."
    input = ScheduleCancelInput
    effects = WRITES
    ages = False

    async def run(self, args: ScheduleCancelInput) -> str:
        jobs, inbound = _asked(self.ports)
        return await jobs.cancel(inbound, args.job)


TOOLS = (ScheduleCreate, ScheduleList, ScheduleCancel)
