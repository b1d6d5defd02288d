"""The recorder writes many requests in one transaction, in order, and drops requests that the disk refuses."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bot import errors
from bot.features import replay
from bot.features.replay import RecordedRequests, Recorder
from bot.testing.log import MemoryLog


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def writer(tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr(replay, "GATHER", 3_600.0)
    return Recorder(tmp_path / "requests.db", log=log)


def noting(done: list[int], number: int, _: RecordedRequests) -> None:
    done.append(number)


def broken(_: RecordedRequests) -> None:
    raise sqlite3.OperationalError("the disk is full")


async def test_what_waits_is_written_in_order_in_one_transaction(
    writer: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = list[int]()
    carry_out = RecordedRequests.transaction

    def counted(file: RecordedRequests, work: Callable[[], object]) -> None:
        transactions.append(1)
        carry_out(file, work)

    monkeypatch.setattr(RecordedRequests, "transaction", counted)
    done = list[int]()
    for number in range(20):
        writer.put(partial(noting, done, number))
    await writer.run(partial(noting, done, 20))
    assert done == [*range(21)]
    assert len(transactions) == 1
    await writer.close()


async def test_closing_writes_what_waits(writer: Recorder) -> None:
    done = list[int]()
    writer.put(partial(noting, done, 1))
    await writer.close()
    assert done == [1]


async def test_records_that_the_disk_refuses_are_dropped_and_operators_told_once(
    writer: Recorder, log: MemoryLog
) -> None:
    for _ in range(2):
        with pytest.raises(errors.StorageError, match="the disk is full"):
            await writer.run(broken)
    assert [line.message for line in log.entries] == ["what the model is asked is not recorded"]
    done = list[int]()
    await writer.run(partial(noting, done, 1))
    assert done == [1], "later ones are written"
    await writer.close()
