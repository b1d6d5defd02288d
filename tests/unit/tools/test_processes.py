"""A process that we start: whoever is stopped while it runs, its end is heard."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from bot.tools.isolation import run_process

SPEAK_AND_SLEEP = ("/bin/sh", "-c", "echo $$ > pid.new; mv pid.new pid; exec sleep 600")


async def started(folder: Path) -> int:
    while not (folder / "pid").exists():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    return int((folder / "pid").read_text())


async def stopped_again_and_again(task: asyncio.Task[None]) -> None:
    for _ in range(10):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])


def is_known(pid: int) -> bool:
    """It runs, or nobody has heard of its end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


async def a_command(folder: Path) -> None:
    await run_process(SPEAK_AND_SLEEP, folder, seconds=600)


async def test_a_caller_that_is_stopped_again_and_again_leaves_no_zombie(tmp_path: Path) -> None:
    task = asyncio.create_task(a_command(tmp_path))
    pid = await started(tmp_path)
    await stopped_again_and_again(task)
    assert task.cancelled()
    assert not is_known(pid)
