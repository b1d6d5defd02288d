"""`shipmate replay` beside the real process: what turns, tasks and forks sent is made again, byte for byte."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bot.agent.subagents import wording
from bot.contracts.base import Json
from bot.testing.anthropic_script import Reply, reply, tool_use
from tests import quick
from tests.blackbox.conftest import World, eventually
from tests.blackbox.test_tasks import is_synthesis, is_task


async def replay(world: World, *words: str) -> bytes:
    code, out, err = await quick.run("replay", *words, "--dir", str(world.root))
    assert code == 0, (words, err)
    return out


async def facts(world: World, name: str) -> list[Json]:
    """What is told of each request of a turn or a task, all of them exact, with the bytes that were sent."""
    told = [json.loads(line) for line in (await replay(world, name, "--json")).splitlines()]
    for one in told:
        if one["type"] == "call":
            assert one["exact"], one
            one["body"] = json.loads(await replay(world, name, "--body", str(one["call"])))
    return told


def worker(body: Json) -> bool:
    return is_task(body) or wording.PLACEHOLDER in json.dumps(body["messages"])


def script(body: Json) -> Reply:
    """A turn shares its work out; each worker looks for skills once."""
    last = json.dumps(body["messages"][-1])
    if is_synthesis(body):
        return reply("All of it.")
    if worker(body):
        return reply("- done") if "tool_result" in last else reply(tool_use("skills_list", {}))
    if "tool_result" in last:
        return reply("That is it.")
    if "Share" not in last:
        return reply("Good.")
    return reply(
        tool_use("task", {"prompt": "one 一"}),
        tool_use("task", {"prompt": "two", "mode": "fork"}),
        tool_use("task", {"prompt": "three", "mode": "fork"}),
    )


async def test_everything_that_was_sent_is_made_again(world: World) -> None:
    world.only("telegram")
    world.model.script(script)
    await world.start()

    async def say(words: str, turns: int) -> None:
        world.telegram.say(words)
        await world.turns(turns)

    await say("Hello", 1)
    await say("Share it", 2)
    world.telegram.say("/fork 1")
    await world.telegram.until(lambda: any("/resume" in one for one in world.texts()))
    await say("Share it there too", 3)
    await say("Bye", 4)
    assert await world.process.stop() == 0

    asked = [line for line in world.log() if line["kind"] == "llm_request"]
    turns = list(dict.fromkeys(line["requestId"] for line in asked))
    tasks = list(dict.fromkeys(line["details"]["task"] for line in asked if "task" in line["details"]))
    assert (len(turns), len(tasks)) == (4, 6)
    told = [one for name in turns for one in await facts(world, name)]
    made: list[Any] = [one["body"] for one in told if one["type"] == "call"]
    assert [(one["requests"], one["exact"]) for one in told if one["type"] == "task"] == [(2, 2)] * 6
    assert {one["task"] for one in told if one["type"] == "task"} == set(tasks)
    for name in tasks:
        made += [one["body"] for one in await facts(world, name)]
    sent = [body for body in world.model.bodies if not is_synthesis(body)]
    assert sorted(map(json.dumps, made)) == sorted(map(json.dumps, sent))
    assert len([body for body in sent if worker(body)]) == 12


def named(world: World) -> set[str]:
    """The tasks that the log tells of."""
    return {line["details"]["task"] for line in world.log() if line["kind"] == "task"}


async def test_a_request_that_was_never_answered_is_made_again_after_a_kill(world: World) -> None:
    world.only("telegram")
    never = asyncio.Event()
    world.model.script(
        lambda body: (
            Reply(hold=never) if worker(body) else reply(tool_use("task", {"prompt": "x", "mode": "fork"}))
        )
    )
    await world.start()
    world.telegram.say("Hello")
    await eventually(lambda: any(map(worker, world.model.bodies)) and bool(named(world)))
    await world.process.kill()
    (name,) = named(world)
    (one,) = await facts(world, name)
    assert one["body"] == next(body for body in world.model.bodies if worker(body))
    assert (one["usage"], one["stopReason"]) == (None, None)
