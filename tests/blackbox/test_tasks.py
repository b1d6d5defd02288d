"""Tasks in the real process: parallel tasks, approvals, stops, and recovery after kill -9."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

from bot.contracts.base import Json
from bot.testing.anthropic_script import Reply, reply, tool_use
from tests.blackbox.conftest import PERSON, World, eventually

SUMMARY = "only the last text of it"


def is_task(body: Json) -> bool:
    return "carry out one task" in json.dumps(body.get("system", ""))


def is_synthesis(body: Json) -> bool:
    return "bring the results" in json.dumps(body.get("system", ""))


def steps(body: Json) -> int:
    return sum(message["role"] == "assistant" for message in body["messages"])


def asked(body: Json) -> str:
    return str(body["messages"][0]["content"][-1]["text"])


def results(body: Json) -> list[Any]:
    return [
        block
        for message in body["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    ]


async def noisy(world: World, met: asyncio.Event, body: Json) -> Reply:
    """Return the model's answers for a turn that starts three tasks and combines their results."""
    if is_synthesis(body):
        return reply("All of them are noisy.\n\nConfidence: low: one failed")
    if not is_task(body):
        if not results(body):
            names = ({"prompt": f"Look at {name}", "description": f"Datei {name}"} for name in "abc")
            return reply(*(tool_use("task", one) for one in names))
        return (
            reply(tool_use("chat_send", {"text": "All three are noisy."}))
            if len(results(body)) == 3
            else reply("")
        )
    name = asked(body).split()[-1]
    if steps(body) == 0:
        # No task continues before all three have begun.
        if sum(map(is_task, world.model.bodies)) == 3:
            met.set()
        await met.wait()
        return reply(tool_use("read_file", {"path": f"{name}.txt"}))
    if name == "c" and steps(body) == 1:
        return reply(tool_use("write_file", {"path": "c.md", "content": "quiet"}))
    return reply(f"- {name} is noisy, {SUMMARY}")


