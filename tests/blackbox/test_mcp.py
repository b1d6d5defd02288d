"""The real process with MCP servers: their tools are found, approved and run. The servers end with the process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

from bot.testing.anthropic_script import reply, tool_use
from tests.blackbox.conftest import PERSON, World, eventually

SERVERS = Path(__file__).parents[1] / "unit" / "tools" / "mcp"
FIND = tool_use("tool_search", {"query": "say hello"})
GREET = tool_use("mcp__friends__greet", {"name": "花子"})


def program(name: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / name), *args], **more}


def later(world: World, number: int) -> list[str]:
    return [one["name"] for one in world.model.bodies[number]["tools"] if one.get("defer_loading")]


def result(world: World, number: int) -> dict[str, Any]:
    block: dict[str, Any] = world.model.bodies[number]["messages"][-1]["content"][0]
    return block


async def told(world: World, words: str) -> None:
    await world.telegram.until(lambda: any(words in one for one in world.texts()))


async def begin(world: World, **permissions: list[str]) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["permissions"] = permissions
    world.config["dashboard"] = {"port": 0}
    world.config["mcp"] = {
        "servers": {
            "friends": program("friendly.py", "."),
            "gone": program("raw.py", "crash", ".", env={"TOKEN": "${T}"}),
        }
    }
    world.process.env["T"] = "secret-secret-secret"
    await world.start("telegram")
    await eventually(lambda: any("friends has 8 tools" in line["message"] for line in world.log()))


async def test_a_tool_is_found_approved_and_run(world: World) -> None:
    for words in (FIND, GREET, "She is greeted."):
        world.model.answer(words)
    await begin(world)
    world.telegram.say("greet Hanako")
    chat = world.telegram.chats

    def buttons() -> list[dict[str, Any]]:
        return [one for one in chat[PERSON].messages.values() if "reply_markup" in one]

    await world.telegram.until(lambda: PERSON in chat and bool(buttons()))
    (asked,) = buttons()
    assert "use greet of the server friends?" in asked["text"]
    assert "花子" in asked["text"]
    assert len(world.model.bodies) == 2
    assert later(world, 0) == []
    assert "mcp__friends__greet" in later(world, 1)
    button = asked["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    number = next(number for number, one in chat[PERSON].messages.items() if one is asked)
    world.telegram.press(number, button, chat_id=PERSON, user_id=PERSON)
    await told(world, "She is greeted.")
    assert result(world, 2)["content"] == "こんにちは、花子 👋"
    first, _, last = world.model.bodies
    assert last["tools"][: len(first["tools"])] == first["tools"]
    assert last["system"] == first["system"]
    world.telegram.say("/status")
    await told(world, "MCP servers: friends (8 tools), gone (not running).")
    assert await world.process.stop() == 0
    assert "secret-secret-secret" not in json.dumps(world.log())


async def test_after_a_kill_what_was_found_is_still_declared(world: World) -> None:
    world.model.answer(FIND)
    world.model.answer("I know how.")
    await begin(world, allow=["@trusted:mcp__friends__*"])
    world.telegram.say("can you greet?")
    await world.heard("I know how.")
    await world.turns(1)
    before = later(world, 1)
    await world.process.kill()
    await world.start()
    await eventually(lambda: sum("friends has 8 tools" in line["message"] for line in world.log()) == 2)
    world.model.answer(GREET)
    world.model.answer("Done.")
    world.telegram.say("do it")
    await told(world, "Done.")
    assert later(world, 2) == later(world, 3) == before
    assert "is_error" not in result(world, 3)
    address = world.process.ready_line.split()[-1]
    async with aiohttp.ClientSession() as session, session.get(f"{address}/readyz") as answer:
        parts = (await answer.json())["parts"]
    assert parts["mcp friends"]["ok"]
    assert not parts["mcp gone"]["ok"]
    assert "secret-secret" not in json.dumps(parts)


async def test_a_server_without_its_variable_is_a_finding(world: World) -> None:
    world.config["mcp"] = {
        "servers": {"one": {"url": "http://localhost/", "headers": {"Authorization": "${NONE}"}}}
    }
    await world.start("telegram", wait=False)
    assert await world.process.ended() == 78
    assert "mcp.servers.one.headers.Authorization: found ${NONE}" in world.process.stderr


BOOK = tool_use("mcp__friends__book", {})


async def booking(world: World) -> None:
    """Start a turn whose tool asks the person a question."""
    world.model.answer(BOOK)
    await begin(world, allow=["mcp__friends__*"], deny=["mcp__*__Greet"])
    world.telegram.say("book a table")
    await told(world, "How many people? [the *plan*](https://example.org/plan)")
    (asked,) = [one for one in world.telegram.chat(PERSON).messages.values() if "How many" in one["text"]]
    assert "text_link" not in [one["type"] for one in asked.get("entities", ())], (
        "words of a server hide no address"
    )


async def test_a_tool_asks_the_person_whose_next_message_is_the_answer(world: World) -> None:
    await booking(world)
    assert len(world.model.bodies) == 1
    world.model.then(reply("It is booked."), reply(FIND), reply(GREET), reply("I may not."))
    world.telegram.say("5")
    await told(world, "It is booked.")
    results = [
        block for block in world.model.bodies[1]["messages"][-2]["content"] if block["type"] == "tool_result"
    ]
    assert results[0]["content"] == "booked for 5"
    # The answer to the tool's question is an ordinary message of the conversation.
    assert world.model.bodies[1]["messages"][-1]["content"][-1]["text"] == "5"
    await world.turns(1)
    world.telegram.say("greet her")
    await told(world, "I may not.")
    assert "deny mcp__*__Greet" in result(world, -1)["content"], "names match without case"


async def test_a_stop_ends_a_question(world: World) -> None:
    await booking(world)
    world.telegram.say("/status")
    await world.telegram.until(lambda: "Waiting for an answer" in world.texts()[-1])
    world.telegram.say("/stop")
    await told(world, "Stopped.")
    await world.turns(1)
    world.model.answer("Five of what?")
    world.telegram.say("5")
    await told(world, "Five of what?")
    assert len(world.model.bodies) == 2
