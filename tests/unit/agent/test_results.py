"""Large tool results: what the model sees of them is decided once, and every later request has the same bytes."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.testing.model import reply, text, tool_use
from bot.tools import excerpt, result_limits
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.test_resume import ask, killed, killed_while_asking
from tests.unit.agent.test_turn import Press

LARGE = "".join(f"{number}: 会議の記録 👩\u200d🚀 נשמר\n" for number in range(4_000))
POINTER = re.compile(r"omitted; whole result: artifact ([0-9A-Z]{26}), read it with read_artifact\]")


def pointers(messages: Any) -> list[str]:
    return POINTER.findall(json.dumps(messages, ensure_ascii=False))


def results(messages: Any) -> list[Json]:
    """The tool results, without the mark of the cache."""
    return [
        {key: value for key, value in block.items() if key != "cache_control"}
        for message in messages
        for block in message["content"]
        if block.get("type") == "tool_result"
    ]


async def test_a_large_result_is_a_pointer_in_view_and_transcript_and_whole_in_the_artifact(
    bench: Bench,
) -> None:
    bench.add_tools(Press(LARGE))
    bench.model.answers += [reply(tool_use("press")), reply(text("Done."))]
    await bench.say("press it")
    (pointer,) = pointers(bench.sent)
    assert len(json.dumps(bench.sent, ensure_ascii=False)) < 9_000
    lines = [line.message for line in await bench.transcript.load(KEY) if line.message]
    assert pointers(lines) == [pointer]
    page = await bench.artifacts.read(pointer, KEY, offset=0, limit=10**6)
    assert page.text == LARGE


async def test_after_a_restart_the_next_request_has_the_same_bytes_and_the_pointer_still_works(
    bench: Bench,
) -> None:
    tools = [Press(LARGE + str(number)) for number in range(6)]
    for number, tool in enumerate(tools):
        tool.name, tool.ages = f"press{number}", False
    bench.add_tools(*tools)
    bench.model.answers += [reply(*[tool_use(tool.name) for tool in tools]), reply(text("Done."))]
    await bench.say("press them all")
    before = bench.sent
    shown = results(before)
    assert len(set(pointers(shown))) == 6
    await bench.pool.flush()
    bench.restart()
    pointer = pointers(shown)[5]
    bench.model.answers += [
        reply(tool_use("read_artifact", id=pointer, grep="3999: 会議")),
        reply(text("There it is.")),
    ]
    await bench.say("what was the last line?")
    assert results(bench.model.requests[-1].messages)[:6] == shown
    assert "[1 of 1 lines]\nline 4000, offset" in results(bench.sent)[6]["content"]
    assert [tool.pressed for tool in tools] == [1] * 6


async def test_a_crash_behind_the_step_asks_again_with_the_same_bytes(bench: Bench) -> None:
    bench.add_tools(Press(LARGE))
    request = ask(bench)
    bench.model.answers += [reply(tool_use("press"), tool_use("press"))]
    await killed_while_asking(bench, request, 2)
    bench.model.answers += [reply(text("Done."))]
    asked = len(bench.model.requests)
    await bench.pool.run(request)
    assert bench.model.requests[asked].messages == bench.model.requests[asked - 1].messages
    assert len(pointers(bench.sent)) == 2


async def test_a_crash_inside_a_step_keeps_what_was_put_away_and_the_room_of_the_step(bench: Bench) -> None:
    done = [Press(LARGE) for _ in range(5)]
    last = Press(LARGE)
    last.hold = asyncio.Event()
    for number, tool in enumerate([*done, last]):
        tool.name = f"press{number}"
    bench.add_tools(*done, last)
    request = ask(bench)
    bench.model.answers += [reply(*[tool_use(tool.name) for tool in (*done, last)])]
    await killed(bench, request, last.began)
    recorded = pointers([step.result for step in await bench.journal.steps(request.request_id)])
    assert len(recorded) == 5
    bench.model.answers += [reply(text("Done."))]
    await bench.pool.run(request)
    shown = results(bench.sent)
    assert pointers(shown) == recorded
    assert "Interrupted" in shown[5]["content"]
    assert sum(excerpt.weight(one["content"]) for one in shown) <= result_limits.STEP_ROOM
    assert [tool.pressed for tool in (*done, last)] == [1] * 6


async def test_another_chat_cannot_follow_the_pointer(bench: Bench) -> None:
    bench.add_tools(Press(LARGE))
    bench.model.answers += [reply(tool_use("press")), reply(text("Done."))]
    await bench.say("press it")
    (pointer,) = pointers(bench.sent)
    other = ask(bench)
    key = ChatKey.parse("telegram:chat:2")
    assert other.inbound is not None
    inbound = other.inbound.model_copy(update={"chat_key": key, "chat_id": "2"})
    bench.model.answers += [reply(tool_use("read_artifact", id=pointer)), reply(text("No."))]
    await bench.pool.run(type(other)(other.request_id, key, inbound=inbound, reply=bench.chat))
    (result,) = results(bench.sent)
    assert result["is_error"] is True
    assert "会議" not in json.dumps(bench.sent, ensure_ascii=False)
