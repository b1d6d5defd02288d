"""Measures the start of the command line beside the start of the Python interpreter."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from tests.bench.programs import COMPILED, ROOT, Unanswered

TIMES = 3


async def starts() -> dict[str, tuple[float, float]]:
    """Return the milliseconds of each command, and of a bare interpreter."""
    bare = await _quickest("-c", "pass")
    return {
        f"shipmate {option}": (await _quickest("-m", "bot", option), bare)
        for option in ("--version", "--help")
    }


async def _quickest(*arguments: str) -> float:
    return min([await _run(*arguments) for _ in range(TIMES)])


async def _run(*arguments: str) -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
        env=os.environ | COMPILED,
    )
    if await process.wait():
        raise Unanswered(f"python {' '.join(arguments)} failed")
    return (time.perf_counter() - began) * 1000
