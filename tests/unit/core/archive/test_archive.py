"""What is on disk: the lines, the archives, and nothing lost or doubled while many write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.core.archive.store import ChatInfo
from bot.system import SystemDisk
from bot.testing.disk import FaultyDisk
from tests.archives import WrittenArchive as ChatStore

Make = Callable[..., ChatStore]
Said = Callable[..., ArchiveLine]
KEY = ChatKey.parse("web:chat:1")
NAME = "web%3Achat%3A1"


def texts(path: Path) -> list[str]:
    return [json.loads(raw)["text"] for raw in path.read_bytes().split(b"\n") if raw]


async def fill(store: ChatStore, said: Said, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        await store.append(said(f"t{number}"))


async def test_a_line_on_disk_has_the_documented_fields_and_no_empty_ones(
    store: Make, folder: Path, said: Said
) -> None:
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


async def test_what_utf8_cannot_carry_is_replaced_wherever_it_stands(
    store: Make, folder: Path, said: Said
) -> None:
    chats = store()
    line = said("a\x00").model_copy(update={"text": "a\ud800b\x00", "meta": {"k\udfff": ["\ud83d\ude00"]}})
    await chats.append(line)
    page = await chats.search(KEY, HistoryQuery())
    assert page.lines[0].text == "a\ufffdb\x00"
    assert page.lines[0].meta == {"k\ufffd": ["😀"]}


async def test_files_are_private_and_nothing_else_is_touched(
    store: Make, folder: Path, tmp_path: Path, said: Said
) -> None:
    chats = store(2)
    await fill(chats, said, 3)
    for key in ("../../evil", "/etc/x", "a\0b", "..", " ", "x.archive-1"):
        await chats.append(said("x", f"web:chat:{key}"))
    assert {path.name for path in tmp_path.iterdir()} - {"shared.json"} == {"chats"}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert all(path.is_file() for path in folder.iterdir())


async def test_a_chat_named_like_another_ones_archive_stays_apart(
    store: Make, folder: Path, said: Said
) -> None:
    chats = store(2)
    await fill(chats, said, 3)
    await chats.append(said("mine", f"{KEY}.archive-1"))
    assert texts(folder / f"{NAME}.archive-1.jsonl") == ["t0"]
    assert [
        line.text for line in (await chats.search(ChatKey.parse(f"{KEY}.archive-1"), HistoryQuery())).lines
    ] == ["mine"]


async def test_the_line_over_the_threshold_moves_the_older_half(
    store: Make, folder: Path, said: Said
) -> None:
    chats = store(1000)
    await fill(chats, said, 1000)
    assert [path.name for path in folder.glob("*.jsonl")] == [f"{NAME}.jsonl"]
    await chats.append(said("t1000"))
    assert texts(folder / f"{NAME}.archive-1.jsonl") == [f"t{number}" for number in range(500)]
    assert texts(folder / f"{NAME}.jsonl") == [f"t{number}" for number in range(500, 1001)]


async def test_the_next_archive_is_newer_than_all_even_where_older_ones_were_taken_away(
    store: Make, folder: Path, said: Said
) -> None:
    chats = store(2)
    await fill(chats, said, 8)
    for number in (1, 2):
        (folder / f"{NAME}.archive-{number}.jsonl").unlink()
    chats = store(2)
    await fill(chats, said, 8, start=8)
    page = await chats.search(KEY, HistoryQuery(limit=100))
    assert [line.text for line in page.lines] == [f"t{number}" for number in range(2, 16)]
    assert not (folder / f"{NAME}.archive-1.jsonl").exists()


async def test_an_append_does_not_read_the_file_again(store: Make, said: Said) -> None:
    disk = FaultyDisk(SystemDisk())
    chats = store(disk=disk)
    await fill(chats, said, 3)
    disk.done.clear()
    await fill(chats, said, 20)
    assert "read" not in {kind for kind, _ in disk.done}


async def test_identical_lines_are_never_taken_for_a_cut_off_rotation(
    store: Make, folder: Path, said: Said
) -> None:
    for _ in range(9):
        chats = store(2)  # opened anew each time, as after a restart
        await chats.append(said("same"))
    assert (await store(2).search(KEY, HistoryQuery())).total == 9


async def test_chats_are_listed_with_their_lines_and_last_times(
    store: Make, folder: Path, said: Said
) -> None:
    chats = store(4)
    long = "web:chat:" + "長" * 100
    for number in range(7):
        await chats.append(said("x", ts=100 + number))
    await chats.append(said("y", long, ts=500))
    await chats.append(said("z", "tele:chat:\ud800gram", ts=7))
    (folder / "web%3Achat%3Agarbage.jsonl").write_bytes(b"not json\n")
    (folder / "web%3Achat%3Aempty.jsonl").write_bytes(b"")
    (folder / "someone-elses.txt").write_bytes(b"?")
    assert await chats.chats() == [
        ChatInfo(long, 1, 500),
        ChatInfo(str(KEY), 7, 106),
        ChatInfo("tele:chat:\ud800gram", 1, 7),
        ChatInfo("web:chat:garbage", 1, None),
    ]


async def test_a_hashed_chat_is_named_by_its_first_line_that_tells(
    store: Make, folder: Path, said: Said
) -> None:
    chats = store(2)
    long = "k:chat:" + "k" * 250
    for _ in range(3):
        await chats.append(said("x", long))
    (archive,) = folder.glob("*.archive-1.jsonl")
    archive.write_bytes(b'torn{\n{"chatKey":"another:chat:1"}\n' + archive.read_bytes())
    assert [info.chat_key for info in await store().chats()] == [long]
    archive.write_bytes(b"")
    (folder / archive.name.replace(".archive-1", "")).write_bytes(b"?\n")
    assert [info.chat_key for info in await store().chats()] == [archive.name.partition(".")[0]]


async def test_an_empty_folder_is_no_trouble_and_reading_creates_nothing(store: Make, folder: Path) -> None:
    assert await store().chats() == []
    assert (await store().search(KEY, HistoryQuery())).lines == []
    assert not folder.exists()


@pytest.mark.parametrize("limit", [0, 1])
async def test_the_smallest_thresholds_work(store: Make, said: Said, limit: int) -> None:
    chats = store(limit)
    await fill(chats, said, 5)
    page = await chats.search(KEY, HistoryQuery())
    assert [line.text for line in page.lines] == ["t0", "t1", "t2", "t3", "t4"]
