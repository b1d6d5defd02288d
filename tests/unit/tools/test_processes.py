"""A process that we start: whoever is stopped while it runs, its end is heard."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from bot.tools import processes

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
    await processes.run(SPEAK_AND_SLEEP, folder=folder, environment=os.environ, seconds=600)


async def test_a_caller_that_is_stopped_again_and_again_leaves_no_zombie(tmp_path: Path) -> None:
    task = asyncio.create_task(a_command(tmp_path))
    pid = await started(tmp_path)
    await stopped_again_and_again(task)
    assert task.cancelled()
    assert not is_known(pid)


async def test_a_stop_in_the_moment_in_which_a_command_ends_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOOK", 60.0)
    exited, looked = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch(_: int) -> None:
        loop.call_soon_threadsafe(looked.set)

    task = asyncio.create_task(processes.until_over(exited, watch, 0))
    await looked.wait()
    await asyncio.sleep(0.05)  # it waits
    exited.set()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
