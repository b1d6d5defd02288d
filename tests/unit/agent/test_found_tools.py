"""Tools that the model finds while it works: declared from then on, with nothing before them touched."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from pydantic import BaseModel

from bot.contracts import Effect, Tool
from bot.llm.client import AnthropicModel
from bot.system import SystemClock
from bot.testing import anthropic_script as say
from bot.testing.anthropic import KEY as API_KEY
from bot.tools.builtin.tool_search import ToolSearch
from bot.tools.catalog import Offer
from bot.tools.registry import Registry, ToolPorts
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.test_random import SUMMARY
from tests.unit.agent.test_rebuilding import MODEL, Listening, calls


class Input(BaseModel):
    city: str


class Forecast:
    """A tool that no request declares from the beginning."""

    name = "mcp__weather__forecast"
    description = "The weather."
    input = Input
    effects: ClassVar[frozenset[Effect]] = frozenset({"read"})
    timeout_seconds = 5.0
    ages = True

    async def run(self, args: Input) -> str:
        return f"{args.city}: 晴れ"


class Shelf:
    """A catalog that changes when the test says so."""

    def __init__(self) -> None:
        self.words = "The weather of tomorrow. 天気予報"
        self.there = True

    def get(self, name: str) -> Tool | None:
        return Forecast() if self.there and name == Forecast.name else None

    def offers(self) -> Sequence[Offer]:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        one = {"name": Forecast.name, "description": self.words, "input_schema": schema}
        two = one | {"name": "mcp__weather__weather_alerts"}
        return [Offer(one, "forecast", self.words), Offer(two, "weather_alerts", "")] if self.there else []

    def sources(self) -> Mapping[str, str]:
        return {"weather": "ready"}


@pytest.fixture
def shelf(bench: Bench) -> Shelf:
    made = Shelf()
    search = ToolSearch(cast("ToolPorts", SimpleNamespace(catalog=made)))
    kept = [bench.registry.get(name) for name in bench.registry.names() if name != search.name]
    registry = Registry([*cast("list[Any]", kept), search], made)
    bench.registry = registry
    bench.configure(registry=registry, dispatcher=bench.dispatcher(registry))
    return made


@pytest.fixture
async def server() -> AsyncIterator[Listening]:
    async with Listening() as running:
        yield running


@pytest.fixture
async def asked(bench: Bench, shelf: Shelf, server: Listening) -> AsyncIterator[Listening]:
    client = AnthropicModel(api_key=API_KEY, base_url=server.url, clock=SystemClock())
    bench.configure(model=client, default_model=MODEL)
    yield server
    await client.close()


def bodies(server: Listening) -> list[dict[str, Any]]:
    return [json.loads(raw) for raw in server.heard]


def prefix(body: dict[str, Any]) -> str:
    """What the provider's cache begins with: the tools that are loaded at once, and the system prompt."""
    return json.dumps([[one for one in body["tools"] if not one.get("defer_loading")], body["system"]])


def later(body: dict[str, Any]) -> list[str]:
    return [one["name"] for one in body["tools"] if one.get("defer_loading")]


FIND = say.tool_use("tool_search", {"query": "weather forecast"})
CALL = say.tool_use(Forecast.name, {"city": "大阪"})


async def test_what_is_found_is_declared_behind_all_others_and_can_be_called(
    bench: Bench, asked: Listening
) -> None:
    asked.then(say.reply(say.thinking(), FIND), say.reply(say.thinking(), CALL), say.reply("Sunny."))
    await bench.say("weather?")
    first, second, third = bodies(asked)
    assert later(first) == []
    assert later(second) == later(third) == [Forecast.name, "mcp__weather__weather_alerts"]
    assert second["tools"][: len(first["tools"])] == first["tools"]
    assert prefix(first) == prefix(second) == prefix(third)
    result = second["messages"][-1]["content"][0]
    # The definition itself is declared once, in its place.
    assert result["content"][0] == {"type": "tool_reference", "tool_name": Forecast.name}
    assert third["messages"][-1]["content"][0]["content"] == "大阪: 晴れ"
    assert bench.chat.seen == ["Sunny."]


