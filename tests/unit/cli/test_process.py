"""Tests of the command line as a process: signals, pipes, streams and encodings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from .conftest import ENV, Shipmate, process

SLOW_IMPORT = """
import sys
print("importing", flush=True)
sys.stdin.read()
"""


def test_a_command_that_is_interrupted_while_it_imports_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(SLOW_IMPORT, encoding="ascii")
    with subprocess.Popen(
        [sys.executable, "-m", "bot", "logs"],
        env={**ENV, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "importing\n"
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=90)
    assert (started.returncode, said) == (130, "")


def log_lines(project: Path, count: int, message: str = "hello") -> None:
    logs = project / ".ship" / "logs"
    logs.mkdir()
    line = {"id": "x", "timestamp": "2026-11-20T10:00:00.000Z", "level": "info", "kind": "k"}
    text = json.dumps({**line, "message": message}, ensure_ascii=False) + "\n"
    (logs / "2026-11-20.jsonl").write_text(text * count, encoding="utf-8")


def test_a_reader_that_leaves_early_is_no_failure(project: Path) -> None:
    log_lines(project, 5_000)
    with subprocess.Popen(
        [sys.executable, "-m", "bot", "logs", "--dir", str(project)],
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert b"hello" in reading.stdout.readline()
        reading.stdout.close()
        assert reading.stderr.read() == b""
    assert reading.returncode == 0


def test_json_stays_json_where_the_output_is_not_utf_8(project: Path) -> None:
    log_lines(project, 1, "Grüße 你好 👩‍👩‍👧")
    done = process("logs", "--json", "--dir", project, env={"PYTHONIOENCODING": "ascii"})
    assert done.lines[0]["message"] == "Grüße 你好 👩‍👩‍👧"


def test_a_command_without_an_output_still_does_its_work(project: Path) -> None:
    command = f"exec {sys.executable} -m bot allow telegram 12345 --dir {project} >&- 2>&-"
    done = subprocess.run(
        ["/bin/sh", "-c", command], env={**ENV, "PATH": os.defpath}, timeout=60, check=False
    )
    assert done.returncode == 0
    assert "12345" in (project / ".ship" / "access.json").read_text(encoding="utf-8")


def test_a_group_is_let_in_although_its_id_begins_with_a_minus(shipmate: Shipmate, project: Path) -> None:
    assert shipmate("allow", "telegram", "-1001234567890", "--dir", project).code == 0
    assert shipmate("block", "telegram", "-1001234567891", "--dir", project).code == 0
    assert shipmate("allow", "telegram", "-x", "--dir", project).code == 2
