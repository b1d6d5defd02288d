"""A journal that is damaged, cut short or gone at a start: what can be read of it is answered, the rest is told."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bot.testing.anthropic_script import pause, reply
from bot.words import say
from tests.blackbox.conftest import START_SECONDS, World, eventually

WORDS = say("delivery.lost_records")

OPERATOR = 9001
PEOPLE = range(3001, 3013)
"""The first two are answered before the process dies."""


def gone(path: Path) -> None:
    for file in path.parent.glob("journal.db*"):
        file.unlink()


def emptied(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(0)


def overwritten(path: Path) -> None:
    """A tenth of it, from the last rows of what came in on: before them it describes itself, and where that is damaged nothing can
    be read.
    """
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(data.rindex(b'"addressed"') - 3 * 4096)
        file.write(b"\xa5" * (len(data) // 10))


def cut_short(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 6 // 10)


def without_a_beginning(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\0" * 8192)


def without_its_log(path: Path) -> None:
    path.with_name("journal.db-wal").unlink()


def with_a_cut_log(path: Path) -> None:
    """Before the last of what came in."""
    log = path.with_name("journal.db-wal")
    os.truncate(log, log.read_bytes().index(f"{PEOPLE[-1]}".encode()))


OF_THE_LOG = (without_its_log, with_a_cut_log)


@pytest.mark.parametrize("damage", [gone, emptied, overwritten, cut_short, without_a_beginning, *OF_THE_LOG])
async def test_each_is_answered_or_told_and_so_are_operators(
    world: World, damage: Callable[[Path], None]
) -> None:
    world.only("telegram")
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.config["operators"] = [f"telegram:{OPERATOR}"]
    world.telegram.chat(OPERATOR)
    gate = asyncio.Event()
    world.model.script(lambda _: reply("The answer."))
    await world.start()
    for person in PEOPLE[:2]:
        world.telegram.say("first", chat_id=person)
    await eventually(lambda: all(world.texts(person) == ["The answer."] for person in PEOPLE[:2]))
    if damage in OF_THE_LOG:
        await world.sent()
        assert await world.process.stop() == 0
        await world.start()
    world.model.script(lambda _: pause(reply("The answer."), gate))
    for person in PEOPLE[2:]:
        world.telegram.say("question " * 200, chat_id=person)
    await world.model.until(lambda: len(world.model.requests) >= len(PEOPLE), START_SECONDS)
    await eventually(lambda: sum(line["role"] == "user" for line in world.archive()) == len(PEOPLE))
    await world.process.kill()
    path = world.root / ".ship" / "journal.db"
    if damage not in OF_THE_LOG:
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage(path)
    gate.set()
    world.model.script(lambda _: reply("The answer."))
    await world.start()
    await eventually(lambda: all(world.texts(person) for person in (*PEOPLE, OPERATOR)))
    await world.sent()
    (told,) = world.texts(OPERATOR)
    assert told.startswith("⚠️ The journal was ")
    for person in PEOPLE[2:]:
        assert world.texts(person) in (["The answer."], [WORDS])
    for person in PEOPLE[:2]:
        assert world.texts(person) == ["The answer."]
    again = [person for person in PEOPLE[2:] if world.texts(person) == [WORDS]]
    for person in again:
        world.telegram.say("once more", chat_id=person)
    await eventually(lambda: all(world.texts(person)[-1] == "The answer." for person in again))
    if damage is overwritten:
        assert len(again) < len(PEOPLE) - 2, "nothing of it was read"
    assert await world.process.stop() == 0


@pytest.fixture
async def alone(world: World) -> World:
    """Telegram, and a model that answers by what it was asked last."""
    world.only("telegram")
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.config["queue"] = {"mode": "followup"}
    return world


async def test_what_waited_behind_a_message_that_was_answered_is_told_too(alone: World) -> None:
    gates = {"one": asyncio.Event(), "two": asyncio.Event()}

    def answer(body: Any) -> Any:
        asked = [name for name in gates if f"question {name}" in str(body["messages"])][-1]
        return pause(reply("The answer."), gates[asked])

    alone.model.script(answer)
    await alone.start()
    alone.telegram.say("question one", chat_id=3001)
    await alone.model.until(lambda: len(alone.model.requests) == 1, START_SECONDS)
    alone.telegram.say("question two", chat_id=3001)
    await eventually(lambda: sum(line["role"] == "user" for line in alone.archive()) == 2)
    gates["one"].set()
    await alone.model.until(lambda: len(alone.model.requests) == 2, START_SECONDS)
    await eventually(lambda: alone.archive()[-1]["role"] == "assistant")
    await alone.process.kill()
    gone(alone.root / ".ship" / "journal.db")
    await alone.start()
    await eventually(lambda: alone.texts(3001) == ["The answer.", WORDS])
    assert await alone.process.stop() == 0


async def test_a_loss_is_told_once_over_a_kill_before_it_could_be_and_restarts_after_it(alone: World) -> None:
    alone.config["operators"] = [f"telegram:{OPERATOR}"]
    alone.telegram.chat(OPERATOR)
    gate = asyncio.Event()
    alone.model.script(lambda _: pause(reply("The answer."), gate))
    await alone.start()
    alone.telegram.say("question", chat_id=3001)
    await eventually(lambda: len(alone.archive()) == 1)
    await alone.process.kill()
    path = alone.root / ".ship" / "journal.db"
    gone(path)
    alone.telegram.fail("getMe", action="hang", times=1_000)
    await alone.start(wait=False)
    await eventually(lambda: path.exists() and tables(path) != [])
    await alone.process.kill()
    alone.telegram.faults.clear()
    for _ in range(3):
        await alone.start()
        await eventually(lambda: alone.texts(3001) == [WORDS] and len(alone.texts(OPERATOR)) == 1)
        await alone.sent()
        assert await alone.process.stop() == 0


async def test_a_first_start_has_lost_nothing(alone: World) -> None:
    """What was written to the bot before that is brought with the time of its platform."""
    alone.config["operators"] = [f"telegram:{OPERATOR}"]
    alone.telegram.chat(OPERATOR)
    alone.model.script(lambda _: reply("The answer."))
    alone.telegram.say("question", chat_id=3001, fields={"date": int(time.time()) - 3600})
    await alone.start()
    await eventually(lambda: alone.texts(3001) == ["The answer."])
    await alone.sent()  # or it is said again, marked, as nobody knows whether it arrived
    with closing(sqlite3.connect(alone.root / ".ship" / "journal.db", timeout=5)) as file:
        assert file.execute("SELECT what FROM lost").fetchall() == []  # no later start has to look for it
    await alone.process.kill()
    await alone.start()
    alone.telegram.say("again", chat_id=3001)
    await eventually(lambda: alone.texts(3001) == ["The answer.", "The answer."])
    assert await alone.process.stop() == 0
    assert alone.texts(OPERATOR) == []


def tables(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path, timeout=5)) as file:
        return file.execute("SELECT name FROM sqlite_schema").fetchall()
