"""Runs tool calls in the form in which the model writes them, and returns results in the form in which the
model receives them.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.contracts.base import Json
from bot.llm import blocks
from bot.tools.dispatch import Dispatcher, Recorder


async def run_blocks(
    dispatcher: Dispatcher,
    calls: Sequence[Json],
    cut: frozenset[str] = frozenset(),
    recorder: Recorder | None = None,
) -> list[Json]:
    """Run these `tool_use` blocks with `Dispatcher.run`; return the `tool_result` blocks."""
    results = await dispatcher.run(blocks.tool_calls(calls), cut, recorder)
    return [one.block for one in results]
