from __future__ import annotations

import asyncio
import gzip
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.identity import ChatKey
from bot.system import SystemDisk
from bot.telemetry import log as telemetry
from bot.telemetry.log import MAX_LINE_BYTES, Line, render
from bot.telemetry.redaction import LogRedactor
from bot.testing.clock import FakeClock

from .conftest import GatedDisk, Make, lines


def test_a_line_has_the_documented_fields(make: Make, tmp_path: Path) -> None:
    log = make()
    log.write(
        "llm_response",
        "the model answered",
        duration=12.3456,
        chat_key=ChatKey.parse("telegram:chat:1"),
        request_id="01R",
        stop_reason="end_turn",
        usage={"inputTokens": 3},
        step=2,
    )
    assert log.flush()
    (line,) = lines(tmp_path)
    assert len(line.pop("id")) == 26
    assert line == {
        "timestamp": "2027-01-15T12:00:00.000Z",
        "type": "info",
        "level": "info",
        "kind": "llm_response",
        "message": "the model answered",
        "details": {
            "stopReason": "end_turn",
            "usage": {"inputTokens": 3},
        },
        "duration": 12.346,
        "chatKey": "telegram:chat:1",
        "requestId": "01R",
        "step": 2,
    }
    assert (tmp_path / "logs" / "2027-01-15.jsonl").stat().st_mode & 0o777 == 0o600


async def test_a_line_belongs_to_the_turn_that_runs_in_its_task(make: Make, tmp_path: Path) -> None:
    log = make()

    async def turn(name: str) -> None:
        with telemetry.turn_scope(chat_key=ChatKey.parse(f"web:chat:{name}"), request_id=name):
            await asyncio.sleep(0)
            with telemetry.running_scope(replace(telemetry.current(), step=4)):
                log.write("tool_call", name)
                await asyncio.sleep(0)
            log.write("turn_end", name)

    await asyncio.gather(turn("a"), turn("b"))
    log.write("other", "outside")
    assert log.flush()
    for line in lines(tmp_path):
        if line["kind"] == "other":
            assert not {"chatKey", "requestId", "step"} & line.keys()
        else:
            assert (line["requestId"], line["chatKey"]) == (line["message"], f"web:chat:{line['message']}")
            assert line.get("step") == (4 if line["kind"] == "tool_call" else None)


def test_lines_stay_in_order_and_later_changes_do_not_reach_them(
    make: Make, tmp_path: Path, disk: GatedDisk
) -> None:
    log = make()
    disk.gate.clear()
    messages = [{"text": "first"}]
    for number in range(50):
        log.write("a", str(number), level="debug" if number % 3 else "info", messages=messages)
    messages[0]["text"] = "changed"
    messages.append({"text": "later"})
    disk.gate.set()
    assert log.flush()
    found = lines(tmp_path)
    assert [line["message"] for line in found] == [str(number) for number in range(50)]
    assert all(line["details"]["messages"] == [{"text": "first"}] for line in found)


def test_secrets_and_token_like_text_reach_no_line(make: Make, tmp_path: Path) -> None:
    log = make(redact=LogRedactor(["hunter2-hunter2"]))
    log.write(
        "error",
        "key hunter2-hunter2",
        chat_key=ChatKey.parse("web:chat:hunter2-hunter2"),
        url="/bot123456:" + "A" * 35,
    )
    log.write("error", "long", payload="x" * 99_990 + "hunter2-hunter2" + "y" * 99_990)
    log.write("error", "raised", error=ValueError("hunter2-hunter2"), items={"hunter2-hunter2": 1})
    assert log.flush()
    whole = (tmp_path / "logs" / "2027-01-15.jsonl").read_text()
    assert "hunter2" not in whole
    assert "A" * 30 not in whole


def test_a_line_that_cannot_be_written_does_not_end_the_log(make: Make, tmp_path: Path) -> None:
    class Failing(LogRedactor):
        def __call__(self, value: str) -> str:
            return value if "odd" not in value else str(int("no number"))

    log = make(redact=Failing(["s3cret-of-the-operator"]))
    for words in ("one", f"&#{'9' * 5_000};", "an odd one", "two"):
        log.write("error", words, level="error")
        assert log.flush()
    found = lines(tmp_path)
    assert [line["message"][:22] for line in found] == [
        "one",
        "&#" + "9" * 20,
        "a line of the kind err",
        "two",
    ]
    assert (found[2]["kind"], found[2]["details"]) == ("log", {"cause": "ValueError"})


