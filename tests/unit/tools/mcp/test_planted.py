"""A server runs as ourselves: nothing that a tool or a command has put into the project's folder becomes part of it."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from tests.unit.tools.mcp.conftest import HERE, Start


def plant(place: Path, marker: Path, words: str) -> None:
    place.write_text(words.format(marker=marker), encoding="utf-8")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)


SHELL = "#!/bin/sh\n: > '{marker}'\n"


async def test_no_module_of_the_project_is_imported_by_it(start: Start, tmp_path: Path) -> None:
    root, marker = tmp_path, tmp_path / "planted-code-ran"
    for name in ("anyio.py", "mcp.py", "runpy.py"):
        plant(root / name, marker, "open({marker!r}, 'w')\n".replace("{marker!r}", "r'{marker}'"))
    begin = f"import runpy; runpy.run_path({str(HERE / 'friendly.py')!r}, run_name='__main__')"
    rig = await start(one={"command": sys.executable, "args": ["-c", begin, "."]})
    assert rig.all.sources() == {"one": "8 tools"}
    assert not marker.exists()


async def test_it_is_started_outside_of_the_project_and_of_all_around_it(
    start: Start, tmp_path: Path
) -> None:
    """`npx` and `uvx` look upwards for what they should run."""
    script = "import os, pathlib, sys; pathlib.Path(sys.argv[1], 'where').write_text(os.getcwd())"
    await start(one={"command": sys.executable, "args": ["-c", script, "."]})
    where = Path((tmp_path / "where").read_text(encoding="utf-8"))
    assert not where.is_relative_to(tmp_path)
    assert not where.exists(), "left behind"


@pytest.mark.parametrize("command", ["server", "./server", "{root}/server", "{root}/link"])
async def test_a_program_of_the_project_is_not_started(start: Start, tmp_path: Path, command: str) -> None:
    marker = tmp_path / "planted-code-ran"
    plant(tmp_path / "server", marker, SHELL)
    (tmp_path / "link").symlink_to("server")
    rig = await start(one={"command": command.format(root=tmp_path)})
    assert not marker.exists()
    assert rig["one"].state == "down"
    if command != "server":
        assert "in the project's folder" in rig["one"].trouble


async def test_a_folder_of_the_project_on_the_path_is_left_out(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "planted-code-ran"
    (tmp_path / "bin").mkdir()
    plant(tmp_path / "bin" / "python-of-mine", marker, SHELL)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:bin::/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    script = "import os, pathlib, sys; pathlib.Path(sys.argv[1], 'path').write_text(os.environ['PATH'])"
    rig = await start(
        one={"command": "python-of-mine"},
        two={"command": sys.executable, "args": ["-c", script, "."]},
    )
    assert not marker.exists()
    assert rig["one"].state == "down"
    assert (tmp_path / "path").read_text(encoding="utf-8") == "/usr/bin:/bin"
