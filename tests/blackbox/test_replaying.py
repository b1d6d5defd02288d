"""`shipmate replay` shows all recorded requests byte for byte while the gateway runs."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
from collections import Counter
from typing import Any

import pytest

from bot import cli
from bot.contracts.base import Json
from bot.core.tasks import PLACEHOLDER
from bot.testing.anthropic_script import Reply, reply, tool_use
from tests import quick
from tests.blackbox.conftest import World, eventually
from tests.blackbox.test_tasks import is_synthesis, is_task


async def replay(world: World, *words: str) -> bytes:
    code, out, err = await quick.run("replay", *words, "--dir", str(world.root), env=world.process.env)
    assert code == 0, (words, err)
    return out


async def facts(world: World, name: str) -> list[Json]:
    """Return the printed facts of each request of a turn or task, each with the sent bytes. All records must be exact."""
    told = [json.loads(line) for line in (await replay(world, name, "--json")).splitlines()]
    for one in told:
        if one["type"] == "call":
            assert one["exact"], one
            one["body"] = json.loads(await asyncio.to_thread(printed, world, name, one["call"]))
    return told


def printed(world: World, name: str, call: int) -> bytes:
    """Return a request body as `replay` prints it. The command runs in this process, because there are dozens of bodies."""
    body = io.BytesIO()
    out = io.TextIOWrapper(body, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(sys, "excepthook", sys.excepthook)
        assert cli.main(["replay", name, "--body", f"{call}", "--dir", str(world.root)]) == 0
    out.flush()
    return body.getvalue()


def worker(body: Json) -> bool:
    return is_task(body) or PLACEHOLDER in json.dumps(body["messages"])


def script(body: Json) -> Reply:
    """Return the model's answers for a turn with tasks, each of which lists the skills once."""
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


async def test_everything_that_was_sent_is_shown(world: World) -> None:
    world.model.script(script)
    await world.start("telegram")

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
    sent = [one.body for one in world.model.requests]
    assert sorted(map(json.dumps, made)) == sorted(map(json.dumps, sent))
    assert len([body for body in sent if worker(body)]) == 12
    purposes = Counter(one["purpose"] for one in told if one["type"] == "call")
    assert purposes == {"turn": 6, "synthesis": 2}


def named(world: World) -> set[str]:
    """Return the task ids in the log."""
    return {line["details"]["task"] for line in world.log() if line["kind"] == "task"}


async def recorded(world: World, name: str) -> None:
    """Wait until a request of a turn or task is recorded, since turns do not wait for the recording."""
    async with asyncio.timeout(90):
        while (await quick.run("replay", name, "--dir", str(world.root)))[0]:
            pass


async def test_a_request_that_was_never_answered_is_shown_after_a_kill(world: World) -> None:
    never = asyncio.Event()
    world.model.script(
        lambda body: (
            Reply(hold=never) if worker(body) else reply(tool_use("task", {"prompt": "x", "mode": "fork"}))
        )
    )
    await world.start("telegram")
    world.telegram.say("Hello")
    await eventually(lambda: any(map(worker, world.model.bodies)) and bool(named(world)))
    (name,) = named(world)
    await recorded(world, name)
    await world.process.kill()
    (one,) = await facts(world, name)
    assert one["body"] == next(one.body for one in world.model.requests if worker(one.body))
    assert (one["usage"], one["stopReason"]) == (None, None)


MEMORY = "<memory>\n## Facts\n- a ship\n\n## Decisions\n(none)\n\n## Preferences\n(none)\n\n## Open tasks\n- (none)\n</memory>"
SUMMARY = MEMORY.replace("<memory>", "<analysis>x</analysis>\n<summary>\n## What happened\nMuch.\n").replace(
    "</memory>", "</summary>"
)


