"""A log that is damaged or gone at a start, or of a later version."""

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


@pytest.mark.parametrize("damage", [gone, overwritten])
async def test_the_archive_stays_people_are_answered_and_operators_are_told_once(
    world: World, damage: Callable[[Path], None]
) -> None:
    world.only("telegram")
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.config["operators"] = [f"telegram:{OPERATOR}"]
    world.telegram.chat(OPERATOR)
    world.model.script(lambda _: "The answer.")
    await world.start()
    for words in ("one", "two"):
        world.telegram.say(words, chat_id=3001)
        await eventually(
            lambda: len(world.archive()) in {2, 4} and world.archive()[-1]["role"] == "assistant"
        )
    await eventually(lambda: len(world.archive()) == 4)
    assert await world.process.stop() == 0
    before = world.archive()
    damage(world.root / ".ship" / "shipmate.db")
    for life in (1, 2):
        await world.start()
        await eventually(lambda: len(world.texts(OPERATOR)) == 1)
        assert world.archive()[:4] == before
        world.telegram.say("three", chat_id=3001)
        await eventually(lambda life=life: len(world.archive()) == 4 + 2 * life)
        await world.sent()
        assert await world.process.stop() == 0
    assert world.texts(OPERATOR)[0].startswith("⚠️ The journal was ")


async def test_one_of_a_later_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "ship.json").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / ".ship").mkdir(mode=0o700)
    path = tmp_path / ".ship" / "shipmate.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE events (id TEXT)")
        db.execute("PRAGMA user_version = 10000")
    ended, out, said = await quick.run("run", "--dir", str(tmp_path))
    assert ended == 1, said
    assert "the log has version 10000, " in out.decode() + said
    assert not list(path.parent.glob("*.corrupt-*"))
