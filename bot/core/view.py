"""Builds the request to the model from the stored messages.

The same stored messages, turn and prompt always give a byte-identical request. Until a compaction or masking,
the request only grows at its end.

There are at most four cache breakpoints: at the end of the system prompt shared by all chats, of this chat's
part of the prompt, of the history, and of the request. The cache looks 20 blocks back from each breakpoint.
If a step added more than that, the breakpoint of the chat's part moves to the end of the previous request,
since later breakpoints cover the chat's part. The breakpoints depend only on the messages, so they are the
same after a restart.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest
from bot.core import blocks, found_tools

CACHE = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
"""Cache breakpoint for content cached for an hour instead of five minutes."""
MOST_BREAKPOINTS = 4
LOOK_BACK = 15
"""Min number of blocks that the cache certainly looks back; the provider looks back 20 blocks and may count
blocks that we do not count.
"""


def placed(
    system: Sequence[Json], messages: Sequence[Message], history: int
) -> tuple[tuple[Json, ...], tuple[Message, ...]]:
    """Return system blocks and messages with cache breakpoints; `history` is the number of messages before the turn."""
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
    """Return the index of the last message of the previous request; None if there was none."""
    answers = (at for at in reversed(range(len(messages))) if messages[at]["role"] == "assistant")
    answer = next(answers, 0)
    return answer - 1 if answer else None


def _within(system: Sequence[Json], most: int) -> tuple[Json, ...]:
    """Return the blocks with only the first `most` of their cache breakpoints."""
    kept = []
    for block in system:
        spare = "cache_control" in block and most <= 0
        most -= "cache_control" in block
        kept.append(blocks.unmarked(block) if spare else block)
    return tuple(kept)


def _marked(message: Message) -> Message:
    """Return the message with a cache breakpoint on its last block that may carry one."""
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
    """Build a request from the history, injected older messages and the current turn. Found tools are added
    after `tools` (see `bot.core.found_tools`).
    """
    messages, more = found_tools.declared([*history, *injected, *current])
    shown_system, shown = placed(system, messages, len(history))
    # Without found tools, `declared` is the same object in every request, so that values cached by object apply.
    found_names = {one["name"] for one in more}
    # A tool that was found while the window was small is still sent as a found tool, since a result refers to it.
    declared = (*(one for one in tools if one["name"] not in found_names), *more) if more else tuple(tools)
    return ModelRequest(
        model=model, max_tokens=max_tokens, system=shown_system, tools=declared, messages=shown
    )
