"""A message and its answer, with the process killed at any step."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot.testing.anthropic_script import reply, tool_use
from bot.testing.faults import VARIABLE, Fault
from bot.words import say
from tests.blackbox.conftest import PERSON, START_SECONDS, World, eventually, fast
from tests.blackbox.test_fallback import five_minutes

REPEATED = f"{say('delivery.repeated')}\n\n"
WORDS = {
    "send it: 消息 שלום 👩‍👩‍👧": "Sent. 你好",
    "say it": "Said in plain words.",
    "look first": "There is nothing here.",
    "write it": "It is written.",
}
"""Answers of the bot by the person's message."""
CALLS = {
    "send it": tool_use("chat_send", {"text": "Sent. 你好"}),
    "look first": tool_use("list_dir", {"path": "."}),
    "write it": tool_use("write_file", {"path": "notes.md", "content": "kept"}),
}


def answer(body: dict[str, Any]) -> Any:
    said = [one["content"][-1].get("text", "") for one in body["messages"] if one["role"] == "user"]
    words = next(one for one in reversed(said) if one in WORDS)
    results = any(one["type"] == "tool_result" for one in body["messages"][-1]["content"])
    call = next((call for begin, call in CALLS.items() if words.startswith(begin)), None)
    return WORDS[words] if call is None or results else reply(call)


async def begin(world: World, *faults: Fault) -> None:
    world.process.faked("--trace", str(trace_of(world)))
    world.process.env |= {VARIABLE: json.dumps([vars_of(one) for one in faults])}
    await world.start()


def trace_of(world: World) -> Path:
    """Return the path of a file outside of the project folder that only this test uses."""
    return world.root.with_name(f"{world.root.name}.trace")


def vars_of(fault: Fault) -> dict[str, Any]:
    return {name: getattr(fault, name) for name in ("seam", "kind", "at", "when")}


@pytest.fixture
def core(world: World) -> World:
    world.only("telegram")
    world.config["permissions"] = {"allow": ["write_file"]}
    world.model.script(answer)
    return world


def answered_once(world: World, deaths: int = 0) -> None:
    shown = world.texts()
    for words in WORDS.values():
        copies = [one for one in shown if one.removeprefix(REPEATED) == words]
        assert 1 <= len(copies) <= 1 + deaths, shown
        assert all(one.startswith(REPEATED) for one in copies[1:]), shown
    order = [one.removeprefix(REPEATED) for one in shown]
    assert list(dict.fromkeys(order)) == list(WORDS.values()), shown


async def test_messages_are_answered_in_order_and_remembered_over_a_kill(core: World) -> None:
    await begin(core)
    for words, said in WORDS.items():
        core.telegram.say(words)
        await core.telegram.until(partial(shows, core, PERSON, said), START_SECONDS)
    answered_once(core)
    assert (core.root / "notes.md").read_text(encoding="utf-8") == "kept"
    before = core.model.requests[-1].body["messages"]
    assert [one["role"] for one in before].count("system") == len(WORDS)
    await core.process.kill()
    await begin(core)
    core.telegram.say("say it")
    await core.telegram.until(lambda: core.texts().count(WORDS["say it"]) == 2, START_SECONDS)
    seen = core.model.requests[-1].body["messages"]
    assert seen[: len(before)] == unmarked(before, seen), "the model sees what was said as it saw it then"
    assert await core.process.stop() == 0


async def test_a_prompt_stays_over_a_kill_while_the_provider_may_have_it(core: World) -> None:
    instructions = core.root / "Agent.md"
    for turns, words in enumerate(("Be kind 親切に.", "Be brief."), start=1):
        instructions.write_text(words, encoding="utf-8")
        core.process.faked("--clock", str(core.root / "clock"))
        await core.start()
        core.telegram.say("say it")
        await core.turns(turns)
        await core.sent()
        await core.process.kill()
    first, second = core.model.bodies
    assert first["system"] == second["system"]
    assert "親切に" in str(second["system"])
    await core.start()
    await five_minutes(core)
    core.telegram.say("say it")
    await core.turns(3)
    assert "Be brief." in str(core.model.bodies[-1]["system"])
    told = [line["details"]["reason"] for line in core.log() if line["kind"] == "compaction"]
    assert told == ["instructions"], "a change of the front of requests is declared"


def unmarked(messages: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """Return the messages with cache markers only where the messages `like` have them."""
    found = json.loads(json.dumps(messages))
    for one, other in zip(found, like, strict=False):
        for block, same in zip(one["content"], other["content"], strict=True):
            block.pop("cache_control", None)
            if "cache_control" in same:
                block["cache_control"] = same["cache_control"]
    return list(found)


async def test_many_in_flight_at_a_kill_are_each_answered_once(core: World) -> None:
    core.config["channels"]["telegram"]["allow"] = ["*"]
    gate, people = asyncio.Event(), range(3001, 3041)
    core.model.script(
        lambda body: reply("Here you are.", hold=gate) if not gate.is_set() else "Here you are."
    )
    await begin(core)
    for person in people:
        core.telegram.say("say it", chat_id=person)
    await core.model.until(lambda: core.model.active > 0)
    await core.process.kill()
    gate.set()
    await begin(core)
    await core.telegram.until(lambda: all(core.texts(one) for one in people), START_SECONDS)
    assert Counter(tuple(core.texts(one)) for one in people) == {("Here you are.",): len(people)}


async def test_an_archive_that_is_deleted_while_it_is_stopped_comes_back_whole(core: World) -> None:
    core.config["history"] = {"archiveAfterLines": 3}
    await begin(core)
    for words, said in WORDS.items():
        core.telegram.say(words)
        await core.telegram.until(partial(shows, core, PERSON, said), START_SECONDS)
    await core.process.stop()
    chats = core.root / ".ship" / "chats"
    before = {path.name: path.read_bytes() for path in chats.glob("*.jsonl")}
    assert len(before) > 1, "the archive has more than one file"
    shutil.rmtree(chats)
    await begin(core)
    await eventually(lambda: {path.name: path.read_bytes() for path in chats.glob("*.jsonl")} == before)


def shows(world: World, chat: int, words: str) -> bool:
    return words in [one.removeprefix(REPEATED) for one in world.texts(chat)]


@fast
async def test_progress_that_a_kill_leaves_goes_with_the_answer(core: World) -> None:
    core.config |= {"shell": {"isolation": "off"}, "permissions": {"allow": ["run_shell"]}}
    os.mkfifo(core.root / "pipe")
    core.model.script(
        lambda body: (
            "It is done."
            if "tool_result" in json.dumps(body["messages"])
            else reply(tool_use("run_shell", {"command": "cat pipe # *all*"}))
        )
    )
    await begin(core)
    core.telegram.say("run it", language="zh")
    await core.telegram.until(lambda: "正在运行 cat pipe # *all*" in "".join(core.texts()), START_SECONDS)
    # Wait for an edit, because the message's id is on disk by then. Without the id, the message would stay.
    await core.telegram.until(lambda: bool(core.telegram.called("editMessageText")), START_SECONDS)
    await core.process.kill()
    await begin(core)
    await core.telegram.until(lambda: core.texts() == ["It is done."], START_SECONDS)
    assert core.telegram.tally(PERSON).deleted == 1
