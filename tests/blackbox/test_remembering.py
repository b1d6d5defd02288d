"""The model remembers messages beyond the cap, after compactions, and in a new conversation."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot.testing.anthropic_script import reply, tool_use
from tests import quick
from tests.blackbox.conftest import ANN, PERSON, ROOM, START_SECONDS, World, eventually

FACT = "My name is 奈緒子 and I am allergic to 落花生"
MEMORY = "<memory>\n## Facts\n- 奈緒子, allergic to 落花生\n</memory>"
GROUP = -1001
BOX = Path(__file__).with_name("box.py")


def words(body: Any) -> str:
    return json.dumps(body["messages"], ensure_ascii=False)


def of_turns(world: World) -> list[Any]:
    return [body for body in world.model.bodies if not {"<memory_task>", "<summary_task>"} & tasks(body)]


def tasks(body: Any) -> set[str]:
    said = json.dumps(body["messages"][-1], ensure_ascii=False)
    return {task for task in ("<memory_task>", "<summary_task>") if task in said}


def sends(remembers: Callable[[Any], str]) -> Callable[[Any], Any]:
    """Let the model answer by `chat_send`."""

    def answer(body: Any) -> Any:
        if tasks(body):
            return remembers(body)
        return reply(tool_use("chat_send", {"text": f"answer {len(body['messages'])}"}))

    return answer


async def say(world: World, *said: str, chat_id: int = PERSON) -> None:
    """Send messages in Telegram. Each turn ends before the next message is sent."""
    for one in said:
        turns, texts = ended(world), len(world.texts(chat_id))
        world.telegram.say(one, chat_id=chat_id, user_id=PERSON)
        if one.startswith("/"):
            await world.telegram.until(lambda count=texts: len(world.texts(chat_id)) > count, START_SECONDS)  # type: ignore[misc]
        else:
            await eventually(lambda count=turns: ended(world) > count)  # type: ignore[misc]
        await world.model.until(lambda: world.model.active == 0, START_SECONDS)


def ended(world: World) -> int:
    return sum(line["kind"] == "turn_end" for line in world.log())


async def test_what_was_told_first_is_known_behind_the_cap_of_messages(world: World) -> None:
    world.model.script(sends(lambda body: MEMORY if "落花生" in words(body) else "<memory>(none)</memory>"))
    await world.start()
    root = await world.slack.say(f"<@U0SHIP> {FACT}", channel=ROOM, user=ANN)
    await world.turns(1)
    await say(world, FACT)
    for number in range(24):
        await world.slack.say(f"and {number}?", channel=ROOM, user=ANN, thread_ts=root)
        await say(world, f"and {number}?")
        await world.turns(2 * number + 4)
    asked = of_turns(world)
    assert all("落花生" in words(body) for body in asked)
    for place in ("telegram:chat:", "slack:chat:"):
        sizes = [len(body["messages"]) for body in asked if place in json.dumps(body["system"])]
        assert len(sizes) == 25
        assert max(sizes) > 60, "the cap is sixty as it was"
        cut = next(after for before, after in itertools.pairwise(sizes) if after < before)
        assert cut >= 30, "half the cap stays"


async def test_where_the_memory_fails_the_view_grows_to_twice_the_cap_and_operators_hear_of_the_cut(
    world: World,
) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["context"] = {"maxMessages": 12}
    world.model.script(sends(lambda _: "no memory"))
    await world.start("telegram")
    await say(world, FACT, *(f"and {number}?" for number in range(9)))
    await world.telegram.until(
        lambda: any("oldest messages" in text for text in world.texts()), START_SECONDS
    )
    sizes = [len(body["messages"]) for body in of_turns(world)]
    assert sizes[:9] == [1, 4, 7, 10, 13, 16, 19, 22, 25], "24 messages and the newest"
    assert sizes[9] == 6 + 1, "whole turns, half the cap at the least"


async def test_what_the_model_worked_with_comes_back_after_the_fifth_compaction_too(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    world.config["context"] = {"maxMessages": 16}
    texts = tmp_path_factory.mktemp("box") / "texts.json"
    texts.write_text('["a harp"]', encoding="utf-8")
    box = {"command": sys.executable, "args": [str(BOX), str(texts), "Tune it 音 first."]}
    world.config["mcp"] = {"servers": {"box": box}}
    skill = world.root / ".claude" / "skills" / "brewing" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: brewing\ndescription: Tea.\n---\nWarm the 急須 first.\n", encoding="utf-8")
    (world.root / "plan.txt").write_text("version 0 計画", encoding="utf-8")
    for used in (
        tool_use("skills_load", {"name": "brewing"}),
        tool_use("read_file", {"path": "plan.txt"}),
        tool_use("tool_search", {"query": "harp"}),
    ):
        world.model.answer(used)
    summary = "## What happened\n- the 舟 leaked\n\n## Facts\n- x\n\n## Open tasks\n(none)"

    def answer(body: Any) -> str:
        if "<summary_task>" in tasks(body):
            return f"<summary>\n{summary}\n</summary>"
        return "<memory>\n## Facts\n- y\n</memory>" if tasks(body) else f"answer {len(world.model.bodies)}"

    world.model.script(answer)
    await world.start("telegram")
    await eventually(lambda: any("box has 2 tools" in line["message"] for line in world.log()))
    await say(world, "look around")
    world.telegram.say("here", media="document", data=b"line\n" * 20, file_name="long.txt", mime="text/plain")
    await world.turns(2)
    await say(world, "well", "so")
    world.telegram.say("/compact the boat")
    count = 0
    while count < 5:
        await eventually(lambda before=count: compactions(world) > before)  # type: ignore[misc]
        count = compactions(world)
        (world.root / "plan.txt").write_text(f"version {count} 計画", encoding="utf-8")
        while compactions(world) == count < 5:
            await say(world, "go on")
    await say(world, "and now?")
    body = world.model.bodies[-1]
    first = json.dumps(body["messages"][0], ensure_ascii=False)
    assert "Warm the 急須 first." in first
    assert "version 4 計画" in first, "as it was when the view was cut"
    assert "- artifact 0" in first
    assert "Tune it 音 first." in first
    assert "mcp__box__number0" in {tool["name"] for tool in body["tools"]}
    assert "the 舟 leaked" in first, "what happened goes from summary to summary"


def compactions(world: World) -> int:
    return sum(line["kind"] == "compaction" for line in world.log())


def note(path: str, said: str) -> Any:
    return tool_use("memory", {"command": "create", "path": f"/memories/{path}", "file_text": said})


async def test_a_new_conversation_begins_with_the_notes(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.config["permissions"] = {"allow": ["@trusted:memory", "write_file(out/*)"]}
    await world.start("telegram")
    for used in (
        note("me/tea.md", "Tea: 玉露. " + "x" * 3_000),
        note("chat/plan.md", "the plan 計画"),
        "noted",
    ):
        world.model.answer(used)
    await say(world, "remember that I drink 玉露", "/new")
    for used in (tool_use("write_file", {"path": "out/a.md", "content": "a"}), "hello", "again"):
        world.model.answer(used)
    await say(world, "hello", "and now?")
    begun, _, later = world.model.bodies[-3:]
    (block,) = (one["text"] for one in begun["messages"][0]["content"] if "memory_notes" in one["text"])
    assert "not instructions" in block
    assert all(name in block for name in ("/memories/chat/plan.md", "/memories/me/tea.md", "玉露"))
    assert block.count("x") in range(1_450, 1_501), "the beginning alone"
    assert words(later).count("/memories/me/tea.md") == 1, "once in a conversation"
    assert (world.root / "out" / "a.md").exists(), "one's own notes suspend no rule"

    for used in (note("chat/room.md", "the room 部屋"), "noted"):
        world.model.answer(used)
    await say(world, "@shipmate_bot note it", "/new@shipmate_bot", "@shipmate_bot hello", chat_id=GROUP)
    begun = world.model.bodies[-1]
    assert "部屋" in words(begun)
    assert not any(words(begun).count(said) for said in ("玉露", "計画")), "a person's are their own"

    for used in (note("me/theirs.md", "their words"), "kept"):
        world.model.answer(used)
    before = ended(world)
    world.telegram.forward(
        {"text": "obey", "forward_origin": {"type": "hidden_user", "sender_user_name": "E", "date": 1}}
    )
    await eventually(lambda: ended(world) > before)
    await say(world, "/new")
    world.model.answer(tool_use("write_file", {"path": "out/b.md", "content": "b"}))
    world.telegram.say("write it")
    chat = world.telegram.chats[PERSON]
    await world.telegram.until(
        lambda: any("reply_markup" in one for one in chat.messages.values()), START_SECONDS
    )
    assert "their words" in words(world.model.bodies[-1])
    assert not (world.root / "out" / "b.md").exists(), "made from foreign words it is foreign"


async def test_instructions_that_are_too_large_are_used_up_to_the_limit_and_everybody_hears_of_it(
    world: World,
) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    lines = [f"Rule {number}: be kind, 规则." for number in range(20_000)]
    (world.root / "Agent.md").write_text("\n".join(lines), encoding="utf-8")
    await world.start("telegram")
    assert any("Agent.md" in line and "262,144 are used" in line for line in world.process.lines)
    await say(world, "hello")
    system = json.dumps(world.model.bodies[0]["system"], ensure_ascii=False)
    assert "Rule 0: be kind" in system
    assert len(system) > 60_000
    assert "Rule 19999:" not in system
    await world.telegram.until(lambda: any("too large" in text for text in world.texts()), START_SECONDS)
    _, out, told = await quick.run("check", "--dir", str(world.root), env=world.process.env)
    assert "262,144 are used" in out.decode() + told


async def test_people_hear_that_the_prompt_fills_a_small_window(world: World) -> None:
    world.model.window = world.config["llm"]["contextWindow"] = 3_000
    (world.root / "Agent.md").write_text("Be kind to everybody here.\n" * 1_000, encoding="utf-8")
    await world.start("telegram")
    world.telegram.say("hello")
    await world.telegram.until(lambda: bool(world.texts()), START_SECONDS)
    assert "instructions" in world.texts()[0]
    assert "smaller pieces" not in world.texts()[0]


async def test_operators_hear_of_a_compaction_that_fails_three_times_in_a_row(world: World) -> None:
    world.config["operators"] = [f"telegram:{PERSON}"]
    world.model.script(lambda body: f"no summary {len(body['messages'])}")
    await world.start("telegram")
    await say(world, *(f"message {number} 你好" for number in range(6)))
    for number in range(3):
        world.telegram.say(f"/compact {number}")
    told = "3 times in a row"
    await world.telegram.until(lambda: any(told in text for text in world.texts()), START_SECONDS)
    assert await world.process.stop() == 0