async def test_what_was_sent_before_is_read_from_the_cache(bench: Bench, asked: Listening) -> None:
    asked.then(say.reply(FIND), say.reply(CALL), say.reply("Sunny."))
    await bench.say("weather? " * 2_000)
    found = await calls(bench)
    reads = [call.facts["usage"]["cacheReadTokens"] for call in found if call.facts is not None]
    wrote = [call.facts["usage"]["cacheWriteTokens"] for call in found if call.facts is not None]
    assert reads[1] >= wrote[0] > 0
    assert reads[2] >= reads[1] + wrote[1]


async def test_a_restart_without_the_server_sends_the_same_bytes(
    bench: Bench, asked: Listening, shelf: Shelf
) -> None:
    asked.then(say.reply(say.thinking(), FIND), say.reply(CALL), say.reply("Sunny."))
    await bench.say("weather?")
    before = bodies(asked)[-1]
    shelf.there = False
    bench.restart()
    asked.then(say.reply(CALL), say.reply("It is gone."))
    await bench.say("again?")
    after = bodies(asked)
    assert later(after[-1]) == later(before)
    assert after[-1]["tools"] == before["tools"]
    assert "There is no tool named" in after[-1]["messages"][-1]["content"][0]["content"]
    assert all(call.exact for call in await calls(bench)), [call.wrong for call in await calls(bench)]
    assert len(await calls(bench)) == 5


async def test_a_changed_definition_changes_nothing_that_was_sent(
    bench: Bench, asked: Listening, shelf: Shelf
) -> None:
    asked.then(say.reply(say.thinking(), FIND), say.reply("Found."))
    await bench.say("find it")
    shelf.words = "The weather, in other words."
    asked.then(say.reply(say.thinking(), FIND), say.reply("Again."))
    await bench.say("find it again")
    assert {json.dumps(body["tools"]) for body in bodies(asked)[1:]} == {
        json.dumps(bodies(asked)[1]["tools"])
    }
    await bench.pool.reset(KEY)
    asked.then(say.reply(FIND), say.reply("Anew."))
    await bench.say("and in a new conversation")
    assert bodies(asked)[-1]["tools"][-1]["description"] == shelf.words
    assert all(call.exact for call in await calls(bench))


async def test_what_was_found_can_be_called_after_a_compaction_and_a_restart(
    bench: Bench, asked: Listening, shelf: Shelf
) -> None:
    policy = replace(bench.kit.compaction, keep_tokens=1)
    bench.configure(compaction=policy)
    asked.then(say.reply(FIND), say.reply(CALL), say.reply("Sunny."))
    await bench.say("weather?")
    for number in range(6):
        await bench.say(f"and {number}, " + "tell me more " * 50)
    asked.then(say.reply(SUMMARY))
    assert (await bench.pool.compact(KEY))["how"] in {"summary", "memory"}
    for again in (False, True):
        if again:
            bench.restart()
        asked.then(say.reply(CALL | {"id": f"toolu_after{again}"}), say.reply("Sunny still."))
        await bench.say("still there?")
        sent = bodies(asked)[-1]
        (tool,) = (one for one in sent["tools"] if one["name"] == Forecast.name)
        assert tool["description"] == shelf.words
        assert "defer_loading" not in tool, "no result refers to it"
        assert "晴れ" in json.dumps(sent["messages"][-1], ensure_ascii=False)
        assert f"Tools found before, which you can call: {Forecast.name}" in json.dumps(sent["messages"][0])
        assert all(call.exact for call in await calls(bench))
    for number in range(6):
        await bench.say(f"and {number}, " + "tell me more " * 50)
    asked.then(say.reply(SUMMARY))
    await bench.pool.compact(KEY)
    await bench.say("and after one more?")
    assert Forecast.name in {one["name"] for one in bodies(asked)[-1]["tools"]}
    shelf.there = False
    asked.then(say.reply(CALL | {"id": "toolu_gone"}), say.reply("It is gone."))
    await bench.say("and without the server?")
    assert bodies(asked)[-1]["messages"][-1]["content"][0]["is_error"]


async def test_our_secrets_are_taken_out_of_definitions(bench: Bench, shelf: Shelf, tmp_path: Path) -> None:
    shelf.words = "The weather. hunter2-hunter2"
    runner = bench.dispatcher(bench.kit.registry)
    runner._redact = lambda words: words.replace("hunter2-hunter2", "[hidden]")
    call = {"type": "tool_use", "id": "t1", "name": "tool_search", "input": {"query": "weather"}}
    (result,) = await runner.run([call])
    assert "hunter2" not in json.dumps(result)
    assert "[hidden]" in json.dumps(result)
