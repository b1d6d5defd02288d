"""A chat cannot plant code: even if rules allow writing, it cannot write files that Shipmate, Python or `make` would run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bot.testing.anthropic_script import tool_use
from tests.blackbox.conftest import World
from tests.shares import one_in

PROJECT = Path(__file__).parents[2]
TARGETS = (
    "sitecustomize.py",
    "brotli.py",
    "SiteCustomize.py",
    "Makefile",
    "GNUmakefile",
    "requirements/runtime.txt",
    "bot/app.py",
    "channels/slack/adapter.py",
    "tests/conftest.py",
    ".ci/run",
    ".venv/lib/python3.11/site-packages/new.pth",
    "docs/notes.md",
)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Create the relevant part of a clone, with compiled Python files."""
    code = tmp_path / "around" / "code"
    for package in ("bot", "channels"):
        shutil.copytree(PROJECT / package, code / package)
    for name in ("pyproject.toml", "Makefile"):
        shutil.copy(PROJECT / name, code / name)
    (code / "requirements").mkdir()
    (code / "requirements" / "runtime.txt").write_text("pinned\n", encoding="utf-8")
    return code


def state(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    kept = (path for path in files if ".ship" not in path.parts and "__pycache__" not in path.parts)
    return {str(path): path.read_text(encoding="utf-8", errors="replace") for path in kept}


@pytest.mark.parametrize("where", one_in(2, ["to", ".."]))
async def test_where_the_project_is_the_code_nothing_is_written_and_no_command_runs(
    tmp_path: Path, code: Path, where: str
) -> None:
    """The project's folder is a link to the code, or contains it. `tests/unit/tools/test_protected_code.py` tests further
    folders.
    """
    (code.parent.parent / "to").symlink_to(code)
    root = code.parent.parent / "to" if where == "to" else code / where
    prefix = "code/" if where == ".." else ""
    async with World(Path(os.path.normpath(root))) as world:
        world.config["operators"] = ["telegram:1001"]
        world.config["shell"] = {"isolation": "off"}
        tools = ["write_file", "edit_file", "run_shell", "list_dir"]
        world.config["permissions"] = {"allow": [f"@trusted:{name}" for name in tools]}
        calls: list[Any] = [
            tool_use("write_file", {"path": prefix + one, "content": "import os\n"}) for one in TARGETS
        ]
        calls += [tool_use("run_shell", {"command": f"echo planted > '{code / one}'"}) for one in TARGETS]
        edit = {"path": prefix + "Makefile", "old_str": "run: setup", "new_str": "run: setup evil"}
        calls.append(tool_use("edit_file", edit))
        calls.append(tool_use("list_dir", {"path": "."}))
        world.model.answer(*calls)
        world.model.answer("It cannot be done.")
        world.process.env |= {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}
        world.process.fresh = True
        (world.root / "ship.json").write_text("{}", encoding="utf-8")
        before = state(tmp_path)
        await world.start("telegram")
        assert any("tools that write and commands are refused here" in line for line in world.process.lines)
        world.telegram.say("plant it")
        await world.heard("It cannot be done.")
        last = world.model.bodies[-1]["messages"][-1]["content"]
        results = [one for one in last if one["type"] == "tool_result"]
        assert len(results) == 2 * len(TARGETS) + 2
        *refused, listed = results
        for result in refused:
            assert result["is_error"]
            assert "shipmate run --dir DIR" in result["content"] or "outside" in result["content"]
        assert sum("shipmate run --dir DIR" in one["content"] for one in refused) > len(TARGETS)
        assert "is_error" not in listed, "what is there may be read"
        assert await world.process.stop() == 0
        after = state(tmp_path)
        del before[str((root / "ship.json").resolve())], after[str((root / "ship.json").resolve())]
        assert after == before
