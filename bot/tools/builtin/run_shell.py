"""`run_shell`: runs a command in the project's folder, inside the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from pydantic import Field

from bot import errors
from bot.contracts.tools import Effect, ToolInput
from bot.tools import context, processes
from bot.tools.file_provenance import FileProvenance, provenance_in_view
from bot.tools.isolation import Isolation
from bot.tools.permissions import taint
from bot.tools.registry import ToolPorts

SECONDS = 60
LONGEST = 600

NO_OUTPUT = "It ended well and printed nothing."


class RunShellInput(ToolInput):
    command: str = Field(min_length=1, max_length=20_000, pattern=r"^[^\x00]*$")
    timeoutMs: int = Field(default=SECONDS * 1000, ge=1, le=LONGEST * 1000)  # noqa: N815 - the name is fixed


class RunShell:
    """Runs a command until it ends or times out. The result contains the exit status and the output."""

    name = "run_shell"
    input = RunShellInput
    timeout_seconds = LONGEST + 30.0
    ages = True

    def __init__(self, isolation: Isolation, origins: FileProvenance) -> None:
        self._isolation = isolation
        self._origins = origins
        outside: frozenset[Effect] = frozenset({"network"})
        self.effects: frozenset[Effect] = frozenset({"run", "write"})
        if isolation.network or not isolation.required:
            self.effects |= outside
        net = "" if isolation.network else ", without network"
        self.description = f"Run a command in the project's folder{net}."

    async def run(self, args: RunShellInput) -> str:
        seconds = args.timeoutMs / 1000
        ended = await self._run(args.command, seconds)
        if ended.late or ended.over or ended.status != 0:
            raise errors.CommandFailed(
                exit_code=ended.status,
                stdout=ended.stdout,
                stderr=ended.stderr,
                limit=seconds if ended.late else None,
                over=ended.over,
            )
        stderr = f"stderr:\n{ended.stderr.rstrip()}" if ended.stderr.strip() else ""
        return (
            "\n".join(filter(None, (ended.stdout.rstrip("\n") if ended.stdout.strip() else "", stderr)))
            or NO_OUTPUT
        )

    async def _run(self, command: str, seconds: float) -> processes.CommandResult:
        """Run a command, and record the provenance of its output and of the files that it may have written.
        That provenance covers all files that the command could read.
        """
        channel, name = context.channel(), secrets.token_hex(6)
        printed = taint.usual(self.name, self.effects) | await asyncio.to_thread(self._origins.whole, channel)
        context.report_provenance(printed)
        written = printed | provenance_in_view()
        async with contextlib.AsyncExitStack() as after:
            await asyncio.to_thread(self._origins.begin, name, written, channel)
            after.push_async_callback(asyncio.to_thread, self._origins.end, name, written, channel)
            return await self._isolation.run(command, seconds)


def build(ports: ToolPorts) -> RunShell:
    return RunShell(ports.isolation, ports.origins)
