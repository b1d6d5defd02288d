"""`shipmate chat` on a terminal."""

from __future__ import annotations

import asyncio
import json
import re

from bot.testing.anthropic_script import reply
from tests.blackbox.conftest import World, eventually
from tests.blackbox.test_init import Terminal

LEAVE, INTERRUPT = "\x04", "\x03"


async def test_an_answer_that_comes_while_the_gateway_of_a_terminal_ends_is_there_at_the_next_one(
    world: World,
) -> None:
    world.only("console")
    (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    gate = asyncio.Event()
    world.model.then(reply("The answer is 42.", edit=lambda frames: [gate, *frames]))
    terminal = Terminal(world.root, world.process.env)
    try:
        await terminal.start("chat", "--dir", str(world.root))
        await terminal.until(re.escape(f"shipmate in {world.root.name}. /help lists the commands"))
        terminal.type("take your time")
        await eventually(lambda: any(line["kind"] == "llm_request" for line in world.log()))
        terminal.press(LEAVE)
        await terminal.until("I go on with it when Shipmate runs again")
        gate.set()
        assert await terminal.ended() == 0
        await terminal.start("chat", "--dir", str(world.root))
        await terminal.until("The answer is 42")
        terminal.press(INTERRUPT)
        await terminal.until("Press Ctrl-C again to leave")
        terminal.press(INTERRUPT)
        assert await terminal.ended() == 0
    finally:
        await terminal.close()
    assert len(world.model.requests) == 1
    assert [line for line in world.log() if line["kind"] == "error"] == []
