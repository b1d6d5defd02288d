"""Files of any size are read in pieces, and what is small of them is all that is kept."""

from __future__ import annotations

import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.archive import HistoryQuery
from bot.contracts.environment import OpenFile
from bot.contracts.identity import ChatKey
from bot.core import jsonl
from bot.history.archive.store import ChatStore
from bot.history.transcript.store import Transcript
from bot.system import SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.unit.lines import line as told

MB = 1024 * 1024
NAME = "web%3Achat%3A1"


class Bytes:
    """`contracts.environment.OpenFile` in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.longest = 0

    def read(self, offset: int, count: int) -> bytes:
        self.longest = max(self.longest, count)
        return self.data[offset : offset + count]

    def close(self) -> None: ...


@given(
    data=st.lists(st.sampled_from([b"\n", b"\n\n", b"a", "你好".encode(), b"x" * 40])).map(b"".join),
    piece=st.integers(1, 16),
    cut=st.integers(0, 300),
)
@settings(derandomize=True, deadline=None)
def test_lines_are_those_of_the_whole_file_whatever_a_piece_cuts(data: bytes, piece: int, cut: int) -> None:
    before, jsonl.PIECE = jsonl.PIECE, piece
    try:
        file: OpenFile = Bytes(data)
        whole = data.split(b"\n")
        assert list(jsonl.lines(file)) == (whole if whole[-1] else whole[:-1])
        assert list(jsonl.lines_backwards(file)) == (whole[::-1] if data else [])
        size = min(cut, len(data))
        part = data[:size].split(b"\n")
        assert list(jsonl.lines_backwards(file, size)) == (part[::-1] if size else [])
        assert jsonl.count_lines(file, size) == data[:size].count(b"\n") + bool(part[-1])
    finally:
        jsonl.PIECE = before


def test_nothing_larger_than_a_piece_is_asked_for() -> None:
    file = Bytes(b"line\n" * 100_000)
    for read in (jsonl.lines(file), jsonl.lines_backwards(file)):
        assert sum(line == b"line" for line in read) == 100_000
    assert file.longest == jsonl.PIECE == 64 * 1024


def test_an_open_file_stays_what_it_was_and_one_that_is_not_there_is_empty(tmp_path: Path) -> None:
    disk = SystemDisk()
    disk.append(tmp_path / "a", b"0123456789")
    with closing(disk.open(tmp_path / "a")) as file, closing(disk.open(tmp_path / "none")) as none:
        disk.replace(tmp_path / "a", b"new")
        assert (file.size, file.read(8, 100), file.read(20, 1), file.read(2, 3)) == (10, b"89", b"", b"234")
        assert (none.size, none.read(0, 10)) == (0, b"")
    file.close()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A folder of chats whose newest file has 40 MB."""
    folder = tmp_path / "chats"
    folder.mkdir()
    line = jsonl.dumps(
        {
            "v": 1,
            "ts": 1,
            "channel": "web",
            "chatId": "1",
            "chatKey": "web:chat:1",
            "role": "user",
            "text": "x" * 20_000,
        }
    )
    with (folder / f"{NAME}.archive-1.jsonl").open("wb") as file:
        for _ in range(2_000):
            file.write(line)
    (folder / f"{NAME}.jsonl").write_bytes(line)
    return folder


async def test_a_search_in_a_large_archive_takes_little_memory(large: Path) -> None:
    store = ChatStore(large, disk=SystemDisk(), log=MemoryLog(), clock=FakeClock())
    tracemalloc.start()
    try:
        page = await store.search(ChatKey.parse("web:chat:1"), HistoryQuery(limit=1, keyword="xx"))
        (info,) = await store.chats()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (page.total, info.lines) == (2_001, 2_001)
    assert peak < 4 * MB, "of a file of 40"


async def test_an_append_to_a_large_session_takes_little_memory(tmp_path: Path) -> None:
    log, clock = MemoryLog(), FakeClock()
    transcript = Transcript(tmp_path, disk=SystemDisk(), ids=UlidSource(), clock=clock, log=log)
    session = await transcript.new_session(ChatKey.parse("web:chat:1"))
    line = {
        "v": 1,
        "uuid": "",
        "type": "meta",
        "ts": 1,
        "chatKey": "web:chat:1",
        "sessionId": session,
        "data": {"x": "y" * 20_000},
    }
    with (tmp_path / NAME / f"{session}.jsonl").open("wb") as file:
        for number in range(1_000):
            file.write(jsonl.dumps(line | {"uuid": f"{number}"}))
    tracemalloc.start()
    try:
        await transcript.append(
            ChatKey.parse("web:chat:1"),
            [told("new", "meta", ts=2, chat_key=ChatKey.parse("web:chat:1"))],
        )
        again = told("7", "meta", ts=2, chat_key=ChatKey.parse("web:chat:1"))
        await transcript.append(ChatKey.parse("web:chat:1"), [again])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        await transcript.close()
    written = (tmp_path / NAME / f"{session}.jsonl").read_bytes().splitlines()
    assert len(written) == 1_001
    assert peak < 2 * MB
