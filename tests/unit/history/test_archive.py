"""What is on disk: the lines, the archives, and nothing lost or doubled while many write."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.core.archive.store import ChatInfo
from bot.history.archive.store import ChatStore
from bot.system import SystemDisk
from bot.testing.disk import FaultyDisk
from bot.testing.log import MemoryLog
from tests.shares import examples

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
    await chats.close()
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
    await chats.close()
    assert page.lines[0].text == "a\ufffdb\x00"
    assert page.lines[0].meta == {"k\ufffd": ["😀"]}


async def test_files_are_private_and_nothing_else_is_touched(
    store: Make, folder: Path, tmp_path: Path, said: Said
) -> None:
    chats = store(2)
    await fill(chats, said, 3)
    for key in ("../../evil", "/etc/x", "a\0b", "..", " ", "x.archive-1"):
        await chats.append(said("x", f"web:chat:{key}"))
    await chats.close()
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
    await chats.close()
    assert texts(folder / f"{NAME}.archive-1.jsonl") == ["t0"]
    assert [
        line.text for line in (await chats.search(ChatKey.parse(f"{KEY}.archive-1"), HistoryQuery())).lines
    ] == ["mine"]


async def test_the_line_over_the_threshold_moves_the_older_half(
    store: Make, folder: Path, said: Said
) -> None:
    chats = store(1000)
    await asyncio.gather(*(chats.append(said(f"t{number}")) for number in range(1000)))
    assert [path.name for path in folder.glob("*.jsonl")] == [f"{NAME}.jsonl"]
    await chats.append(said("t1000"))
    await chats.close()
    assert texts(folder / f"{NAME}.archive-1.jsonl") == [f"t{number}" for number in range(500)]
    assert texts(folder / f"{NAME}.jsonl") == [f"t{number}" for number in range(500, 1001)]


async def test_how_lines_are_batched_does_not_change_where_they_end_up(
    store: Make, folder: Path, said: Said
) -> None:
    chats = store(10)
    await asyncio.gather(*(chats.append(said(f"t{number}")) for number in range(40)))
    await chats.close()
    together = {path.name: texts(path) for path in folder.glob("*.jsonl")}
    for path in folder.iterdir():
        path.unlink()
    chats = store(10)
    await fill(chats, said, 40)
    await chats.close()
    assert {path.name: texts(path) for path in folder.glob("*.jsonl")} == together
    assert together[f"{NAME}.archive-3.jsonl"] == ["t10", "t11", "t12", "t13", "t14"]


async def test_the_next_archive_is_newer_than_all_even_where_older_ones_were_taken_away(
    store: Make, folder: Path, said: Said
) -> None:
    chats = store(2)
    await fill(chats, said, 8)
    await chats.close()
    for number in (1, 2):
        (folder / f"{NAME}.archive-{number}.jsonl").unlink()
    chats = store(2)
    await fill(chats, said, 8, start=8)
    page = await chats.search(KEY, HistoryQuery(limit=100))
    await chats.close()
    assert [line.text for line in page.lines] == [f"t{number}" for number in range(2, 16)]
    assert not (folder / f"{NAME}.archive-1.jsonl").exists()


async def test_lines_of_many_chats_go_out_together_with_one_write_each(
    folder: Path, store: Make, said: Said
) -> None:
    disk = FaultyDisk(SystemDisk())
    chats = store(disk=disk)
    await chats.append(said("0", "w:chat:a"))
    await chats.append(said("0", "w:chat:b"))
    disk.done.clear()
    lines = [said(f"{number}", f"w:chat:{key}") for number in range(1, 21) for key in "ab"]
    await asyncio.gather(*(chats.append(line) for line in lines))
    await chats.close()
    assert [step for step in disk.done if step[0] in {"append", "replace", "read"}] == [
        ("append", "w%3Achat%3Aa.jsonl"),
        ("append", "w%3Achat%3Ab.jsonl"),
    ]
    assert texts(folder / "w%3Achat%3Aa.jsonl") == [f"{number}" for number in range(21)]


async def test_an_append_does_not_read_the_file_again(store: Make, said: Said) -> None:
    disk = FaultyDisk(SystemDisk())
    chats = store(disk=disk)
    await fill(chats, said, 3)
    disk.done.clear()
    await fill(chats, said, 20)
    await chats.close()
    assert "read" not in {kind for kind, _ in disk.done}


@settings(derandomize=True, deadline=None, max_examples=examples(40))
@given(
    limit=st.integers(1, 7),
    rounds=st.lists(st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab")), max_size=12), max_size=6),
)
def test_two_stores_writing_across_the_threshold_lose_and_double_nothing(
    limit: int, rounds: list[list[tuple[int, str]]]
) -> None:
    async def write(folder: Path) -> None:
        pair = [
            ChatStore(folder, disk=SystemDisk(), log=MemoryLog(), archive_after_lines=limit) for _ in range(2)
        ]
        wanted: Counter[tuple[str, str]] = Counter()
        orders: dict[tuple[str, int], list[str]] = {}
        for number, batch in enumerate(rounds):
            appends = []
            for place, (which, key) in enumerate(batch):
                # Some lines are the same to the last byte: identical ones count as often as they were said.
                text = f"{which}:{number if place % 3 else 0}:{place}"
                wanted[key, text] += 1
                orders.setdefault((key, which), []).append(text)
                line = ArchiveLine(
                    ts=1, channel="w", chat_id="1", chat_key=ChatKey("w", key), role="user", text=text
                )
                appends.append(pair[which].append(line))
            await asyncio.gather(*appends)
        found: Counter[tuple[str, str]] = Counter()
        for key in "ab":
            page = await pair[0].search(ChatKey("w", key), HistoryQuery(limit=1000))
            found.update((key, line.text) for line in page.lines)
            for which in (0, 1):
                mine = [line.text for line in page.lines if line.text.startswith(f"{which}:")]
                assert mine == orders.get((key, which), [])
            main = folder / f"w%3Achat%3A{key}.jsonl"
            assert not main.exists() or len(texts(main)) <= limit
        assert found == wanted
        for one in pair:
            await one.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write(Path(folder) / "chats"))


async def test_identical_lines_are_never_taken_for_a_cut_off_rotation(
    store: Make, folder: Path, said: Said
) -> None:
    for _ in range(9):
        chats = store(2)  # opened anew each time, as after a restart
        await chats.append(said("same"))
        await chats.close()
    assert (await store(2).search(KEY, HistoryQuery())).total == 9


def test_two_processes_on_one_folder_lose_and_double_nothing(folder: Path) -> None:
    script = Path(__file__).with_name("process_appends.py")
    processes = [
        subprocess.Popen([sys.executable, str(script), str(folder), who, "60", "7"]) for who in ("one", "two")
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    found = [text for path in folder.glob(f"{NAME}*.jsonl") for text in texts(path)]
    assert sorted(found) == sorted(f"{who}:{number}" for who in ("one", "two") for number in range(60))
    order = {path.name: texts(path) for path in folder.glob(f"{NAME}*.jsonl")}
    archives = len(order) - 1
    whole = [text for n in range(1, archives + 1) for text in order[f"{NAME}.archive-{n}.jsonl"]]
    whole += order[f"{NAME}.jsonl"]
    for who in ("one", "two"):
        assert [text for text in whole if text.startswith(who)] == [f"{who}:{n}" for n in range(60)]


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
    await chats.close()


async def test_a_hashed_chat_is_named_by_its_first_line_that_tells(
    store: Make, folder: Path, said: Said
) -> None:
    chats = store(2)
    long = "k:chat:" + "k" * 250
    for _ in range(3):
        await chats.append(said("x", long))
    await chats.close()
    (archive,) = folder.glob("*.archive-1.jsonl")
    archive.write_bytes(b'torn{\n{"chatKey":"another:chat:1"}\n' + archive.read_bytes())
    assert [info.chat_key for info in await store().chats()] == [long]
    archive.write_bytes(b"")
    (folder / archive.name.replace(".archive-1", "")).write_bytes(b"?\n")
    assert [info.chat_key for info in await store().chats()] == [archive.name.partition(".")[0]]


async def test_an_empty_folder_is_no_trouble_and_reading_creates_nothing(store: Make, folder: Path) -> None:
    assert await store().chats() == []
    assert (await store().search(KEY, HistoryQuery())).lines == []
    await store().close()
    assert not folder.exists()


def test_a_command_line_uses_it_without_a_gateway(store: Make, said: Said) -> None:
    chats = store()
    asyncio.run(chats.append(said("one")))
    asyncio.run(chats.append(said("two")))
    assert asyncio.run(chats.search(KEY, HistoryQuery())).total == 2
    asyncio.run(chats.close())


@pytest.mark.parametrize("limit", [0, 1])
async def test_the_smallest_thresholds_work(store: Make, said: Said, limit: int) -> None:
    chats = store(limit)
    await fill(chats, said, 5)
    page = await chats.search(KEY, HistoryQuery())
    await chats.close()
    assert [line.text for line in page.lines] == ["t0", "t1", "t2", "t3", "t4"]
