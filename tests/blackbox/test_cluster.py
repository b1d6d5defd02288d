"""The journal in PostgreSQL, seen from outside."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import postgres
from tests.blackbox.conftest import World

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)
SECRET = "geheim-und-lang"  # it is part of an address; the server asks for none


@pytest.fixture
def clustered(world: World) -> World:
    """A world whose Shipmate has its journal in PostgreSQL."""
    world.only("telegram")
    world.config["engine"] = {"kind": "postgresql", "databaseUrl": "${DATABASE_URL}"}
    world.process.env["DATABASE_URL"] = postgres.shared().journal().replace("@/", f":{SECRET}@/")
    return world


async def shipmate(world: World, *words: str) -> tuple[int, str]:
    """Run a command beside the gateway."""
    command = [sys.executable, "-m", "bot", *words, "--dir", str(world.root)]
    env = {"PATH": "/usr/bin:/bin", **world.process.env}
    folder = Path(__file__).parents[2]
    done = await asyncio.to_thread(
        subprocess.run, command, env=env, cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


async def test_a_turn_that_was_killed_goes_on_from_the_database(clustered: World) -> None:
    world, gate = clustered, asyncio.Event()
    await world.start()
    world.telegram.say("hello")
    await world.telegram.until(lambda: len(world.texts()) == 1)
    await world.turns(1)

    async def slow(_: Any) -> str:
        await gate.wait()
        return "too late"

    world.model.script(slow)
    world.telegram.say("do not lose me")
    await world.model.until(lambda: len(world.model.requests) == 2)
    await world.process.kill()
    gate.set()
    world.model.script(lambda _: "I have you.")
    await world.start()
    await world.telegram.until(lambda: len(world.texts()) == 2)
    await world.turns(2)
    assert world.texts()[1] == "I have you."
    code, told = await shipmate(world, "doctor")
    assert (code, "wrong  database: fsync or full_page_writes is off" in told) == (78, True)
    request_id = next(line["requestId"] for line in world.log() if line["kind"] == "turn_end")
    assert "journal" in (await shipmate(world, "trace", request_id, "--full"))[1]
    code, told = await shipmate(world, "backup", str(world.root.parent / "kept.tar"))
    assert (
        code,
        "the journal of this Shipmate is in PostgreSQL: write that to a file with pg_dump" in told,
    ) == (
        1,
        True,
    )
    assert not (world.root / ".ship" / "journal.db").exists()
    assert SECRET.encode() not in world.everything_on_disk()
