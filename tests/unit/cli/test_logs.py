from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.cli import logs

from .conftest import ENV, Shipmate


def line(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"{number:026}",
        "timestamp": f"2027-01-15T12:00:{number:02}.000Z",
        "type": "info",
        "level": "info",
        "kind": "inbound",
        "message": f"line {number}",
        "details": {},
        **fields,
    }


LINES = [
    line(0, level="debug"),
    line(1, chatKey="web:chat:1", requestId="A"),
    line(2, chatKey="web:chat:1", requestId="B", step=3, duration=1.5, details={"text": "你好 \x9b31m"}),
    line(3, level="warn", chatKey="slack:chat:C1"),
    line(4, level="action"),
    line(5, level="error", message="broken\n\x1b[2Jscreen"),
]


@pytest.fixture
def folder(project: Path) -> Path:
    logs = project / ".ship" / "logs"
    logs.mkdir()
    early = line(9, timestamp="2027-01-14T23:59:59.999Z", message="yesterday")
    (logs / "2027-01-14.jsonl").write_text(json.dumps(early) + "\n")
    (logs / "2027-01-15.jsonl").write_text("".join(json.dumps(item) + "\n" for item in LINES[:3]))
    torn = '\n{"torn": \n[]\n'
    rest = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in LINES[3:])
    (logs / "2027-01-15.2.jsonl").write_text(rest + torn)
    return project


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        ((), ["yesterday", "line 0", "line 1", "line 2", "line 3", "line 4", "broken\n\x1b[2Jscreen"]),
        (("--chat", "web:chat:1"), ["line 1", "line 2"]),
        (("--request", "B"), ["line 2"]),
        (("--level", "warn"), ["line 3", "broken\n\x1b[2Jscreen"]),
        (("--level", "action"), ["line 3", "line 4", "broken\n\x1b[2Jscreen"]),
        (("--since", "2027-01-15T13:00:04+01:00"), ["line 4", "broken\n\x1b[2Jscreen"]),
        (("--since", "2027-01-15T12:00:02", "--chat", "web:chat:1"), ["line 2"]),
    ],
)
def test_lines_are_filtered(
    shipmate: Shipmate, folder: Path, words: tuple[str, ...], messages: list[str]
) -> None:
    done = shipmate("logs", "--dir", folder, "--json", *words)
    assert done.code == 0
    assert [item["message"] for item in done.lines] == messages


def test_a_person_reads_one_safe_line_each(shipmate: Shipmate, folder: Path) -> None:
    done = shipmate("logs", "--dir", folder)
    shown = done.out.splitlines()
    assert len(shown) == 7
    assert shown[3] == (
        '2027-01-15T12:00:02.000Z INFO   inbound: line 2 [web:chat:1 B step 3 1.5 ms] {"text": "你好 "}'
    )
    assert shown[6] == "2027-01-15T12:00:05.000Z ERROR  inbound: broken screen"
    assert done.err == "2 lines cannot be read and were left out.\n"


def test_a_time_may_be_how_long_ago(shipmate: Shipmate, folder: Path) -> None:
    (folder / ".ship" / "logs" / "2027-01-15.jsonl").unlink()
    stamp = (
        datetime.fromtimestamp(time.time() - 600, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
    path = folder / ".ship" / "logs" / f"{stamp[:10]}.jsonl"
    path.write_text(json.dumps(line(1, timestamp=stamp, message="ten minutes ago")) + "\n")

    def shown(since: str) -> bool:
        done = shipmate("logs", "--dir", folder, "--json", "--since", since)
        return any(item["message"] == "ten minutes ago" for item in done.lines)

    assert shown("11m")
    assert shown("1h")
    assert not shown("9m")
    assert not shown("5s")


@pytest.mark.parametrize("words", [("--level", "loud"), ("--since", "soon"), ("--since", "999999w")])
def test_filters_that_cannot_be_are_wrong_usage(
    shipmate: Shipmate, folder: Path, words: tuple[str, str]
) -> None:
    assert shipmate("logs", "--dir", folder, *words).code == 2


def test_no_log_is_no_error(shipmate: Shipmate, project: Path) -> None:
    done = shipmate("logs", "--dir", project)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_following_shows_lines_as_they_come(folder: Path) -> None:
    today = folder / ".ship" / "logs" / "2027-01-15.2.jsonl"
    with subprocess.Popen(
        [sys.executable, "-m", "bot", "logs", "-f", "--json", "--level", "error", "--dir", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=ENV,
    ) as running:
        assert running.stdout is not None
        assert "broken" in running.stdout.readline()
        whole = json.dumps(line(6, level="error", message="new"))
        with today.open("a") as file:
            file.write(whole[:20])
            file.flush()
            file.write(whole[20:] + "\n")
        assert json.loads(running.stdout.readline())["message"] == "new"
        tomorrow = line(7, level="error", timestamp="2027-01-16T00:00:00.000Z", message="a new day")
        (today.parent / "2027-01-16.jsonl").write_text(json.dumps(tomorrow) + "\n")
        assert json.loads(running.stdout.readline())["message"] == "a new day"
        running.send_signal(signal.SIGINT)
        try:
            assert running.wait(10) == 0
        finally:
            running.kill()  # who has started the tests may have them ignore what a terminal sends


def test_half_a_line_waits_for_its_other_half(folder: Path) -> None:
    path = folder / ".ship" / "logs" / "2027-01-16.jsonl"
    reader = logs.LogReader(path.parent)
    assert len(list(reader.lines())) == 7
    whole = json.dumps(line(1, message="whole"))
    path.write_text(whole[:20])
    assert list(reader.lines()) == []
    path.write_text(whole + "\n")
    assert [found["message"] for _, found in reader.lines()] == ["whole"]
    assert list(reader.lines()) == []


def test_following_begins_with_the_newest_lines(folder: Path, shipmate: Shipmate, monkeypatch: Any) -> None:
    monkeypatch.setattr(logs, "FOLLOW_FROM", 2)

    async def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(logs, "_follow", interrupted)
    done = shipmate("logs", "-f", "--dir", folder, "--json")
    assert done.code == 0
    assert len(done.lines) == 2
