"""In every state, a process of `bot.app` exits with code 0 within 10 s after a stop."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bot import app

STOPS = (signal.SIGINT, signal.SIGTERM)


async def test_the_collector_runs_once_everything_is_imported(tmp_path: Path) -> None:
    channels = {"web": {"enabled": False}, "console": {"enabled": True}}
    (tmp_path / "ship.json").write_text(json.dumps({"llm": {"provider": "demo"}, "channels": channels}))
    gc.disable()
    try:
        async with app.started(tmp_path, lambda _: None, asyncio.Event()):
            assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


LIFE = """
import asyncio, os, signal, sys, time
from bot import app

async def main():
    stop = asyncio.Event()
    with app.draining(stop, seconds=float(sys.argv[1])):
        print("draining", flush=True)
        await stop.wait()
        print("stopped", flush=True)
        if "hang" in sys.argv:
            await asyncio.Event().wait()
        if "block" in sys.argv:
            sys.stdin.readline()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    print("ended", flush=True)

asyncio.run(main())
os.kill(os.getpid(), signal.SIGINT)
"""


def life(*words: str, wait_for: str, number: int = signal.SIGTERM) -> tuple[int, list[str]]:
    """Stop a process after a line of its output, and return its exit code and output."""
    with subprocess.Popen(
        [sys.executable, "-c", LIFE, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != wait_for:
            line = process.stdout.readline()
            assert line, f"the process ended after {lines}"
            lines.append(line.strip())
        process.send_signal(number)
        lines += process.stdout.read().split()  # its stdin is still open
        return process.wait(90), lines


@pytest.mark.parametrize("number", STOPS)
def test_a_stop_drains_and_further_ones_change_nothing(number: int) -> None:
    assert life("60", wait_for="draining", number=number) == (0, ["draining", "stopped", "ended"])


@pytest.mark.parametrize("how", ["hang", "block"])
def test_what_hangs_or_blocks_everything_is_left_in_time(how: str) -> None:
    assert life("1.5", how, wait_for="draining") == (0, ["draining", "stopped"])


async def test_the_last_resort_is_set_off_by_the_first_stop_alone() -> None:
    before = {number: signal.getsignal(number) for number in (*STOPS, signal.SIGHUP)}
    left, stop = threading.Event(), asyncio.Event()
    try:
        with app.draining(stop, leave=left.set, seconds=0.01):
            assert not left.is_set()
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
            await stop.wait()
            assert await asyncio.to_thread(left.wait, 90)
        assert all(signal.getsignal(number) is signal.SIG_IGN for number in STOPS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
