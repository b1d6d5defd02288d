from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import os, pytest

@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("own")

@pytest.mark.parametrize("number", range(9))
def test_one(number, folder):
    print("said", number)
    (folder / str(number)).touch(exist_ok=False)
    assert number != 3
"""
SHARED = """
import os, pytest

pytestmark = pytest.mark.together

@pytest.fixture(scope="module")
def made(pytestconfig):
    with (pytestconfig.rootpath / "made").open("a") as file:
        print(os.getpid(), file=file)

@pytest.mark.parametrize("number", range(9))
def test_one(number, made):
    pass
"""
DEADLY = """
def test_last():
    os._exit(7)
"""


def run(folder: Path, content: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(content, encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.workers",
            "--workers",
            "2",
            "-c",
            os.devnull,
            "--rootdir",
            folder,
            folder,
        ],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_DEBUG_TEMPROOT": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_every_test_runs_once_and_what_fails_is_shown(tmp_path: Path) -> None:
    code, out = run(tmp_path, TESTS)
    assert code == 1
    assert "1 failed, 8 passed" in out
    assert "assert 3 != 3" in out
    assert "test_it.py::test_one[3]" in out
    assert "Captured stdout call" in out
    assert out.count("\nsaid ") == 1


def test_a_module_whose_tests_stay_together_makes_its_own_once(tmp_path: Path) -> None:
    code, out = run(tmp_path, SHARED)
    assert code == 0, out
    assert "9 passed" in out
    assert len((tmp_path / "made").read_text().splitlines()) == 1


def test_a_worker_that_dies_fails_the_run_and_its_test_is_named(tmp_path: Path) -> None:
    code, out = run(tmp_path, TESTS + DEADLY)
    assert code == 1
    assert "a worker ended with 7 in test_it.py::test_last" in out
