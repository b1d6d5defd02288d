"""The files of the archive: windows, edits and removals, rotation, failing disks and killed processes."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine, HistoryQuery
from bot.core.archive_files import SEQ, ChatInfo
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk, When
from bot.testing.log import MemoryLog
from tests.archives import WrittenArchive as ChatStore
from tests.shares import examples

Make = Callable[..., ChatStore]
KEY = ChatKey.parse("web:chat:1")
NAME = "web%3Achat%3A1"
LIMIT, COUNT = 4, 14
WORDS = ["", "Fähre", "STRASSE", "straße", "東京", "(a+)+$", "İstanbul", "💶 50", "שלום", "x"]


def said(text: str, chat_key: ChatKey | str = KEY, **fields: Any) -> ArchiveLine:
    given = {"ts": 1_800_000_000_000, "channel": "web", "chatId": "1", "role": "user"}
    return ArchiveLine.model_validate({**given, "chatKey": chat_key, "text": text, **fields})


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"t{number}" for number in range(start, count)]


async def fill(store: ChatStore, count: int, start: int = 0) -> int:
    """Append until a line is refused; return the number of lines that were accepted."""
    for number in range(start, start + count):
        try:
            await store.append(said(f"t{number}", ts=number, messageId=f"{number}", meta={SEQ: number}))
        except errors.StorageError:
            return number - start
    return count


async def found(store: ChatStore, **query: Any) -> list[str]:
    page = await store.search(KEY, HistoryQuery(**{"limit": 1_000} | query))
    return [line.text for line in page.lines]


def on_disk(folder: Path) -> list[str]:
    archives = sorted(folder.glob("*.archive-*.jsonl"), key=lambda path: int(path.name.split("-")[-1][:-6]))
    files = [*archives, folder / f"{NAME}.jsonl"]
    return [json.loads(raw)["text"] for path in files for raw in path.read_bytes().split(b"\n") if raw]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "chats"


@pytest.fixture
def store(folder: Path, log: MemoryLog) -> Make:
    def make(limit: int = 1000, disk: Disk | None = None) -> ChatStore:
        return ChatStore(folder, disk=disk or SystemDisk(), log=log, archive_after_lines=limit)

    return make


async def test_a_line_on_disk_has_the_documented_fields_and_no_empty_ones(store: Make, folder: Path) -> None:
    chats = store()
    await chats.append(said("你好 👩‍👩‍👧 שלום\n", userId="U1", messageId="7", meta={"empty": None, "n": [1]}))
    await chats.append(said("short"))
    first, second = (folder / f"{NAME}.jsonl").read_text("utf-8").splitlines()
    assert json.loads(first) == {
        "v": 1,
        "ts": 1_800_000_000_000,
        "channel": "web",
        "chatId": "1",
        "chatKey": str(KEY),
        "userId": "U1",
        "messageId": "7",
        "role": "user",
        "text": "你好 👩‍👩‍👧 שלום\n",
        "meta": {"empty": None, "n": [1]},
    }
    assert "你好" in first
    assert set(json.loads(second)) == {"v", "ts", "channel", "chatId", "chatKey", "role", "text"}


async def test_files_are_private_and_every_chat_has_files_of_its_own(store: Make, folder: Path) -> None:
    chats = store(2)
    await fill(chats, 3)
    for key in ("../../evil", "/etc/x", "a\0b", "..", " ", "x.archive-1"):
        await chats.append(said(key, f"web:chat:{key}"))
    await chats.append(said("mine", f"{KEY}.archive-1"))
    assert [path.name for path in folder.parent.iterdir()] == ["chats"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert on_disk(folder)[0] == "t0"
    page = await chats.search(ChatKey.parse(f"{KEY}.archive-1"), HistoryQuery())
    assert [line.text for line in page.lines] == ["mine"]


async def test_the_line_over_the_limit_moves_the_older_half(store: Make, folder: Path) -> None:
    chats = store(1000)
    await fill(chats, 1000)
    assert [path.name for path in folder.glob("*.jsonl")] == [f"{NAME}.jsonl"]
    await fill(chats, 1, start=1000)
    assert len((folder / f"{NAME}.archive-1.jsonl").read_bytes().splitlines()) == 500
    assert on_disk(folder) == numbered(1001)


async def test_a_new_archive_is_numbered_after_all_earlier_ones(store: Make, folder: Path) -> None:
    await fill(store(2), 8)
    for number in (1, 2):
        (folder / f"{NAME}.archive-{number}.jsonl").unlink()
    await fill(chats := store(2), 8, start=8)
    assert await found(chats) == numbered(16, start=2)
    assert not (folder / f"{NAME}.archive-1.jsonl").exists()


async def test_chats_are_listed_with_their_lines_and_last_times(store: Make, folder: Path) -> None:
    chats = store(4)
    assert await chats.chats() == []
    assert not folder.exists()
    long = "web:chat:" + "長" * 100
    await fill(chats, 7)
    for number in range(6):
        await chats.append(said(f"y{number}", long, ts=500))
    (folder / "web%3Achat%3Agarbage.jsonl").write_bytes(b"not json\n")
    (folder / "web%3Achat%3Aempty.jsonl").write_bytes(b"")
    (folder / "someone-elses.txt").write_bytes(b"?")
    assert await chats.chats() == [
        ChatInfo(long, 6, 500),
        ChatInfo(str(KEY), 7, 6),
        ChatInfo("web:chat:garbage", 1, None),
    ]


@pytest.mark.parametrize("when", ["before", "torn", "after"])
async def test_dying_at_any_change_loses_nothing_acknowledged_and_doubles_nothing(
    store: Make, folder: Path, when: When, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    at = 1 - stride
    while True:
        at += stride
        for path in folder.glob("*"):
            path.unlink()
        disk = FaultyDisk(SystemDisk())
        disk.fail(Failure(at=at, when=when, error=errno.EIO))
        disk.fail(Failure(at=at, times=None, error=errno.EIO))  # this process cannot write any more
        acknowledged = await fill(store(LIMIT, disk), COUNT)
        if disk.writes < at:
            break
        seen = await found(store(LIMIT))
        assert seen in (numbered(acknowledged), numbered(acknowledged + 1)), at
        survivor = store(LIMIT)
        assert await fill(survivor, COUNT + 3 - len(seen), start=len(seen)) == COUNT + 3 - len(seen)
        assert await found(survivor) == on_disk(folder) == numbered(COUNT + 3), at
    assert at > COUNT + 2 * 4  # all appends, and at least two steps in each of four rotations


async def test_a_rotation_that_fails_is_logged_and_tried_again(
    store: Make, folder: Path, log: MemoryLog
) -> None:
    disk = FaultyDisk(SystemDisk())
    chats = store(LIMIT, disk)
    disk.fail(Failure("replace", times=2, named=".archive-1"))
    await fill(chats, LIMIT + 2)
    assert [entry.level for entry in log.entries] == ["error", "error"]
    assert not list(folder.glob("*.archive-*"))
    await fill(chats, 1, start=LIMIT + 2)
    assert len(list(folder.glob("*.archive-1.jsonl"))) == 1
    assert await found(chats) == on_disk(folder) == numbered(LIMIT + 3)


async def test_a_tail_torn_at_any_byte_costs_that_line_alone(store: Make, folder: Path) -> None:
    for text in ("first 你好", "last 😀"):
        await store().append(said(text))
    main = folder / f"{NAME}.jsonl"
    whole = main.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        main.write_bytes(whole[:cut])
        await store().append(said("next"))
        complete = cut == len(whole) - 1  # only the newline of the last line is missing
        assert await found(store()) == ["first 你好", *(["last 😀"] if complete else []), "next"], cut


@pytest.mark.parametrize(
    "garbage", [b"\0" * 512, b"\xff\xfe{\n\n", b'{"a":\n"torn"', b"[" * 9, b'"text"\n17\n']
)
async def test_garbage_behind_the_last_line_is_cut_off(
    store: Make, folder: Path, log: MemoryLog, garbage: bytes
) -> None:
    await store().append(said("x"))
    with (folder / f"{NAME}.jsonl").open("ab") as file:
        file.write(garbage)
    await store().append(said("y"))
    assert on_disk(folder) == ["x", "y"]
    assert [entry.level for entry in log.entries] == ["warn"]


async def test_a_disk_that_cannot_be_read_is_a_storage_error(store: Make) -> None:
    disk = FaultyDisk(SystemDisk())
    await fill(chats := store(2, disk), 3)
    disk.fail(Failure("read", times=None))
    with pytest.raises(errors.StorageError, match="cannot be read"):
        await chats.search(KEY, HistoryQuery())
    with pytest.raises(errors.StorageError, match="cannot be read"):
        await chats.chats()


async def test_a_reader_that_may_not_lock_reads_all_the_same(
    store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store(), 1)
    opened = os.open

    def refused(path: Path, flags: int, *mode: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *mode)

    monkeypatch.setattr("bot.storage.jsonl.os.open", refused)
    assert await found(store()) == ["t0"]


@settings(derandomize=True, deadline=None, max_examples=examples(150))
@given(
    lines=st.lists(
        st.tuples(
            st.integers(0, 8),
            st.sampled_from(["user", "assistant", "system", "tool"]),
            st.sampled_from(WORDS),
        ),
        max_size=30,
    ),
    archive_after=st.integers(1, 8),
    limit=st.integers(0, 40),
    offset=st.integers(0, 20),
    keyword=st.sampled_from([None, "", "f", "strasse", "東", "(a+)+$", "SS", "i"]),
    role=st.sampled_from([None, "user", "assistant"]),
    before=st.none() | st.integers(0, 9),
    after=st.none() | st.integers(0, 9),
    skipped=st.none() | st.sets(st.integers(0, 29)),
)
def test_every_window_is_the_one_of_a_naive_model(
    lines: list[tuple[int, str, str]], archive_after: int, **given_query: Any
) -> None:
    written = [said(text, ts=ts, messageId=f"{n}", role=role) for n, (ts, role, text) in enumerate(lines)]
    skipped = given_query.pop("skipped")
    skip = None if skipped is None else (lambda line: int(line.message_id or -1) in skipped)
    query = HistoryQuery(**given_query, skip=skip)
    roles = {query.role} if query.role else {"user", "assistant"}
    matches = [
        line
        for n, line in enumerate(written)
        if line.role in roles
        and (query.before is None or line.ts < query.before)
        and (query.after is None or line.ts >= query.after)
        and (not query.keyword or query.keyword.casefold() in line.text.casefold())
        and (skipped is None or n not in skipped)
    ]
    newest_first = matches[::-1][query.offset : query.offset + query.limit]

    async def check(folder: Path) -> None:
        store = ChatStore(folder, disk=SystemDisk(), log=MemoryLog(), archive_after_lines=archive_after)
        for line in written:
            await store.append(line)
        page = await store.search(KEY, query)
        assert page.lines == newest_first[::-1]
        assert (page.total, page.unreadable) == (min(len(matches), query.offset + query.limit), 0)

    with tempfile.TemporaryDirectory() as home:
        asyncio.run(check(Path(home)))


async def test_unreadable_lines_are_counted_and_left_out(store: Make, folder: Path, log: MemoryLog) -> None:
    await fill(chats := store(3), 5)
    newer = b'{"v":9,"ts":7,"channel":"w","chatId":"1","chatKey":"w:chat:1","role":"user","text":"newer","more":{}}\n'
    broken = [
        b"no json\n",
        b"\n",
        b'{"ts":"soon","channel":"w","chatId":"1","chatKey":"k","role":"user","text":"t"}\n',
        b'{"text":"no role"}\n',
        b"[1]\n",
        b"\xff\xfe\n",
        b"\0" * 20 + b"\n",
        b"[" * 100_000 + b"\n",
    ]
    archive = folder / f"{NAME}.archive-1.jsonl"
    archive.write_bytes(b"".join(broken) + newer + archive.read_bytes())
    page = await chats.search(KEY, HistoryQuery())
    assert [line.text for line in page.lines] == ["newer", *numbered(5)]
    assert (page.total, page.unreadable) == (6, 7)
    (warning,) = log.at("warn")
    assert (warning.chat_key, warning.details) == (KEY, {"unreadable": 7})


async def test_a_page_counts_what_it_read_and_reads_no_older_file(store: Make, folder: Path) -> None:
    await fill(store(limit=4), 40)
    disk = FaultyDisk(SystemDisk())
    reader = store(limit=4, disk=disk)
    for limit, offset in ((3, 0), (3, 5), (1, 38), (2, 39), (5, 60)):
        page = await reader.search(KEY, HistoryQuery(limit=limit, offset=offset))
        assert [line.text for line in page.lines] == numbered(40)[::-1][offset : offset + limit][::-1]
        assert page.total == min(40, offset + limit)
    disk.done.clear()
    await reader.search(KEY, HistoryQuery(limit=3))
    assert len([name for kind, name in disk.done if kind == "read" and "jsonl" in name]) <= 2


async def test_edits_replace_and_removals_hide_lines_in_any_file(store: Make, folder: Path) -> None:
    chats = store(4)
    removal: dict[str, Any] = {
        "role": "system",
        "meta": {"deleted": True, "requestId": "R9", "of": ["R1"], "ofRole": "user"},
    }
    await chats.append(said("teh", messageId="a", ts=1))
    await chats.append(said("my answer", messageId="a", role="assistant", ts=2))
    await chats.append(said("secret", messageId="b"))
    await chats.append(said("", messageId="b", **removal))
    await chats.append(said("", messageId="late", **removal))
    await chats.append(said('{"deleted":true,"messageId":"a"}', messageId="c"))
    await chats.append(said("a note", messageId="a", role="system", meta={"deleted": "yes"}))
    await fill(chats, 9)
    await chats.append(said("the", messageId="a", ts=3, meta={"edited": True}))
    await chats.append(said("exported after its removal", messageId="late"))
    shown = ["my answer", '{"deleted":true,"messageId":"a"}', *numbered(9), "the"]
    for one in (chats, store(4)):
        assert await found(one) == shown
    assert await found(chats, keyword="teh") == await found(chats, keyword="secret") == []
    assert {"teh", "secret"} < {*await found(chats, everything=True)}
    removals = await chats.removals(KEY)
    assert {(line.message_id, (line.meta or {})["of"][0]) for line in removals} == {
        ("b", "R1"),
        ("late", "R1"),
    }
    for path in folder.glob("*.archive-*"):  # an erasure rewrites files in this way
        lines = [line for line in path.read_bytes().split(b"\n") if b'"deleted":true' not in line]
        path.write_bytes(b"\n".join(lines))
    assert "secret" in await found(chats)
