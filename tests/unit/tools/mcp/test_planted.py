"""A server has the gateway user's rights, so it never runs files that a tool or command wrote into the project's folder."""

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
    """`npx` and `uvx` search the folders above the current one for programs to run."""
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
        one={"command": "python-of-mine"}, two={"command": sys.executable, "args": ["-c", script, "."]}
    )
    assert not marker.exists()
    assert rig["one"].state == "down"
    assert (tmp_path / "path").read_text(encoding="utf-8") == "/usr/bin:/bin"


@pytest.mark.parametrize(
    "args",
    [
        ["./server.py"],
        ["{root}/server.py"],
        ["-X", "dev", "./package"],
        ["{outside}/begin.py", "./server.py"],
        ["{outside}/begin.py", "--script={root}/server.py"],
        ["{outside}/begin.py", "--script=./server.py"],
        ["{outside}/begin.py", "{root}/not-there-yet.py"],
        ["{outside}/link.py"],
        ["-c", "exec(open('{root}/server.py').read())"],
        ["-m", "package", "./package/__main__.py"],
        ["{outside}/begin.py", "serve", "-C", "{root}"],
        ["{outside}/begin.py", "run", "server", "--prefix", "{root}"],
    ],
    ids=" ".join,
)
async def test_no_file_of_the_project_is_run_by_it(
    start: Start, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, args: list[str]
) -> None:
    outside, marker = tmp_path_factory.mktemp("outside"), tmp_path / "planted-code-ran"
    (tmp_path / "package").mkdir()
    for name in ("server.py", "package/__main__.py"):
        plant(tmp_path / name, marker, "open(r'{marker}', 'w')\n")
    (outside / "begin.py").write_text(
        "import runpy, sys; runpy.run_path(sys.argv[1].partition('=')[2] or sys.argv[1])"
    )
    (outside / "link.py").symlink_to(tmp_path / "server.py")
    words = [one.format(root=tmp_path, outside=outside) for one in args]
    rig = await start(one={"command": sys.executable, "args": words})
    assert not marker.exists()
    assert "in the project's folder" in rig["one"].trouble


@pytest.mark.parametrize(
    "words", ["exec sh ~/{name}/server.sh", "sh $HOME/{name}/server.sh", "sh ${{HOME}}/{name}/server.sh"]
)
async def test_what_a_shell_fills_in_leads_to_no_file_of_the_project(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    marker = tmp_path / "planted-code-ran"
    (tmp_path / "server.sh").write_text(f"touch {marker}\n")
    rig = await start(one={"command": "/bin/sh", "args": ["-c", words.format(name=tmp_path.name)]})
    assert not marker.exists()
    assert "in the project's folder" in rig["one"].trouble


@pytest.mark.parametrize("value", ["{root}", "/nowhere:{root}/package", "{root}/server.py"])
async def test_no_variable_of_it_leads_into_the_project(start: Start, tmp_path: Path, value: str) -> None:
    marker = tmp_path / "planted-code-ran"
    plant(tmp_path / "planted.py", marker, "open(r'{marker}', 'w')\n")
    env = {"PYTHONPATH": value.format(root=tmp_path)}
    rig = await start(one={"command": sys.executable, "args": ["-m", "planted"], "env": env})
    assert not marker.exists()
    assert "in the project's folder" in rig["one"].trouble


async def test_what_stands_in_the_project_is_no_module_of_it(start: Start, tmp_path: Path) -> None:
    marker = tmp_path / "planted-code-ran"
    plant(tmp_path / "planted.py", marker, "open(r'{marker}', 'w')\n")
    rig = await start(one={"command": sys.executable, "args": ["-m", "planted"]})
    assert not marker.exists()
    assert "No module named planted" in rig["one"].trouble


async def test_a_home_in_the_project_is_not_its_own(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python runs files from a folder below the user's home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    script = "import os, pathlib, sys; pathlib.Path(sys.argv[1], 'home').write_text(os.environ['HOME'] + ' ' + os.getcwd())"
    await start(one={"command": sys.executable, "args": ["-c", script, "."]})
    home, folder = (tmp_path / "home").read_text(encoding="utf-8").split()
    assert home == folder
