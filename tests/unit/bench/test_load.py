"""What the loads of the bench conclude from what they counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.contracts.archive import HistoryQuery
from bot.contracts.identity import ChatKey
from bot.core.archive.store import ChatStore
from bot.system import SystemDisk
from bot.testing.log import MemoryLog
from tests.bench import burst, figures, load, past, starts
from tests.bench.programs import Unanswered


def test_a_chat_with_an_answer_too_few_or_too_many_fails_the_load() -> None:
    load.check("shipmate", {7: 5, 8: 5}, 5)
    for wrong in (4, 6):
        with pytest.raises(Unanswered, match=f"shipmate answered {wrong} times in chat 8, not 5; 1 such"):
            load.check("shipmate", {7: 5, 8: wrong}, 5)


@pytest.mark.parametrize(
    ("resident", "kilobytes"),
    [
        ([100.0, 150.0, 150.0, 150.0, 150.0], 0.0),  # what is new at first is warm later
        ([100.0, 100.0, 101.0, 102.0, 103.0], 10.0),  # a megabyte for each round of a hundred messages
        ([100.0, 200.0], 0.0),
    ],
)
def test_growth_is_what_the_later_half_adds_to_each_message(resident: list[float], kilobytes: float) -> None:
    assert load.growth(resident, 100) == pytest.approx(kilobytes)


@pytest.mark.parametrize(
    ("ys", "expected"),
    [([3.0, 3.0, 3.0], 0.0), ([1.0, 3.0, 5.0], 2.0), ([5.0, 0.0, 4.0], -0.5), ([9.0], 0.0)],
)
def test_the_slope_is_that_of_the_nearest_line(ys: list[float], expected: float) -> None:
    assert figures.slope(list(range(len(ys))), ys) == pytest.approx(expected)


async def test_a_burst_is_over_when_each_event_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    await burst.last_answer(2, lambda: ["answer to 0", "answer to 1"])
    with pytest.raises(Unanswered, match="0 got no answer, 1 more than one"):
        await burst.last_answer(2, lambda: ["answer to 0", "answer to 1 answer to 0"])
    monkeypatch.setattr(burst, "PATIENCE", 0.0)
    with pytest.raises(Unanswered, match="2 events of a burst 1 got no answer, 0 more"):
        await burst.last_answer(2, lambda: ["answer to 1"])


async def test_the_long_chat_of_the_bench_is_one_that_an_archive_reads(tmp_path: Path) -> None:
    starts.write_long(tmp_path / "chats", "telegram:chat:1", 1_200)
    store = ChatStore(tmp_path / "chats", disk=SystemDisk(), log=MemoryLog())
    page = await store.search(ChatKey.parse("telegram:chat:1"), HistoryQuery(limit=3, keyword="number 7"))
    assert (page.total, page.unreadable) == (111, 0)
    assert [line.ts for line in page.lines] == [797, 798, 799]
    assert len(list((tmp_path / "chats").glob("*.archive-*.jsonl"))) == 2


async def test_the_many_chats_of_the_bench_are_chats_of_an_archive(tmp_path: Path) -> None:
    starts.write_archive(tmp_path / "chats", 5)
    store = ChatStore(tmp_path / "chats", disk=SystemDisk(), log=MemoryLog())
    assert [(info.chat_key, info.lines) for info in await store.chats()] == [
        (f"telegram:chat:{number}", 2) for number in (4, 3, 2, 1, 0)
    ]


async def test_a_chat_of_the_past_has_nothing_unfinished_and_its_newest_turns_in_view(tmp_path: Path) -> None:
    key = ChatKey.parse("telegram:chat:1")
    await past.write(tmp_path, {str(key): 100}, "found")
    async with past.opened(tmp_path) as (log, chats):
        chat = await chats.get(key)
        assert await log.open_chats() == []
        assert (await log.usage(key)).turns == 100
    assert 28 <= len(chat.context.view()) <= 60
    assert chat.context.frame is not None
    assert (await past.back(tmp_path, str(key))).took > 0
