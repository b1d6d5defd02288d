"""Starts with a log that is damaged, missing, or of a later version."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests import quick
from tests.blackbox.conftest import World, eventually

OPERATOR = 9001
SETTINGS = '{"llm": {"provider": "demo"}, "channels": {"web": {"port": 0}}, "dashboard": {"enabled": false}}'


def gone(path: Path) -> None:
    path.unlink()


def overwritten(path: Path) -> None:
    path.write_bytes(b"\xa5" * 20_000)


def torn(path: Path) -> None:
    """Damage the last rows of the table of events."""
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(data.rindex(b"The answer.") // 4096 * 4096)
        file.write(b"\xa5" * 4096)


def events(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as db:
        return {name for (name,) in db.execute("SELECT id FROM events")}


def said(world: World) -> int:
    """Count people's messages in the archive. If the log is torn, the last message may be answered again, together with the next
    one.
    """
    return sum(line["role"] == "user" for line in world.archive())


@pytest.mark.parametrize("damage", [gone, overwritten, torn])
async def test_the_archive_stays_people_are_answered_and_operators_are_told_once(
    world: World, damage: Callable[[Path], None]
) -> None:
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.config["operators"] = [f"telegram:{OPERATOR}"]
    world.telegram.chat(OPERATOR)
    world.model.script(lambda _: "The answer.")
    await world.start("telegram")
    for words in ("one " * 500, "two " * 500):
        world.telegram.say(words, chat_id=3001)
        await eventually(
            lambda: len(world.archive()) in {2, 4} and world.archive()[-1]["role"] == "assistant"
        )
    await eventually(lambda: len(world.archive()) == 4)
    assert await world.process.stop() == 0
    before = world.archive()
    path = world.root / ".ship" / "shipmate.db"
    ids = events(path)
    damage(path)
    for life in (1, 2):
        await world.start()
        await eventually(lambda: len(world.texts(OPERATOR)) == 1)
        assert world.archive()[:4] == before
        world.telegram.say("three", chat_id=3001)
        heard = 2 + life
        await eventually(lambda: said(world) == heard and world.archive()[-1]["role"] == "assistant")  # noqa: B023 - awaited here
        await world.sent()
        assert await world.process.stop() == 0
    assert world.texts(OPERATOR)[0].startswith("⚠️ The chat log was ")
    if damage is torn:
        assert set() < ids & events(path) < ids


@pytest.mark.parametrize(("command", "code"), [("run", 1), ("check", 1), ("doctor", 78)])
async def test_one_of_a_later_version_is_refused_and_left_as_it_is(
    command: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "ship.json").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / ".ship").mkdir(mode=0o700)
    path = tmp_path / ".ship" / "shipmate.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE events (id TEXT)")
        db.execute("PRAGMA user_version = 10000")
    ended, out, said = await quick.run(command, "--dir", str(tmp_path))
    assert ended == code, said
    assert "the log has version 10000, " in out.decode() + said
    assert not list(path.parent.glob("*.corrupt-*"))
