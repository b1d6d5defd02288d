"""Prices of calls, and daily budgets: checked before each call, reported at 80 %, and asked about when used up."""

from __future__ import annotations

from typing import Any

import pytest

from bot import errors
from bot.contracts.approvals import Approval, Verdict
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.model import ModelReply, Usage
from bot.llm.costs import UNANSWERED_SECONDS, BudgetedModel, Price, PriceTable, Spending, day_of
from bot.llm.wrapper import usage_object
from bot.telemetry.log import turn_scope
from bot.testing.clock import FakeClock
from bot.words import Sentence, speaking
from tests.unit.llm.asking import ScriptedModel, ask, user

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


REPLY = ModelReply(content=[{"type": "text", "text": "hi"}], stop_reason="end_turn")
OPERATOR = UserRef("telegram", "1")
ALLOWED, DENIED = Verdict("approved", OPERATOR), Verdict("denied", OPERATOR)
CHAT = "slack:chat:C1:thread:1.1"


class Desk:
    """Operators with prepared decisions, and one chat whose calls cost a dollar each."""

    def __init__(
        self, verdicts: list[Verdict], *, spent: float = 0.0, fails: bool = False, **limits: float
    ) -> None:
        self.verdicts, self.fails = verdicts, fails
        self.asked: list[Approval] = []
        self.told: list[str] = []
        self.calls = 0
        self.clock = FakeClock()
        self.spending = Spending(PriceTable())
        self.spending.load(day_of(self.clock.now()), [(CHAT, "slack:U1", spent)])
        given: Any = limits or {"chat": 2.0}
        self.model = BudgetedModel(
            self.answering(), self.spending, given, approvals=self, operators=self, clock=self.clock
        )
        self.turns = iter(f"turn {number}" for number in range(100))

    def answering(self) -> Any:
        return ScriptedModel(*([REPLY] for _ in range(50)))

    async def decide(self, asked: Approval, *_: Approval) -> Verdict:
        self.asked.append(asked)
        if self.fails:
            raise errors.StorageError("no room")
        return self.verdicts.pop(0)

    def tell(self, subject: str, words: Sentence, *, every: float = 0.0) -> None:
        del every
        self.told.append(f"{subject}: {words}")

    async def call(
        self, turn: str = "", purpose: str = "turn", chat: str | None = CHAT, person: str | None = "slack:U1"
    ) -> bool:
        """Make a call that costs a dollar. Return False if the budget prevents it."""
        key = None if chat is None else ChatKey.parse(chat)
        who = None if person is None else UserRef.parse(person)
        with turn_scope(chat_key=key, request_id=turn or next(self.turns), person=who):
            stream = self.model.stream(ask(user("hi"), purpose=purpose))
            try:
                async for item in stream:
                    assert item == REPLY
                    self.pay(1.0, chat, person)
            except errors.BudgetSpent:
                return False
        self.calls += 1
        return True

    def pay(
        self, usd: float, chat: str | None = CHAT, person: str | None = "slack:U1", ahead: float = 0.0
    ) -> None:
        at = f"{day_of(self.clock.now() + ahead)}T12:00:00.000Z"
        details = {"costUsd": usd, "person": person}
        line = {"kind": "llm_response", "timestamp": at, "details": details}
        self.spending.observe(line | ({"chatKey": chat} if chat else {}))


async def test_up_to_its_budget_a_chat_is_answered_and_operators_hear_of_four_fifths_once() -> None:
    desk = Desk([DENIED], chat=5.0)
    assert [await desk.call() for _ in range(6)] == [True] * 5 + [False]
    (told,) = desk.told
    assert "A chat (slack:chat:C1) has cost $4.00 of $5.00 today (budgets.perChatUsdPerDay)" in told
    (asked,) = desk.asked
    assert (asked.why, asked.shown) == ("budget_chat", "$5.00 / $5.00")
    assert (asked.rule, asked.granted, asked.user_id) == ("budgets.perChatUsdPerDay", False, "U1")


async def test_what_an_earlier_process_told_is_not_told_again() -> None:
    desk = Desk([], spent=4.5, chat=5.0)
    assert await desk.call()
    assert desk.told == []


async def test_once_is_for_a_turn_and_what_it_starts_beside() -> None:
    desk = Desk([ALLOWED, DENIED], spent=2.0)
    assert await desk.call("a")
    assert await desk.call("a", "subagent")
    assert await desk.call("a", "memory")
    assert len(desk.asked) == 1
    assert not await desk.call("b")
    assert [one.request_id for one in desk.asked] == ["a", "b"]


