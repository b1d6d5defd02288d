from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.cli.common import moment
from bot.system import SystemDisk, ulid_of
from bot.telemetry import log_reader
from bot.telemetry.log_reader import LineFilter, LogReader, day_of

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
        (("--chat", "web:chat:nowhere"), []),
    ],
)
def test_lines_are_filtered(
    shipmate: Shipmate, folder: Path, words: tuple[str, ...], messages: list[str]
) -> None:
    done = shipmate("logs", "--dir", folder, "--json", *words)
    assert done.code == 0
    assert [item["message"] for item in done.lines] == messages
    assert ("The log has no line of web:chat:nowhere." in done.err) == ("web:chat:nowhere" in words)


@pytest.mark.parametrize(
    ("words", "seconds"), [("90s", 90), ("15m", 900), ("2 h", 7_200), ("3d", 259_200), ("1w", 604_800)]
)
def test_a_time_may_be_how_long_ago(words: str, seconds: int) -> None:
    assert time.time() - moment(words).timestamp() == pytest.approx(seconds, abs=5)


def test_a_person_reads_one_safe_line_each(shipmate: Shipmate, folder: Path) -> None:
    done = shipmate("logs", "--dir", folder)
    shown = done.out.splitlines()
    assert len(shown) == 7
    assert shown[3] == (
        '2027-01-15T12:00:02.000Z INFO   inbound: line 2 [web:chat:1 B step 3 1.5 ms] {"text": "你好 "}'
    )
    assert "\x1b" not in done.out
    assert shown[6] == "2027-01-15T12:00:05.000Z ERROR  inbound: broken screen"
    assert done.err == "2 lines could not be read, and are left out.\n"


def test_no_log_is_no_error_and_most_likely_the_wrong_folder(
    shipmate: Shipmate, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = f"No gateway has run in {project} yet; --dir names another folder.\n"
    done = shipmate("logs", "--dir", project)
    assert (done.code, done.out, done.err) == (0, "", hint)
    monkeypatch.chdir(project)
    for words in (("chats",), ("pending",), ("allow", "telegram", "1"), ("block", "telegram", "1")):
        assert shipmate(*words).err == hint, words
    (project / ".ship" / "logs").mkdir()
    assert shipmate("pending").err == ""


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
            assert running.wait(90) == 0
        finally:
            running.kill()  # the tests may have been started with SIGINT ignored


def test_past_days_that_are_compressed_are_read_as_the_others(shipmate: Shipmate, folder: Path) -> None:
    logs = folder / ".ship" / "logs"
    before = shipmate("logs", "--dir", folder, "--json").out
    for path in list(logs.iterdir()):
        if path.name != "2027-01-15.2.jsonl":
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    assert shipmate("logs", "--dir", folder, "--json").out == before
    assert len(shipmate("stats", "--dir", folder, "--json").lines) == 1
    reader = LogReader(logs, SystemDisk())
    assert len(list(reader.lines())) == 7
    assert list(reader.lines()) == []
    reader = LogReader(logs, SystemDisk())
    (newest,) = reader.newest(1)
    assert newest[1]["message"] == "broken\n\x1b[2Jscreen"
    assert list(reader.lines()) == []


def test_a_compressed_day_that_is_damaged_costs_itself_alone(shipmate: Shipmate, folder: Path) -> None:
    logs = folder / ".ship" / "logs"
    (logs / "2027-01-13.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 9_000)[:-20])
    (logs / "2027-01-12.jsonl.gz").write_bytes(b"no gzip")
    done = shipmate("logs", "--dir", folder, "--json", "--since", "2027-01-14")
    assert (done.code, len(done.lines)) == (0, 7)
    done = shipmate("logs", "--dir", folder, "--json", "--chat", "web:chat:1")
    assert [item["message"] for item in done.lines] == ["line 1", "line 2"]
    assert done.err == "2 lines could not be read, and are left out.\n"


def test_the_newest_lines_are_the_last_of_the_newest_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = folder / ".ship" / "logs" / "2027-01-15.2.jsonl"
    newest.write_text("".join(json.dumps(line(number)) + "\n" for number in range(9)) + '{"half')
    monkeypatch.setattr(log_reader, "READ", 5 * len(json.dumps(line(8))))

    def told(reader: LogReader, count: int) -> list[str]:
        return [found["message"] for _, found in reader.newest(count)]

    assert told(LogReader(newest.parent, SystemDisk()), 2) == ["line 7", "line 8"]
    reader = LogReader(newest.parent, SystemDisk())
    assert told(reader, 20)[-4:] == ["line 5", "line 6", "line 7", "line 8"]
    assert list(reader.lines()) == []
    with newest.open("a") as file:
        file.write('": 1}\n' + json.dumps(line(1, message="new")) + "\n")
    assert [found.get("message") for _, found in reader.lines()] == [None, "new"]


def test_a_request_is_looked_for_on_the_days_that_it_can_be_on(tmp_path: Path) -> None:
    begun = datetime(2027, 1, 15, 23, 59, tzinfo=UTC)

    def ulid(number: int) -> str:
        return ulid_of(int(begun.timestamp() * 1000) << 80 | number)

    name, other = ulid(0), ulid(1)
    assert day_of(name) == begun.date()

    def day(date: str, *lines: dict[str, Any]) -> None:
        (tmp_path / f"{date}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))

    mark = line(1, requestId=name, message="left out")
    day("2027-01-14", mark)
    day("2027-01-15", line(1, requestId=name, kind="turn_start"), line(2, requestId=other))
    day("2027-01-17", line(3, requestId=name, kind="turn_end"))
    day("2027-01-18", line(4, requestId=name, message="what it caused"))
    day("2027-01-19", mark)

    def found(request: str) -> list[str]:
        reader = LogReader(tmp_path, SystemDisk(), LineFilter(request=request))
        return [str(one["message"]) for _, one in reader.of_request(request)]

    assert found(name) == ["line 1", "line 3", "what it caused"]
    assert found(other) == ["line 2"]
    day("2027-01-13", line(1, requestId="no-ulid"), line(2, requestId=ulid(2)))
    assert found("no-ulid") == ["line 1"]
    assert found(ulid(2)) == ["line 2"], "the clock was set back: then all days are looked at"
    assert day_of("8" * 26) is None


def test_texts_are_shown_only_on_demand(shipmate: Shipmate, folder: Path) -> None:
    said = line(7, kind="llm_request", details={"callId": "X", "messages": [{"text": "hush"}]})
    count = line(8, kind="turn_end", details={"messages": 12})
    path = folder / ".ship" / "logs" / "2027-01-16.jsonl"
    path.write_text(json.dumps(said) + "\n" + json.dumps(count) + "\n")
    done = shipmate("logs", "--dir", folder)
    assert "hush" not in done.out
    assert '{"callId": "X"}' in done.out
    assert '{"messages": 12}' in done.out
    assert "hush" in shipmate("logs", "--full", "--dir", folder).out
    assert "hush" in shipmate("logs", "--json", "--dir", folder).out


def test_a_terminal_gets_colours_and_what_fits_it(
    shipmate: Shipmate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = shipmate("logs", "--dir", folder).out.splitlines()
    assert shown[3] == "2027-01-15T12:00:02.000Z INFO   inbound: line 2 [web:chat:1…"
    assert shown[6] == "\x1b[31m2027-01-15T12:00:05.000Z ERROR  inbound: broken screen\x1b[0m"
    assert "你好" in shipmate("logs", "--full", "--dir", folder).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shipmate("logs", "--dir", folder).out
