"""Prices of models, the cost of a model call in US dollars, and limits of the daily cost (UTC days) of each chat and each
person. `llm.prices` in ship.json overrides the built-in table.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bot import errors
from bot.contracts.approvals import Approval, Approvals
from bot.contracts.environment import Clock, OperatorNotices
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelRequest, ModelStream, Usage
from bot.llm.wrapper import ModelWrapper, usage_of
from bot.telemetry import log as telemetry
from bot.telemetry.log import Running
from bot.words import sentence


@dataclass(frozen=True, slots=True)
class Price:
    """Prices in US dollars per million tokens."""

    input: float
    output: float
    read: float
    above: int | None = None
    """Number of prompt tokens above which the price `higher` applies to the whole request."""
    higher: Price | None = None
    write: float | None = None  # Price of a cache write for five minutes. None means 1.25 × the input price.
    hour: float | None = None  # Price of a cache write for an hour. None means 2 × the input price.

    def of(self, usage: Usage) -> float:
        write = self.input * 1.25 if self.write is None else self.write
        hour = self.input * 2 if self.hour is None else self.hour
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.read
            + (usage.cache_write_tokens - usage.cache_hour_tokens) * write
            + usage.cache_hour_tokens * hour
            + usage.searches * 10_000  # searches cost $10 per thousand
        ) / 1_000_000


def _price(row: dict[str, Any]) -> Price:
    higher = row.pop("higher", None)
    return Price(**row, higher=None if higher is None else Price(**higher))


_TABLE = tomllib.loads(Path(__file__).with_name("prices.toml").read_text("utf-8"))
AS_OF: str = _TABLE["as_of"]  # Date of the prices in the built-in table
PRICES = {name: _price(row) for name, row in _TABLE["models"].items()}
_DATED = re.compile(r"(?:-latest|[-@]\d{8})$")


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by model name. `own` overrides the built-in table. A date at the end of a name is ignored:
    `claude-opus-5-20260101` has the price of `claude-opus-5`. But `claude-opus-5-7` is another model.
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
        """Return the cost of a call in US dollars that counts against budgets: `known_usd` if given, else the cost at the
        model's price. If the model's price is unknown, use the highest known price.
        """
        cost = self.cost_usd(model, usage) if known_usd is None else known_usd
        known = (
            one for prices in (self.own, PRICES) for price in prices.values() for one in (price, price.higher)
        )
        return max(one.of(usage) for one in known if one is not None) if cost is None else cost

    def hour_pays(self, model: str) -> bool:
        """Return True if it is cheaper to cache the common prefix of all chats for an hour than for five minutes. Assume that
        it is cheaper if a cache read costs at most a tenth of the input price.
        """
        price = self._price(model, 1)
        return price is not None and 0 < 10 * price.read <= price.input

    def million(self, model: str) -> tuple[float, float] | None:
        """Return the prices in US dollars per million tokens of input and of output; None if the price is unknown."""
        price = self._price(model, 0)
        return None if price is None else (price.input, price.output)

    def _price(self, model: str, prompt: int) -> Price | None:
        names = (model, _DATED.sub("", model))
        found = (prices[name] for prices in (self.own, PRICES) for name in names if name in prices)
        price = next(found, None)
        if price is not None and price.above is not None and prompt > price.above:
            return price.higher
        return price


# -- budgets ---------------------------------------------------------------------------------------------------------

WARN_AT = 0.8  # Operators are warned when the cost reaches this share of a budget
UNANSWERED_SECONDS = 3_600.0
"""If operators did not answer a question about a budget, they are asked again after at least this many seconds."""
ASKS = frozenset({"turn", "subagent", "synthesis"})
"""Purposes of model calls for which a person waits. If a budget is spent, operators are asked only about these calls."""

Scope = Literal["chat", "person"]
Account = tuple[Scope, str]
"""A scope, and the id of a person or of a chat (with its threads). Each account has its own budget."""
_RULES: Mapping[Scope, str] = {"chat": "budgets.perChatUsdPerDay", "person": "budgets.perUserUsdPerDay"}


def accounts_of(chat_key: str | None, person: str | None) -> list[Account]:
    found: list[Account] = [("person", person)] if person else []
    if chat_key:
        with contextlib.suppress(errors.IdentityInvalid):
            found.insert(0, ("chat", str(ChatKey.parse(chat_key).chat)))
    return found


@dataclass(eq=False)
class Spending:
    """Sums each account's cost of the current day, in US dollars. `load` adds earlier costs, `observe` the cost of each new
    call. A call of unknown price costs what `PriceTable.at_most` returns.
    """

    prices: PriceTable
    day: str = ""
    usd: defaultdict[Account, float] = field(default_factory=lambda: defaultdict(float))

    def load(self, day: str, spent: Iterable[tuple[str, str, float]]) -> None:
        """Add a day's earlier costs. `spent` has tuples (chatKey or "", person or "", US dollars)."""
        for chat_key, person, usd in spent:
            self._add(day, chat_key, person, usd)

    def observe(self, line: Mapping[str, Any]) -> None:
        """Add the cost of a model call from its line in the operators' log. Ignore all other lines."""
        if line["kind"] != "llm_response":
            return
        details = line["details"]
        usd, usage = details.get("costUsd"), details.get("usage")
        if usage is not None:
            usd = self.prices.at_most(str(details.get("model")), usage_of(usage), usd)
        if usd:
            self._add(line["timestamp"][:10], line.get("chatKey"), details.get("person"), usd)

    def _add(self, day: str, chat_key: str | None, person: str | None, usd: float) -> None:
        self.begin(day)
        for account in accounts_of(chat_key, person) if day == self.day else ():
            self.usd[account] += usd

    def begin(self, day: str) -> None:
        if day > self.day:
            self.day = day
            self.usd.clear()


