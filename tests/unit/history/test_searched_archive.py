"""The archive with its index beside it: an append never waits for it, and a search never needs it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.archive import ArchiveLine
from bot.contracts.identity import ChatKey
from bot.contracts.recall import RecallQuery
from bot.core.file_names import encode
from bot.history.archive.store import ChatStore
from bot.history.search import index, searched_archive
from bot.history.search.searched_archive import SearchedArchive
from bot.system import SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog

NOW = 1_800_000_000_000
KEY = ChatKey.parse("web:chat:1")


class Desk:
    def __init__(self, root: Path) -> None:
        self.folder, self.path = root / "chats", root / "index.db"
        self.log = MemoryLog()
        self.ts = NOW
        self.archive = self.opened()

    def opened(self, path: Path | None = None, **more: Any) -> SearchedArchive:
        store = ChatStore(self.folder, disk=SystemDisk(), log=self.log, clock=FakeClock())
        return SearchedArchive(
            store, path or self.path, folder=self.folder, disk=SystemDisk(), log=self.log, **more
        )

    async def say(self, text: str, key: ChatKey = KEY, **fields: Any) -> None:
        self.ts += 60_000
        line = {"ts": self.ts, "channel": "web", "chatId": "1", "chatKey": key, "role": "user", "text": text}
        await self.archive.append(ArchiveLine.model_validate({**line, **fields}))

    async def find(self, query: str, *keys: ChatKey, **more: Any) -> list[str]:
        found = await self.archive.recall(keys or (KEY,), RecallQuery((query,), self.ts, **more))
        return [hit.line.text for hit in found.hits]

    def indexed(self) -> int:
        """Lines in the file of the index, as somebody else sees them."""
        db = sqlite3.connect(self.path)
        try:
            return int(db.execute("SELECT count(*) FROM lines").fetchone()[0])
        finally:
            db.close()


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setattr(searched_archive, "LINGER", 0.0)
    desk = Desk(tmp_path)
    yield desk
    await desk.archive.close()


async def test_what_is_written_is_indexed_by_itself(desk: Desk) -> None:
    for number in range(5):
        await desk.say(f"line {number}")
    await desk.archive.caught_up()
    assert desk.indexed() == 5


async def test_a_search_sees_what_was_written_just_before(desk: Desk) -> None:
    await desk.say("the red umbrella")
    assert await desk.find("umbrellas") == ["the red umbrella"]


async def test_after_a_crash_the_rest_is_found_by_whoever_looks(desk: Desk) -> None:
    store = ChatStore(desk.folder, disk=SystemDisk(), log=desk.log, clock=FakeClock())
    given = {"channel": "web", "chatId": "1", "chatKey": str(KEY), "role": "user"}
    for number in range(3):
        line = ArchiveLine.model_validate({**given, "ts": NOW + number, "text": f"left behind {number}"})
        await store.append(line)
    await store.close()
    await desk.archive.tend()
    await desk.archive.caught_up()
    assert desk.indexed() == 3
    await desk.archive.tend()
    assert set(await desk.find("left")) == {"left behind 0", "left behind 1", "left behind 2"}


@pytest.mark.parametrize("wreck", [b"no database at all", b"SQLite format 3\x00" + b"\xff" * 9_000])
async def test_a_damaged_index_is_made_anew_and_the_search_answers_all_the_same(
    desk: Desk, wreck: bytes
) -> None:
    await desk.say("the red umbrella")
    await desk.archive.close()
    desk.path.write_bytes(wreck)
    desk.archive = desk.opened()
    assert await desk.find("umbrella") == ["the red umbrella"]
    await desk.archive.tend()
    await desk.archive.caught_up()
    assert desk.indexed() == 1


async def test_pages_that_went_bad_under_a_running_index_are_given_up(desk: Desk) -> None:
    for number in range(200):
        await desk.say(f"umbrella number{number}")
    await desk.archive.caught_up()
    db = sqlite3.connect(desk.path)
    db.execute("UPDATE tokens_data SET block = ? WHERE id > 10", (b"\xff" * 40,))
    db.commit()
    db.close()
    first = await desk.archive.recall([KEY], RecallQuery(("number150",), desk.ts))
    assert [hit.line.text for hit in first.hits][:1] == ["umbrella number150"]
    assert not first.complete
    again = await desk.archive.recall([KEY], RecallQuery(("number150",), desk.ts))
    assert again.complete
    assert [hit.line.text for hit in again.hits][:1] == ["umbrella number150"]
    assert any("the search index cannot be used" in entry.message for entry in desk.log.entries)


async def test_many_chats_are_indexed_and_one_that_cannot_be_read_keeps_none_out(desk: Desk) -> None:
    for number in range(120):
        await desk.say(f"line {number}", ChatKey("web", f"{number}"))
    (desk.folder / "web~zzz.jsonl").mkdir()
    await desk.archive.caught_up()
    await desk.archive.tend()
    await desk.archive.caught_up()
    assert desk.indexed() == 120


async def test_an_index_is_rebuilt_beside_a_gateway_that_goes_on(desk: Desk) -> None:
    await desk.say("the red umbrella")
    assert await desk.find("umbrella") == ["the red umbrella"]
    assert index.rebuild(desk.path, desk.folder, SystemDisk()) == (1, 1)
    assert await desk.find("umbrella") == ["the red umbrella"]
    await desk.say("another umbrella")
    await desk.archive.caught_up()
    assert desk.indexed() == 2
    assert set(await desk.find("umbrella")) == {"the red umbrella", "another umbrella"}


async def test_where_no_index_can_be_had_the_newest_lines_are_looked_through(desk: Desk) -> None:
    await desk.say("the red umbrella")
    desk.path.unlink(missing_ok=True)
    desk.path.mkdir()
    found = await desk.archive.recall([KEY], RecallQuery(("umbrella",), desk.ts))
    assert ([hit.line.text for hit in found.hits], found.complete) == (["the red umbrella"], False)


async def test_where_much_is_missing_the_newest_is_looked_at(desk: Desk) -> None:
    for number in range(30):
        await desk.say(f"umbrella number{number}")
    await desk.archive.caught_up()
    await desk.archive.close()
    for end in ("", "-wal", "-shm"):
        desk.path.with_name(desk.path.name + end).unlink(missing_ok=True)
    desk.archive = desk.opened(wait_bytes=1_000)
    found = await desk.archive.recall([KEY], RecallQuery(("umbrella",), desk.ts, limit=100))
    assert not found.complete
    assert 3 <= len(found.hits) < 30
    assert "umbrella number29" in {hit.line.text for hit in found.hits}
    assert (await desk.archive.recall([KEY], RecallQuery(("number3",), desk.ts))).hits == []


async def test_a_question_of_words_that_are_everywhere_is_taken_literally(desk: Desk) -> None:
    await desk.say("so, are you with us?")
    await desk.say("nobody")
    assert await desk.find("are you with us") == ["so, are you with us?"]
    assert await desk.find("  ") == []


async def test_what_was_asked_for_narrows_what_is_found(desk: Desk) -> None:
    await desk.say("umbrella one")
    await desk.say("umbrella two", role="assistant")
    await desk.say("umbrella three")
    assert await desk.find("umbrella", role="assistant") == ["umbrella two"]
    assert set(await desk.find("umbrella", after=NOW + 120_000)) == {"umbrella two", "umbrella three"}
    assert await desk.find("umbrella", before=NOW + 120_000) == ["umbrella one"]
    assert await desk.find("umbrella", keyword="THREE") == ["umbrella three"]
    assert await desk.find("umbrella", skip=lambda line: line.role == "user") == ["umbrella two"]
    both = await desk.find("umbrella", limit=2), await desk.find("umbrella", limit=2, offset=2)
    assert sorted([*both[0], *both[1]]) == ["umbrella one", "umbrella three", "umbrella two"]


async def test_the_chats_of_a_channel_are_listed(desk: Desk) -> None:
    await desk.say("a", key=ChatKey.parse("web:chat:1"))
    await desk.say("b", key=ChatKey.parse("slack:chat:C1:thread:1.2"))
    assert await desk.archive.kept("slack") == [ChatKey.parse("slack:chat:C1:thread:1.2")]
    assert [info.chat_key for info in await desk.archive.chats()] == [
        "slack:chat:C1:thread:1.2",
        "web:chat:1",
    ]
    assert (desk.folder / f"{encode(KEY)}.jsonl").exists()


async def test_a_chat_whose_key_is_too_long_for_a_file_is_listed_by_its_key(desk: Desk) -> None:
    long = ChatKey("slack", "長" * 100)
    assert await desk.archive.kept("slack") == []
    await desk.say("a", key=long)
    for _ in range(2):
        assert await desk.archive.kept("slack") == [long]
    assert await desk.find("a", long) == ["a"]
    (desk.folder / f"{encode(f'{long}2')}.jsonl").write_bytes(b"not a line\n")
    assert await desk.archive.kept("slack") == [long], "nothing tells the key of the other one"


async def test_the_list_of_chats_is_the_same_with_and_without_the_index(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await desk.say(f"line {number}")
    await desk.say("", role="system", messageId="x", meta={"deleted": True})
    await desk.say("b", key=ChatKey.parse("slack:chat:C1"))
    store = ChatStore(desk.folder, disk=SystemDisk(), log=desk.log, clock=FakeClock())
    with (desk.folder / f"{encode(KEY)}.jsonl").open("ab") as file:
        file.write(b"\nno line\n")
    expected = await store.chats()
    assert [info.lines for info in expected] == [1, 5]
    assert await desk.archive.chats() == expected
    await desk.archive.recall([KEY, ChatKey.parse("slack:chat:C1")], RecallQuery(("line",), desk.ts))
    counted: list[object] = []
    monkeypatch.setattr(ChatStore, "_counted", staticmethod(lambda *told: counted.append(told)))
    assert await desk.archive.chats() == expected
    assert counted == [], "no line was read"
    monkeypatch.undo()
    with (desk.folder / f"{encode(KEY)}.jsonl").open("ab") as file:
        file.write(b"written by somebody else\n")
    assert await desk.archive.chats() == await store.chats()
    assert [info.lines for info in await desk.archive.chats()] == [1, 6]


async def test_the_list_of_chats_needs_no_index(desk: Desk) -> None:
    await desk.say("a")
    await desk.archive.caught_up()
    without = desk.opened(path=desk.folder)  # none can be made there
    assert [info.lines for info in await without.chats()] == [1]
    await without.close()
    assert any("cannot be used" in entry.message for entry in desk.log.entries)
