"""Tests of a backup of a running gateway, and of its restore in another folder after a kill."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from bot.testing.anthropic_script import pause, reply
from bot.words import say
from tests import quick
from tests.blackbox.conftest import START_SECONDS, World, eventually

WORDS = say("delivery.lost_records")
REPEATED = f"{say('delivery.repeated')}\n\n"

TALKERS = range(3001, 3007)
HELD = 3010


async def command(root: Path, *words: str | Path) -> None:
    """Run a `shipmate` command until it ends."""
    code, out, err = await quick.run(*map(str, words), "--dir", str(root))
    assert code == 0, (out, err)


async def test_a_backup_under_traffic_goes_on_elsewhere_with_its_history_and_nothing_twice(
    world: World, tmp_path_factory: Any
) -> None:
    world.config["channels"]["telegram"]["allow"] = ["*"]
    gate = asyncio.Event()

    def answer(body: Any) -> Any:
        asked = re.findall(r"question \d+-\d+|held question", json.dumps(body["messages"]))[-1]
        made = reply(f"Answer to {asked}.")
        return pause(made, gate) if asked == "held question" and not gate.is_set() else made

    world.model.script(answer)
    await world.start("telegram")
    for person in TALKERS:
        world.telegram.say(f"question {person}-0", chat_id=person)
    await eventually(lambda: all(world.texts(one) == [f"Answer to question {one}-0."] for one in TALKERS))
    await world.sent()
    world.telegram.say("held question", chat_id=HELD)
    await world.model.until(lambda: len(world.model.requests) > len(TALKERS), START_SECONDS)
    file, stop = tmp_path_factory.mktemp("elsewhere") / "all.backup", asyncio.Event()

    async def talk(person: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            world.telegram.say(f"question {person}-{number}", chat_id=person)
            await eventually(
                lambda number=number: f"Answer to question {person}-{number}." in world.texts(person)  # type: ignore[misc]
            )

    async with asyncio.TaskGroup() as talking:
        for person in TALKERS:
            talking.create_task(talk(person))
        await eventually(lambda: all(len(world.texts(one)) > 1 for one in TALKERS))
        await command(world.root, "backup", file)
        stop.set()
    await world.sent()
    await world.process.kill()
    before = {person: world.texts(person) for person in TALKERS}

    gate.set()
    world.root = world.process.root = tmp_path_factory.mktemp("there")
    await command(world.root, "restore", file)
    await world.start()
    await eventually(lambda: world.texts(HELD) == [WORDS])
    for person in TALKERS:
        world.telegram.say(f"question {person}-99", chat_id=person)
    await eventually(lambda: all(f"Answer to question {one}-99." in world.texts(one) for one in TALKERS))
    await world.sent()
    for person in TALKERS:
        after = world.texts(person)[len(before[person]) :]
        # Work that was open at the time of the backup: Shipmate asks the person to send again, or repeats the answer with a note.
        repeats = [text.removeprefix(REPEATED) for text in after if text.startswith(REPEATED)]
        rest = [text for text in after if text != WORDS and not text.startswith(REPEATED)]
        assert rest == [f"Answer to question {person}-99."]
        assert after.count(WORDS) + len(repeats) <= 1
        assert set(repeats) <= set(before[person])
        (asked,) = [
            body for body in world.model.bodies if f"question {person}-99" in json.dumps(body["messages"])
        ]
        assert f"Answer to question {person}-0." in json.dumps(asked["messages"])
    assert world.texts(HELD) == [WORDS]
    said = Counter((line["chatKey"], line["role"], line["text"]) for line in world.archive())
    assert set(said.values()) == {1}
    assert await world.process.stop() == 0
