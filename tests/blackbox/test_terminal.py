"""`shipmate chat` as a person at a terminal uses it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bot.testing.anthropic_script import reply
from tests.blackbox.conftest import START_SECONDS, World, eventually


class Person:
    """Someone at a terminal in which a command runs."""

    def __init__(self, keyboard: int, process: asyncio.subprocess.Process) -> None:
        self.shown = ""
        self._keyboard, self._process = keyboard, process
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(keyboard, self._read)

    def _read(self) -> None:
        try:
            self.shown += os.read(self._keyboard, 1 << 16).decode("utf-8", "replace")
        except OSError:  # the last program of the terminal has ended
            asyncio.get_running_loop().remove_reader(self._keyboard)
        self._changed.set()

    def type(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    async def sees(self, words: str) -> None:
        async with asyncio.timeout(START_SECONDS):
            while words not in self.shown:
                self._changed.clear()
                await self._changed.wait()

    async def ended(self) -> int:
        async with asyncio.timeout(START_SECONDS):
            return await self._process.wait()


@asynccontextmanager
async def chat(world: World) -> AsyncIterator[Person]:
    """A person who runs `shipmate chat`."""
    keyboard, terminal = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", "chat", "--dir", str(world.root)),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, **world.process.env, "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )
    os.close(terminal)
    try:
        yield Person(keyboard, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(keyboard)
        os.close(keyboard)


async def test_an_answer_that_comes_while_the_gateway_of_a_terminal_ends_is_there_at_the_next_one(
    world: World,
) -> None:
    world.only("console")
    (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    gate = asyncio.Event()
    world.model.then(reply("The answer is 42.", edit=lambda frames: [gate, *frames]))
    async with chat(world) as ann:
        await ann.sees(f"shipmate in {world.root.name}. /help lists the commands")
        ann.type("take your time\n")
        await eventually(lambda: any(line["kind"] == "llm_request" for line in world.log()))
        ann.type("\x04")
        await ann.sees("I go on with it when Shipmate runs again.")
        gate.set()
        assert await ann.ended() == 0
        assert "42" not in ann.shown
    assert [line["level"] for line in world.log() if line["kind"] == "error"] == []
    async with chat(world) as ann:
        await ann.sees("The answer is 42.")
        ann.type("\x04")
        assert await ann.ended() == 0
    assert len(world.model.requests) == 1
