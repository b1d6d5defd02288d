"""MCP servers with one fault: Shipmate corrects or omits the faulty part and reports it. Also: forms and progress of
servers.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from bot.contracts.base import Json
from bot.testing.anthropic_script import Reply, reply, tool_use
from tests.blackbox.conftest import PERSON, World, eventually, fast
from tests.blackbox.odd_server import LINK, PNG
from tests.blackbox.test_doctor import doctor

SERVER = Path(__file__).with_name("odd_server.py")


async def begin(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["permissions"] = {"allow": ["@trusted:mcp__odd__*"]}
    world.config["dashboard"] = {"port": 0}
    server = {"command": sys.executable, "args": [str(SERVER), str(world.root)]}
    world.config["mcp"] = {"servers": {"odd": server}}
    world.model.script(obedient)
    await world.start("telegram")
    await eventually(lambda: any("the server odd has" in line["message"] for line in world.log()))


def blocks(body: Json, kind: str) -> list[Json]:
    return [one for message in body["messages"] for one in message["content"] if one["type"] == kind]


def obedient(body: Json) -> Reply:
    """Return the model's answer: a call of the tool named after `use`, then the result."""
    said = [block.get("text", "") for block in body["messages"][-1]["content"]]
    found = next((re.match(r"use (\w+) ?(.*)", one) for one in said if one.startswith("use ")), None)
    if found is None:
        return reply(f"Got {str(blocks(body, 'tool_result')[-1]['content'])[:1500]}")
    name = found[1] if found[1] == "tool_search" else f"mcp__odd__{found[1]}"
    return reply(tool_use(name, json.loads(found[2] or "{}")))


async def use(world: World, words: str, *rows: tuple[str, str]) -> Json:
    """Call a tool that asks by a form, answer each question, and return the result for the model."""
    turns = sum(line["kind"] == "turn_end" for line in world.log())
    world.telegram.say(f"use {words}")
    for question, answer in rows:
        before = len(world.texts())
        await world.telegram.until(lambda question=question: question in "".join(world.texts()[-1:]))  # type: ignore[misc]
        world.telegram.say(answer)
        await world.telegram.until(lambda before=before: len(world.texts()) > before)  # type: ignore[misc]
    await world.turns(turns + 1)
    return blocks(world.model.bodies[-1], "tool_result")[-1]


async def test_one_bad_element_never_condemns_its_container(world: World) -> None:
    await begin(world)
    for words, told in (
        ("zebra_two", "zebra_two {}"),
        ("titled", "titled {}"),
        ("loose", "loose {}"),
        ('branches {"city": "Ulm"}', 'branches {"city": "Ulm"}'),
        ("locked", "refused: database is locked by job 17"),
        ("bytes", "caf\ufffd open"),
        ("half", "half \ufffd a pair"),
        ("blocks", "kept.*hologram: not shown.*to the end"),
        ("pictured", "Here it is.*image 2 is not shown"),
        ("of_a_list", "no tool named"),
        ("strange", "no tool named"),
    ):
        result = await use(world, words)
        assert re.search(told, result["content"], re.DOTALL), result
        assert bool(result.get("is_error")) is (words in {"locked", "of_a_list", "strange"})
        if words == "pictured":
            assert [one["source"]["data"] for one in blocks(world.model.bodies[-1], "image")] == [PNG]
    await use(world, 'tool_search {"query": "branches"}')
    (found,) = [one for one in world.model.bodies[-1]["tools"] if one["name"] == "mcp__odd__branches"]
    assert set(found["input_schema"]["properties"]) == {"city", "id"}
    running, world.process = world.process, type(world.process)(world.root, world.process.env)
    await doctor(world, 0)
    logged = [line["details"].get("leftOut") for line in world.log() if line["kind"] == "mcp"]
    for told in (str(logged), " ".join(line for line in world.process.lines if "mcp odd" in line)):
        assert re.search(r"of_a_list: inputSchema\.type.*strange: inputSchema\.properties\.x\.type", told)
        assert "mend mcp.servers" not in told
    world.process = running


async def test_forms_are_asked_field_by_field_with_their_defaults(world: World) -> None:
    await begin(world)
    head = "form (odd) asks: “See [the rules](https://evil.example) first”\n1/11 name: Your *name* – as on the door"
    filled = await use(
        world,
        "form",
        (head, "skip"),
        ("That doesn't fit.", "花子"),
        ("2/11 check: yes or no", "是"),
        ("3/11 line: some words.\n\n“ok” takes: It was a dark night.", "ok"),
        ("4/11 email", "skip"),
        ("5/11 age", "130"),
        ("That doesn't fit. 5/11 age", "３０"),
        ("“ok” takes: 3.5.", "ok"),
        ("one of 1. red, 2. green, 3. blue.\n\n“ok” takes: green.", "1"),
        ("one of 1. Monica, 2. Ross", "Ross"),
        ("one or more of 1. red, 2. green, 3. blue, with commas between.\n\n“ok” takes: red.", "blue, 2"),
        ("one or more of 1. Tuna, 2. Cod", "cod"),
        ("one of 1. Cats, 2. Dogs", "skip"),
    )
    answers = {"name": "花子", "check": True, "line": "It was a dark night", "age": 30, "size": 3.5}
    answers |= {"colour": "red", "friend": "f2", "several": ["blue", "green"], "fish": ["b"]}
    defaults = {"text": "John", "whole": 30, "number": 9.5, "yes": False, "one": "b"}
    for result, content in (
        (filled, answers),
        (await use(world, "defaults", *[(f"{number}/5 ", "ok") for number in range(1, 6)]), defaults),
        (await use(world, "link", (LINK, "ok")), None),
    ):
        given = json.loads(result["content"].removeprefix("answered "))
        assert given == {"action": "accept"} | ({"content": content} if content else {})
    assert '"decline"' in (await use(world, "link", (LINK, "cancel")))["content"]
    unasked = (await use(world, "odd_form"))["content"]
    assert '"cancel"' in unasked
    assert "got no answer: its field place cannot be asked for" in unasked
    assert any("got no answer" in line["message"] for line in world.log())


@fast
async def test_people_see_how_far_a_call_has_come(world: World) -> None:
    await begin(world)
    world.telegram.say("use slow")
    shown = re.compile(r"Using slow of odd .*\d+ / 9000 · reading \*all\* pages")
    await world.telegram.until(lambda: any(shown.search(one) for one in world.texts()))
    (world.root / "go").touch()
    await world.telegram.until(lambda: "Got read" in world.texts())


async def test_ids_of_tool_calls_are_such_as_any_provider_takes(world: World) -> None:
    odd = "functions.read:0"
    for _ in range(2):
        world.model.answer(*(tool_use("chat_load_history", {"limit": limit}, id=odd) for limit in (1, 2)))
    world.model.answer("Read twice.")
    await world.start("telegram")
    world.telegram.say("read")
    await world.heard("Read twice.")
    ids = [block["tool_use_id"] for block in blocks(world.model.bodies[-1], "tool_result")]
    assert len(set(ids)) == len(ids) == 4
    await world.turns(1)
    assert await world.process.stop() == 0
    await world.start()
    world.telegram.say("and now?")
    await world.heard("Read twice.", "echo: and now?")
    assert [block["tool_use_id"] for block in blocks(world.model.bodies[-1], "tool_result")] == ids
