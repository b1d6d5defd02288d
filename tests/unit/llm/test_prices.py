from __future__ import annotations

import pytest

from bot.contracts import Usage
from bot.llm.prices import cost_usd

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("model", "usage", "hour", "dollars"),
    [
        ("claude-sonnet-5-5", Usage(input_tokens=MILLION), 0, 2.0),
        ("claude-sonnet-5-5", Usage(output_tokens=MILLION), 0, 10.0),
        ("claude-sonnet-5-5", Usage(cache_read_tokens=MILLION), 0, 0.10),
        ("claude-sonnet-5-5", Usage(cache_write_tokens=MILLION), 0, 2.5),
        ("claude-sonnet-5-5", Usage(cache_write_tokens=MILLION), MILLION, 4.0),
        ("claude-sonnet-5-5", Usage(cache_write_tokens=MILLION), 2 * MILLION, 4.0),
        ("claude-fable-5-1", Usage(MILLION, MILLION, MILLION, MILLION), 0, 10 + 50 + 0.25 + 12.5),
        ("claude-opus-5-5", Usage(MILLION, MILLION, MILLION, MILLION), 0, 4 + 20 + 0.20 + 5),
        ("claude-opus-5", Usage(MILLION, MILLION, MILLION, MILLION), 0, 5 + 25 + 0.50 + 6.25),
        ("claude-opus-5-20260101", Usage(input_tokens=MILLION), 0, 5.0),
        ("claude-opus-5-5@20260901", Usage(input_tokens=MILLION), 0, 4.0),
        ("claude-sonnet-5-5-latest", Usage(input_tokens=MILLION), 0, 2.0),
        ("claude-haiku-5-5", Usage(100_000, 1_000), 0, 0.0105),
        ("claude-haiku-5-5", Usage(100_001, 1_000), 0, 0.0525005),
        ("claude-haiku-5-5", Usage(1, 0, 60_000, 40_000), 0, (0.5 + 3_000 + 25_000) / MILLION),
        ("claude-haiku-5-5", Usage(0, 0, 60_000, 40_000), 0, (600 + 5_000) / MILLION),
    ],
)
def test_the_price_of_a_call(model: str, usage: Usage, hour: int, dollars: float) -> None:
    assert cost_usd(model, usage, hour_writes=hour) == pytest.approx(dollars)


@pytest.mark.parametrize(
    "model", ["", "demo", "gpt-9", "claude-opus-5-7", "claude-opus-50", "claude-sonnet-4-5"]
)
def test_an_unknown_model_has_no_price(model: str) -> None:
    assert cost_usd(model, Usage(MILLION, MILLION)) is None
