"""The view: what is sent of what is kept.

Same store, same turn, same epoch: byte-identical request. It changes by appending only, but at the start of an
epoch (`bot.agent.view_changes`). Where the breakpoints for the provider's cache stand: `bot.context.breakpoints`.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.context import breakpoints, found
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest


def render(
    *,
    model: str,
    max_tokens: int,
    system: Sequence[Json],
    tools: Sequence[Json],
    history: Sequence[Message],
    injected: Sequence[Message],
    current: Sequence[Message],
) -> ModelRequest:
    """One request: history, injected older turns, then the current turn. Tools that were found stand behind `tools`
    (`bot.context.found`). What leaves is looked at once more (`bot.context.repair.sound`).
    """
    messages, more = found.declared([*history, *injected, *current])
    shown_system, shown = breakpoints.placed(system, messages, len(history))
    # Where none was found it is the same object in request after request, and what is known of it holds.
    found_names = {one["name"] for one in more}
    # One that was found while the window was small stays one that was found, as the result that names it wants it.
    declared = (*(one for one in tools if one["name"] not in found_names), *more) if more else tuple(tools)
    return ModelRequest(
        model=model, max_tokens=max_tokens, system=shown_system, tools=declared, messages=shown
    )
