"""The view: what is sent of what is kept.

Same store, same turn, same epoch: byte-identical request. It changes by appending only, but at the start of an
epoch.

Breakpoints let the next request find what the provider has read. Four places at the most: the part of the system prompt that
all chats share, the part of this chat, the end of the history, the end of the request. The cache looks 20 blocks back from each of
them for what it kept before. Where a step was longer than that, the end of the request before it is a place too, and the chat's own
part gives up its own: what stands behind it covers it. All of it follows from the messages alone, so that it is the same after a
restart.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest
from bot.core import blocks, found_tools

CACHE = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
"""The breakpoint of what the provider keeps for an hour instead of five minutes."""
MOST_BREAKPOINTS = 4
LOOK_BACK = 15
"""Blocks; the provider looks back 20, and may count some that we do not."""


def placed(
    system: Sequence[Json], messages: Sequence[Message], history: int
) -> tuple[tuple[Json, ...], tuple[Message, ...]]:
    """System and messages with their breakpoints; `history` is the number of messages that are history."""
    places = {len(messages) - 1}
    if history:
        places.add(history - 1)
    before = _asked_before(messages)
    if before is not None:
        ends = list(itertools.accumulate(len(message["content"]) for message in messages))
        if not any(0 <= ends[place] - ends[before] < LOOK_BACK for place in places):
            places.add(before)
    marked = list(messages)
    for place in places:
        marked[place] = _marked(messages[place])
    return _within(system, MOST_BREAKPOINTS - len(places)), tuple(marked)


def _asked_before(messages: Sequence[Message]) -> int | None:
    """The last message of the request before this one: the model answered it. None where there was none."""
    answers = (at for at in reversed(range(len(messages))) if messages[at]["role"] == "assistant")
    answer = next(answers, 0)
    return answer - 1 if answer else None


def _within(system: Sequence[Json], most: int) -> tuple[Json, ...]:
    """The blocks with the first `most` of their breakpoints."""
    kept = []
    for block in system:
        spare = "cache_control" in block and most <= 0
        most -= "cache_control" in block
        kept.append(blocks.unmarked(block) if spare else block)
    return tuple(kept)


def _marked(message: Message) -> Message:
    """The message with a breakpoint on its last block that may carry one."""
    content = list(message["content"])
    for index in range(len(content) - 1, -1, -1):
        if content[index].get("type") not in blocks.THINKING:
            content[index] = {**content[index], "cache_control": CACHE}
            return {**message, "content": content}
    return message


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
    (`bot.core.found_tools`). What leaves is looked at once more (`bot.core.repair.sound`).
    """
    messages, more = found_tools.declared([*history, *injected, *current])
    shown_system, shown = placed(system, messages, len(history))
    # Where none was found it is the same object in request after request, and what is known of it holds.
    found_names = {one["name"] for one in more}
    # One that was found while the window was small stays one that was found, as the result that names it wants it.
    declared = (*(one for one in tools if one["name"] not in found_names), *more) if more else tuple(tools)
    return ModelRequest(
        model=model, max_tokens=max_tokens, system=shown_system, tools=declared, messages=shown
    )
