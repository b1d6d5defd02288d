"""The process is killed repeatedly while jobs become due. Each due time has an answer, or the next answer says that it
was merged. `KILLS=… SEED=… make torture` repeats a run.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from bot.contracts.base import Json
from bot.testing.anthropic_script import Reply, reply, tool_use
from tests.torture import scene
from tests.torture.chaotic import Net, net

REPEATED = scene.REPEATS

KILLS = int(os.environ.get("KILLS", "60"))
EVERY = 60.0
CHATS = 3
WORDS = "Tell me the time. 几点了"
_DUE = re.compile(r'"due": ?"([^"]+)"')
_ANSWER = re.compile(r"It is (\S+)\.")
_MERGED = re.compile(r"was due (?:at least )?(?:once|([0-9]+) times) before")


def script(body: Json) -> Reply | str:
    """Return the model's answer: it plans a job when asked to, and says the due time of a job that runs."""
    last = body["messages"][-1]["content"]
    if any(block["type"] == "tool_result" for block in last):
        return "I will."
    if last[-1]["text"] != WORDS:
        return reply(tool_use("schedule_create", {"prompt": WORDS, "when": "every 1m"}))
    told = json.dumps(last, ensure_ascii=False).replace('\\"', '"')
    due = _DUE.search(told)
    assert due is not None, told
    return f"It is {due[1]}."


def shown(world: Net, chat: int) -> list[tuple[float, int]]:
    """Return the due times that were answered in a chat, each with the number of earlier times that were merged into it."""
    found: dict[float, int] = {}
    for text in world.world.texts(chat):
        if merged := _MERGED.search(text):  # the note is below the answer
            found[next(reversed(found))] = int(merged[1] or 1)
        due = _ANSWER.search(text)
        if due is None or (text.startswith(REPEATED) and _at(due[1]) in found):
            continue
        assert _at(due[1]) not in found, f"answered twice, unmarked: {text}"
        found[_at(due[1])] = 0
    return sorted(found.items())


def _at(shown: str) -> float:
    return datetime.fromisoformat(shown).timestamp()


async def due_and_killed(root: Path, rng: random.Random, kills: int) -> None:
    async with net(root, rng, "telegram", speed=20.0) as world:
        world.world.config["schedule"] = {"minMinutes": 1}
        world.world.config["channels"]["telegram"]["streaming"] = {"enabled": False}
        world.world.model.script(script)
        life = await world.start()
        chats = [3_000 + number for number in range(CHATS)]
        for chat in chats:
            world.world.telegram.say("Tell me the time every minute.", chat_id=chat)
        await world.world.telegram.until(
            lambda: all("I will." in world.world.texts(chat) for chat in chats), 60
        )
        for _ in range(kills):
            await world.clock.sleep(rng.uniform(10, 100))
            await life.process.kill()
            if rng.random() < 0.3:
                await world.clock.sleep(rng.uniform(0, 150))
            life = await world.start()
        quiet = {chat: len(shown(world, chat)) + 2 for chat in chats}
        async with asyncio.timeout(60):
            while any(len(shown(world, chat)) < quiet[chat] for chat in chats):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        count = Counter[str]()
        for chat in chats:
            times = shown(world, chat)
            for (before, _), (due, merged) in itertools.pairwise(times):
                passed = round((due - before) / EVERY) - 1
                assert merged == passed, f"in {chat}, {passed} times were due before {due}, {merged} are told"
                count["answered"] += 1
                count["merged, and said so"] += merged
        scene.tell(f"jobs SEED={os.environ['SEED']}: {kills} kills, {dict(count)}, none lost")
        assert count["merged, and said so"], "no kill mattered"
        await life.end()


@pytest.mark.torture
async def test_killed_while_jobs_fall_due_each_time_is_answered_or_said_to_be_merged(tmp_path: Path) -> None:
    await due_and_killed(tmp_path, random.Random(scene.seed()), KILLS)
