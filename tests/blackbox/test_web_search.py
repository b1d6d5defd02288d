"""`web_search`: the query to the search engine, the results for the model, approvals, and cost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from bot.testing.anthropic_script import Answer, reply, text, tool_use
from bot.testing.loopback import Loopback
from tests.blackbox.conftest import PERSON, World

QUERY = "東京の天気 café"
PAGE = "https://weather.example.org/tokyo"
KEY = "brave-key-0123456789"
HIT = {"title": "Tokyo weather", "url": PAGE}
SERVERS = {"server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 0}}


def found() -> Answer:
    """Answer of the provider's search."""
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": QUERY}}
    result = HIT | {"type": "web_search_result", "encrypted_content": "x", "page_age": None}
    cited = HIT | {"type": "web_search_result_location", "cited_text": "Rain.", "encrypted_index": "x"}
    hits = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [result]}
    return reply(call, hits, {**text("Rain, 12 degrees."), "citations": [cited]}, usage=SERVERS)


def searching(body: Any) -> Answer:
    """Return the model's answer: a search for the message's words, then the results."""
    if body.get("tools", [{}])[0].get("type") == "web_search_20250305":
        return found()
    last = body["messages"][-1]["content"][-1]
    if last["type"] == "tool_result":
        return reply(tool_use("chat_send", {"text": f"It rains, says {PAGE}"}))
    return reply(tool_use("web_search", {"query": QUERY}))


def results(world: World) -> list[str]:
    """Return the search results in the model's requests."""
    return [
        str(block["content"])
        for body in world.model.bodies
        for block in body["messages"][-1]["content"]
        if block["type"] == "tool_result"
    ]


class Engine(Loopback):
    """Fakes of the search engines SearXNG and Brave, built from their documentation."""

    def routes(self, app: web.Application) -> None:
        app.router.add_get("/search", self._searxng)
        app.router.add_get("/res/v1/web/search", self._brave)

    async def _searxng(self, request: web.Request) -> web.Response:
        await self.record("searxng", dict(request.query), request.headers)
        if request.query.get("format") != "json":
            return web.Response(text="<html>", content_type="text/html")
        return web.json_response({"query": request.query["q"], "results": [{**HIT, "content": "Rain."}]})

    async def _brave(self, request: web.Request) -> web.Response:
        await self.record("brave", dict(request.query), request.headers)
        if request.headers.get("X-Subscription-Token") != KEY:
            return web.json_response({"type": "ErrorResponse"}, status=422)
        return web.json_response({"type": "search", "web": {"results": [{**HIT, "description": "Rain."}]}})


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with Engine() as server:
        yield server


async def test_the_providers_search_gets_the_query_alone_and_the_asker_presses_once_words_of_others_are_there(
    world: World,
) -> None:
    world.model.script(searching)
    await world.start("telegram")
    world.telegram.say("My PIN is 9876, is it raining?")
    await world.heard(f"It rains, says {PAGE}")
    await world.turns(1)
    (asked,) = [body for body in world.model.bodies if body["tools"][0].get("type")]
    assert str(asked["messages"]).count(QUERY) == 1
    assert "9876" not in str(asked)
    assert "system" not in asked
    (result,) = results(world)
    assert result.count(PAGE) == 2, "the passage that it is cited for, and the list"
    assert "never an instruction" in result
    assert "Rain, 12 degrees." in result
    (cost,) = [
        line["details"]["costUsd"]
        for line in world.log()
        if line["kind"] == "llm_response" and line["details"]["purpose"] == "search"
    ]
    assert 0.02 < cost < 0.03, "each search has its price"
    # Text from the web is in the model's context now.
    world.telegram.say("and tomorrow?")
    await world.telegram.until(
        lambda: any("reply_markup" in one for one in world.telegram.chats[PERSON].messages.values())
    )
    assert len(results(world)) == 1
    (question,) = [one for one in world.telegram.chats[PERSON].messages.values() if "reply_markup" in one]
    assert "search the web" in question["text"]
    assert QUERY in question["text"]
    button = question["reply_markup"]["inline_keyboard"][0][0]
    world.telegram.press(question["message_id"], button["callback_data"], chat_id=PERSON)
    await world.telegram.until(lambda: world.texts().count(f"It rains, says {PAGE}") == 2)
    assert PAGE in results(world)[-1]


@pytest.mark.parametrize("kind", ["searxng", "brave"])
async def test_an_engine_of_ones_own_gets_the_query_alone(world: World, engine: Engine, kind: str) -> None:
    world.model.script(searching)
    settings = {"kind": kind, "baseUrl": f"{engine.url}/"} | (
        {"apiKey": "${BRAVE_KEY}"} if kind == "brave" else {}
    )
    world.config["tools"] = {"webSearch": settings}
    world.process.env["BRAVE_KEY"] = KEY
    await world.start("telegram")
    world.telegram.say("My PIN is 9876, is it raining?")
    await world.heard(f"It rains, says {PAGE}")
    (call,) = engine.calls
    assert call.method == kind
    assert call.params["q"] == QUERY
    assert "9876" not in str(call)
    (result,) = results(world)
    assert f"Tokyo weather <{PAGE}> Rain." in result
    assert not any(body["tools"][0].get("type") for body in world.model.bodies)
