"""Budgets: what a chat and a person may cost a day (UTC). Checked before each call of the model, whatever it is for."""

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
"""The share of a budget at which operators hear of it."""
UNHEARD = 3_600.0
"""Seconds for which nobody is asked again where nobody has answered."""
ASKS = frozenset({"turn", "subagent", "synthesis"})
"""Purposes for which a person waits: operators are asked. What runs beside is left out for the day."""
_ONCE = 1_000
"""Turns of which is known that they may go on."""

Scope = Literal["chat", "person"]
_RULES: Mapping[Scope, str] = {
    "chat": "budgets.perChatUsdPerDay",
    "person": "budgets.perUserUsdPerDay",
}


@dataclass(frozen=True, slots=True)
class Account:
    """A chat with its threads, or a person, on one day (UTC)."""

    day: str
    scope: Scope
    name: str

    @classmethod
    def of(cls, day: str, chat_key: str | None, person: str | None) -> Iterator[Account]:
        """The accounts on which a call stands."""
        if chat_key:
            with contextlib.suppress(errors.IdentityInvalid):
                yield cls(day, "chat", str(ChatKey.parse(chat_key).chat))
        if person:
            yield cls(day, "person", person)


class Spending:
    """The cost of each account of the newest day, in US dollars: what `load` was given, and each line of the log after that.
    A call of unknown price counts as `PriceTable.at_most` says.
    """

    def __init__(self, prices: PriceTable) -> None:
        self._prices = prices
        self._day = ""
        self._usd: defaultdict[Account, float] = defaultdict(float)

    def load(self, day: str, spent: Iterable[tuple[str, str, float]]) -> None:
        """Add what was spent before this process, by chatKey and person; "" is nobody's."""
        for chat_key, person, usd in spent:
            self._add(day, chat_key, person, usd)

    def observe(self, line: Mapping[str, Any]) -> None:
        """Take in a line of the log (`bot.telemetry.JsonlLog`)."""
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
        """The accounts that have cost as much as this, or more."""
        return {one for one, usd in self._usd.items() if usd >= limits.get(one.scope, float("inf"))}

    def _add(self, day: str, chat_key: str | None, person: str | None, usd: float) -> None:
        if day > self._day:
            self._day = day
            self._usd.clear()
        for account in Account.of(day, chat_key, person):
            self._usd[account] += usd


class BudgetedModel(ModelWrapper):
    """A model that is not asked for an account whose budget is spent, unless operators have allowed it: once for a turn, for the
    chat or always until the day ends. Raises `errors.BudgetSpent`.

    A call may end above the budget, by its own cost and that of those beside it.
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
        self._approvals = approvals
        self._operators = operators
        self._clock = clock
        # An earlier process has told of these.
        self._warned = spending.above(self._warnings)
        self._turns: dict[tuple[str | None, Account], None] = {}
        self._lifted: set[tuple[Account, ChatKey | None]] = set()
        self._unanswered: dict[Account, float] = {}

    @property
    def _warnings(self) -> Mapping[Scope, float]:
        return {scope: WARN_AT * limit for scope, limit in self._limits.items()}

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
            self._warn(running)

    def _accounts(self, running: Running) -> list[Account]:
        day = day_of(self._clock.now())
        chat_key = None if running.chat_key is None else str(running.chat_key)
        return [one for one in Account.of(day, chat_key, context.person()) if one.scope in self._limits]

    def _warn(self, running: Running) -> None:
        """Tell operators of each account that has come to its share, once."""
        for account in self._accounts(running):
            if account not in self._warned and self._spending.usd(account) >= self._warnings[account.scope]:
                self._warned = {one for one in self._warned if one.day == account.day} | {account}
                self._tell(account)

    async def _admit(self, account: Account, running: Running, purpose: str) -> None:
        """Return where the call may be made all the same."""
        allowed = {(account, None), (account, running.chat_key)} & self._lifted
        if allowed or (running.request_id, account) in self._turns:
            return
        asks = purpose in ASKS and self._unanswered.get(account, 0.0) <= self._clock.now()
        if asks and await self._asked(account, running):
            return
        why = f"{_RULES[account.scope]}: {account.name} has cost {self._spent(account)}"
        raise errors.BudgetSpent(why, until=_next_day(self._clock.now()))

    async def _asked(self, account: Account, running: Running) -> bool:
        """Ask operators, and wait."""
        if running.chat_key is None or running.request_id is None:
            return False
        try:
            verdict = await self._approvals.decide(
                self._question(account, running, running.chat_key, running.request_id)
            )
        except errors.StorageError:
            return False
        if verdict.ended == "approved":
            if verdict.scope == "once":
                self._turns[running.request_id, account] = None
                if len(self._turns) > _ONCE:
                    del self._turns[next(iter(self._turns))]
            else:
                self._lifted = {one for one in self._lifted if one[0].day == account.day}
                self._lifted.add((account, running.chat_key if verdict.scope == "chat" else None))
            return True
        self._unanswered = {one: at for one, at in self._unanswered.items() if one.day == account.day}
        if verdict.ended == "denied":
            self._unanswered[account] = float("inf")
        elif verdict.ended == "expired":
            self._unanswered[account] = self._clock.now() + UNHEARD
        elif verdict.ended in {"nobody", "unattended"}:
            self._tell(account, spent=True)
        return False

    def _question(self, account: Account, running: Running, chat_key: ChatKey, request_id: str) -> Approval:
        told = f"{account.day}\n{account.scope}\n{account.name}"
        person = running.person
        return Approval(
            request_id=request_id,
            call_id=f"budget {account.scope} {account.day}",
            chat_key=chat_key,
            tool="this turn",
            fingerprint=hashlib.sha256(told.encode()).hexdigest(),
            shown=self._spent(account, " / "),
            why="budget_chat" if account.scope == "chat" else "budget_person",
            rule=_RULES[account.scope],
            channel=None if person is None else person.channel,
            user_id=None if person is None else person.user_id,
            granted=False,
            lasting=True,
            subject="budget",
        )

    def _spent(self, account: Account, of: str = " of ") -> str:
        return f"${self._spending.usd(account):.2f}{of}${self._limits[account.scope]:.2f}"

    def _tell(self, account: Account, *, spent: bool = False) -> None:
        """Tell operators that an account has come to its share, or that it is not answered any more."""
        told = f"budget_{account.scope}_spent" if spent else f"budget_{account.scope}"
        self._operators.tell(
            f"{told} {account.name}",
            sentence(
                f"operators.{told}",
                name=account.name,
                spent=f"${self._spending.usd(account):.2f}",
                limit=f"${self._limits[account.scope]:.2f}",
                rule=_RULES[account.scope],
            ),
        )


def _next_day(seconds: float) -> float:
    """The time at which the next day (UTC) begins."""
    return (seconds // 86_400 + 1) * 86_400


def day_of(seconds: float) -> str:
    """The day of a time, as the log writes it."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
