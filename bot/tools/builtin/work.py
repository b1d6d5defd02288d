"""`task`: starts a subagent (`bot.core.tasks`) and returns its summary. `schedule_create`, `schedule_list` and
`schedule_cancel`: jobs of the current chat. A job has the rights of the person who asked for it. Operators can cancel any
job of the chat.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bot import errors
from bot.contracts.messages import Inbound
from bot.contracts.tools import WRITES
from bot.tools import context
from bot.tools.builtin import ToolPorts, tool
from bot.tools.context import Jobs, TaskMode
from bot.tools.permissions import taint

LONGEST = 7 * 86_400.0
"""Timeout in seconds of a task, including its waits for people. Other limits usually end a task earlier."""
UNPLACED = "This works only in a chat."


@tool(
    "Have a worker with a fresh context do a piece of work; only its summary comes back. For exploring, searching "
    "or comparing several files or pages. Several calls in one step work side by side. Not for one file, one "
    "command, or what needs this conversation, which only a fork has.",
    effects=frozenset({"delegate"}),
    timeout_seconds=LONGEST,
    ages=False,
)
async def task(
    _ports: ToolPorts,
    *,
    prompt: Annotated[str, Field(min_length=1, max_length=50_000, description="All it needs to know.")],
    description: Annotated[str, Field(max_length=200, description="A few words for people.")] = "",
    mode: TaskMode = "fresh",
) -> str:
    start = context.current().task
    if start is None:
        raise errors.ToolError("There are no tasks inside of a task. Do it with calls of your own.")
    return await start(prompt, description, mode)


def _asked(ports: ToolPorts) -> tuple[Jobs, Inbound]:
    inbound = context.current().inbound
    if ports.jobs is None or inbound is None:
        raise errors.ToolError(UNPLACED)
    return ports.jobs, inbound


@tool("Do the prompt later, in this chat.", effects=WRITES, timeout_seconds=60.0, ages=False)
async def schedule_create(
    ports: ToolPorts,
    *,
    prompt: str,
    when: Annotated[str, Field(description="ISO 8601 (person's zone), 5 cron fields, or every 2h.")],
    timezone: Annotated[str, Field(description="IANA, if they name one.")] = "",
) -> str:
    jobs, inbound = _asked(ports)
    origin = taint.seen(context.current().view())
    return await jobs.create(inbound, prompt, when, timezone=timezone, origin=origin)


@tool("The jobs of this chat.")
async def schedule_list(ports: ToolPorts) -> str:
    jobs, inbound = _asked(ports)
    words, origin = await jobs.listed(inbound)
    context.report_provenance(origin)
    return words


@tool("Cancel a job.", effects=WRITES, ages=False)
async def schedule_cancel(ports: ToolPorts, *, job: str) -> str:
    jobs, inbound = _asked(ports)
    return await jobs.cancel(inbound, job)


TOOLS = (task, schedule_create, schedule_list, schedule_cancel)
