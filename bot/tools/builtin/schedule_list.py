"""`schedule_list`: lists the jobs of this chat."""

from __future__ import annotations

from bot.contracts.tools import READS, ToolInput
from bot.tools import context
from bot.tools.builtin.schedule_create import asked_in
from bot.tools.ports import Jobs
from bot.tools.registry import ToolPorts


class ScheduleList:
    """Lists the jobs of the asking chat."""

    name = "schedule_list"
    description = "The jobs of this chat."
    input = ToolInput
    effects = READS
    timeout_seconds = 30.0
    ages = True

    def __init__(self, jobs: Jobs | None) -> None:
        self._jobs = jobs

    async def run(self, _: ToolInput) -> str:
        jobs, inbound = asked_in(self._jobs)
        found = await jobs.listed(inbound)
        context.report_provenance(found.origin)
        return found.words


def build(ports: ToolPorts) -> ScheduleList:
    return ScheduleList(ports.jobs)
