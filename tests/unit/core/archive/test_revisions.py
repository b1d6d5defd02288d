"""Edits take the place of what they change and removals hide it, in whatever order the lines stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.core.archive.window import revisions
from bot.storage.artifacts import ArtifactStore
from bot.system import SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.disk import FaultyDisk
from bot.testing.log import MemoryLog
from tests.archives import WrittenArchive as ChatStore
from tests.shares import examples

KEY = ChatKey.parse("slack:chat:C1")


@dataclass
class Chat:
    root: Path
    after: int = 1_000
    disk: FaultyDisk = field(default_factory=lambda: FaultyDisk(SystemDisk()))

    def __post_init__(self) -> None:
        self.store = ChatStore(self.root, disk=self.disk, log=MemoryLog(), archive_after_lines=self.after)

    async def say(
        self,
        message_id: str | None,
        text: str,
        role: Literal["user", "assistant", "system"] = "user",
        ts: int = 1,
        **meta: Any,
    ) -> None:
        await self.store.append(
            ArchiveLine(
                ts=ts,
                channel="slack",
                chat_id="C1",
                chat_key=KEY,
                message_id=message_id,
                role=role,
                text=text,
                meta=meta or None,
            )
        )

    async def remove(self, message_id: str) -> None:
        await self.say(message_id, "", "system", deleted=True, requestId="R9", of=["R1"], ofRole="user")

    async def shown(self, **query: Any) -> list[str]:
        return [line.text for line in (await self.store.search(KEY, HistoryQuery(**query))).lines]


@pytest.fixture
def chat(tmp_path: Path) -> Chat:
    return Chat(tmp_path)


async def test_an_edit_takes_the_place_of_what_it_changes(chat: Chat) -> None:
    await chat.say("1", "teh", ts=1)
    await chat.say("1", "my answer", "assistant", ts=2)
    await chat.say("1", "the", ts=3, edited=True)
    assert await chat.shown() == ["my answer", "the"]
    assert await chat.shown(keyword="teh") == []
    assert await chat.shown(everything=True) == ["teh", "my answer", "the"]


async def test_a_removed_message_is_not_found_and_the_total_does_not_count_it(chat: Chat) -> None:
    for number in range(3):
        await chat.say(str(number), f"text {number}", ts=number)
    await chat.remove("1")
    page = await chat.store.search(KEY, HistoryQuery(keyword="text"))
    assert ([line.text for line in page.lines], page.total) == (["text 0", "text 2"], 2)
    assert [(line.message_id, (line.meta or {})["of"]) for line in await chat.store.removals(KEY)] == [
        ("1", ["R1"])
    ]
    assert await chat.store.removals(ChatKey.parse("slack:chat:C2")) == []


async def test_a_removal_reaches_what_was_rotated_away_and_what_was_rotated_away_hides(
    tmp_path: Path,
) -> None:
    chat = Chat(tmp_path, after=4)
    await chat.say("old", "the old one")
    await chat.remove("late")
    for number in range(12):
        await chat.say(None, f"{number}")
    await chat.remove("old")
    await chat.say("late", "archived only after a crash")
    assert await chat.shown(limit=100) == [str(number) for number in range(12)]
    other = Chat(tmp_path, after=4)
    assert await other.shown(limit=100) == [str(number) for number in range(12)]


async def test_an_archive_is_read_for_removals_once(tmp_path: Path) -> None:
    chat = Chat(tmp_path, after=4)
    for number in range(12):
        await chat.say(None, f"{number}")
    await chat.store.removals(KEY)
    begun = len(chat.disk.done)
    await chat.store.removals(KEY)
    assert [name for kind, name in chat.disk.done[begun:] if kind == "read" and "archive" in name] == []


async def test_words_that_look_like_a_removal_are_words(chat: Chat) -> None:
    await chat.say("1", '{"deleted":true,"messageId":"1"}')
    await chat.say("1", "a person", deleted=True)
    await chat.say("2", "a note", "system", deleted="yes")
    assert await chat.shown() == ['{"deleted":true,"messageId":"1"}', "a person"]


EVENTS = st.lists(
    st.tuples(st.sampled_from(["said", "edited", "removed"]), st.sampled_from("ab"), st.integers(1, 4)),
    max_size=10,
)


def line(number: int, what: str, name: str, ts: int) -> ArchiveLine:
    meta: dict[str, Any] = {"requestId": f"R{number:02}"}
    if what != "said":
        meta["edited" if what == "edited" else "deleted"] = True
    return ArchiveLine(
        ts=ts,
        channel="slack",
        chat_id="C1",
        chat_key=KEY,
        message_id=name,
        text=f"{what} {name} {number}",
        role="system" if what == "removed" else "user",
        meta=meta,
    )


@settings(max_examples=examples(80), derandomize=True, deadline=None)
@given(events=EVENTS, order=st.randoms(use_true_random=False), cut=st.integers(0, 10))
def test_in_any_order_and_in_any_files_the_same_lines_show(
    events: list[tuple[str, str, int]], order: Any, cut: int
) -> None:
    lines = [line(number, *event) for number, event in enumerate(events)]
    mixed = order.sample(lines, len(lines))
    found = revisions(mixed[:cut])
    found.join(revisions(mixed[cut:]))
    shown = {one.text for one in mixed if one.role == "user" and found.shows(one)}
    expected: set[str] = set()
    for name in "ab":
        mine = [(what, ts, number) for number, (what, of, ts) in enumerate(events) if of == name]
        if any(what == "removed" for what, _, _ in mine):
            continue
        edits = [(ts, number) for what, ts, number in mine if what == "edited"]
        said = {f"said {name} {number}" for what, _, number in mine if what == "said"}
        expected |= {f"edited {name} {max(edits)[1]}"} if edits else said
    assert shown == expected


async def test_what_a_turn_made_is_removed_with_it(tmp_path: Path) -> None:
    clock = FakeClock()
    store = ArtifactStore(tmp_path, disk=SystemDisk(), ids=UlidSource(clock), clock=clock, log=MemoryLog())
    kept = [
        await store.put(words, chat_key=chat_key, request_id=request_id, tool="look", tool_use_id="t")
        for words, chat_key, request_id in (
            ("a", KEY, "R1"),
            ("b", KEY, "R2"),
            ("c", ChatKey.parse("slack:chat:C2"), "R1"),
        )
    ]
    assert await store.forget(KEY, ["R1", "R7"]) == 1
    assert await store.forget(KEY, ["R1"]) == await store.forget(ChatKey.parse("slack:chat:C3"), ["R1"]) == 0
    assert (await store.read(kept[1], KEY, offset=0, limit=9)).text == "b"
    assert (await store.read(kept[2], ChatKey.parse("slack:chat:C2"), offset=0, limit=9)).text == "c"
    assert not list(tmp_path.rglob(f"{kept[0]}*"))
