"""Sums of usage follow the log: every line once, whatever is killed, compressed, cut short or removed meanwhile."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.history.usage.sums import Level, UsageSums
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk

NOON = "2027-01-15T12:00:00.000Z"


def line(kind: str, at: str = NOON, chat: str = "web:chat:1", **details: Any) -> str:
    return json.dumps({"timestamp": at, "kind": kind, "chatKey": chat, "details": details}) + "\n"


def answer(at: str = NOON, chat: str = "web:chat:1", cost: float | None = 0.25, **details: Any) -> str:
    usage = {"inputTokens": 100, "outputTokens": 50, "cacheReadTokens": 300, "cacheWriteTokens": 0}
    told = {"model": "m", "purpose": "turn", "person": "web:a", "usage": usage, "latencyMs": 400}
    return line("llm_response", at, chat, **(told | {"costUsd": cost} | details))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


@pytest.fixture
def sums(home: Path) -> UsageSums:
    return UsageSums(home, SystemDisk())


def write(home: Path, text: str, name: str = "2027-01-15.jsonl") -> Path:
    path = home / "logs" / name
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
    return path


def cost(sums: UsageSums) -> float:
    sums.catch_up()
    return sums.total().cost


def test_each_line_counts_once_also_where_it_comes_in_two_pieces(home: Path, sums: UsageSums) -> None:
    assert cost(sums) == 0
    whole = answer()
    write(home, whole + whole[:40])
    assert cost(sums) == 0.25
    assert cost(sums) == 0.25
    write(home, whole[40:] + line("turn_end", status="done", person="web:a"))
    assert cost(sums) == 0.5
    found = sums.total()
    assert (found.turns, found.failed, found.calls, found.prompt, found.cached) == (1, 0, 2, 800, 0.75)
    assert found.models == {"m": 2}


def test_a_day_that_is_compressed_goes_on_where_it_was(home: Path, sums: UsageSums) -> None:
    path = write(home, answer())
    assert cost(sums) == 0.25
    write(home, answer())
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert cost(sums) == 0.5
    assert cost(sums) == 0.5


def test_a_damaged_compressed_day_counts_as_far_as_it_can_be_read(home: Path, sums: UsageSums) -> None:
    noise = [line("inbound", text=os.urandom(3_000).hex()) for _ in range(1_000)]
    packed = gzip.compress("".join([answer(), *noise]).encode())
    (home / "logs" / "2027-01-14.jsonl.gz").write_bytes(
        packed[:2_000_000] + b"x" * 1_000 + packed[2_001_000:]
    )
    write(home, answer())
    assert cost(sums) == 0.5
    assert cost(sums) == 0.5


def test_sums_outlive_the_log_and_a_new_count_leaves_them(home: Path, sums: UsageSums) -> None:
    old = write(home, answer("2027-01-14T08:00:00.000Z"), "2027-01-14.jsonl")
    write(home, answer())
    assert cost(sums) == 0.5
    old.unlink()
    assert cost(sums) == 0.5
    assert sums.rebuild() == (1, 1)
    assert cost(sums) == 0.5


def test_a_log_that_lost_its_end_is_counted_anew_with_its_day(home: Path, sums: UsageSums) -> None:
    write(home, answer("2027-01-14T08:00:00.000Z"), "2027-01-14.jsonl")
    path = write(home, answer() + answer())
    write(home, answer(), "2027-01-15.2.jsonl")
    assert cost(sums) == 1.0
    path.write_text(answer(), encoding="utf-8")
    assert cost(sums) == 0.75
    assert [(day, part.calls) for day, part in sums.by("day")] == [("2027-01-14", 1), ("2027-01-15", 2)]


@pytest.mark.parametrize("harm", ["garbage", "version", "gone"])
def test_a_file_that_is_no_use_is_made_anew_from_the_log(home: Path, sums: UsageSums, harm: str) -> None:
    write(home, answer())
    assert cost(sums) == 0.25
    file = home / "usage.db"
    if harm == "version":
        import sqlite3

        db = sqlite3.connect(file)
        db.execute("PRAGMA user_version=999")
        db.close()
    else:
        for end in ("-wal", "-shm"):
            file.with_name(file.name + end).unlink(missing_ok=True)
        file.write_bytes(b"no database at all " * 500) if harm == "garbage" else file.unlink()
    assert cost(sums) == 0.25
    assert file.stat().st_mode & 0o777 == 0o600


def test_parts_are_told_by_day_person_chat_and_model(home: Path, sums: UsageSums) -> None:
    write(
        home,
        answer("2027-01-15T01:00:00.000Z", chat="web:chat:1", cost=0.25)
        + answer(
            "2027-01-15T02:00:00.000Z", chat="telegram:chat:群", person="telegram:5", model="n", cost=1.0
        )
        + answer("2027-01-15T23:59:59.999Z", chat="web:chat:1", cost=None)
        + line("llm_response", chat="web:chat:1", model="m", error="Overloaded")
        + line("turn_end", chat="web:chat:1", person="web:a", status="failed"),
    )
    sums.catch_up()
    assert [(name, one.cost, one.calls) for name, one in sums.by("chat")] == [
        ("telegram:chat:群", 1.0, 1),
        ("web:chat:1", 0.25, 2),
    ]
    assert [(name, one.turns, one.failed) for name, one in sums.by("person")] == [
        ("telegram:5", 0, 0),
        ("web:a", 1, 1),
        ("", 0, 0),
    ]
    assert [(name, one.calls, one.unpriced) for name, one in sums.by("model")] == [("n", 1, 0), ("m", 2, 1)]
    assert [(name, one.calls) for name, one in sums.by("day", since=1_800_000_000)] == [("2027-01-15", 1)]
    assert sums.total(chat="web:chat:1").errors == {"Overloaded": 1}
    assert sums.total(chat="telegram:chat:群").latency(0.5) == 400


def test_latencies_keep_two_digits(home: Path, sums: UsageSums) -> None:
    write(home, "".join(answer(latencyMs=ms) for ms in (7, 99, 1_234, 56_789)))
    sums.catch_up()
    found = sums.total()
    assert [found.latency(share) for share in (0.25, 0.5, 0.75, 1)] == [7, 99, 1_200, 57_000]


def test_lines_that_are_no_use_leave_the_others(home: Path, sums: UsageSums) -> None:
    write(home, 'torn "llm_response"\n{"kind": "llm_response"}\n["llm_response"]\n' + answer())
    write(home, line("inbound", text='"turn_end"') + line("llm_response", usage="none"))
    assert cost(sums) == 0.25
    assert sums.total().errors == {"unknown": 1}


def test_a_disk_that_fails_is_an_error_and_costs_no_line(home: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    sums = UsageSums(home, disk)
    write(home, answer())
    disk.fail(Failure("read"))
    with pytest.raises(errors.StorageError):
        sums.catch_up()
    assert cost(sums) == 0.25


KILLED = """
import sys
from pathlib import Path
from bot.history.usage.sums import UsageSums
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
disk = FaultyDisk(SystemDisk())
disk.fail(Failure("*", int(sys.argv[2]), then="kill"))
UsageSums(Path(sys.argv[1]), disk).catch_up()
"""


def test_a_kill_at_any_moment_counts_nothing_twice(home: Path, sums: UsageSums) -> None:
    ends = list[int]()
    for moment in range(1, 40, 2):
        for day in (13, 14, 15):
            write(home, answer(f"2027-01-{day}T08:00:00.000Z"), f"2027-01-{day}.jsonl")
        done = subprocess.run([sys.executable, "-c", KILLED, home, str(moment)], check=False)
        ends.append(done.returncode)
        if not done.returncode:
            break
    assert len(ends) > 3
    assert set(ends) == {-signal.SIGKILL, 0}
    assert sums.total().calls == cost(sums) / 0.25 == 3 * len(ends)


def test_a_person_and_their_chats_lose_their_names_and_the_sums_stay(home: Path, sums: UsageSums) -> None:
    theirs = answer(chat="web:chat:2", person="web:b") + answer(chat="web:chat:1", person="web:b")
    theirs += line("llm_response", chat="web:chat:2", error="Overloaded", person="web:b")
    path = write(home, theirs + answer() + answer(chat="web:chat:2", person=""))
    sums.catch_up()
    before = sums.total()
    assert {row["chat"] for row in sums.rows("web:b", {"web:chat:2"})} == {"web:chat:1", "web:chat:2"}
    path.write_text(answer(), encoding="utf-8")  # as an erasure leaves the log
    assert sums.erase("web:b", {"web:chat:2"}) == 6
    assert sums.rows("web:b", {"web:chat:2"}) == []
    sums.catch_up()
    assert sums.total() == before
    assert dict(sums.by("person")).keys() == {"", "web:a"}
    assert dict(sums.by("chat")).keys() == {"", "web:chat:1"}
    data = b"".join(one.read_bytes() for one in home.glob("usage.db*"))
    assert b"web:b" not in data
    assert b"web:chat:2" not in data
    write(home, answer())
    assert cost(sums) == before.cost + 0.25


# ---------------------------------------------------------------- errors by cause


def failure(
    message: str, at: str = NOON, level: str = "error", chat: str = "web:chat:1", **details: Any
) -> str:
    told = {"timestamp": at, "level": level, "kind": "delivery", "message": message, "chatKey": chat}
    return json.dumps(told | {"requestId": "01J", "details": details}, ensure_ascii=False) + "\n"


def told(sums: UsageSums, level: Level = "error", since: float = 0.0) -> list[tuple[int, int, str]]:
    sums.catch_up()
    found = sums.causes(level, since, limit=50)
    assert found is not None
    return [(one.count, one.chats, str(one.last["message"])) for one in found[0]]


def test_lines_of_one_cause_are_one_in_whatever_hours_chats_and_pieces_they_come(
    home: Path, sums: UsageSums
) -> None:
    lines = [failure(f"失敗 after {n} s", f"2027-01-15T1{n}:00:00.000Z", chat=f"c{n % 2}") for n in range(4)]
    whole = "".join([*lines, failure("slow", level="warn"), failure("in the error", level="info")])
    write(home, whole[:150])
    sums.catch_up()
    write(home, whole[150:] + failure("other", "2027-01-15T16:00:00.000Z", chat="", error="Timeout 3"))
    assert told(sums) == [(1, 0, "other"), (4, 2, "失敗 after 3 s")]
    assert told(sums, "warn")[-1] == (1, 1, "slow")
    noon = 1_800_014_400.0
    assert told(sums, since=noon) == [(1, 0, "other"), (2, 2, "失敗 after 3 s")]
    found, total = sums.causes("error", 0.0, offset=1, limit=1) or ([], 0)
    assert (found[0].last["requestId"], found[0].last["timestamp"], total) == (
        "01J",
        "2027-01-15T13:00:00.000Z",
        2,
    )


def test_causes_go_with_the_log_of_their_day_and_sums_of_usage_stay(home: Path, sums: UsageSums) -> None:
    path = write(home, answer() + failure("old"))
    write(home, failure("new", "2027-02-01T12:00:00.000Z"), "2027-02-01.jsonl")
    assert told(sums) == [(1, 1, "new"), (1, 1, "old")]
    path.unlink()
    assert told(sums) == [(1, 1, "new")]
    assert cost(sums) == 0.25
    assert b"old" not in (home / "usage.db").read_bytes()


def test_the_log_that_an_earlier_version_has_counted_is_looked_through_for_causes_once(
    home: Path, sums: UsageSums
) -> None:
    path = write(home, answer() + failure("before"))
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    write(home, failure("today", "2027-01-16T12:00:00.000Z"), "2027-01-16.jsonl")
    sums.catch_up()
    with contextlib.closing(sqlite3.connect(home / "usage.db", isolation_level=None)) as db:
        db.execute("DROP TABLE causes")
    assert sums.causes("error", 0.0, limit=50) is None
    write(home, failure("since", "2027-01-16T13:00:00.000Z"), "2027-01-16.jsonl")
    assert told(sums) == told(sums) == [(1, 1, "since"), (1, 1, "today"), (1, 1, "before")]
    assert cost(sums) == 0.25
    assert sums.rebuild() == (2, 0)
    assert told(sums) == [(1, 1, "since"), (1, 1, "today"), (1, 1, "before")]


def test_after_an_erasure_causes_are_those_that_the_log_has_left(home: Path, sums: UsageSums) -> None:
    path = write(home, failure("鯨 of Ann") + failure("of nobody", chat=""))
    assert len(told(sums)) == 2
    path.write_text(failure("of nobody", chat=""), encoding="utf-8")
    sums.erase("web:ann", ["web:chat:1"])
    assert told(sums) == [(1, 0, "of nobody")]
    assert "鯨".encode() not in (home / "usage.db").read_bytes()
