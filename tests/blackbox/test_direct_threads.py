"""In Slack's direct messages, a message and its thread are one conversation. The real client library is used."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bot.testing.anthropic_script import reply, tool_use
from tests.blackbox.conftest import ANN, World, eventually

DIRECT = "D0ANN"


async def answered(world: World, words: str, thread_ts: str | None = None) -> str:
    """Send a message, wait for the answer in its thread, and return the root of the thread."""
    ts = await world.slack.say(words, channel=DIRECT, user=ANN, thread_ts=thread_ts)
    root = thread_ts or ts
    before = len(world.slack.replies(DIRECT, root))
    await world.slack.until(lambda: len(world.slack.replies(DIRECT, root)) > before)
    return root


def said_to_model(body: dict[str, Any]) -> list[str]:
    """Return the last block of each message of a person, which contains the person's own words."""
    return [one["content"][-1]["text"] for one in body["messages"] if one["role"] == "user"]


def shown(body: dict[str, Any]) -> str:
    return json.dumps(body["messages"], ensure_ascii=False)


async def test_each_message_is_answered_below_itself_and_its_thread_goes_on_with_it(world: World) -> None:
    world.model.script(lambda body: f"re: {said_to_model(body)[-1]}")
    await world.start("slack")
    roots = [await answered(world, words) for words in ("one", "两个")]
    assert [[one.text for one in world.slack.replies(DIRECT, root)] for root in roots] == [
        ["re: one"],
        ["re: 两个"],
    ]
    await answered(world, "and more", roots[0])
    assert said_to_model(world.model.bodies[-1]) == ["one", "and more"]
    assert "两个" not in shown(world.model.bodies[-1])
    assert {line["chatKey"] for line in world.archive()} == {
        f"slack:chat:{DIRECT}:thread:{root}" for root in roots
    }


async def test_what_is_deleted_is_hidden_in_the_conversation_that_began_with_it(world: World) -> None:
    world.model.script(lambda _: "Noted.")
    await world.start("slack")
    secret = await answered(world, "the code is 7731")
    await world.turns(1)
    root = await answered(world, "and now?")
    assert "7731" in shown(world.model.bodies[-1])
    await world.turns(2)
    await world.slack.delete(DIRECT, secret)
    await eventually(lambda: sum(one["kind"] == "removal" for one in world.log()) == 2)
    await answered(world, "go on", root)
    assert "7731" not in shown(world.model.bodies[-1])


async def test_as_one_the_whole_chat_is_a_conversation_threads_included_and_is_found_later(
    world: World,
) -> None:
    world.config["channels"]["slack"]["direct"] = "one"
    world.model.script(lambda body: f"re: {said_to_model(body)[-1]}")
    await world.start("slack")
    root = await answered(world, "the harbour is Hamburg")
    await answered(world, "in its thread", root)
    await answered(world, "outside of it")
    assert said_to_model(world.model.bodies[-1]) == [
        "the harbour is Hamburg",
        "in its thread",
        "outside of it",
    ]
    assert {line["chatKey"] for line in world.archive()} == {f"slack:chat:{DIRECT}"}
    await world.turns(3)
    await world.process.stop()
    del world.config["channels"]["slack"]["direct"]
    world.model.script(None)
    world.model.answer(tool_use("chat_load_history", {"keyword": "harbour"}))
    world.model.answer("Hamburg.")
    await world.start()
    await answered(world, "which harbour?")
    assert "the harbour is Hamburg" in shown(world.model.bodies[-1])


async def test_stop_alone_ends_what_runs_below(world: World) -> None:
    gate = asyncio.Event()
    world.model.script(lambda _: reply("never", hold=gate))
    await world.start("slack")
    asked = await world.slack.say("long work", channel=DIRECT, user=ANN)
    await world.model.until(lambda: world.model.active == 1)
    stop = await answered(world, "stop")
    assert [one.text for one in world.slack.replies(DIRECT, stop)] == ["Stopped."]
    await world.turns(1)
    gate.set()
    assert "never" not in " ".join(one.text for one in world.slack.replies(DIRECT, asked))
