"""Stopped or killed, it goes on: nothing taken in is lost, nothing delivered is repeated, the history is the same."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

from bot.testing.anthropic_script import tool_use
from tests.blackbox.conftest import ANN, PERSON, ROOM, World, eventually


def blocks(body: Any) -> list[Any]:
    """The messages of a request without the marks for the cache."""
    return [
        {**m, "content": [{k: v for k, v in b.items() if k != "cache_control"} for b in m["content"]]}
        for m in body["messages"]
    ]


async def test_after_a_kill_the_next_request_begins_with_the_same_bytes(world: World) -> None:
    world.only("telegram")
    await world.start()
    for number in range(3):
        world.telegram.say(f"message {number} 你好")
        await world.telegram.until(lambda n=number: len(world.texts()) == n + 1)  # type: ignore[misc]
    await world.model.until(lambda: world.model.active == 0)
    world.telegram.say("before")
    await world.telegram.until(lambda: len(world.texts()) == 4)
    await world.turns(4)
    before = blocks(world.model.bodies[-1])
    system = world.model.bodies[-1]["system"]
    await world.process.kill()
    await world.start()
    world.telegram.say("after")
    await world.telegram.until(lambda: len(world.texts()) == 5)
    after = blocks(world.model.bodies[-1])
    assert json.dumps(after[: len(before)], ensure_ascii=False) == json.dumps(before, ensure_ascii=False)
    assert world.model.bodies[-1]["system"] == system


async def test_a_message_whose_turn_was_killed_is_answered_once_after_the_restart(world: World) -> None:
    world.only("telegram")
    await world.start()
    gate = asyncio.Event()

    async def slow(_: Any) -> str:
        await gate.wait()
        return "too late"

    world.model.script(slow)
    world.telegram.say("do not lose me")
    await world.model.until(lambda: len(world.model.requests) == 1)
    await world.process.kill()
    gate.set()
    world.model.script(lambda _: "I have you.")
    await world.start()
    await world.heard("I have you.")
    await world.turns(1)
    assert [line["text"] for line in world.archive()] == ["do not lose me", "I have you."]
    assert await world.process.stop() == 0


async def test_what_was_sent_while_it_was_down_is_answered_and_each_thing_once(world: World) -> None:
    await world.start()
    root = await world.slack.say("<@U0SHIP> one", channel=ROOM, user=ANN)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) == 1)
    await world.process.stop()
    world.telegram.say("while you were away")
    await world.start()
    await world.telegram.until(lambda: len(world.texts()) == 1)
    await world.slack.say("two", channel=ROOM, user=ANN, thread_ts=root)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) == 2)
    assert len(world.texts()) == 1


async def test_a_stop_in_the_middle_of_a_turn_lets_it_end_and_exits_with_0(world: World) -> None:
    world.only("telegram")
    await world.start()
    gate = asyncio.Event()

    async def slow(_: Any) -> str:
        await gate.wait()
        return "Just in time."

    world.model.script(slow)
    world.telegram.say("hello")
    await world.model.until(lambda: len(world.model.requests) == 1)
    stopping = asyncio.create_task(world.process.stop(signal.SIGINT))
    await eventually(lambda: any(line.startswith("stopping") for line in world.process.lines))
    gate.set()
    assert await stopping == 0
    assert world.texts(PERSON) == ["Just in time."]


async def test_a_message_is_on_disk_before_slack_is_told_that_it_arrived(world: World) -> None:
    world.only("slack")
    await world.start()
    await world.slack.say("written first?", channel="D0ANN", user=ANN)
    await world.slack.until(lambda: bool(world.slack.deliveries) and not world.slack.unacked())
    await world.process.kill()
    assert b"written first?" in world.everything_on_disk()


async def test_a_turn_whose_reply_was_delivered_before_the_kill_stays_in_the_history(world: World) -> None:
    world.only("telegram")
    await world.start()
    gate = asyncio.Event()

    async def slow(_: Any) -> str:
        await gate.wait()
        return "never"

    world.model.answer(tool_use("chat_send", {"text": "The code is 4711."}))
    world.model.script(slow)
    world.telegram.say("tell me the code")
    await world.heard("The code is 4711.")
    await world.model.until(lambda: len(world.model.requests) == 2)
    await world.process.kill()
    gate.set()
    world.model.script(None)
    await world.start()
    world.telegram.say("what was it?")
    await world.telegram.until(lambda: len(world.texts()) == 2)
    assert world.texts()[0] == "The code is 4711."
    last = blocks(world.model.bodies[-1])
    assert "4711" in json.dumps(last)
    assert last[-1]["content"][-1]["text"] == "what was it?"