def test_writing_never_waits_for_the_disk_and_what_does_not_fit_is_counted(
    make: Make, tmp_path: Path, disk: GatedDisk
) -> None:
    log = make(max_pending=16_000)
    disk.gate.clear()
    log.write("a", "held")
    assert disk.reached.wait(90)
    for number in range(8):
        log.write("a", f"info {number}", text="密" * 2_000)
    disk.gate.set()
    assert log.flush()
    log.close()
    messages = [line["message"] for line in lines(tmp_path)]
    assert messages == ["held", "info 0", "info 1", "info 2", "dropped 5 lines"]
    assert log.lost == 5


def test_a_failing_disk_is_told_of_once_and_never_to_the_caller(
    make: Make, tmp_path: Path, disk: GatedDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    log = make()
    log.write("a", "before")
    assert log.flush()
    disk.error, disk.half = OSError(28, "No space left on device"), True
    for number in range(5):
        log.write("a", f"lost {number}")
        assert log.flush()
    disk.error = None
    log.write("a", "after 密")
    log.close()
    assert capsys.readouterr().err == "shipmate: the log cannot be written: No space left on device\n"
    raw = (tmp_path / "logs" / "2027-01-15.jsonl").read_text().split("\n")
    whole = [json.loads(line)["message"] for line in raw if line.endswith("}")]
    assert whole == ["before", "after 密", "dropped 5 lines"]


def test_after_a_crash_the_torn_line_stands_alone(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "2027-01-15.jsonl"
    path.parent.mkdir()
    path.write_text('{"whole":1}\n{"torn":')
    log = make()
    log.write("a", "next")
    assert log.flush()
    first, torn, following, end = path.read_text().split("\n")
    assert (first, torn, end) == ('{"whole":1}', '{"torn":', "")
    assert json.loads(following)["message"] == "next"


def test_each_day_has_its_file_and_a_large_day_has_parts(
    make: Make, tmp_path: Path, clock: FakeClock
) -> None:
    log = make(part_bytes=500)
    for _ in range(4):
        log.write("a", "x" * 400)
        assert log.flush()
    clock.jump(86_400)
    log.write("a", "tomorrow")
    assert log.flush()
    names = [path.name for _, _, path in telemetry.day_files(tmp_path / "logs", SystemDisk())]
    assert names == [
        "2027-01-15.jsonl",
        "2027-01-15.2.jsonl",
        "2027-01-15.3.jsonl",
        "2027-01-15.4.jsonl",
        "2027-01-16.jsonl",
    ]
    again = make(part_bytes=500)
    again.write("a", "after a restart")
    assert again.flush()
    assert len(telemetry.day_files(tmp_path / "logs", SystemDisk())) == 5


def test_old_days_are_swept_and_other_files_stay(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in (
        "2027-01-14.jsonl",
        "2027-01-08.jsonl",
        "2027-01-07.2.jsonl",
        "2026-12-31.jsonl",
        "notes.txt",
        "2026-13-99.jsonl",
    ):
        (folder / name).write_text("")
    log = make(keep_days=7)
    assert log.sweep() == 2
    assert {path.name for path in folder.iterdir()} == {
        "2027-01-14.jsonl.gz",
        "2027-01-08.jsonl.gz",
        "notes.txt",
        "2026-13-99.jsonl",
    }


def test_sweeping_survives_a_file_that_stays(make: Make, tmp_path: Path) -> None:
    (tmp_path / "logs" / "2026-01-01.jsonl").mkdir(parents=True)
    log = make(keep_days=7)
    assert log.sweep() == 0
    assert log.flush()
    assert [line["level"] for line in _file(tmp_path / "logs" / "2027-01-15.jsonl")] == ["warn"]


def _file(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_closing_writes_what_waits_and_later_lines_are_ignored(make: Make, tmp_path: Path) -> None:
    log = make()
    for number in range(500):
        log.write("a", str(number))
    log.close()
    log.close()
    log.write("a", "too late")
    assert log.flush()
    assert [line["message"] for line in lines(tmp_path)] == [str(number) for number in range(500)]


def test_threads_may_write_at_once(make: Make, tmp_path: Path) -> None:
    log = make()

    def talk() -> None:
        for _ in range(200):
            log.write("a", "x")

    threads = [threading.Thread(target=talk) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.flush()
    found = lines(tmp_path)
    assert len(found) == 1_600
    assert len({line["id"] for line in found}) == 1_600


def test_a_batch_over_midnight_goes_into_two_files(
    make: Make, tmp_path: Path, disk: GatedDisk, clock: FakeClock
) -> None:
    log = make()
    disk.gate.clear()
    log.write("a", "held")
    assert disk.reached.wait(90)
    log.write("a", "before midnight")
    clock.jump(43_200)
    log.write("a", "after midnight")
    disk.gate.set()
    assert log.flush()
    files = telemetry.day_files(tmp_path / "logs", SystemDisk())
    assert [[line["message"] for line in _file(path)] for _, _, path in files] == [
        ["held", "before midnight"],
        ["after midnight"],
    ]


def test_a_whole_payload_that_was_asked_for_is_not_cut() -> None:
    message = "字" * 200_000
    line: Line = {"id": "1", "details": {"payload": {"messages": [message]}}}
    assert json.loads(render(line, LogRedactor()))["details"]["payload"]["messages"] == [message]
    line = {"id": "1", "details": {"messages": [message]}}
    assert len(render(line, LogRedactor())) <= MAX_LINE_BYTES


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_past_days_are_compressed_once_they_are_over(make: Make, tmp_path: Path, clock: FakeClock) -> None:
    folder = tmp_path / "logs"
    log = make()
    log.write("a", "one")
    assert log.flush()
    clock.jump(12 * 3_600)  # midnight: lines of the previous day may still arrive
    log.write("a", "two")
    assert log.flush()
    assert log.sweep() == 0
    assert _names(folder) == ["2027-01-15.jsonl", "2027-01-16.jsonl"]
    clock.jump(3_601)
    before = (folder / "2027-01-15.jsonl").read_bytes()
    assert log.sweep() == 0
    assert _names(folder) == ["2027-01-15.jsonl.gz", "2027-01-16.jsonl"]
    assert gzip.decompress((folder / "2027-01-15.jsonl.gz").read_bytes()) == before
    assert (folder / "2027-01-15.jsonl.gz").stat().st_mode & 0o777 == 0o600


def test_a_line_of_a_day_that_is_compressed_goes_to_a_new_part(
    make: Make, tmp_path: Path, clock: FakeClock
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "2027-01-15.jsonl.gz").write_bytes(gzip.compress(b"{}\n"))
    log = make()
    log.write("a", "the clock was set back")
    assert log.flush()
    assert _names(tmp_path / "logs") == ["2027-01-15.2.jsonl", "2027-01-15.jsonl.gz"]
    clock.jump(24 * 3_600 + 1)
    log.sweep()
    assert "2027-01-15.2.jsonl" in _names(tmp_path / "logs"), "lines go there"


def test_a_day_in_both_forms_is_listed_once(tmp_path: Path) -> None:
    for name in ("2027-01-13.jsonl", "2027-01-13.jsonl.gz"):
        (tmp_path / name).touch()
    assert [path.name for _, _, path in telemetry.day_files(tmp_path, SystemDisk())] == ["2027-01-13.jsonl"]


def test_the_oldest_files_go_where_all_take_too_much(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for day in (12, 13, 14):
        (folder / f"2027-01-{day}.jsonl.gz").write_bytes(b"x" * 1_000)
    (folder / "2027-01-15.jsonl").write_text("y" * 1_000)
    log = make(max_bytes=2_500)
    log.write("a", "today")
    assert log.flush()
    assert log.sweep() == 2
    assert _names(folder) == ["2027-01-14.jsonl.gz", "2027-01-15.jsonl"]
    small = make(max_bytes=1)
    small.write("a", "today")
    assert small.flush()
    assert small.sweep() == 1
    assert _names(folder) == ["2027-01-15.jsonl"], "what is written to stays"
