"""Commands of ShipMyAgent work."""

from __future__ import annotations

import json

from tests.blackbox.conftest import World


async def test_start_and_clear_work(world: World) -> None:
    world.only("telegram")
    (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    await world.process.start(command=("start", str(world.root)))
    world.telegram.say("my cat is called Mimi")
    await world.turns(1)
    await world.ask("/clear", 2)
    assert "new conversation" in world.texts()[1].lower()
    world.telegram.say("hello")
    await world.turns(2)
    assert "Mimi" not in json.dumps(world.model.bodies[-1])
    await world.process.stop()
