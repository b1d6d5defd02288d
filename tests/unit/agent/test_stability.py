"""How much of each request begins the next one, in a chat that calls a tool in every fourth turn."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bot.agent.deps import Limits
from bot.core.compaction import Policy
from tests.bench.context_chat import Chat
from tests.bench.context_trace import trace
from tests.shares import one_in

TURNS = 80


@pytest.mark.parametrize(
    ("gap", "size", "stable"),
    one_in(2, [(60.0, 1_500, 0.93), (400.0, 1_500, 0.92), (None, 1_500, 0.93), (None, 400, 0.94)]),
)
async def test_with_a_tool_in_every_fourth_turn_most_of_a_request_begins_the_next_one(
    tmp_path: Path, gap: float | None, size: int, stable: float
) -> None:
    """Without compactions of quiet chats, which change the front of the next request because that is cheaper."""
    turns = [
        dataclasses.replace(
            turn, results=(size,) if number % 4 == 3 else (), gap=turn.gap if gap is None else gap
        )
        for number, turn in enumerate(trace(TURNS, 1))
    ]
    bill = await Chat(tmp_path, limits=Limits(compaction=Policy(idle=False))).replay(turns)
    assert bill.stability >= stable
    assert bill.breaks == 0
