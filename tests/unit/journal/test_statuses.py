"""The states of an inbound, a turn and an approval: each transition, and that no other one is possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from bot import errors
from bot.contracts.approvals import SECONDS, ApprovalRecord, Ended, Verdict, lasting
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.journal import (
    FinalState,
    FinalTurnState,
    InboxEnd,
    InboxState,
    InboxStatus,
    TurnState,
    TurnStatus,
)
from tests.contracts.journal_approvals import HERE, approval

Transition = Callable[[InboxStatus], InboxStatus]
OPEN: tuple[InboxState, ...] = ("queued", "in_turn")
ENDED = get_args(FinalState)

TRANSITIONS: dict[str, tuple[Transition, dict[InboxState, InboxState]]] = {
    "join": (lambda status: status.join("01TURN"), dict.fromkeys(OPEN, "in_turn")),
    "merge": (lambda status: status.merge("01MESSAGE"), {state: state for state in (*OPEN, *ENDED)}),
    **{
        f"end as {end}": (
            lambda status, end=end: status.end(InboxEnd(end)),  # type: ignore[misc]
            dict.fromkeys((*OPEN, end), end),
        )
        for end in ENDED
    },
}


@pytest.mark.parametrize("name", TRANSITIONS)
@pytest.mark.parametrize("state", [*OPEN, *ENDED])
def test_an_inbound_goes_where_its_state_lets_it_and_nowhere_else(name: str, state: InboxState) -> None:
    transition, allowed = TRANSITIONS[name]
    if state in allowed:
        assert transition(InboxStatus(state)).state == allowed[state]
    else:
        with pytest.raises(errors.IllegalTransition, match=f"that is {state} cannot become"):
            transition(InboxStatus(state))


def test_what_became_of_an_inbound_is_in_its_fields() -> None:
    first = InboxStatus().join("01A")
    assert (first.turn_id, first.join("01B").turn_id, first.join("01A")) == ("01A", "01B", first)
    edit = InboxStatus().merge("01A")
    assert edit == InboxStatus(merged_into="01A")
    ended = edit.end(InboxEnd("merged", "in words", merged_into="01A"))
    assert ended == InboxStatus("merged", None, "01A", "in words")
    assert ended.merge("01B") is ended, "one that has ended keeps its end"
    assert ended.end(InboxEnd("merged", "again")) is ended, "the first end counts"
    assert replace(ended, state="queued").open


RUNS: tuple[TurnState, ...] = ("running", "suspended")


def to(state: TurnState) -> dict[TurnState, TurnState]:
    """What runs comes there, and what is being stopped stays so."""
    return {**dict.fromkeys(RUNS, state), "stopping": "stopping"}


TURNS: dict[str, tuple[Callable[[TurnStatus], TurnStatus], dict[TurnState, TurnState]]] = {
    "run": (TurnStatus.run, to("running")),
    "suspend": (TurnStatus.suspend, to("suspended")),
    "stop": (TurnStatus.stop, to("stopping")),
    **{
        f"end as {end}": (
            lambda status, end=end: status.end(end),  # type: ignore[misc]
            dict.fromkeys((*RUNS, "stopping", end), end),
        )
        for end in get_args(FinalTurnState)
    },
}


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("state", [*RUNS, "stopping", *get_args(FinalTurnState)])
def test_a_turn_goes_where_its_state_lets_it_and_nowhere_else(name: str, state: TurnState) -> None:
    transition, allowed = TURNS[name]
    status = TurnStatus(state)
    assert status.open == (state not in get_args(FinalTurnState))
    if state in allowed:
        assert transition(status) == TurnStatus(allowed[state])
    else:
        with pytest.raises(errors.IllegalTransition, match=f"that is {state} cannot become"):
            transition(status)


WAITING = ApprovalRecord("A1", approval(), 5.0)
ENDINGS = tuple(ended for ended in get_args(Ended) if ended != "unattended")


@pytest.mark.parametrize("ended", ENDINGS)
def test_an_approval_that_waits_ends_once(ended: Ended) -> None:
    settled = WAITING.resolve(Verdict(ended, UserRef("slack", "U7")), 7.0)
    assert settled == ApprovalRecord("A1", approval(), 5.0, Verdict(ended, UserRef("slack", "U7")), 7.0)
    assert (WAITING.open, settled.open) == (True, False)
    for again in get_args(Ended):
        with pytest.raises(errors.IllegalTransition, match=f"that is {ended} cannot become {again}"):
            settled.resolve(Verdict(again), 8.0)


def test_a_wait_that_never_took_place_ends_no_approval() -> None:
    with pytest.raises(errors.IllegalTransition, match="that is waiting cannot become unattended"):
        WAITING.resolve(Verdict("unattended"), 7.0)


def test_an_approval_waits_for_half_an_hour_and_one_that_lets_somebody_in_for_as_long_as_it_takes() -> None:
    assert WAITING.expires_at == 5.0 + SECONDS
    assert replace(WAITING, asked=replace(approval(), subject="person")).expires_at == float("inf")


ELSEWHERE = ChatKey.parse("slack:chat:C2")
ONCE, CHAT, ALWAYS = (
    Verdict("approved", UserRef("slack", "U7"), scope) for scope in ("once", "chat", "always")
)
NEWER = Verdict("approved", UserRef("slack", "U8"), "chat")


@pytest.mark.parametrize(
    ("verdicts", "here", "elsewhere"),
    [
        ([], None, None),
        ([ONCE, Verdict("denied", scope="always"), Verdict("expired")], None, None),
        ([CHAT], CHAT, None),
        ([CHAT, NEWER], NEWER, None),
        ([ALWAYS, CHAT, ONCE], ALWAYS, ALWAYS),
        (
            [ALWAYS, replace(ALWAYS, by=UserRef("slack", "U8"))],
            replace(ALWAYS, by=UserRef("slack", "U8")),
            replace(ALWAYS, by=UserRef("slack", "U8")),
        ),
    ],
)
def test_an_approval_covers_the_chat_that_it_was_given_for_or_all_of_them(
    verdicts: list[Verdict], here: Verdict | None, elsewhere: Verdict | None
) -> None:
    records = [WAITING, *(WAITING.resolve(verdict, 7.0) for verdict in verdicts)]
    found = (lasting(records, HERE), lasting(records, ELSEWHERE))
    assert tuple(one and one.verdict for one in found) == (here, elsewhere)
