"""`schedule_cancel`: cancels a job."""

from __future__ import annotations

from bot.contracts.tools import WRITES, ToolInput
from bot.tools.builtin.schedule_create import asked_in
from bot.tools.ports import Jobs
from bot.tools.registry import ToolPorts


class ScheduleCancelInput(ToolInput):
    job: str


class ScheduleCancel:
    """Cancels a job of the asking person. Operators can cancel any job of the chat."""

    name = "schedule_cancel"
    description = "Cancel a job."
    input = ScheduleCancelInput
    effects = WRITES
    timeout_seconds = 30.0
    ages = False

    def __init__(self, jobs: Jobs | None) -> None:
        self._jobs = jobs

    async def run(self, args: ScheduleCancelInput) -> str:
        jobs, inbound = asked_in(self._jobs)
        return await jobs.cancel(inbound, args.job)


def build(ports: ToolPorts) -> ScheduleCancel:
    return ScheduleCancel(ports.jobs)
