"""`task`: starts a subagent (`bot.core.tasks`) and returns its summary."""

from __future__ import annotations

from pydantic import Field

from bot import errors
from bot.contracts.tools import ToolInput
from bot.tools import context
from bot.tools.builtin import BuiltinTool
from bot.tools.context import TaskMode

LONGEST = 7 * 86_400.0
"""Timeout in seconds of a task, including its waits for people. Other limits usually end a task earlier."""


class TaskInput(ToolInput):
    prompt: str = Field(min_length=1, max_length=50_000, description="All it needs to know.")
    description: str = Field(default="", max_length=200, description="A few words for people.")
    mode: TaskMode = "fresh"


class Task(BuiltinTool):
    name = "task"
    description = (
        "Have a worker with a fresh context do a piece of work; only its summary comes back. For exploring, searching "
        "or comparing several files or pages. Several calls in one step work side by side. Not for one file, one "
        "command, or what needs this conversation, which only a fork has."
    )
    input = TaskInput
    effects = frozenset({"delegate"})
    timeout_seconds = LONGEST
    ages = False

    async def run(self, args: TaskInput) -> str:
        task = context.current().task
        if task is None:
            raise errors.ToolError("There are no tasks inside of a task. Do it with calls of your own.")
        return await task(args.prompt, args.description, args.mode)


TOOLS = (Task,)
