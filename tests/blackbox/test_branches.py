"""`/resume` returns to an earlier conversation, and `/fork` continues from an earlier message."""

from __future__ import annotations

import json

from tests.blackbox.conftest import World


async def test_a_conversation_goes_on_after_another_one_and_from_its_past(world: World) -> None:
    world.model.script(lambda _: "Noted.")
    await world.start("telegram")
    await world.ask("the budget of 東京 is 42")
    await world.ask("and of 大阪 17")
    await world.ask("/new")
    await world.ask("something else")
    listed = (await world.ask("/resume")).splitlines()
    assert "the budget of 東京" in listed[2]
    assert "back in conversation" in await world.ask(f"/resume {listed[2].split()[0]}")
    await world.ask("what was it?")
    asked = json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False)
    assert "東京" in asked
    assert "something else" not in asked
    await world.sent()
    await world.process.kill()
    await world.start()
    assert "last 2 messages" in await world.ask("/fork 2")
    await world.ask("and now?")
    asked = json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False)
    assert "東京" in asked
    assert "大阪" not in asked
    await world.sent()
    await world.process.kill()
    await world.start()
    await world.ask("and behind a kill?")
    asked = json.dumps(world.model.bodies[-1]["messages"], ensure_ascii=False)
    assert [asked.count(words) for words in ("東京", "and now?", "大阪", "something else")] == [1, 1, 0, 0]
    listed = (await world.ask("/resume")).splitlines()
    assert [line.count("東京") for line in listed[1:4]] == [1, 1, 0]
