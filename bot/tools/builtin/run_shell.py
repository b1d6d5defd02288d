"""`run_shell`: runs a command in the project's folder, inside the sandbox."""

from __future__ import annotations

import asyncio

from pydantic import Field

from bot import errors
from bot.contracts.tools import Effect, ToolInput
from bot.tools import context
from bot.tools.builtin import BuiltinTool, ToolPorts
from bot.tools.file_guard import Command
from bot.tools.permissions import taint

SECONDS = 60
LONGEST = 600
_NETWORK: frozenset[Effect] = frozenset({"network"})


class RunShellInput(ToolInput):
    command: str = Field(min_length=1, max_length=20_000, pattern=r"^[^\x00]*$")
    timeoutMs: int = Field(default=SECONDS * 1000, ge=1, le=LONGEST * 1000)  # noqa: N815 - the name is fixed


class RunShell(BuiltinTool):
    """Runs a command until it ends or reaches its time limit. The result contains the exit status and the output."""

    name = "run_shell"
    input = RunShellInput
    effects = frozenset({"run", "write"})
    timeout_seconds = LONGEST + 30.0

    def __init__(self, ports: ToolPorts) -> None:
        super().__init__(ports)
        if ports.isolation.network or not ports.isolation.required:
            self.effects |= _NETWORK
        net = "" if ports.isolation.network else ", without network"
        self.description = f"Run a command in the project's folder{net}."

    async def run(self, args: RunShellInput) -> str:
        seconds, turn = args.timeoutMs / 1000, context.current()
        # A command may print any file that it can read, and any text of the model's context.
        found = await asyncio.to_thread(self.ports.isolation.guard.of, "", turn.channel)
        printed = taint.usual(self.name, self.effects) | found
        context.report_provenance(printed)
        guarded = Command(printed | taint.seen(turn.view()), turn.channel)
        ended = await self.ports.isolation.run(args.command, seconds, guarded)
        if ended.late or ended.over or ended.status != 0:
            limit = seconds if ended.late else None
            raise errors.CommandFailed(
                status=ended.status, stdout=ended.stdout, stderr=ended.stderr, limit=limit, over=ended.over
            )
        printed_words = ended.stdout.rstrip("\n") if ended.stdout.strip() else ""
        warned = f"stderr:\n{ended.stderr.rstrip()}" if ended.stderr.strip() else ""
        return "\n".join(filter(None, (printed_words, warned))) or "It ended well and printed nothing."


TOOLS = (RunShell,)
