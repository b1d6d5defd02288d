"""A journal that another version has written: refused by every command that needs it, which says what to do, and left as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests import quick

SETTINGS = '{"llm": {"provider": "demo"}, "channels": {"web": {"port": 0}}, "dashboard": {"enabled": false}}'
NEWER, OLDER = (
    "newer one; run that, or put journal.db.version-17 in its place",
    "unreleased earlier version; move journal.db away",
)


@pytest.mark.parametrize(("version", "told"), [(10_000, NEWER), (12, OLDER)])
@pytest.mark.parametrize(("command", "code"), [("run", 1), ("check", 1), ("doctor", 78)])
async def test_it_is_refused_in_the_right_direction(
    version: int, told: str, command: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "ship.json").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / ".ship").mkdir(mode=0o700)
    journal = tmp_path / ".ship" / "journal.db"
    with closing(sqlite3.connect(journal)) as db:
        db.execute("CREATE TABLE inbox (request_id TEXT PRIMARY KEY)")
        db.execute(f"PRAGMA user_version = {version}")
    ended, out, said = await quick.run(command, "--dir", str(tmp_path))
    assert ended == code, said
    assert f"the journal has version {version}, " in out.decode() + said
    assert told in out.decode() + said
    with closing(sqlite3.connect(journal)) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone() == (1,)
    assert not list(journal.parent.glob("*.corrupt-*"))
