from __future__ import annotations

import pytest

from bot.contracts.model import Usage
from bot.llm.costs import Price, PriceTable

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        ("claude-sonnet-5-5", Usage(input_tokens=MILLION), 2.0),
        ("claude-sonnet-5-5", Usage(output_tokens=MILLION), 10.0),
        ("claude-sonnet-5-5", Usage(cache_read_tokens=MILLION), 0.10),
        ("claude-sonnet-5-5", Usage(cache_write_tokens=MILLION), 2.5),
        ("claude-sonnet-5-5", Usage(0, 0, 0, MILLION, MILLION // 2), 1.25 + 2),
        ("claude-haiku-5-5", Usage(0, 0, 0, MILLION, MILLION), 1),
        ("claude-fable-5-2", Usage(MILLION, MILLION), 8 + 40),
        ("claude-sonnet-5", Usage(MILLION, MILLION, MILLION), 2 + 10 + 0.2),
        ("claude-opus-4-8", Usage(MILLION, MILLION, MILLION), 5 + 25 + 0.5),
        ("claude-haiku-4-5-20251001", Usage(MILLION, MILLION, MILLION), 1 + 5 + 0.1),
        ("claude-fable-5-1", Usage(MILLION, MILLION, MILLION, MILLION), 10 + 50 + 0.25 + 12.5),
        ("claude-opus-5-5", Usage(MILLION, MILLION, MILLION, MILLION), 4 + 20 + 0.20 + 5),
        ("claude-opus-5", Usage(MILLION, MILLION, MILLION, MILLION), 5 + 25 + 0.50 + 6.25),
        ("claude-opus-5-20260101", Usage(input_tokens=MILLION), 5.0),
        ("claude-opus-5-5@20260901", Usage(input_tokens=MILLION), 4.0),
        ("claude-sonnet-5-5-latest", Usage(input_tokens=MILLION), 2.0),
        ("claude-haiku-5-5", Usage(100_000, 1_000), 0.0105),
        ("claude-haiku-5-5", Usage(100_001, 1_000), 0.0525005),
        ("claude-haiku-5-5", Usage(1, 0, 60_000, 40_000), (0.5 + 3_000 + 25_000) / MILLION),
        ("claude-haiku-5-5", Usage(0, 0, 60_000, 40_000), (600 + 5_000) / MILLION),
    ],
)
def test_the_price_of_a_call(model: str, usage: Usage, dollars: float) -> None:
    assert PriceTable().cost_usd(model, usage) == pytest.approx(dollars)


@pytest.mark.parametrize(
    "model", ["", "demo-2", "gpt-9", "claude-opus-5-7", "claude-opus-50", "claude-sonnet-4"]
)
def test_an_unknown_model_has_no_price(model: str) -> None:
    assert PriceTable().cost_usd(model, Usage(MILLION, MILLION)) is None


def test_prices_of_ones_own_go_before_the_table() -> None:
    own = PriceTable({"claude-opus-5-5": Price(1, 2, 3, write=4), "gpt-9": Price(5, 6, 5)})
    assert own.cost_usd("claude-opus-5-5-20260901", Usage(MILLION, MILLION, MILLION, MILLION)) == 10
    assert own.cost_usd("gpt-9", Usage(cache_write_tokens=MILLION)) == 6.25
    assert own.million("claude-opus-5") == (5, 25)
    assert "gpt-9" in own.names
