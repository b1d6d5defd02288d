"""`history.keepDays`: older data is deleted from the disk, and neither the model nor a search finds it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
from functools import partial
from typing import Any

from tests.blackbox.conftest import PERSON, World, eventually

KEY = f"telegram:chat:{PERSON}"
OLD = 1_700_000_000_000


def write_archive(world: World, chat: int, words: str) -> None:
    """Write old messages as an earlier version did."""
    line = {"v": 1, "ts": OLD, "channel": "telegram", "chatId": str(chat), "chatKey": f"telegram:chat:{chat}"}
    folder = world.root / ".ship" / "chats"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(line | {"userId": str(chat), "role": "user", "text": words})
    (folder / f"telegram%3Achat%3A{chat}.jsonl").write_text(text + "\n", encoding="utf-8")


async def test_what_is_beyond_its_days_goes_and_what_is_not_stays(world: World) -> None:
    write_archive(world, PERSON, "the old heron")
    write_archive(world, 2002, "the old otter")
    world.config["history"] = {"keepDays": {KEY: 30}}
    await world.start("telegram")
    await eventually(lambda: any(line["kind"] == "retention" for line in world.log()))
    world.model.answer("Hello.")
    world.telegram.say("the new heron")
    await world.heard("Hello.")
    (told,) = [line for line in world.log() if line["kind"] == "retention"]
    assert (told["chatKey"], told["level"], told["details"]["lines"]) == (KEY, "action", 1)
    left = ["the new heron", "Hello.", "the old otter"]
    await eventually(lambda: [line["text"] for line in world.archive()] == left)
    await world.process.stop()
    assert b"the old heron" not in world.everything_on_disk()
    await world.start()
    assert [line["text"] for line in world.archive()] == left


async def passed(world: World, days: float) -> None:
    """Advance the clock of the process."""
    reader, writer = await asyncio.open_unix_connection(world.root / "clock")
    writer.write(json.dumps({"pass": days * 86_400}).encode() + b"\n")
    await reader.readline()
    writer.close()


async def quiet(world: World, days: float) -> None:
    """Let time pass, and reload the configuration, which removes idle chats from memory."""
    await passed(world, days)

    def reloads() -> int:
        return sum(line["kind"] == "reload" for line in world.log())

    before = reloads()
    world.config["llm"]["maxTokens"] = 5_000 + before
    (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    os.kill(world.process.pid, signal.SIGHUP)
    await eventually(lambda: reloads() > before)


async def transcript(world: World) -> list[dict[str, Any]]:
    """Return the model's transcript of the chat, as an operator sees it."""
    command = (sys.executable, "-m", "bot", "history", KEY, "--transcript", "--dir", str(world.root))
    shown = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    return [json.loads(line) for line in (await shown.communicate())[0].splitlines()]


def requests(world: World) -> int:
    """Return the number of recorded requests."""
    with contextlib.closing(sqlite3.connect(world.root / ".ship" / "requests.db", timeout=5)) as file:
        (count,) = file.execute("SELECT count(*) FROM requests").fetchone()
    return int(count)


async def test_a_chat_that_never_begins_anew_forgets_turns_beyond_its_days(world: World) -> None:
    world.only("telegram")
    world.config["history"] = {"keepDays": {KEY: 1}}
    world.process.faked("--clock", str(world.root / "clock"))
    world.model.script(lambda body: f"re: {body['messages'][-1]['content'][-1]['text']}")
    (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    await world.process.start()

    def ran(times: int) -> bool:
        told = (line for line in world.log() if line["kind"] == "retention")
        return sum("events" in line["details"] for line in told) == times

    said = ["the old heron", "an otter", "a seal", "a whale"]
    for number, words in enumerate(said):
        world.telegram.say(words)
        await world.heard(*(f"re: {one}" for one in said[: number + 1]))
        await world.turns(number + 1)
        await world.sent()
        await quiet(world, 0.6)
        for _ in range(4):  # retention runs again after an hour, in case a chat had unfinished work
            with contextlib.suppress(TimeoutError):
                await eventually(partial(ran, number), 20)
                break
            await passed(world, 1 / 24)
        assert ran(number)
    asked = json.dumps(world.model.bodies[2]["messages"])
    assert [words in asked for words in said[:3]] == [False, True, True]
    assert len({line["sessionId"] for line in await transcript(world)}) == 1
    await eventually(lambda: not world.recorded(said[0]))
    assert world.recorded(said[-1])
    assert await world.process.stop() == 0
    # The process can start although the old data is deleted.
    await world.process.start()
    world.telegram.say("a gull")
    await world.heard(*(f"re: {one}" for one in [*said, "a gull"]))
    asked = json.dumps(world.model.bodies[-1]["messages"])
    assert [words in asked for words in said] == [False, False, False, True]
    assert await world.process.stop() == 0


async def test_days_that_are_none_are_refused(world: World) -> None:
    world.config["history"] = {"keepDays": {"telegram": 30}}
    await world.start("telegram", wait=False)
    assert await world.process.ended() == 78
    assert "history.keepDays" in world.process.stderr


async def test_a_day_later_what_the_docs_say_is_gone_from_the_disk(world: World) -> None:
    world.only("telegram")
    world.config["history"] = {"keepDays": {"*": 1}}
    world.process.faked("--clock", str(world.root / "clock"))
    (world.root / "ship.json").write_text(json.dumps(world.config), encoding="utf-8")
    await world.process.start()

    def holding(words: str) -> set[str]:
        """Return the files and folders with these words. The operator's log is excluded, because it has its own retention."""
        found = set[str]()
        for one in [one for one in (world.root / ".ship").rglob("*") if one.is_file()]:
            with contextlib.suppress(FileNotFoundError):  # the file may just have been deleted
                if words.encode() in one.read_bytes():
                    found.add(one.relative_to(world.root / ".ship").parts[0].removesuffix("-wal"))
        return found - {"logs"}

    world.model.answer("A heron it is.")
    world.telegram.say("the old heron")
    await world.heard("A heron it is.")
    await world.turns(1)
    await eventually(lambda: holding("the old heron") == {"chats", "shipmate.db", "index.db"})
    assert requests(world) == 1
    await world.sent()
    await quiet(world, 2.5)
    await eventually(lambda: holding("the old heron") == set())
    await eventually(lambda: requests(world) == 0)
    world.model.answer("Hello.")
    world.telegram.say("the new heron")
    await world.heard("A heron it is.", "Hello.")
    assert "the old heron" not in json.dumps(world.model.bodies[-1])
    assert await world.process.stop() == 0
    await world.process.start()
    world.model.answer("Welcome back.")
    world.telegram.say("here again")
    left = ["the new heron", "Hello.", "here again", "Welcome back."]
    await eventually(lambda: [line["text"] for line in world.archive()] == left)
    assert await world.process.stop() == 0