@pytest.mark.parametrize(("scope", "elsewhere"), [("chat", False), ("always", True)])
async def test_for_the_chat_or_always_is_until_the_day_ends(scope: Any, elsewhere: bool) -> None:
    desk = Desk([Verdict("approved", OPERATOR, scope), Verdict("nobody"), DENIED], spent=9.0, person=9.0)
    assert [await desk.call() for _ in range(3)] == [True] * 3
    assert await desk.call(chat="telegram:chat:5") is elsewhere
    first = desk.asked[0]
    await desk.clock.advance(86_400)
    desk.pay(9.5)
    if elsewhere:
        desk.verdicts.pop(0)
    assert not await desk.call()
    assert desk.asked[-1].fingerprint != first.fingerprint


async def test_a_new_day_begins_with_nothing() -> None:
    desk = Desk([DENIED], spent=2.0)
    assert not await desk.call()
    await desk.clock.advance(86_400)
    assert await desk.call()
    desk.pay(5.0, ahead=-86_400.0)
    assert await desk.call(), "a line of yesterday that comes late is yesterday's"


async def test_where_it_is_denied_nobody_is_asked_again_that_day_and_where_nobody_answers_for_an_hour() -> (
    None
):
    desk = Desk([Verdict("expired"), DENIED], spent=2.0)
    assert [await desk.call() for _ in range(3)] == [False] * 3
    assert len(desk.asked) == 1
    await desk.clock.advance(UNANSWERED_SECONDS)
    assert [await desk.call() for _ in range(3)] == [False] * 3
    await desk.clock.advance(UNANSWERED_SECONDS)
    assert not await desk.call()
    assert len(desk.asked) == 2


@pytest.mark.parametrize("purpose", ["memory", "compaction"])
async def test_what_runs_beside_turns_is_left_out_and_nobody_is_asked(purpose: str) -> None:
    desk = Desk([], spent=2.0)
    assert not await desk.call(purpose=purpose)
    assert desk.asked == []


@pytest.mark.parametrize("ended", ["nobody", "unattended"])
async def test_operators_who_cannot_be_asked_are_told(ended: Any) -> None:
    desk = Desk([Verdict(ended)], spent=2.0)
    assert not await desk.call()
    assert "has cost $2.00 of $2.00 today and gets no more answers" in desk.told[-1]


async def test_a_question_that_cannot_be_written_is_a_no() -> None:
    assert not await Desk([], spent=2.0, fails=True).call()


async def test_a_person_pays_in_all_chats_and_a_chat_with_its_threads() -> None:
    desk = Desk([DENIED, DENIED], chat=3.0, person=2.0)
    assert await desk.call(chat="slack:chat:C1:thread:1.1", person="slack:U1")
    assert await desk.call(chat="slack:chat:C2", person="slack:U1")
    assert not await desk.call(chat="telegram:chat:9", person="slack:U1")
    assert await desk.call(chat="slack:chat:C1:thread:2.2", person="slack:U2")
    assert await desk.call(chat="slack:chat:C1", person="slack:U3")
    assert not await desk.call(chat="slack:chat:C1:thread:3.3", person="slack:U4")
    assert [one.rule for one in desk.asked] == ["budgets.perUserUsdPerDay", "budgets.perChatUsdPerDay"]
    assert await desk.call(chat=None, person=None), "a call of nobody's has no budget"
    desk.pay(1.0, chat="no chat at all", person=None)


async def test_a_call_of_unknown_price_counts_by_the_dearest_that_is_known() -> None:
    desk, used = Desk([DENIED], chat=2.0), Usage(input_tokens=100_000, output_tokens=30_000)
    details = {"usage": usage_object(used), "costUsd": None, "person": "slack:U1", "model": "claude-next"}
    day = day_of(desk.clock.now())
    line = {"kind": "llm_response", "timestamp": f"{day}T12:00:00.000Z", "chatKey": CHAT, "details": details}
    desk.spending.observe(line)
    dearest = PriceTable().cost_usd("claude-fable-5-1", used)
    assert desk.spending.usd["chat", "slack:chat:C1"] == dearest == 2.5
    assert not await desk.call()
    desk.spending.observe(line | {"details": details | {"usage": None}})
    assert desk.spending.usd["person", "slack:U1"] == 2.5, "a call that failed and costs nothing"


async def test_a_failure_that_the_provider_bills_counts_too() -> None:
    desk = Desk([DENIED], spent=1.0)
    desk.pay(1.0)
    assert not await desk.call()


async def test_who_is_refused_hears_when_the_next_day_begins_on_their_clocks() -> None:
    desk = Desk([DENIED], chat=1.0)
    assert await desk.call()
    with (
        turn_scope(chat_key=ChatKey.parse(CHAT), request_id="R"),
        pytest.raises(errors.BudgetSpent) as refused,
    ):
        async for _ in desk.model.stream(ask(user("hi"), purpose="turn")):
            pass
    with speaking("en", "America/Los_Angeles"):
        assert refused.value.person.endswith("Otherwise please try again after Fri 15 Jan 2027, 16:00 PST.")
