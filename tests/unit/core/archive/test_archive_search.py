"""Windows into the archive: exact, newest first, over all files, whatever stands in them."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.system import SystemDisk, SystemFile
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog
from tests.archives import WrittenArchive as ChatStore
from tests.shares import examples

Make = Callable[..., ChatStore]
Said = Callable[..., ArchiveLine]
KEY = ChatKey.parse("web:chat:1")
NAME = "web%3Achat%3A1"

WORDS = ["", "Fähre", "STRASSE", "straße", "東京", "(a+)+$", "İstanbul", "💶 50", "שלום", "x"]


class OpeningDisk(SystemDisk):
    """Remembers which files were opened."""

    def __init__(self) -> None:
        self.opened: list[Path] = []

    def open(self, path: Path) -> SystemFile:
        self.opened.append(path)
        return super().open(path)


async def found(store: ChatStore, **query: Any) -> list[str]:
    return [line.text for line in (await store.search(KEY, HistoryQuery(**query))).lines]


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
    said = [
        ArchiveLine.model_validate(
            {
                "ts": ts,
                "channel": "w",
                "chatId": "1",
                "chatKey": str(KEY),
                "messageId": f"{n}",
                "role": role,
                "text": text,
            }
        )
        for n, (ts, role, text) in enumerate(lines)
    ]
    skipped = given_query.pop("skipped")
    skip = None if skipped is None else (lambda line: int(line.message_id or -1) in skipped)
    query = HistoryQuery(**given_query, skip=skip)
    roles = {query.role} if query.role else {"user", "assistant"}
    matches = [
        line
        for n, line in enumerate(said)
        if line.role in roles
        and (query.before is None or line.ts < query.before)
        and (query.after is None or line.ts >= query.after)
        and (not query.keyword or query.keyword.casefold() in line.text.casefold())
        and (skipped is None or n not in skipped)
    ]
    newest_first = matches[::-1][query.offset : query.offset + query.limit]

    async def check(folder: Path) -> None:
        store = ChatStore(folder, disk=SystemDisk(), log=MemoryLog(), archive_after_lines=archive_after)
        await asyncio.gather(*(store.append(line) for line in said))
        for _ in range(2):  # the second time with what is remembered of the archives
            page = await store.search(KEY, query)
            assert page.lines == newest_first[::-1]
            assert (page.total, page.unreadable) == (len(matches), 0)

    with tempfile.TemporaryDirectory() as home:
        asyncio.run(check(Path(home)))


async def test_the_newest_lines_come_when_only_a_few_are_asked_for(store: Make, said: Said) -> None:
    chats = store()
    for number in range(100):
        await chats.append(said(f"t{number}"))
    assert await found(chats, limit=5) == ["t95", "t96", "t97", "t98", "t99"]
    assert await found(chats, limit=5, offset=5) == ["t90", "t91", "t92", "t93", "t94"]


async def test_a_keyword_is_literal_text_and_cannot_be_slow(store: Make, said: Said) -> None:
    chats = store()
    await chats.append(said("a" * 28 + "!"))
    await chats.append(said("the pattern ^(A+)+$ itself"))
    assert await found(chats, keyword="^(a+)+$") == ["the pattern ^(A+)+$ itself"]
    assert await found(chats, keyword=".*") == []


async def test_archives_of_another_time_are_not_read_again(store: Make, folder: Path, said: Said) -> None:
    chats = store(4)
    for number in range(20):
        await chats.append(said(f"t{number}", ts=number))
    everything = await found(chats)
    for path in folder.glob("*.archive-*"):
        path.unlink()
    assert await found(chats, after=17) == ["t17", "t18", "t19"]
    assert await found(chats) == everything[-4:]


async def test_what_is_remembered_of_archives_is_bounded(
    store: Make, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.core.archive.store._SPANS", 2)
    chats = store(2)
    for number in range(12):
        await chats.append(said(f"t{number}", ts=number))
    assert len(await found(chats)) == 12
    assert len(chats.spans) == 2
    assert await found(chats, before=3) == ["t0", "t1", "t2"]


async def test_archives_that_another_store_makes_meanwhile_are_found(store: Make, said: Said) -> None:
    mine, other = store(2), store(2)
    assert await found(mine) == []
    for number in range(9):
        await other.append(said(f"t{number}"))
        assert await found(mine) == [f"t{n}" for n in range(number + 1)]


async def test_a_search_works_on_other_threads(store: Make, said: Said) -> None:
    chats = store(2)
    for number in range(6):
        await chats.append(said(f"t{number}"))
    threads: set[int] = set()

    def skip(_: ArchiveLine) -> bool:
        threads.add(threading.get_ident())
        return False

    await found(chats, skip=skip)
    assert threads
    assert threading.get_ident() not in threads


async def test_lines_of_others_are_read_and_broken_ones_counted(
    store: Make, folder: Path, log: MemoryLog, said: Said
) -> None:
    chats = store(3)
    for number in range(5):
        await chats.append(said(f"t{number}"))
    minimal = b'{"ts":5,"chatKey":"web:chat:1","role":"user","text":"minimal"}\n'
    numbers = b'{"v":1,"ts":6,"channel":"telegram","chatId":-100,"chatKey":"k","userId":7,"messageId":8,"role":"user","text":"numbers"}\r\n'
    newer = b'{"v":9,"ts":7,"channel":"w","chatId":"1","chatKey":"k","role":"user","text":"\\ud800 newer","more":{}}\n'
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
    archive.write_bytes(b"".join(broken) + minimal + numbers + newer + archive.read_bytes())
    page = await chats.search(KEY, HistoryQuery())
    assert [line.text for line in page.lines] == [
        "minimal",
        "numbers",
        "\ufffd newer",
        "t0",
        "t1",
        "t2",
        "t3",
        "t4",
    ]
    assert [(line.chat_id, line.user_id) for line in page.lines[:2]] == [("", None), ("-100", "7")]
    assert (page.total, page.unreadable) == (8, 7)
    (warning,) = log.at("warn")
    assert (warning.chat_key, warning.details) == (KEY, {"unreadable": 7})
    # Left out by its time, the file still counts what cannot be read in it.
    assert (await chats.search(KEY, HistoryQuery(after=2_000_000_000_000))).unreadable == 7


async def test_a_disk_that_cannot_be_read_is_a_storage_error(store: Make, folder: Path, said: Said) -> None:
    disk = FaultyDisk(SystemDisk())
    chats = store(2, disk)
    for number in range(3):
        await chats.append(said(f"t{number}"))
    disk.fail(Failure("read", times=None))
    with pytest.raises(errors.StorageError, match="cannot be read"):
        await chats.search(KEY, HistoryQuery())
    with pytest.raises(errors.StorageError, match="cannot be read"):
        await chats.chats()
    disk.mend()
    archive = folder / f"{NAME}.archive-1.jsonl"
    archive.unlink()
    archive.mkdir()
    with pytest.raises(errors.StorageError, match="cannot be read"):
        await chats.search(KEY, HistoryQuery())


async def test_a_reader_that_may_not_lock_reads_all_the_same(
    store: Make, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = store()
    await chats.append(said("t"))

    opened = os.open

    def refused(path: Path, flags: int, *mode: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *mode)

    monkeypatch.setattr("bot.storage.jsonl.os.open", refused)
    assert await found(store()) == ["t"]


async def test_a_window_that_counts_nothing_is_the_same_and_reads_no_older_file(
    store: Make, folder: Path, said: Said
) -> None:
    written = store(limit=4)
    for number in range(40):
        await written.append(said(f"line {number}", ts=number, message_id=f"{number}"))
    gone = {"ts": 50, "role": "system", "message_id": "39", "meta": {"deleted": True}}
    await written.append(said("", **gone))
    disk = OpeningDisk()
    reader = store(limit=4, disk=disk)
    await reader.search(KEY, HistoryQuery(limit=1))
    for limit, offset in ((3, 0), (3, 5), (1, 38), (2, 38), (5, 60)):
        whole = await reader.search(KEY, HistoryQuery(limit=limit, offset=offset))
        page = await reader.search(KEY, HistoryQuery(limit=limit, offset=offset, counted=False))
        assert page.lines == whole.lines
        assert page.total == min(whole.total, offset + limit)
        assert whole.total == 39
    disk.opened.clear()
    await reader.search(KEY, HistoryQuery(limit=3, counted=False))
    assert len(disk.opened) <= 3
    # What was read in part alone is not taken for the whole file.
    assert (await reader.search(KEY, HistoryQuery(before=38, after=0))).total == 38


async def test_a_removal_in_an_archive_counts_and_an_archive_that_was_changed_is_looked_at_again(
    store: Make, folder: Path, said: Said
) -> None:
    archive = store(limit=4)
    await archive.append(said("secret", ts=1, message_id="1"))
    await archive.append(said("", ts=2, role="system", message_id="1", meta={"deleted": True}))
    for number in range(3, 20):
        await archive.append(said(f"line {number}", ts=number, message_id=f"{number}"))
    for _ in range(2):
        assert "secret" not in await found(archive, limit=50)
        assert (await archive.search(KEY, HistoryQuery(limit=50))).total == 17
    first = folder / f"{NAME}.archive-1.jsonl"
    first.write_bytes(first.read_bytes().split(b"\n")[0] + b"\n")
    assert "secret" in await found(archive, limit=50)