@dataclass(eq=False)
class BudgetedModel(ModelWrapper):
    """A model that raises `errors.BudgetSpent` once an account's budget is spent. Operators are asked first; they can allow the
    turn, the chat, or all calls of the account until the day ends. Calls that are already running may exceed the budget.
    """

    spending: Spending
    limits: Mapping[Scope, float]
    _: KW_ONLY
    approvals: Approvals
    operators: OperatorNotices
    clock: Clock
    _allowed: set[tuple[Account, ChatKey | str | None]] = field(init=False, default_factory=set)
    """Permissions that operators gave, as (account, scope). The scope is a request id, a chat, or None for all calls."""
    _ask_again: dict[Account, float] = field(init=False, default_factory=dict)
    """Earliest time (epoch seconds) of the next question to operators, by account."""

    def __post_init__(self) -> None:
        self._day = day_of(self.clock.now())
        # An earlier process has already warned operators about these accounts, so do not warn again.
        known = (one for one in self.spending.usd if one[0] in self.limits)
        self._warned = {one for one in known if self._reached(one, WARN_AT)}

    async def stream(self, request: ModelRequest) -> ModelStream:
        running = telemetry.current()
        for account in self._accounts(running):
            if self._reached(account, 1.0):
                await self._admit(account, running, request.purpose)
        try:
            async with aclosing(self.model.stream(request)) as answer:
                async for item in answer:
                    yield item
        finally:
            for account in self._accounts(running):
                if self._reached(account, WARN_AT) and account not in self._warned:
                    self._warned.add(account)
                    self._notify(account, f"budget_{account[0]}")

    def _accounts(self, running: Running) -> list[Account]:
        day = day_of(self.clock.now())
        self.spending.begin(day)
        if day != self._day:
            self._day = day
            for known in (self._warned, self._allowed, self._ask_again):
                known.clear()
        chat_key = None if running.chat_key is None else str(running.chat_key)
        return [one for one in accounts_of(chat_key, telemetry.person()) if one[0] in self.limits]

    def _reached(self, account: Account, share: float) -> bool:
        return self.spending.usd.get(account, 0.0) >= share * self.limits[account[0]]

    async def _admit(self, account: Account, running: Running, purpose: str) -> None:
        """Ask operators whether an account may exceed its spent budget. Raises `errors.BudgetSpent` if no operator allows it."""
        scope, name = account
        now, chat, turn = self.clock.now(), running.chat_key, running.request_id
        if any((account, key) in self._allowed for key in (None, chat, turn)):
            return
        asks = purpose in ASKS and self._ask_again.get(account, 0.0) <= now
        if asks and chat is not None and turn is not None:
            question = Approval(
                request_id=turn,
                call_id=f"budget {scope} {self._day}",
                chat_key=chat,
                tool="this turn",
                fingerprint=hashlib.sha256(f"{self._day}\n{scope}\n{name}".encode()).hexdigest(),
                shown=self._spent(account, " / "),
                why="budget_chat" if scope == "chat" else "budget_person",
                rule=_RULES[scope],
                channel=None if running.person is None else running.person.channel,
                user_id=None if running.person is None else running.person.user_id,
                granted=False,
                lasting=True,
                subject="budget",
            )
            with contextlib.suppress(errors.StorageError):
                verdict = await self.approvals.decide(question)
                if verdict.ended == "approved":
                    scopes: dict[str, ChatKey | str] = {"once": turn, "chat": chat}
                    self._allowed.add((account, scopes.get(verdict.scope)))
                    return
                waits = {"denied": float("inf"), "expired": self.clock.now() + UNANSWERED_SECONDS}
                self._ask_again[account] = waits.get(verdict.ended, 0.0)
                if verdict.ended in {"nobody", "unattended"}:
                    self._notify(account, f"budget_{scope}_spent")
        why = f"{_RULES[scope]}: {name} has cost {self._spent(account, ' of ')}"
        raise errors.BudgetSpent(why, until=(now // 86_400 + 1) * 86_400)

    def _spent(self, account: Account, of: str) -> str:
        return f"${self.spending.usd.get(account, 0.0):.2f}{of}${self.limits[account[0]]:.2f}"

    def _notify(self, account: Account, key: str) -> None:
        scope, name = account
        spent, limit = self._spent(account, " ").split()
        told = sentence(f"operators.{key}", name=name, spent=spent, limit=limit, rule=_RULES[scope])
        self.operators.tell(f"{key} {name}", told)


def day_of(seconds: float) -> str:
    """Return the UTC day of a time (epoch seconds), in the format of the operators' log."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
