"""`.ci/run` with a fake `make`. If one part fails, the whole run fails. The output names each part."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CODE = Path(__file__).parents[2]
PARTS = ("test", "check", "docs", "wheel", "browser")
MAKE = """#!/bin/sh
echo "said by $1"
[ "$1" != "$FAILS" ]
"""


def run(folder: Path, fails: str = "") -> subprocess.CompletedProcess[str]:
    (folder / ".ci").mkdir()
    shutil.copy(CODE / ".ci" / "run", folder / ".ci")
    (folder / "make").write_text(MAKE, encoding="utf-8")
    (folder / "make").chmod(0o755)
    env = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "FAILS": fails, "TMPDIR": str(folder)}
    return subprocess.run([folder / ".ci" / "run"], env=env, capture_output=True, text=True, check=False)


def test_all_parts_are_carried_out_and_shown_one_after_another(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    said = [line for line in done.stdout.splitlines() if line.startswith("said")]
    assert said == [f"said by {part}" for part in (".venv/.dev", *PARTS)]
    assert {one.name for one in tmp_path.iterdir()} == {".ci", "make"}


@pytest.mark.parametrize("part", ["check", "browser"])
def test_what_fails_in_one_part_fails_the_whole_after_all_were_shown(tmp_path: Path, part: str) -> None:
    done = run(tmp_path, part)
    assert done.returncode == 1
    assert done.stderr == f"failed: {part}\n"
    assert all(f"said by {one}\n" in done.stdout for one in PARTS)


def test_nothing_is_tried_where_the_tools_cannot_be_set_up(tmp_path: Path) -> None:
    done = run(tmp_path, ".venv/.dev")
    assert done.returncode
    assert done.stdout == "said by .venv/.dev\n"


FRAMES_READ = """
import sys

read = []
frames = sys._current_frames
sys._current_frames = lambda: read.append(1) or frames()

def one():
    return 1

for _ in range(1_000):
    one()
print(len(read))
"""


def test_coverage_reads_the_frames_of_no_thread_while_tests_run(tmp_path: Path) -> None:
    """Switching the tracer off in another thread sometimes hangs, or raises an error in that thread."""
    makefile = (CODE / "Makefile").read_text()
    threshold = re.findall(r"-m slipcover (--threshold \d+) .* \$\(TESTS\)", makefile)
    (tmp_path / "calls.py").write_text(FRAMES_READ)
    command = [sys.executable, "-m", "slipcover", *threshold[0].split(), "--out", "coverage", "calls.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
