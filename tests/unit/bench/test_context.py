"""The cost of a long chat in tokens and requests: a small run of the bench's chat through the real core."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.contracts.model import Usage
from tests.bench.context_bill import Bill, Sent, shared
from tests.bench.context_chat import Chat
from tests.bench.context_trace import CHARACTERS, RESULTS, Turn, days, trace, words


async def test_a_hundred_turns_break_no_prefix_undeclared_and_read_nearly_all_from_the_cache(
    tmp_path: Path,
) -> None:
    chat = Chat(tmp_path)
    turns = trace(100, seed=3)
    bill = await chat.replay(turns)
    assert bill.breaks == 0
    assert bill.read_share >= 0.80
    assert bill.stability >= 0.90
    assert bill.cents(100) <= 1.8
    assert bill.largest <= 40_000
    assert bill.count("memory") >= 5, "this chat is long enough to be remembered"
    epochs = {
        entry.details.get("reason") for entry in chat.log.entries if entry.kind in {"compaction", "masking"}
    }
    assert {"cold_cache", "message_cap"} <= epochs


async def test_a_later_part_of_a_chat_costs_no_more_than_its_beginning(tmp_path: Path) -> None:
    part = trace(20, seed=5)
    bill = await Chat(tmp_path, sends=False).replay(part * 3)
    assert bill.tokens(40, 60) <= bill.tokens(20, 40) * 1.05, "cuts come at other places of the part"


@pytest.mark.torture
@pytest.mark.parametrize("sends", [True, False])
async def test_two_hundred_short_turns_send_at_most_four_and_a_half_million_characters(
    tmp_path: Path, *, sends: bool
) -> None:
    bill = await Chat(tmp_path, sends=sends).replay([Turn(60.0, 10, (), 20)] * 200)
    assert bill.count("turn") == 200, "a delivered answer is the end of its turn"
    assert sum(one.prompt for one in bill.sent) * CHARACTERS <= 4_500_000


async def test_a_memory_that_is_full_is_paid_as_output_once(tmp_path: Path) -> None:
    bill = await Chat(tmp_path, memory_tokens=2_900).replay(trace(60, seed=3))
    first, *others = (one.usage.output_tokens for one in bill.sent if one.purpose == "memory")
    assert first > 2_900
    assert len(others) >= 3
    assert max(others) < 200


def test_a_broken_prefix_is_seen_where_nobody_declared_it() -> None:
    before = [("a", 10), ("b", 20), ("c", 40)]
    assert shared(before, [*before, ("d", 50)]) == 1.0
    assert shared(before, [("a", 10), ("x", 20), ("c", 40)]) == 0.25
    assert shared(before, [("x", 10)]) == 0.0


def test_a_bill_counts_every_kind_of_token_at_its_price() -> None:
    million = Usage(1_000_000, 0, 0, 0)
    bill = Bill([Sent(million, 0), Sent(Usage(0, 1_000_000, 1_000_000, 1_000_000), 1, "memory")])
    assert bill.cents(1) == pytest.approx(200 + 1_000 + 10 + 250)
    assert bill.cents_of("memory", 2) == pytest.approx((1_000 + 10 + 250) / 2)
    assert bill.read_share == pytest.approx(1 / 3)
    assert bill.tokens(0, 2) == 1_500_000


def test_the_chat_of_the_bench_is_the_same_for_the_same_seed_and_as_its_description_says() -> None:
    turns = trace(1_000, seed=1)
    assert trace(1_000, seed=1) == turns == trace(1_200, seed=1)[:1_000]
    assert 45 < days(turns) < 75
    assert 0.30 < sum(bool(turn.results) for turn in turns) / 1_000 < 0.40
    assert 0.70 < sum(turn.gap < 300 for turn in turns) / 1_000 < 0.77
    results = [result for turn in turns for result in turn.results]
    low, high = RESULTS
    assert low <= min(results) < 250
    assert 9_000 < max(results) <= high
    assert len(words(700, "名前")) == 2_800
