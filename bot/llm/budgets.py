"""Daily budgets (UTC): the max cost of a chat and of a person. A budget is checked before each model call,
whatever the call's purpose.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from bot import errors
from bot.contracts.approvals import Approval, Approvals
from bot.contracts.environment import Clock, OperatorNotices
from bot.contracts.identity import ChatKey
from bot.contracts.model import Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.llm.log import usage_of
from bot.llm.prices import PriceTable
from bot.llm.wrapper import ModelWrapper, aclosing
from bot.telemetry import context
from bot.telemetry.context import Running
from bot.words import sentence

WARN_AT = 0.8
"""Share of a budget above which operators are warned."""
UNANSWERED_SECONDS = 3_600.0
"""Interval in seconds before operators who did not answer are asked again."""
ASKS = frozenset({"turn", "subagent", "synthesis"})
"""Purposes of model calls for which a person is waiting, so operators are asked about a spent budget. Calls
for other purposes are refused for the rest of the day.
"""

Scope = Literal["chat", "person"]
_RULES: Mapping[Scope, str] = {
    "chat": "budgets.perChatUsdPerDay",
    "person": "budgets.perUserUsdPerDay",
}


@dataclass(frozen=True, slots=True)
class Account:
    """A chat (threads included) or a person, on one day (UTC)."""

    day: str
    scope: Scope
    name: str

    @classmethod
    def of(cls, day: str, chat_key: str | None, person: str | None) -> Iterator[Account]:
        """Yield the accounts to which a call is charged."""
        if chat_key:
            with contextlib.suppress(errors.IdentityInvalid):
                yield cls(day, "chat", str(ChatKey.parse(chat_key).chat))
        if person:
            yield cls(day, "person", person)


class Spending:
    """The cost in US dollars of each account on the newest day: the sums given to `load` plus the log lines
    observed after that. A call of unknown price costs what `PriceTable.at_most` returns.
    """

    def __init__(self, prices: PriceTable) -> None:
        self._prices = prices
        self._day = ""
        self._usd: defaultdict[Account, float] = defaultdict(float)

    def load(self, day: str, spent: Iterable[tuple[str, str, float]]) -> None:
        """Add costs from before this process started. Each item is (chatKey, person, US dollars); "" means
        no chat or no person.
        """
        for chat_key, person, usd in spent:
            self._add(day, chat_key, person, usd)

    def observe(self, line: Mapping[str, Any]) -> None:
        """Add the cost of a log line if the line is a model response. This method is an observer of
        `bot.telemetry.JsonlLog`.
        """
        if line["kind"] != "llm_response":
            return
        details = line["details"]
        usd, usage = details.get("costUsd"), details.get("usage")
        if usage is not None:
            usd = self._prices.at_most(str(details.get("model")), usage_of(usage), usd)
        if usd:
            self._add(line["timestamp"][:10], line.get("chatKey"), details.get("person"), usd)

    def usd(self, account: Account) -> float:
        return self._usd.get(account, 0.0)

    def above(self, limits: Mapping[Scope, float]) -> set[Account]:
        """Return the accounts whose cost has reached their limit."""
        return {one for one, usd in self._usd.items() if usd >= limits.get(one.scope, float("inf"))}

    def _add(self, day: str, chat_key: str | None, person: str | None, usd: float) -> None:
        if day > self._day:
            self._day = day
            self._usd.clear()
        for account in Account.of(day, chat_key, person):
            self._usd[account] += usd


class BudgetedModel(ModelWrapper):
    """A model that refuses calls for an account whose budget is spent, unless operators allow them.
    Operators can allow one turn, the chat, or everything until the day ends. Raises `errors.BudgetSpent`.

    The cost can exceed a budget by one call and the calls that run at the same time.
    """

    def __init__(
        self,
        model: Model,
        spending: Spending,
        limits: Mapping[Scope, float],
        *,
        approvals: Approvals,
        operators: OperatorNotices,
        clock: Clock,
    ) -> None:
        super().__init__(model)
        self._spending = spending
        self._limits = limits
        self._warn_at = {scope: WARN_AT * limit for scope, limit in limits.items()}
        self._approvals = approvals
        self._operators = operators
        self._clock = clock
        self._day = day_of(clock.now())
        # An earlier process has already warned about these accounts.
        self._warned = spending.above(self._warn_at)
        self._allowed: set[tuple[Account, ChatKey | str | None]] = set()
        """Accounts that operators have allowed, as (account, key). The key is a request id, a chat, or None
        for all calls.
        """
        self._ask_again: dict[Account, float] = {}
        """Earliest time (epoch seconds) at which operators may be asked again about an account."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        running = context.current()
        for account in self._accounts(running):
            if self._spending.usd(account) >= self._limits[account.scope]:
                await self._admit(account, running, request.purpose)
        try:
            async with aclosing(self._model.stream(request)) as answer:
                async for item in answer:
                    yield item
        finally:
            for account in self._accounts(running):
                reached = self._spending.usd(account) >= self._warn_at[account.scope]
                if reached and account not in self._warned:
                    self._warned.add(account)
                    self._notify(account, f"budget_{account.scope}")

    def _accounts(self, running: Running) -> list[Account]:
        day = day_of(self._clock.now())
        if day != self._day:
            self._day = day
            self._warned.clear()
            self._allowed.clear()
            self._ask_again.clear()
        chat_key = None if running.chat_key is None else str(running.chat_key)
        return [one for one in Account.of(day, chat_key, context.person()) if one.scope in self._limits]

    async def _admit(self, account: Account, running: Running, purpose: str) -> None:
        """Return if the call is allowed although the budget is spent. Asks operators if necessary. Raises
        `errors.BudgetSpent` if the call is not allowed.
        """
        keys = (None, running.chat_key, running.request_id)
        if any((account, key) in self._allowed for key in keys):
            return
        asks = purpose in ASKS and self._ask_again.get(account, 0.0) <= self._clock.now()
        if asks and running.chat_key is not None and running.request_id is not None:
            with contextlib.suppress(errors.StorageError):
                question = self._question(account, running, running.chat_key, running.request_id)
                verdict = await self._approvals.decide(question)
                if verdict.ended == "approved":
                    scopes: dict[str, ChatKey | str] = {"once": running.request_id, "chat": running.chat_key}
                    self._allowed.add((account, scopes.get(verdict.scope)))
                    return
                self._ask_again.pop(account, None)
                if verdict.ended == "denied":
                    self._ask_again[account] = float("inf")
                elif verdict.ended == "expired":
                    self._ask_again[account] = self._clock.now() + UNANSWERED_SECONDS
                elif verdict.ended in {"nobody", "unattended"}:
                    self._notify(account, f"budget_{account.scope}_spent")
        next_day = (self._clock.now() // 86_400 + 1) * 86_400
        why = f"{_RULES[account.scope]}: {account.name} has cost {self._spent(account, ' of ')}"
        raise errors.BudgetSpent(why, until=next_day)

    def _question(self, account: Account, running: Running, chat_key: ChatKey, request_id: str) -> Approval:
        identity = f"{account.day}\n{account.scope}\n{account.name}"
        person = running.person
        return Approval(
            request_id=request_id,
            call_id=f"budget {account.scope} {account.day}",
            chat_key=chat_key,
            tool="this turn",
            fingerprint=hashlib.sha256(identity.encode()).hexdigest(),
            shown=self._spent(account, " / "),
            why="budget_chat" if account.scope == "chat" else "budget_person",
            rule=_RULES[account.scope],
            channel=None if person is None else person.channel,
            user_id=None if person is None else person.user_id,
            granted=False,
            lasting=True,
            subject="budget",
        )

    def _spent(self, account: Account, of: str) -> str:
        return f"${self._spending.usd(account):.2f}{of}${self._limits[account.scope]:.2f}"

    def _notify(self, account: Account, key: str) -> None:
        self._operators.tell(
            f"{key} {account.name}",
            sentence(
                f"operators.{key}",
                name=account.name,
                spent=f"${self._spending.usd(account):.2f}",
                limit=f"${self._limits[account.scope]:.2f}",
                rule=_RULES[account.scope],
            ),
        )


def day_of(seconds: float) -> str:
    """Return the UTC day of a time in epoch seconds, in the format of the log."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
