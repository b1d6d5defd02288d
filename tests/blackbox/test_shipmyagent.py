"""Commands and settings of ShipMyAgent work, or the error message says what to use instead."""

from __future__ import annotations

import json

from tests.blackbox.conftest import World


async def test_what_they_type_and_bring_is_understood_or_answered(world: World) -> None:
    world.only("telegram")
    (world.root / ".ship" / "mcp").mkdir(parents=True)
    (world.root / ".ship" / "mcp" / "mcp.json").write_text('{"servers": {}}', encoding="utf-8")
    (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    await world.process.start(command=("start", str(world.root)))
    assert any("move its `servers` to mcp.servers of ship.json" in line for line in world.process.lines)
    world.telegram.say("my cat is called Mimi")
    await world.turns(1)
    await world.ask("/clear", 2)
    assert "new conversation" in world.texts()[1].lower()
    world.telegram.say("hello")
    await world.turns(2)
    assert "Mimi" not in json.dumps(world.model.bodies[-1])
    await world.process.stop()
    old = {
        "adapters": {"telegram": {"enabled": True}},
        "start": {"port": 3000},
        "permissions": {"exec_shell": {}},
    }
    (world.root / "ship.json").write_text(json.dumps(old), encoding="utf-8")
    for command in ("check", "run", "doctor"):
        process = await world.process.start(command=(command,), wait=False)
        assert await process.ended() == 78
        said = "\n".join([*process.lines, process.stderr])
        for right in ('write "channels" in place of it', "into channels.web", "into permissions.allow"):
            assert right in said
