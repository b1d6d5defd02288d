"""The process is killed repeatedly while tasks run whose tools fail. Every message is answered, or its person is told
that there is no answer. `KILLS=… SEED=… make torture` repeats a run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from pathlib import Path

import pytest

from bot.contracts.base import Json
from bot.testing.anthropic_script import Reply, reply, tool_use
from tests.torture import chaotic, scene
from tests.torture.chaotic import Net, net
from tests.torture.test_storm import unheard

KILLS = int(os.environ.get("KILLS", "110"))
CHATS = 8
_QUESTION = re.compile(r"q\d{4} 消息 🙂")


def script(rng: random.Random, body: Json) -> Reply | str:
    """Return the model's next step: a task for all unanswered messages, whose tools fail once or twice; then an answer."""
    said = json.dumps([one for one in body["messages"] if one["role"] == "assistant"], ensure_ascii=False)
    if "carry out one task" in json.dumps(body.get("system", "")):
        if said.count("tool_use") < 3 and rng.random() < 0.8:
            name = rng.choice(["read_file", "list_dir"])
            return reply(tool_use(name, {"path": f"missing-{rng.randrange(9)}/{rng.randrange(9)}"}))
        return "It is done."
    asked = [
        block["text"]
        for one in body["messages"]
        if one["role"] == "user"
        for block in one["content"]
        if block["type"] == "text" and _QUESTION.fullmatch(block["text"])
    ]
    left = [question for question in dict.fromkeys(asked) if chaotic.answered(question) not in said]
    if not left:
        return reply("")
    last = body["messages"][-1]["content"]
    if any(block["type"] == "tool_result" for block in last):
        return reply("\n".join(map(chaotic.answered, left)))
    return reply(tool_use("task", {"prompt": f"Look into {left[-1]}", "description": "Look"}))


async def asking(world: Net, rng: random.Random, person: int) -> None:
    """Let a person write again after each reply."""
    while True:
        question = await world.ask("telegram", person)
        while question in unheard(world, [question]):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        await world.clock.sleep(rng.uniform(0, 3))


async def killed(root: Path, rng: random.Random, kills: int) -> None:
    async with net(root, rng, "telegram", speed=4.0) as world:
        world.world.model.script(lambda body: script(rng, body))
        life = await world.start()
        people = [asyncio.create_task(asking(world, rng, person)) for person in range(CHATS)]
        try:
            for _ in range(kills):
                await world.clock.sleep(rng.uniform(1, 12))
                await life.process.kill()
                life = await world.start()
        finally:
            for task in people:
                task.cancel()
            ended = await asyncio.gather(*people, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
        async with asyncio.timeout(60):
            while scene.unfinished(root) or unheard(world):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        scene.tell(
            f"tasks SEED={os.environ['SEED']}: {kills} kills, {len(world.asked)} messages, "
            f"{len(world.silent())} of them told that there is no answer, none silent"
        )
        assert len(world.asked) >= CHATS
        await life.end()


@pytest.mark.torture
async def test_killed_while_tasks_fail_every_message_is_answered(tmp_path: Path) -> None:
    await killed(tmp_path, random.Random(scene.seed()), 3)


@pytest.mark.torture
async def test_killed_a_hundred_times_while_tasks_fail_every_message_is_answered(tmp_path: Path) -> None:
    await killed(tmp_path, random.Random(scene.seed()), KILLS)
