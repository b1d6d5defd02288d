"""How much of each request begins the next one, in a chat that calls a tool in every fourth turn."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.bench.context_chat import Chat
from tests.bench.context_trace import trace

TURNS = 80


@pytest.mark.parametrize(("gap", "size"), [(60.0, 1_500), (400.0, 1_500), (None, 400), (None, 1_500)])
async def test_with_a_tool_in_every_fourth_turn_96_of_100_tokens_begin_the_next_request(
    tmp_path: Path, gap: float | None, size: int
) -> None:
    turns = [
        dataclasses.replace(
            turn, results=(size,) if number % 4 == 3 else (), gap=turn.gap if gap is None else gap
        )
        for number, turn in enumerate(trace(TURNS, 1))
    ]
    bill = await Chat(tmp_path).replay(turns)
    assert bill.stability >= 0.96
    assert bill.breaks == 0
