"""A model with a small context window: tools are left out first, and a short message gets an answer."""

from __future__ import annotations

import json

import pytest

from bot.testing.anthropic_script import tool_use
from tests.blackbox.conftest import World


@pytest.mark.parametrize("told", [True, False], ids=["ship.json says so", "only the provider knows"])
async def test_a_window_of_3000_tokens_answers_hello_and_finds_its_tools(world: World, told: bool) -> None:
    world.model.window = 3_000
    if told:
        world.config["llm"]["contextWindow"] = 3_000
    (world.root / "notes.txt").write_text("お茶")
    await world.start("telegram")
    await world.ask("hello", 1)
    await world.turns(1)
    if told:
        assert all(one.status == 200 for one in world.model.requests), "what is surely too large is not asked"
    first = world.model.bodies[-1]
    names = {one["name"] for one in first["tools"]}
    assert names == {"chat_load_history", "chat_send", "tool_search"}
    # A tool that is left out can be found by `tool_search` and called.
    world.model.answer(tool_use("tool_search", {"query": "list_dir"}))
    world.model.answer(tool_use("list_dir", {"path": "."}))
    await world.ask("look", 2)
    await world.turns(2)
    sent = json.dumps(world.model.bodies[-1], ensure_ascii=False)
    assert '"tool_reference"' in sent
    assert "notes.txt" in sent, "the folder was listed"


async def test_the_demo_answers_in_a_window_of_3000_tokens(world: World) -> None:
    world.config["llm"] = {"provider": "demo", "contextWindow": 3_000}
    await world.start("telegram")
    await world.ask("hello", 1)