async def test_a_memory_and_a_summary_are_shown_too(world: World) -> None:
    """The memory is shown with the turn that preceded it, the summary with the command that requested it."""
    (world.root / "long.txt").write_text("ten words of a line that is rather long\n" * 300, encoding="utf-8")

    def respond(body: Json) -> Reply:
        last = json.dumps(body["messages"][-1])
        if "Read" in last and "tool_result" not in last:
            return reply(*(tool_use("read_file", {"path": "long.txt"}) for _ in range(3)))
        return reply(SUMMARY if "summary>" in last else MEMORY if "memory>" in last else "I see.")

    world.model.script(respond)
    await world.start("telegram")
    world.telegram.say("Read it")
    await world.turns(1)
    await eventually(lambda: "memory" in purposes(world))
    for turn in range(2, 5):
        world.telegram.say(f"Read it for the {turn}th time")
        await world.turns(turn)
    world.telegram.say("/compact the ship")
    await eventually(lambda: "compaction" in purposes(world))
    await world.telegram.until(lambda: any("keep a summary" in one for one in world.texts()))
    assert await world.process.stop() == 0
    asked = [line for line in world.log() if line["kind"] == "llm_request"]
    told = [
        one for name in dict.fromkeys(line["requestId"] for line in asked) for one in await facts(world, name)
    ]
    assert Counter(one["purpose"] for one in told) == Counter(line["details"]["purpose"] for line in asked)
    assert sorted(json.dumps(one["body"]) for one in told) == sorted(
        json.dumps(one.body) for one in world.model.requests
    )
    by_purpose = {one["purpose"]: one for one in told}
    assert by_purpose["compaction"]["requestId"] not in {
        one["requestId"] for one in told if one["purpose"] == "turn"
    }
    assert "What happened" in by_purpose["compaction"]["answer"]
    assert "a ship" in by_purpose["memory"]["answer"]


def purposes(world: World) -> set[str]:
    return {line["details"]["purpose"] for line in world.log() if line["kind"] == "llm_response"}


async def test_what_was_forgotten_is_erased_and_said(world: World) -> None:
    await world.start("telegram")
    world.telegram.say("Hello")
    await world.turns(1)
    world.telegram.say("The word is plum")
    await world.turns(2)
    world.telegram.say("/forget last")
    await world.telegram.until(lambda: any("orgotten" in one for one in world.texts()))
    world.telegram.say("And now?")
    await world.turns(3)
    assert await world.process.stop() == 0
    asked = [line["requestId"] for line in world.log() if line["kind"] == "llm_request"]
    first, second, third = dict.fromkeys(asked)
    assert await facts(world, first)
    assert "plum" not in json.dumps([one["body"] for one in await facts(world, third)])
    code, out, _ = await quick.run("replay", second, "--dir", str(world.root), "--json")
    assert code == 1
    assert {tuple(json.loads(line)["wrong"]) for line in out.splitlines()} == {
        ("words were removed from this conversation since",)
    }


async def test_of_what_no_request_is_recorded_that_is_said(world: World) -> None:
    await world.start("telegram")
    world.telegram.say("Hello")
    await world.turns(1)
    assert await world.process.stop() == 0
    for file in (world.root / ".ship").glob("requests.db*"):
        file.unlink()
    name = next(line["requestId"] for line in world.log() if line["kind"] == "llm_request")
    code, out, err = await quick.run("replay", name, "--dir", str(world.root))
    assert (code, out) == (1, b"")
    assert "no request of" in err


async def test_another_model_is_asked_and_nothing_runs(world: World) -> None:
    world.model.script(script)
    await world.start("telegram")
    world.telegram.say("Hello")
    await world.turns(1)
    assert await world.process.stop() == 0
    name = next(line["requestId"] for line in world.log() if line["kind"] == "llm_request")
    told = json.loads((await replay(world, name, "--model", "claude-opus-5-5", "--json")).splitlines()[-1])
    assert (told["type"], told["model"], told["same"]) == ("replay", "claude-opus-5-5", True)
    assert (told["recorded"]["answer"], told["again"]["answer"]) == ("Good.", "Good.")
    assert world.model.bodies[-1]["model"] == "claude-opus-5-5"
    assert world.texts() == ["Good."]
    for words in (["--offline", "--model", "m"], ["--body", "1", "--model", "m"]):
        code, _, err = await quick.run("replay", name, *words, "--dir", str(world.root))
        assert (code, "cannot be combined" in " ".join(err.replace("│", " ").split())) == (2, True)
    code, out, err = await quick.run("replay", "../../etc/passwd", "--dir", str(world.root))
    assert (code, out, "no turn or task" in err) == (1, b"", True)
