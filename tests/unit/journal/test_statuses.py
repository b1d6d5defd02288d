"""The states of an inbound and of a turn: each transition, and that no other one is possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from bot import errors
from bot.contracts.journal import (
    FinalState,
    InboxEnd,
    InboxState,
    InboxStatus,
    TurnEnd,
    TurnState,
    TurnStatus,
)

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
        for end in get_args(TurnEnd)
    },
}


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("state", [*RUNS, "stopping", *get_args(TurnEnd)])
def test_a_turn_goes_where_its_state_lets_it_and_nowhere_else(name: str, state: TurnState) -> None:
    transition, allowed = TURNS[name]
    status = TurnStatus(state)
    assert status.open == (state not in get_args(TurnEnd))
    if state in allowed:
        assert transition(status) == TurnStatus(allowed[state])
    else:
        with pytest.raises(errors.IllegalTransition, match=f"that is {state} cannot become"):
            transition(status)
