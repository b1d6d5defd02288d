"""An upgrade and the way back: what a start changes is kept, and whose journal it is that does not fit is told in its direction."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.blackbox.conftest import World

SCHEMA = Path(__file__).parents[1] / "corpus" / "journals" / "16" / "schema.sql"


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


async def told(world: World, command: str) -> tuple[int, str]:
    process = await world.process.start(command=(command,), wait=False)
    code = await process.ended()
    return code, "\n".join([*process.lines, process.stderr])


async def test_a_start_keeps_the_journal_of_before_and_the_way_back_is_told_in_its_direction(
    world: World,
) -> None:
    world.only("telegram")
    home = world.root / ".ship"
    home.mkdir()
    journal, copy, older = home / "journal.db", home / "journal.db.version-16", home / "journal.db.version-9"
    older.write_bytes(b"of an upgrade before")
    with closing(sqlite3.connect(journal)) as db:
        db.executescript(SCHEMA.read_text(encoding="utf-8"))
        db.execute("INSERT INTO once VALUES ('kept', 1, 2)")
        db.commit()
    await world.start()
    (said,) = [line for line in world.process.lines if copy.name in line]
    assert f"rm '{copy}'" in said
    assert " kB, " in said
    world.telegram.say("hello")
    await world.turns(1)
    await world.process.stop()
    assert (version_of(copy), version_of(journal), older.exists()) == (16, 17, False)
    assert copy.stat().st_mode & 0o777 == 0o600
    code, said = await told(world, "doctor")
    assert copy.name in said
    await world.process.start()
    assert not any(copy.name in line for line in world.process.lines)
    await world.process.stop()

    with closing(sqlite3.connect(journal)) as db:
        db.execute("PRAGMA user_version = 99")
    for command, ends in (("run", 1), ("check", 0), ("doctor", 78)):
        code, said = await told(world, command)
        assert (command, code) == (command, ends)
        assert "version 99, this Shipmate knows versions up to 17: it was written by a newer one" in said
        assert "to move it away loses messages without an answer" in said
    copy.replace(journal)
    for command in ("check", "doctor"):
        code, said = await told(world, command)
        assert "version 16, this Shipmate's is 17: it was written by an older one" in said
    await world.process.start()
    assert copy.exists()
