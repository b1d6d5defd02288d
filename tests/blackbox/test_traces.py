"""`shipmate trace` shows the path of one turn, `shipmate history --transcript` the model's messages."""

from __future__ import annotations

import json

from bot.contracts.base import Json
from bot.testing.anthropic_script import Reply, reply, tool_use
from tests import quick
from tests.blackbox.conftest import World


async def shipmate(world: World, *words: str) -> tuple[int, list[str], str]:
    code, out, err = await quick.run(*words, "--dir", str(world.root))
    return code, out.decode().splitlines(), err


def script(body: Json) -> Reply:
    last = json.dumps(body["messages"][-1])
    return (
        reply("It is 完了.")
        if "tool_result" in last or "Look" not in last
        else reply(tool_use("skills_list", {}))
    )


async def test_a_turn_and_its_chat_are_told_from_the_log(world: World) -> None:
    world.model.script(script)
    world.config["queue"] = {"debounceMs": 500}
    await world.start("telegram")
    world.telegram.say("Look around 猫")
    world.telegram.say("Look well")
    await world.turns(1)
    await world.ask("/new", 2)
    world.telegram.say("And now?")
    await world.turns(2)
    assert await world.process.stop() == 0
    first, second = (line["requestId"] for line in world.log() if line["kind"] == "turn_end")

    code, out, err = await shipmate(world, "trace", first.lower())
    assert (code, err) == (0, "")
    assert out[0].split() == ["offset", "ms", "tokens", "cache", "cost"]
    assert out[-1].startswith("2 answers of the model, ")
    code, out, _ = await shipmate(world, "trace", first, "--json")
    told = [json.loads(line) for line in out]
    assert {one["requestId"] for one in told} == {first}
    assert {"inbound", "llm_request", "llm_response", "tool_call", "tool_result", "turn_end"} <= {
        one["kind"] for one in told
    }

    ids = [line["requestId"] for line in world.log() if line["kind"] == "inbound"]
    assert (ids[0], ids[1] != first) == (first, True)
    assert await shipmate(world, "trace", ids[1], "--json") == (0, out, "")

    full = await shipmate(world, "trace", second, "--full")
    assert any("llm_request" in line and second in line for line in full[1])

    key = world.archive()[0]["chatKey"]
    code, out, _ = await shipmate(world, "history", key, "--transcript")
    lines = [json.loads(line) for line in out]
    assert code == 0
    uuids = [one["uuid"] for one in lines]
    assert len(set(uuids)) == len(uuids)
    for before, one in zip([None, *uuids], lines, strict=False):
        assert one["parentUuid"] == (None if one["type"] == "boundary" else before)
    assert [one["type"] for one in lines] == [
        *("turn_start", "user", "user", "assistant", "user", "assistant", "turn_end"),
        *("turn_start", "boundary", "turn_end"),
        *("turn_start", "user", "assistant", "turn_end"),
    ]
    assert [one["data"]["dropped"] for one in lines if one["type"] == "boundary"] == ["all"]
    assert [one["requestId"] for one in lines if one["type"] == "turn_start"][::2] == [first, second]
    assert len({one["sessionId"] for one in lines[:8]}) == len({one["sessionId"] for one in lines[8:]}) == 1
    assert lines[0]["sessionId"] != lines[-1]["sessionId"]
    assert "猫" in json.dumps(lines[1]["message"], ensure_ascii=False)

    code, out, err = await shipmate(world, "trace", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert (code, out, "the log has no line" in err) == (1, [], True)
