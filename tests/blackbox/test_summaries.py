"""A provider that summarizes itself: asked by the real process, its block outlives a kill, and gives way to words."""

from __future__ import annotations

import json
from typing import Any

from bot.testing.anthropic_compaction import Compactions
from tests.blackbox.conftest import PERSON, START_SECONDS, World

SUMMARY = "## What happened\n- 我们谈了船 🚢\n## Facts\n- the ship is called 海\n## Decisions\n(none)\n\
## Preferences\n(none)\n## Open tasks\n- paint it\n"


def first(body: Any) -> Any:
    """The first block of a conversation, without the mark for the cache."""
    return {key: value for key, value in body["messages"][0]["content"][0].items() if key != "cache_control"}


async def said(world: World, *words: str) -> None:
    """Each is answered before the next one is said."""
    for one in words:
        before = len(world.texts())
        await world.ask(one, before + 1)
    await world.model.until(lambda: world.model.active == 0)


async def test_a_summary_by_the_provider_goes_through_a_kill_and_becomes_words_when_it_is_forgotten(
    world: World,
) -> None:
    world.model.compacts = True
    world.model.script(lambda body: SUMMARY if "compaction" in body else f"answer {len(body['messages'])}")
    await world.start("telegram")
    await said(world, *(f"message {number} 你好" for number in range(6)), "/compact")
    assert sum("compaction" in body for body in world.model.bodies) == 1
    await said(world, "and now?")
    block = first(world.model.bodies[-1])
    assert (block["type"], block["content"]) == ("compaction", SUMMARY)
    await world.sent()  # where that is not known, it would come once more and say so
    await world.process.kill()
    await world.start()
    await said(world, "after the kill")
    assert first(world.model.bodies[-1]) == block
    world.model.compactions = Compactions()
    await said(world, "do you remember?")
    assert [seen.status for seen in world.model.requests if seen.status != 200] == [400]
    assert "我们谈了船" in first(world.model.bodies[-1])["text"]
    assert "signature" not in json.dumps(world.model.bodies[-1])


async def test_operators_hear_of_a_compaction_that_fails_three_times_in_a_row(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.model.script(lambda body: f"no summary {len(body['messages'])}")
    await world.start("telegram")
    await said(world, *(f"message {number} 你好" for number in range(6)))
    for number in range(3):
        world.telegram.say(f"/compact {number}")
    told = "3 times in a row"
    await world.telegram.until(lambda: any(told in text for text in world.texts()), START_SECONDS)
    assert await world.process.stop() == 0
