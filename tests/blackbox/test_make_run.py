"""`make run`: a project's folder beside the clone, settings and secrets where they are edited, and nothing of before is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.testing import telegram_service
from bot.testing.telegram import TelegramServer
from tests.blackbox.conftest import START_SECONDS

CODE = Path(__file__).parents[2]
SHIPMATE = f"""#!/bin/sh
PYTHONPATH={CODE} PYTHONSAFEPATH=1 exec {sys.executable} -m bot "$@"
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone that is set up, as far as `make` looks: what is run stands in its `.venv`."""
    clone = tmp_path / "ship mate"
    programs = clone / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "hatch_build.py", "ship.json", "Agent.md", ".env.example"):
        shutil.copy(CODE / name, clone / name)
    for name in ("requirements", "bot/launch", ".ship/schema"):
        shutil.copytree(CODE / name, clone / name)
    shutil.copy(CODE / ".ship" / ".gitignore", clone / ".ship" / ".gitignore")
    (programs / "python").symlink_to(sys.executable)
    (programs / "shipmate").write_text(SHIPMATE, encoding="utf-8")
    (programs / "shipmate").chmod(0o755)
    (clone / ".venv" / ".created").write_text(f"{clone}\n", encoding="utf-8")
    for stamp in (".pip", ".runtime", ".project"):
        (clone / ".venv" / stamp).touch()
    config = json.loads((clone / "ship.json").read_text(encoding="utf-8"))
    config["channels"]["web"] = {"port": 0}
    config["dashboard"] = {"port": 0}
    (clone / "ship.json").write_text(json.dumps(config), encoding="utf-8")
    return clone


@dataclass(frozen=True)
class Made:
    lines: list[str]
    code: int


async def make(clone: Path, home: Path | None, *words: str) -> Made:
    """Run `make run` until it is ready, and end what it started."""
    env = {name: value for name, value in os.environ.items() if "TOKEN" not in name and "KEY" not in name}
    process = await asyncio.create_subprocess_exec(
        "make",
        "run",
        *words,
        cwd=clone,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    lines: list[str] = []
    async with asyncio.timeout(START_SECONDS), _ended(process):
        assert process.stdout is not None
        async for line in process.stdout:
            lines.append(line.decode().rstrip("\n"))
            if line.startswith(b"ready ") and home is not None:
                os.kill(int((home / ".ship" / "pid").read_text(encoding="ascii")), signal.SIGTERM)
        return Made(lines, await process.wait())


@contextlib.asynccontextmanager
async def _ended(process: asyncio.subprocess.Process) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()


async def test_a_fresh_clone_gets_a_folder_beside_it_and_is_read_from_all_the_same(clone: Path) -> None:
    home = clone.with_name("shipmate-project")
    first = await make(clone, home)
    assert (first.code, any(line.startswith("ready ") for line in first.lines)) == (0, True), first.lines
    assert any(line.endswith(f"--dir {home}") for line in first.lines)
    assert not any("refused here" in line for line in first.lines)
    assert (home / "Agent.md").is_file()
    assert any((home / ".ship").glob("*.db"))
    assert sorted(path.name for path in (clone / ".ship").iterdir()) == [".gitignore", "schema"]
    # As the README says: tokens into `.env`, and the same command connects; settings are edited where they are found.
    async with contextlib.AsyncExitStack() as around:
        telegram = TelegramServer()
        await telegram.start()
        around.push_async_callback(telegram.stop)
        config = json.loads((clone / "ship.json").read_text(encoding="utf-8"))
        config["channels"]["telegram"]["baseUrl"] = telegram.url
        (clone / "ship.json").write_text(json.dumps(config), encoding="utf-8")
        (clone / ".env").write_text(f"TELEGRAM_BOT_TOKEN={telegram_service.TEST_TOKEN}\n", encoding="utf-8")
        second = await make(clone, home)
    assert (second.code, any(line.startswith("ready ") and "telegram" in line for line in second.lines)) == (
        0,
        True,
    ), second.lines


async def test_a_command_that_was_given_in_the_clone_does_not_make_it_the_projects_folder(
    clone: Path,
) -> None:
    for words in (("stats",), ("allow", "telegram", "5"), ("export", "telegram:5")):
        given = await asyncio.create_subprocess_exec(
            clone / ".venv" / "bin" / "shipmate", *words, cwd=clone, stderr=asyncio.subprocess.PIPE
        )
        _, said = await given.communicate()
        assert f"No gateway has run in {clone} yet; --dir names another folder." in said.decode(), words
    made = await make(clone, clone.with_name("shipmate-project"))
    assert made.code == 0
    assert not any("Going on in this folder" in line for line in made.lines), made.lines


async def test_a_clone_that_was_talked_to_goes_on_with_all_that_it_has(clone: Path) -> None:
    (clone / ".ship" / "chats").mkdir()
    kept = clone / ".ship" / "chats" / "web%3Achat%3A1.jsonl"
    kept.write_text("", encoding="utf-8")
    made = await make(clone, clone)
    assert made.code == 0
    assert any("Going on in this folder" in line for line in made.lines)
    assert kept.is_file()
    assert not clone.with_name("shipmate-project").exists()


async def test_a_folder_may_be_named_and_one_of_others_is_not_taken(clone: Path) -> None:
    beside = clone.with_name("shipmate-project")
    beside.mkdir()
    (beside / "thesis.txt").write_text("mine", encoding="utf-8")
    refused = await make(clone, None)
    assert refused.code != 0
    assert any("make run DIR=" in line for line in refused.lines)
    assert [path.name for path in beside.iterdir()] == ["thesis.txt"]
    own = clone.with_name("own")
    own.mkdir()
    (own / "ship.json").write_text(
        '{"channels": {"web": {"port": 0}}, "dashboard": {"enabled": false}}', encoding="utf-8"
    )
    named = await make(clone, own, f"DIR={own}")
    assert (named.code, any(line.startswith("ready ") for line in named.lines)) == (0, True), named.lines
    assert not (own / "ship.json").is_symlink()
    assert not any("is not read" in line for line in named.lines)
    (clone / ".env").write_text("SLACK_BOT_TOKEN=\n", encoding="utf-8")
    (own / ".env").unlink(missing_ok=True)
    (own / ".env").write_text("", encoding="utf-8")
    again = await make(clone, own, f"DIR={own}")
    assert f"Tokens and keys come from {own}/.env; the .env in this folder is not read." in again.lines
