"""Prices of models, and the cost of a model call in US dollars. `llm.prices` in ship.json overrides the table."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.contracts.model import Usage


@dataclass(frozen=True, slots=True)
class Price:
    """Prices in US dollars per million tokens."""

    input: float
    output: float
    read: float
    above: int | None = None
    """Number of prompt tokens above which the price `higher` applies to the whole request."""
    higher: Price | None = None
    write: float | None = None
    """Price of a cache write for five minutes. None means 1.25 × the input price."""
    hour: float | None = None
    """Price of a cache write for an hour. None means 2 × the input price."""

    def of(self, usage: Usage) -> float:
        write = self.input * 1.25 if self.write is None else self.write
        hour = self.input * 2 if self.hour is None else self.hour
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.read
            + (usage.cache_write_tokens - usage.cache_hour_tokens) * write
            + usage.cache_hour_tokens * hour
            + usage.searches * 10_000  # $10 per thousand
        ) / 1_000_000


def _price(row: dict[str, Any]) -> Price:
    higher = row.pop("higher", None)
    return Price(**row, higher=None if higher is None else Price(**higher))


_TABLE = tomllib.loads(Path(__file__).with_name("prices.toml").read_text("utf-8"))
AS_OF: str = _TABLE["as_of"]
"""Date of the prices in the built-in table."""
PRICES = {name: _price(row) for name, row in _TABLE["models"].items()}
_DATED = re.compile(r"(?:-latest|[-@]\d{8})?")


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by model name. `own` overrides the built-in table. `claude-opus-5-20260101` has the price of
    `claude-opus-5`, but `claude-opus-5-7` is another model.
    """

    own: Mapping[str, Price] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return sorted({*PRICES, *self.own} - {"demo"})

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """Return the cost of one call in US dollars; None if the model's price is unknown."""
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        price = self._price(model, prompt)
        return None if price is None else price.of(usage)

    def at_most(self, model: str, usage: Usage, known_usd: float | None = None) -> float:
        """Return the cost in US dollars that budgets count for a call: `known_usd` if given, else the cost at the model's price. For
        a model without a price, use the highest known price.
        """
        cost = self.cost_usd(model, usage) if known_usd is None else known_usd
        known = (
            one for prices in (self.own, PRICES) for price in prices.values() for one in (price, price.higher)
        )
        return max(one.of(usage) for one in known if one is not None) if cost is None else cost

    def hour_pays(self, model: str) -> bool:
        """Return True if it is cheaper to cache the common prefix of all chats for an hour than for five minutes. Assume so
        if a cache read costs at most a tenth of the input price.
        """
        price = self._price(model, 1)
        return price is not None and 0 < 10 * price.read <= price.input

    def million(self, model: str) -> tuple[float, float] | None:
        """Return the prices in US dollars per million tokens of input and of output; None if the price is unknown."""
        price = self._price(model, 0)
        return None if price is None else (price.input, price.output)

    def _price(self, model: str, prompt: int) -> Price | None:
        for prices in (self.own, PRICES):
            for name in sorted(prices, key=len, reverse=True):
                if model.startswith(name) and _DATED.fullmatch(model, len(name)):
                    price = prices[name]
                    if price.above is not None and price.higher is not None and prompt > price.above:
                        return price.higher
                    return price
        return None
