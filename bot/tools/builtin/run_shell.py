"""`run_shell`: runs a command in the project's folder, inside the sandbox."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import Field

from bot import errors
from bot.contracts.tools import Effect
from bot.tools import context
from bot.tools.builtin import ToolPorts, tool
from bot.tools.file_guard import Command
from bot.tools.permissions import taint

SECONDS = 60
LONGEST = 600


def _adapted(ports: ToolPorts) -> dict[str, Any]:
    isolation = ports.isolation
    effects: set[Effect] = {"run", "write"}
    if isolation.network or not isolation.required:
        effects.add("network")
    net = "" if isolation.network else ", without network"
    return {"description": f"Run a command in the project's folder{net}.", "effects": frozenset(effects)}


@tool(adapt=_adapted, timeout_seconds=LONGEST + 30.0)
async def run_shell(
    ports: ToolPorts,
    *,
    command: Annotated[str, Field(min_length=1, max_length=20_000, pattern=r"^[^\x00]*$")],
    timeoutMs: Annotated[int, Field(ge=1, le=LONGEST * 1000)] = SECONDS * 1000,  # noqa: N803 - the name is fixed
) -> str:
    """Run a command until it ends or reaches its time limit. The result contains the exit status and the output."""
    seconds, turn = timeoutMs / 1000, context.current()
    # A command may print any file that it can read. Files that it writes may also contain any text of the model's context.
    found = await asyncio.to_thread(ports.isolation.guard.of, "", turn.channel)
    printed = taint.usual("run_shell", _adapted(ports)["effects"]) | found
    context.report_provenance(printed)
    guarded = Command(printed | taint.seen(turn.view()), turn.channel)
    ended = await ports.isolation.run(command, seconds, guarded)
    if ended.late or ended.over or ended.status != 0:
        limit = seconds if ended.late else None
        raise errors.CommandFailed(
            status=ended.status, stdout=ended.stdout, stderr=ended.stderr, limit=limit, over=ended.over
        )
    printed_words = ended.stdout.rstrip("\n") if ended.stdout.strip() else ""
    warned = f"stderr:\n{ended.stderr.rstrip()}" if ended.stderr.strip() else ""
    return "\n".join(filter(None, (printed_words, warned))) or "It ended well and printed nothing."


TOOLS = (run_shell,)
