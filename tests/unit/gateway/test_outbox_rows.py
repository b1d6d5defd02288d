"""The states of an outbox row: each transition, and that no other one is possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from bot import errors
from bot.contracts.agent import PriorReply
from bot.contracts.approvals import CHOICES, QuestionButtons
from bot.contracts.outbound import OutboundKind, OutboxRow, OutboxState
from bot.gateway.outbox.rows import in_order, prior_replies, seconds_left
from tests.unit.gateway.outgoing import HERE

ROW = OutboxRow("01OUT", "01REQ", HERE, {"chat": "77"}, "Hello.")
BUTTONS = QuestionButtons("01ASK", CHOICES)
Transition = Callable[[OutboxRow], OutboxRow]


def update(state: OutboxState) -> Transition:
    return lambda row: row.update(replace(ROW, state=state))


TRANSITIONS: dict[str, tuple[Transition, dict[OutboxState, OutboxState]]] = {
    "begin": (OutboxRow.begin, {"ready": "sending", "sending": "sending"}),
    "refuse": (OutboxRow.refuse, {"sending": "ready"}),
    "lose_answer": (OutboxRow.lose_answer, {"sending": "sending"}),
    "put_off": (lambda row: row.put_off(60.0), {"ready": "ready", "sending": "sending"}),
    "appear": (lambda row: row.appear("m1"), {"sending": "sending"}),
    "show": (lambda row: row.show("你好"), {"sending": "sending"}),
    "arrive": (lambda row: row.arrive("m1"), {"sending": "sent"}),
    "fail": (lambda row: row.fail("gone"), {"ready": "failed", "sending": "failed"}),
    "lose": (lambda row: row.lose("uncertain"), {"sending": "unknown"}),
    "locate": (lambda row: row.locate("m1"), {"unknown": "unknown"}),
    "revise": (lambda row: row.revise("你好"), {"sent": "sent", "unknown": "unknown"}),
    "offer": (lambda row: row.offer(BUTTONS), {"sent": "sent", "unknown": "unknown"}),
    "close": (lambda row: row.close("Allowed."), {"sent": "sent", "unknown": "unknown"}),
    "tell": (OutboxRow.tell, {"failed": "failed", "unknown": "unknown"}),
    "update, ready": (update("ready"), {"ready": "ready", "sending": "ready"}),
    "update, sending": (update("sending"), {"ready": "sending", "sending": "sending"}),
    "update, sent": (update("sent"), {"sending": "sent", "sent": "sent"}),
    "update, failed": (update("failed"), {"ready": "failed", "sending": "failed", "failed": "failed"}),
    "update, unknown": (update("unknown"), {"sending": "unknown", "unknown": "unknown"}),
}


@pytest.mark.parametrize("name", TRANSITIONS)
@pytest.mark.parametrize("state", get_args(OutboxState))
def test_a_row_goes_where_its_state_lets_it_and_nowhere_else(name: str, state: OutboxState) -> None:
    transition, allowed = TRANSITIONS[name]
    row = replace(ROW, state=state)
    if state in allowed:
        assert transition(row).state == allowed[state]
    else:
        with pytest.raises(errors.IllegalTransition, match=f"01OUT is {state}"):
            transition(row)


@pytest.mark.parametrize("state", get_args(OutboxState))
@pytest.mark.parametrize("kind", get_args(OutboundKind))
def test_a_preview_that_still_stands_makes_way_and_nothing_else_does(
    kind: OutboundKind, state: OutboxState
) -> None:
    row = replace(ROW, kind=kind, state=state)
    ends = (kind, state) == ("preview", "sending")
    assert row.make_way() == (replace(row, state="sent") if ends else row)


def test_what_became_of_a_row_is_in_its_columns() -> None:
    assert ROW.begin().lose_answer().lose_answer().attempts == 2
    assert (ROW.put_off(60.0).not_before, ROW.put_off(60.0).deferred, ROW.deferred) == (60.0, True, False)
    sent = ROW.put_off(60.0).begin().arrive("m1")
    assert (sent.message_id, sent.deferred) == ("m1", False)
    lost = ROW.begin().lose("uncertain", untold=True)
    assert (lost.reason, lost.untold, lost.tell().untold) == ("uncertain", True, False)


def test_a_question_that_is_decided_keeps_what_holds_and_has_no_buttons() -> None:
    asked = replace(ROW, text="May I?\nWrite yes.", buttons=BUTTONS, closes_as="May I?").begin().arrive("m1")
    closed = asked.close("Allowed.")
    assert (closed.text, closed.closes_as, closed.buttons) == (
        "May I?\n\nAllowed.",
        None,
        QuestionButtons("", ()),
    )
    assert (asked.close().text, closed.close().text) == ("May I?", closed.text)


def test_a_repeat_stands_where_its_original_does_and_tells_of_it() -> None:
    one, two = replace(ROW, id="1"), replace(ROW, id="2")
    repeat = replace(ROW, id="3", repeat_of="1").begin().arrive("m3")
    notice = replace(ROW, id="4", kind="notice")
    rows = [one.begin().lose("uncertain"), two.put_off(60.0), repeat, notice]
    assert [row.id for row in in_order(rows)] == ["1", "3", "2"]
    assert prior_replies(rows) == (PriorReply("1", ("m3",)), PriorReply("2", ("2",)))
    assert prior_replies([one.fail("gone")]) == (PriorReply("1", failed=True),)


def test_a_clock_that_was_set_back_makes_no_row_wait_for_longer() -> None:
    row = replace(ROW.put_off(1_060.0), changed_at=1_000.0)
    assert [seconds_left(row, now) for now in (1_030.0, 2_000.0, 500.0)] == [30.0, 0.0, 60.0]
    assert seconds_left(ROW, 0.0) == 0.0
