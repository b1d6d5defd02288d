"""Ids increase even if the clock is set back, and written files are durable."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from bot.system import SystemClock, SystemDisk, UlidSource


class SetClock(SystemClock):
    def __init__(self, now: float) -> None:
        self.time = now

    def now(self) -> float:
        return self.time


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="its monotonic clock goes on")
def test_time_passes_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {time.CLOCK_BOOTTIME: 100.0, time.CLOCK_MONOTONIC: 40.0}
    monkeypatch.setattr(time, "clock_gettime", shown.__getitem__)
    assert SystemClock().boottime() == 100.0


def test_ids_grow_while_the_clock_stands_or_goes_back() -> None:
    clock = SetClock(1_800_000_000.0)
    ids = UlidSource(clock, random.Random(1))
    made = [ids.ulid()]
    for moment in (1_800_000_000.0, 1_700_000_000.0, 1_800_000_000.001):
        clock.time = moment
        made.append(ids.ulid())
    assert made == sorted(set(made))
    assert {len(one) for one in made} == {26}


def test_ids_are_greater_than_those_of_an_earlier_process_though_the_clock_was_set_back() -> None:
    last = UlidSource(SetClock(1_800_000_000.0)).ulid()
    ids = UlidSource(SetClock(1_700_000_000.0))
    ids.after(last)
    assert ids.ulid() > last


def test_ids_of_one_moment_and_two_processes_differ() -> None:
    clock = SetClock(1_800_000_000.0)
    assert not {UlidSource(clock).ulid() for _ in range(100)} & {UlidSource(clock).ulid() for _ in range(100)}


def test_the_names_of_new_files_and_folders_reach_the_disk_before_what_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, write = os.fsync, os.write

    def syncing(handle: int) -> None:
        number = os.fstat(handle).st_ino
        found = (folder for folder in (tmp_path, *tmp_path.rglob("*")) if folder.stat().st_ino == number)
        done.extend(str(folder.relative_to(tmp_path)) for folder in found if folder.is_dir())
        fsync(handle)

    def writing(handle: int, data: bytes) -> int:
        done.append("write")
        return write(handle, data)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "write", writing)
    path = tmp_path / "chats" / "one" / "a.jsonl"
    SystemDisk().append(path, b"1", sync=True)
    assert done == ["chats", ".", "chats/one", "write"]
    SystemDisk().append(path, b"2", sync=True)
    assert done[4:] == ["write"]
    assert path.read_bytes() == b"12"
