"""Measures `shipmate stats`, `trace` and `logs -f` with a million log lines over 30 days: `python -m
tests.bench.bills [LINES]`.

The bench prints wall-clock and CPU seconds for counting the whole log once, for counting only new lines, for
each view of the sums, for the trace of one turn, and for the first of the newest lines. Each command runs in
a process of its own. A process that only prints its version is the comparison.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bot.system import ulid_of

DAYS = 30
CHATS = 500
WORDS = "谈谈那艘船 and what it may cost to paint it again. " * 8


def request_id(day: int, number: int) -> str:
    """Return the id of a turn on that day; the start of the id encodes the time."""
    moment = int(datetime(2027, 1, day, 12, tzinfo=UTC).timestamp() * 1000)
    return f"{ulid_of(moment << 80)[:10]}{number:016}"


def fill(logs: Path, lines: int) -> None:
    """Write the log of turns that each made two model calls and one tool call."""
    for day in range(1, DAYS + 1):
        written = list[str]()
        for number in range(lines // DAYS // 10):
            at = f"2027-01-{day:02}T{number % 24:02}:{number % 60:02}:00.000Z"
            who = {"chatKey": f"telegram:chat:{number * 7 % CHATS}", "requestId": request_id(day, number)}
            person = f"telegram:{number * 7 % CHATS}"
            usage = {
                "inputTokens": 900,
                "outputTokens": 120,
                "cacheReadTokens": 7_000,
                "cacheWriteTokens": 400,
            }
            answer: dict[str, Any] = {
                "model": "claude-sonnet-5-5",
                "purpose": "turn",
                "person": person,
                "usage": usage,
            }
            answer |= {"costUsd": 0.0045, "latencyMs": 700 + number % 900, "messages": [{"text": WORDS}]}
            for kind, details in (
                *(("inbound", {"text": WORDS}), ("turn_start", {}), ("llm_request", {"messages": [WORDS]})),
                *(
                    ("llm_response", answer),
                    ("tool_call", {"input": WORDS}),
                    ("tool_result", {"result": WORDS}),
                ),
                *(("llm_request", {"messages": [WORDS]}), ("llm_response", answer), ("delivery", {})),
                ("turn_end", {"status": "done", "person": person}),
            ):
                line = {"timestamp": at, "kind": kind, "message": "x", "details": details} | who
                written.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")))
        data = "\n".join([*written, ""]).encode()
        if day < DAYS:
            (logs / f"2027-01-{day:02}.jsonl.gz").write_bytes(gzip.compress(data, 1))
        else:
            (logs / f"2027-01-{day:02}.jsonl").write_bytes(data)


def _process(*words: str, lines: int = 0) -> tuple[float, float]:
    """Return the wall-clock and CPU seconds of a command until it ends; with `lines`, until it has printed that many lines."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "bot", *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    _ = [process.stdout.readline() for _ in range(lines)] if lines else process.stdout.read()
    took = time.perf_counter() - began
    if lines:
        process.kill()
    process.stdout.close()
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return took, used.ru_utime + used.ru_stime


def _least(*words: str, lines: int = 0) -> tuple[float, float]:
    wall, processor = zip(*(_process(*words, lines=lines) for _ in range(5)), strict=True)
    return min(wall), min(processor)


def _say(name: str, seconds: tuple[float, float]) -> None:
    sys.stdout.write(f"{name:>16} {seconds[0]:7.3f} s {seconds[1]:7.3f} s of the processor\n")


def main(lines: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder) / ".ship" / "logs"
        logs.mkdir(parents=True)
        fill(logs, lines)
        _say("version", _least("version", "--json"))
        for by in ("", "day", "person", "chat", "model"):
            words = ("stats", "--dir", folder, *(("--by", by) if by else ()))
            _say(f"stats {by}", _least(*words))
        for day in (1, DAYS // 2, DAYS):
            turn = request_id(day, lines // DAYS // 20)
            _say(f"trace, day {day}", _least("trace", turn, "--dir", folder))
        _say("logs -f", _least("logs", "-f", "--dir", folder, lines=1))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