async def test_several_tasks_work_side_by_side_ask_and_come_back_as_one(world: World) -> None:
    """Three tasks read files. One of them also writes, which needs a person's approval. The person gets one answer."""
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["llm"]["fastModel"] = "claude-opus-5-5"
    for name in "abc":
        (world.root / f"{name}.txt").write_text(f"NOISE of {name} 雑音\n" * 20, encoding="utf-8")

    world.model.script(partial(noisy, world, asyncio.Event()))
    await world.start("telegram")
    world.telegram.say("How noisy are they?")
    chats = world.telegram.chats

    def question() -> int:
        messages = chats[PERSON].messages if PERSON in chats else {}
        return next((number for number, one in messages.items() if "reply_markup" in one), 0)

    await world.telegram.until(lambda: question() > 0)
    shown = chats[PERSON].messages[question()]
    assert "for the task “Datei c”" in shown["text"]
    assert "c.md" in shown["text"]
    assert not (world.root / "c.md").exists()
    button = shown["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
    world.telegram.press(question(), button, user_id=PERSON)
    await world.telegram.until(lambda: "All three are noisy." in world.texts())
    await world.turns(1)
    assert (world.root / "c.md").read_text() == "quiet"

    # The turn sees the summaries and the combined result, but no step of a task.
    turns = [body for body in world.model.bodies if not is_task(body) and not is_synthesis(body)]
    told = results(turns[1])
    assert [SUMMARY in one["content"] for one in told] == [True, True, True]
    assert "All of them are noisy.\n\nConfidence: low: one failed" in told[2]["content"]
    assert "NOISE" not in json.dumps(turns, ensure_ascii=False)
    fast = next(body for body in world.model.bodies if is_synthesis(body))
    assert fast["model"] == "claude-opus-5-5"
    assert {
        tool["name"] for body in world.model.bodies if is_task(body) for tool in body["tools"]
    }.isdisjoint({"task", "chat_send"})

    # The operator's log has all steps of the tasks under the turn's id, and their usage is counted.
    answers = [line for line in world.log() if line["kind"] == "llm_response"]
    assert len({line["requestId"] for line in answers}) == 1
    purposes = [line["details"]["purpose"] for line in answers]
    assert purposes.count("subagent") == 7
    assert purposes.count("synthesis") == 1
    trace = await world.shipmate("trace", answers[0]["requestId"])
    names = {one["content"].rpartition("read_artifact ")[2].partition("]")[0] for one in told}
    assert len(names) == 3
    for name in names:
        assert f"artifact={name}" in trace
        (kept,) = (world.root / ".ship" / "artifacts").glob(f"*/{name}.txt")
        assert "NOISE" in kept.read_text(encoding="utf-8")
    world.telegram.say("/stats")
    await world.telegram.until(lambda: any(str(len(answers)) in one for one in world.texts()[-1:]))
    assert await world.process.stop() == 0


def hold(world: World) -> None:
    """Start four tasks whose answers never arrive."""
    world.only("telegram")
    never = asyncio.Event()

    def script(body: Json) -> Reply:
        if is_task(body):
            return Reply(hold=never)
        if any(block["type"] == "tool_result" for block in body["messages"][-1]["content"]):
            return reply("It was interrupted.")
        return reply(*(tool_use("task", {"prompt": f"part {n}"}) for n in range(4)))

    world.model.script(script)


async def test_a_stop_ends_tasks(world: World) -> None:
    hold(world)
    await world.start()
    world.telegram.say("Work on it")
    await eventually(lambda: sum(map(is_task, world.model.bodies)) == 4)
    world.telegram.say("/stop")
    await world.telegram.until(lambda: "Stopped." in world.texts())
    await world.turns(1)

    def ended() -> list[str]:
        return [one["details"]["error"] for one in world.log() if one["message"] == "the task has stopped"]

    await eventually(lambda: len(ended()) == 4)  # a stopped turn waits only some seconds for its tasks
    assert ended() == ["It was stopped."] * 4
    assert await world.process.stop() == 0


async def test_a_task_goes_on_where_a_kill_has_cut_it_off(world: World) -> None:
    """One task waits for an operator, and one has reported. No step of these tasks is repeated, and there is only one
    question.
    """
    world.config["operators"] = [f"telegram:{PERSON}"]
    (world.root / "a.txt").write_text("NOISE", encoding="utf-8")

    def script(body: Json) -> Reply:
        if is_synthesis(body):
            return reply("Both are done.")
        if not is_task(body):
            named = (tool_use("task", {"prompt": f"Look at {name}"}) for name in "ab")
            return reply("Written.") if results(body) else reply(*named)
        calls = [
            tool_use("read_file", {"path": "a.txt"}),
            tool_use("write_file", {"path": "out.md", "content": "x"}),
        ]
        if asked(body).endswith("b") or steps(body) == len(calls):
            return reply(f"- {asked(body)[-1]} is done")
        return reply(calls[steps(body)])

    def questions() -> list[int]:
        messages = world.telegram.chats[PERSON].messages if PERSON in world.telegram.chats else {}
        return [number for number, one in messages.items() if "reply_markup" in one]

    world.model.script(script)
    await world.start("telegram")
    world.telegram.say("Write it down")
    await world.telegram.until(lambda: len(questions()) == 1)
    await eventually(lambda: any(one["message"] == "the task has ended" for one in world.log()))
    shown = world.telegram.chats[PERSON].messages[questions()[0]]["reply_markup"]
    await world.process.kill()
    await world.start()
    world.telegram.press(questions()[0], shown["inline_keyboard"][0][0]["callback_data"], user_id=PERSON)
    await world.telegram.until(lambda: "Written." in world.texts())
    assert (world.root / "out.md").read_text() == "x"
    tasks = [body for body in world.model.bodies if is_task(body)]
    assert sorted((asked(body)[-1], steps(body)) for body in tasks) == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", 0),
    ]
    told = results(world.model.bodies[-1])
    assert ["is done" in one["content"] for one in told] == [True, True]
    assert "Both are done." in told[1]["content"]
    assert "3 model calls, 2 tool calls" in told[0]["content"]
    assert await world.process.stop() == 0


async def test_a_question_of_a_task_outlives_a_kill(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]

    def script(body: Json) -> Reply:
        if is_task(body) and body["messages"][-1]["content"][-1]["type"] != "tool_result":
            return reply(tool_use("write_file", {"path": "out.md", "content": "x"}))
        if any(block["type"] == "tool_result" for block in body["messages"][-1]["content"]):
            return reply("It is written.")
        return reply(tool_use("task", {"prompt": "write it"}))

    def question() -> int:
        messages = world.telegram.chats[PERSON].messages if PERSON in world.telegram.chats else {}
        return next((number for number, one in messages.items() if "reply_markup" in one), 0)

    world.model.script(script)
    await world.start("telegram")
    world.telegram.say("Write it down")
    await world.telegram.until(lambda: question() > 0)
    asked = question()
    markup = world.telegram.chats[PERSON].messages[asked]["reply_markup"]
    await world.sent()
    await world.process.kill()
    await world.start()
    world.telegram.press(asked, markup["inline_keyboard"][0][0]["callback_data"], user_id=PERSON)
    await world.telegram.until(lambda: "It is written." in world.texts())
    assert (world.root / "out.md").read_text(encoding="utf-8") == "x"
    assert sum("May I" in one for one in world.texts()) == 1
    assert await world.process.stop() == 0
