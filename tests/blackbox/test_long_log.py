"""Operators' commands are fast with a log of a million lines over thirty days. The measure is CPU time."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bench.bills import DAYS, request_id
from tests.usage_rows import Row, used, write

pytestmark = [pytest.mark.together, pytest.mark.torture]

LINES = 1_000_000
STATS = 2.5
MOST = 3.5
"""Max CPU time, as a multiple of an idle command's CPU time in the same run, since the machine's speed varies."""
IDLE = ("version", "--json")
"""With `--json`, the command imports the same parser as the measured commands."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    many = LINES // DAYS
    root = tmp_path_factory.mktemp("long")
    (root / "ship.json").write_text("{}", encoding="utf-8")
    logs = root / ".ship" / "logs"
    logs.mkdir(parents=True)
    fields = {"id": "0" * 26, "type": "info", "level": "info", "kind": "tool_result", "requestId": "0" * 26}
    details = {"tool": "read_file", "result": "谈谈那艘船 and what it may cost to paint it again. " * 4}
    for day in range(1, DAYS + 1):
        fields["timestamp"] = f"2027-01-{day:02}T12:00:00.000Z"
        usual = json.dumps(fields | {"message": "read", "details": details}, ensure_ascii=False)
        of_turn = json.dumps(
            fields | {"message": f"turn of day {day}", "requestId": request_id(day, 1), "details": {}}
        )
        half = f"{usual}\n".encode() * (many // 2)
        write(root / ".ship", answers(day, many // 10))
        data = half + of_turn.encode() + b"\n" + half
        if day < DAYS:
            (logs / f"2027-01-{day:02}.jsonl.gz").write_bytes(gzip.compress(data, 1))
        else:
            (logs / f"2027-01-{day:02}.jsonl").write_bytes(data)
    return root


def answers(day: int, many: int) -> Iterator[Row]:
    """Yield answers of the model. Each differs from the previous one in hour, chat and person."""
    begin = datetime(2027, 1, day, tzinfo=UTC).timestamp()
    for number in range(many):
        at = begin + number % 24 * 3_600
        yield used(f"telegram:chat:{number * 7 % 500}", at, f"telegram:{number % 500}", 0.004)


def cpu(root: Path, *words: str, lines: int = 0) -> tuple[float, str]:
    """Return the CPU seconds of a command and its output. With `lines`, stop the command after that many lines."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bot", *words, *(("--dir", str(root)) if words[0] != "version" else ())],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    told = "".join(process.stdout.readline() for _ in range(lines)) if lines else process.stdout.read()
    if lines:
        process.kill()
    process.stdout.close()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in {0, -9}, told
    return used.ru_utime + used.ru_stime, told


def within(most: float, root: Path, *words: str, lines: int = 0) -> str:
    """Return the output of a command that needs at most `most` times the CPU time of an idle command. One of three tries
    must succeed, because other work on the machine only makes a try slower.
    """
    ratios = list[float]()
    for _ in range(3):
        (idle, _), (took, told) = cpu(root, *IDLE), cpu(root, *words, lines=lines)
        ratios.append(took / idle)
        if ratios[-1] < most:
            return told
    raise AssertionError(words, ratios)


@pytest.mark.parametrize("day", [1, 15, DAYS])
def test_a_turn_of_any_day_is_traced_at_once(project: Path, day: int) -> None:
    assert f"turn of day {day}" in within(MOST, project, "trace", request_id(day, 1))


def test_the_first_of_the_newest_lines_comes_at_once(project: Path) -> None:
    assert "2027-01-30" in within(MOST, project, "logs", "-f", lines=1)


@pytest.mark.parametrize("by", ["day", "person", "chat", "model"])
def test_each_view_of_what_was_spent_comes_at_once(project: Path, by: str) -> None:
    assert "$" in within(STATS, project, "stats", "--by", by)
