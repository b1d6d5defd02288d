"""Literal text by the index: the same windows as by reading every line."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.archive import ArchiveLine, HistoryPage, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.core import file_names
from bot.core.archive import window
from bot.history.archive.store import ChatStore
from bot.history.search import index, literal, matching, searched_archive
from bot.history.search.searched_archive import SearchedArchive
from bot.system import SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.shares import one_in

KEY = ChatKey.parse("web:chat:1")
WORDS = [
    "boat",
    "boats",
    "the",
    "then",
    "fooBar_baz",
    "FOOBAR",
    "C++",
    "1,234.50",
    "Straße",
    "STRASSE",
    "ﬁnd",
    "K",
    "café",
    "cafe\u0301",
    "don't",
    "Anna's",
    "https://example.org/a?b=c&d",
    ":-)",
    "—",
    "鯨",
    "鯨が好き",
    "船長と鯨",
    "か\u3099く",
    "がく",
    "ｶﾞｸ",
    "㍿",
    "ＡＢＣ",
    "İstanbul",
    "שלום",
    "привет",
    "👩‍👩‍👧",
    "한국어",
    "\u1112\u1161\u11ab",
    "iPhone手机",
    "x" * 300,
    "\u212a",
]
KEYWORDS = [
    "boat",
    "oat",
    "BOATS",
    "t",
    "he",
    "foobar",
    "oBar_b",
    "c++",
    "1,234",
    "234.5",
    "ss",
    "strasse",
    "fi",
    "k",
    "café",
    "caf",
    "é",
    "n't",
    "'s",
    "example.org/a?b",
    ":-)",
    "-",
    "鯨",
    "鯨が",
    "長と鯨",
    "か",
    "がく",
    "ｶﾞ",
    "株式",
    "㍿",
    "abc",
    "ａｂｃ",
    "i̇stan",
    "שלו",
    "ПРИВ",
    "👩",
    "한국",
    "한",
    "phone手",
    "手机",
    "x" * 150,
    "boat the",
    "boats 鯨",
    " 鯨",
    "鯨 ",
    " ",
    "nothing",
    "\u212a",
]


class Shelf:
    def __init__(self, root: Path) -> None:
        self.folder, self.path, self.log = root / "chats", root / "index.db", MemoryLog()
        self.store = ChatStore(
            self.folder, disk=SystemDisk(), log=self.log, clock=FakeClock(), archive_after_lines=40
        )
        self.archive = SearchedArchive(
            self.store, self.path, folder=self.folder, disk=SystemDisk(), log=self.log
        )
        self.ts = 1_700_000_000_000
        self.index: index.Index | None = None

    async def say(self, text: str, **fields: object) -> None:
        self.ts += 60_000
        line = {
            "ts": self.ts,
            "channel": "web",
            "chatId": "1",
            "chatKey": str(KEY),
            "role": "user",
            "text": text,
        }
        await self.archive.append(ArchiveLine.model_validate(line | fields))

    async def by_index(self, query: HistoryQuery, name: str = file_names.encode(KEY)) -> HistoryPage | None:
        """Ask the index itself, once the archive has it on file."""
        await self.archive.caught_up()
        if self.index is None:
            self.index = index.Index.opened(self.path, self.folder, SystemDisk())
        return matching.page(self.index, name, query)

    def reopened(self, path: Path, **more: Any) -> SearchedArchive:
        """The archive as another process has it that keeps its index in `path`."""
        return SearchedArchive(self.store, path, folder=self.folder, disk=SystemDisk(), log=self.log, **more)


@pytest.fixture
async def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shelf]:
    monkeypatch.setattr(searched_archive, "LINGER", 0.0)
    shelf = Shelf(tmp_path)
    yield shelf
    if shelf.index is not None:
        shelf.index.close()
    await shelf.archive.close()


async def talked(shelf: Shelf, rnd: random.Random) -> None:
    """Lines, edits and removals in any order."""
    ids: list[tuple[str, str]] = []
    for number in range(120):
        text = rnd.choice(["", " ", "\n"]).join(rnd.choices(WORDS, k=rnd.randrange(1, 5)))
        role, what = rnd.choice(["user", "assistant"]), rnd.random()
        if what < 0.75 or not ids:
            ids.append((f"m{number}", role))
            await shelf.say(text, role=role, messageId=f"m{number}")
        elif what < 0.9:
            name, role = rnd.choice(ids)
            meta = {"edited": True, "requestId": f"R{number:03}"}
            await shelf.say(text, role=role, messageId=name, meta=meta)
        else:
            await shelf.say("", role="system", messageId=rnd.choice(ids)[0], meta={"deleted": True})


def narrowed(shelf: Shelf, rnd: random.Random, keyword: str, limits: list[int]) -> HistoryQuery:
    return HistoryQuery(
        limit=rnd.choice(limits),
        offset=rnd.choice([0, 0, 2]),
        keyword=keyword,
        role=rnd.choice([None, None, "user", "assistant"]),
        before=rnd.choice([None, shelf.ts - 1_000_000]),
        after=rnd.choice([None, shelf.ts - 5_000_000]),
        skip=rnd.choice([None, lambda line: "boats" in line.text]),
    )


@pytest.mark.parametrize("seed", one_in(2, range(4)))
async def test_the_same_lines_are_found_as_by_reading_all(shelf: Shelf, seed: int) -> None:
    rnd = random.Random(seed)
    await talked(shelf, rnd)
    by_index = 0
    for keyword in KEYWORDS:
        query = narrowed(shelf, rnd, keyword, limits=[3, 50])
        expected = await shelf.store.search(KEY, query)
        assert await shelf.archive.search(KEY, query) == expected, repr(keyword)
        by_index += (await shelf.by_index(query)) is not None
    assert by_index > len(KEYWORDS) * 0.6, "most are found by the index"


@pytest.mark.parametrize("seed", one_in(2, range(4)))
async def test_the_newest_of_very_many_lines_are_those_that_reading_finds(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(matching, "MOST", 3)
    monkeypatch.setattr(matching, "REFUSED", 6)
    rnd = random.Random(seed)
    await talked(shelf, rnd)
    by_index = 0
    for keyword in KEYWORDS:
        query = replace(narrowed(shelf, rnd, keyword, limits=[1, 3]), counted=False)
        expected, found = await shelf.store.search(KEY, query), await shelf.archive.search(KEY, query)
        assert found.lines == expected.lines, repr(keyword)
        assert not found.counted or found.total == expected.total or not expected.counted
        page = await shelf.by_index(query)
        by_index += page is not None and not page.counted
    assert by_index >= 8, "many are found by the index"


async def test_a_late_edit_of_an_old_line_is_among_the_newest(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "MOST", 10)
    monkeypatch.setattr(matching, "REFUSED", 1)
    for number in range(30):
        await shelf.say(f"boat {number}", messageId=f"m{number}")
    await shelf.say("boat 3 it was", messageId="m3", meta={"edited": True, "requestId": "R1"})
    query = HistoryQuery(limit=2, keyword="boat", counted=False)
    await shelf.archive.search(KEY, query)
    page = await shelf.by_index(query)
    assert page is not None
    assert [line.text for line in page.lines] == ["boat 29", "boat 3 it was"]
    monkeypatch.setattr(matching, "MOST_TOKENS", 0)
    assert await shelf.by_index(query) is None, "too many edits to look at"


@pytest.mark.parametrize(
    "raw",
    [
        b"no JSON",
        b"[1]",
        b'{"ts":2,"role":"user","text":"a"}',
        b'{"ts":1,"role":"system","text":"a"}',
        b'{"ts":1,"role":"user"}',
        b'{"ts":1,"role":"user","text":"\\ud800"}',
    ],
)
def test_a_line_of_another_form_is_read_with_care(raw: bytes) -> None:
    assert matching.line_text(raw, 1, "user") is None
    assert matching.line_text(b'{"v":1,"ts":1,"role":"user","text":"\\u00e9\\n"}\n', 1, "user") == "\u00e9\n"


async def test_few_lines_are_read_for_a_rare_word(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        await shelf.say(f"message number {number} of many")
    await shelf.say("the Petrel-class harbour boat 船長")
    read: list[bytes] = []

    def reading(raw: bytes) -> ArchiveLine | None:
        read.append(raw)
        return window.read_line(raw)

    monkeypatch.setattr(matching, "read_line", reading)
    for keyword in ("petrel", "trel-cl", "長", "petrel-class harbour"):
        read.clear()
        page = await shelf.archive.search(KEY, HistoryQuery(keyword=keyword))
        assert (page.total, len(read)) == (1, 1), keyword


async def test_what_is_everywhere_is_found_from_the_newest_on(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "MOST", 10)
    for number in range(90):
        await shelf.say(f"boat {number}")
    page = await shelf.archive.search(KEY, HistoryQuery(limit=2, keyword="boat", counted=False))
    assert ([line.text for line in page.lines], page.counted) == (["boat 88", "boat 89"], False)
    page = await shelf.archive.search(KEY, HistoryQuery(limit=2, keyword="boat"))
    assert (page.total, page.counted) == (90, True)


async def test_many_words_with_the_text_in_them_are_not_looked_up(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "MOST_TOKENS", 3)
    for number in range(5):
        await shelf.say(f"ab{number}cd 鯨{number}")
    query = HistoryQuery(keyword="ab")
    assert await shelf.by_index(query, "none") is None
    assert await shelf.by_index(query) is None
    assert (await shelf.archive.search(KEY, query)).total == 5
    assert (await shelf.archive.search(KEY, HistoryQuery(keyword="ab3cd 鯨3"))).total == 1


async def test_without_an_index_every_line_is_read(shelf: Shelf) -> None:
    await shelf.say("the red boat")
    await shelf.archive.caught_up()
    without = shelf.reopened(shelf.folder)  # none can be made there
    page = await without.search(KEY, HistoryQuery(keyword="ED BO"))
    await without.close()
    assert [line.text for line in page.lines] == ["the red boat"]
    assert any("cannot be used" in entry.message for entry in shelf.log.entries)


async def test_a_chat_that_is_far_behind_is_read(shelf: Shelf) -> None:
    await shelf.say("the red boat")
    behind = shelf.reopened(shelf.path, wait_bytes=-1)
    assert (await behind.search(KEY, HistoryQuery(keyword="red"))).total == 1
    await behind.close()


async def test_a_line_that_was_changed_by_hand_is_not_taken_for_what_it_was(shelf: Shelf) -> None:
    await shelf.say("the red boat")
    await shelf.say("the end")
    await shelf.archive.caught_up()
    (path,) = shelf.folder.glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"role":"user"', b'"role":"syst"', 1))
    page = await shelf.archive.search(KEY, HistoryQuery(keyword="red"))
    assert page.lines == []


async def test_searches_and_appends_at_once_lose_nothing(shelf: Shelf) -> None:
    async def says() -> None:
        for number in range(40):
            await shelf.say(f"boat {number}")

    async def looks() -> None:
        for _ in range(20):
            page = await shelf.archive.search(KEY, HistoryQuery(limit=100, keyword="boat"))
            numbers = [int(line.text.split()[1]) for line in page.lines]
            assert numbers == list(range(len(numbers)))

    await asyncio.gather(says(), looks())
    assert (await shelf.archive.search(KEY, HistoryQuery(keyword="boat"))).total == 40


@pytest.mark.parametrize("keyword", ["", " ", "\n\t", "a", "か\u3099"])
def test_text_that_narrows_nothing_down(keyword: str) -> None:
    assert literal.sought(keyword) is None


def test_a_word_that_no_token_stands_for_is_known_as_such() -> None:
    known: set[str] = set()
    assert literal.runs("the", set(), known) == ([("the", "")], True)
    assert literal.runs("Boats", {"boat"}, known) == ([("boats", "boat")], True)
    assert literal.runs("Boats the", {"boat"}, known) == ([], True)
    assert literal.runs("Boote", set(), known) == ([], False), "its tokens are not those of the text"
    assert literal.runs("Boats \u00e9", set(), known)[1] is False, "nor are they here"
    for _ in range(2):
        assert literal.runs("x" * 201, {"x"}, known) == ([], False)


def test_a_chat_that_begins_anew_forgets_its_words(tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    folder.mkdir()
    path = folder / f"{file_names.encode(KEY)}.jsonl"
    line = '{{"ts":1,"channel":"web","chatId":"1","chatKey":"web:chat:1","role":"user","text":"{}"}}\n'
    path.write_text(line.format("petrel"))
    opened = index.Index.opened(tmp_path / "i.db", folder, SystemDisk())
    opened.catch_up(file_names.encode(KEY))
    path.write_text(line.format("albatross"))
    opened.catch_up(file_names.encode(KEY))
    assert [row[0] for row in opened.db.execute("SELECT run FROM runs")] == ["albatross"]
    opened.close()
