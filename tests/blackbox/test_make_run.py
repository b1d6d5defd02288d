"""`make run` uses a project folder beside the clone, reads edited settings and secrets, and loses no older data."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from bot.testing import telegram_service
from bot.testing.telegram import TelegramServer
from tests import quick
from tests.blackbox.conftest import START_SECONDS

CODE = Path(__file__).parents[2]
REAL = f"""#!/bin/sh
PYTHONPATH={CODE} PYTHONSAFEPATH=1 exec {sys.executable} -m bot "$@"
"""
STUB = '#!/bin/sh\necho "ready $3"\n'
"""Fake of `shipmate run --dir DIR` that prints the folder."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Create a clone that `make` considers set up, with a fake program in `.venv`."""
    clone = tmp_path / "ship mate"
    programs = clone / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "hatch_build.py", "ship.json", "Agent.md", ".env.example"):
        shutil.copy(CODE / name, clone / name)
    for name in ("requirements", "bot/launch"):
        shutil.copytree(CODE / name, clone / name)
    (clone / ".ship").mkdir()
    shutil.copy(CODE / ".ship" / ".gitignore", clone / ".ship" / ".gitignore")
    (programs / "python").symlink_to(sys.executable)
    (programs / "shipmate").write_text(STUB, encoding="utf-8")
    (programs / "shipmate").chmod(0o755)
    (clone / ".venv" / ".created").write_text(f"{clone}\n", encoding="utf-8")
    for stamp in (".pip", ".runtime", ".project"):
        (clone / ".venv" / stamp).touch()
    config = json.loads((clone / "ship.json").read_text(encoding="utf-8"))
    config["channels"]["web"] = {"port": 0}
    config["dashboard"] = {"port": 0}
    (clone / "ship.json").write_text(json.dumps(config), encoding="utf-8")
    return clone


async def make(clone: Path, *words: str) -> tuple[list[str], int]:
    """Run `make run`, stop it when it is ready, and return its lines and its exit code."""
    env = {name: value for name, value in os.environ.items() if "TOKEN" not in name and "KEY" not in name}
    env.pop("MAKELEVEL", None)  # under `make test`, make would print the folders that it enters and leaves
    env.pop("MAKEFLAGS", None)
    process = await asyncio.create_subprocess_exec(
        *("make", "run", *words),
        cwd=clone,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    lines: list[str] = []
    try:
        async with asyncio.timeout(START_SECONDS):
            assert process.stdout is not None
            async for line in process.stdout:
                lines.append(line.decode().rstrip("\n"))
                if (
                    line.startswith(b"ready ")
                    and (pid := clone.parent / "shipmate-project/.ship/pid").exists()
                ):
                    os.kill(int(pid.read_text(encoding="ascii")), signal.SIGTERM)
            return lines, await process.wait()
    finally:
        if process.returncode is None:
            process.kill()


async def test_a_fresh_clone_gets_a_folder_beside_it_and_is_read_from_all_the_same(clone: Path) -> None:
    """As in the README, tokens are written into `.env` of the clone, and the same command connects. Settings are edited in
    the clone too.
    """
    home = clone.with_name("shipmate-project")
    (clone / ".venv" / "bin" / "shipmate").write_text(REAL, encoding="utf-8")
    async with TelegramServer() as telegram:
        config = json.loads((clone / "ship.json").read_text(encoding="utf-8"))
        config["channels"]["telegram"]["baseUrl"] = telegram.url
        (clone / "ship.json").write_text(json.dumps(config), encoding="utf-8")
        (clone / ".env").write_text(f"TELEGRAM_BOT_TOKEN={telegram_service.TEST_TOKEN}\n", encoding="utf-8")
        lines, code = await make(clone)
    assert (code, any(line.startswith("ready ") and "telegram" in line for line in lines)) == (0, True), lines
    assert any(line.endswith(f"--dir {home}") for line in lines)
    assert not any("refused here" in line for line in lines)
    assert (home / "Agent.md").is_file()
    assert any((home / ".ship").glob("*.db"))
    assert sorted(path.name for path in (clone / ".ship").iterdir()) == [".gitignore"]


async def test_a_command_that_was_given_in_the_clone_does_not_make_it_the_projects_folder(
    clone: Path,
) -> None:
    for words in (("stats",), ("allow", "telegram", "5"), ("export", "telegram:5")):
        _, _, said = await quick.run(*words, "--dir", str(clone))
        assert f"No gateway has run in {clone} yet; --dir names another folder." in said, words
    lines, code = await make(clone)
    assert (code, lines[-1]) == (0, f"ready {clone.with_name('shipmate-project')}")
    assert not any("Going on in this folder" in line for line in lines), lines


async def test_a_clone_that_was_talked_to_goes_on_with_all_that_it_has(clone: Path) -> None:
    (clone / ".ship" / "chats").mkdir()
    lines, code = await make(clone)
    assert (code, lines[-1]) == (0, "ready .")
    assert any("Going on in this folder" in line for line in lines)
    assert not clone.with_name("shipmate-project").exists()


async def test_a_folder_may_be_named_and_one_of_others_is_not_taken(clone: Path) -> None:
    beside = clone.with_name("shipmate-project")
    beside.mkdir()
    (beside / "thesis.txt").write_text("mine", encoding="utf-8")
    lines, code = await make(clone)
    assert code != 0
    assert any("make run DIR=" in line for line in lines)
    assert [path.name for path in beside.iterdir()] == ["thesis.txt"]
    own = clone.with_name("own")
    own.mkdir()
    (own / "ship.json").write_text("{}", encoding="utf-8")
    lines, code = await make(clone, f"DIR={own}")
    assert (code, lines[-1]) == (0, f"ready {own}")
    assert not (own / "ship.json").is_symlink()
    assert not any("is not read" in line for line in lines)
    (clone / ".env").write_text("SLACK_BOT_TOKEN=\n", encoding="utf-8")
    (own / ".env").unlink(missing_ok=True)
    (own / ".env").write_text("", encoding="utf-8")
    lines, _ = await make(clone, f"DIR={own}")
    assert f"Tokens and keys come from {own}/.env; the .env in this folder is not read." in lines
