"""`task`: runs work in a separate conversation and returns its summary."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from bot import errors
from bot.contracts.tools import Effect, ToolInput
from bot.tools import context
from bot.tools.context import TaskMode
from bot.tools.registry import ToolPorts

LONGEST = 7 * 86_400.0
"""Timeout in seconds. A task's other limits end the task earlier, except while it waits for a person."""


class TaskInput(ToolInput):
    prompt: str = Field(min_length=1, max_length=50_000, description="All it needs to know.")
    description: str = Field(default="", max_length=200, description="A few words for people.")
    mode: TaskMode = "fresh"


class Task:
    """Starts a task (`bot.core.tasks`) for the current turn."""

    name = "task"
    description = (
        "Have a worker with a fresh context do a piece of work; only its summary comes back. For exploring, searching "
        "or comparing several files or pages. Several calls in one step work side by side. Not for one file, one "
        "command, or what needs this conversation, which only a fork has."
    )
    input = TaskInput
    effects: ClassVar[frozenset[Effect]] = frozenset({"delegate"})
    timeout_seconds = LONGEST
    ages = False

    async def run(self, args: TaskInput) -> str:
        tasks = context.current().tasks
        if tasks is None:
            raise errors.ToolError("There are no tasks inside of a task. Do it with calls of your own.")
        return await tasks.run(args.prompt, args.description, args.mode)


def build(_: ToolPorts) -> Task:
    return Task()
