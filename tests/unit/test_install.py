"""The installed packages, and conflicts with other installed packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests import wheel

CODE = Path(__file__).parents[2]
PROJECT = tomllib.loads((CODE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PURELIB = sysconfig.get_path("purelib")
IMPORTS = re.compile(r"^\s*(?:import|from(?=[\w. ]+ import )) (\w+)", re.MULTILINE)
ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def imported() -> Iterator[tuple[str, str]]:
    """Return the imported third-party packages, each with the importing files."""
    for folder in ("bot", "channels"):
        for path in (CODE / folder).rglob("*.py"):
            for name in IMPORTS.findall(path.read_text(encoding="utf-8")):
                if name not in {"bot", "channels"} and name not in sys.stdlib_module_names:
                    yield name, str(path.relative_to(CODE))


def named(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_all_that_is_imported_is_declared() -> None:
    always = set(map(named, PROJECT["dependencies"]))
    extras = {name: set(map(named, all_)) for name, all_ in PROJECT["optional-dependencies"].items()}
    of_extras = {
        "bot/tools/mcp/": extras["mcp"],
        "bot/cluster/": extras["cluster"],
        "bot/core/postgres_log.py": extras["cluster"],
        "bot/telemetry/otel.py": extras["otel"],
    }
    of = packages_distributions()
    missing, found = {}, set(imported())
    for package, place in found:
        declared = always.union(*(more for folder, more in of_extras.items() if place.startswith(folder)))
        if not declared.intersection(map(named, of.get(package, [package]))):
            missing[package] = place
    assert missing == {}
    assert len(found) > 50


def test_what_is_pinned_is_what_is_declared() -> None:
    def pinned(name: str) -> set[str]:
        lines = (CODE / "requirements" / name).read_text(encoding="utf-8").splitlines()
        return {line for line in lines if line and not line.startswith(("#", "-r"))}

    backend = {line for line in pinned("runtime.in") if named(line) in {"editables", "hatchling"}}
    extras = dict(PROJECT["optional-dependencies"])
    assert set(extras.pop("otel")) <= pinned("dev.in")
    used = {line for extra in extras.values() for line in extra}
    assert pinned("runtime.in") - backend == {*PROJECT["dependencies"], *used}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.build(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_one_name_and_all_of_the_code(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
        about = archive.read("shipmate-0.2.0.dist-info/METADATA").decode()
    assert "shipmate/py.typed" in names
    for classifier in (
        "Typing :: Typed",
        *(f"Programming Language :: Python :: {one}" for one in wheel.PYTHONS),
    ):
        assert f"Classifier: {classifier}\n" in about
    assert {name.partition("/")[0] for name in names} == {
        "shipmate",
        "shipmate.pth",
        "shipmate-0.2.0.dist-info",
    }
    for folder in ("bot", "channels"):
        code = [
            path for path in (CODE / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts
        ]
        assert {f"shipmate/{path.relative_to(CODE).as_posix()}" for path in code} <= set(names)


@pytest.fixture(scope="module")
def site(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and with other packages named `bot` and `channels`, which end a process that imports
    them.
    """
    env = tmp_path_factory.mktemp("installed") / "env"
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", str(env)], check=True)
    site = next((env / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(built) as archive:
        archive.extractall(site)
    for name in ("bot", "channels"):
        (site / name).mkdir()
        for file in ("__init__", "cli", "slack"):
            (site / name / f"{file}.py").write_text("raise SystemExit('another one')\n", encoding="utf-8")
    early = "import sys, types; sys.modules.update(bot=types.ModuleType('bot'), channels=types.ModuleType('channels'))\n"
    (site / "early.pth").write_text(early, encoding="utf-8")
    # The libraries come from the tests' environment, Shipmate's own modules from the wheel.
    (site / "libraries.pth").write_text(f"{PURELIB}\n", encoding="utf-8")
    return site


def run(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=ENV, cwd=folder, capture_output=True, text=True, check=False)


def test_packages_of_the_same_names_are_not_taken_for_ours(site: Path, tmp_path: Path) -> None:
    """Foreign packages come before and after the wheel on the import path, and a `.pth` file adds modules at each start."""
    start = "import sys, shipmate; print(shipmate.__file__, file=sys.stderr); sys.exit(shipmate.main())"
    python: list[str | Path] = [site.parents[2] / "bin" / "python", "-P", "-c", start]
    done = run(tmp_path, *python, "init", "--yes", "project")
    assert (done.returncode, done.stderr.strip()) == (0, str(site / "shipmate" / "__init__.py")), done.stderr
    assert "api.slack.com" in done.stdout, "a channel was found"
    done = run(tmp_path, *python, "check", "--dir", "project")
    assert (done.returncode, "ship.json is valid" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("planted", ["shipmate.py", "shipmate/__init__.py"])
def test_started_as_a_module_it_is_never_one_of_the_folder(site: Path, tmp_path: Path, planted: str) -> None:
    for name in (planted, "types.py", "typing.py", "bot/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('planted')\n", encoding="utf-8")
    for python in (site.parents[2] / "bin" / "python", sys.executable):
        done = run(tmp_path, python, "-m", "shipmate", "--version")
        assert (done.returncode, done.stdout) == (0, "shipmate 0.2.0\n"), done.stderr


def test_an_editable_install_lets_nothing_else_of_its_folder_be_imported() -> None:
    """An editable install must not make other modules of the source folder importable."""
    code = "import sys, bot, channels; print(*sys.path, sep='\\n'); import tests"
    done = run(Path("/"), sys.executable, "-P", "-c", code)
    assert str(CODE) not in done.stdout.splitlines()
    assert "No module named 'tests'" in done.stderr


@pytest.mark.parametrize("start", [["-m", "bot"], [os.path.join(sys.prefix, "bin", "shipmate")]])  # noqa: PTH118
def test_nothing_is_imported_from_the_folder_in_which_it_is_started(start: list[str], tmp_path: Path) -> None:
    """A library imports `brotli` and `brotlicffi` if they exist. `channels` is a package of Shipmate."""
    for name in ("brotli", "brotlicffi", "channels", "typer", "sitecustomize", "usercustomize", "click"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')\n", encoding="utf-8")
    (tmp_path / "ship.json").write_text('{"channels": {"web": {"port": 0}}}', encoding="utf-8")
    done = run(tmp_path, sys.executable, *start, "check")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_what_installs_is_pinned_and_nothing_old_is_left() -> None:
    pin = (CODE / "requirements" / "pip.txt").read_text(encoding="utf-8")
    assert re.match(r"pip==\d+\.\d+(\.\d+)? \\\n +--hash=sha256:[0-9a-f]{64}", pin)
    done = subprocess.run(
        [sys.executable, "-I", "-m", "pip", "list", "--format=freeze"],
        capture_output=True,
        text=True,
        check=True,
    )
    installed = dict(line.split("==") for line in done.stdout.splitlines() if "==" in line)
    assert installed["pip"] == pin.split()[0].removeprefix("pip==")
    assert "setuptools" not in installed
