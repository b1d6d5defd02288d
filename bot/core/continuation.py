"""Handling of incomplete answers: which request comes next, and how the parts become one message.

A text that reached the length limit is continued: the request contains the message so far and then a line
that asks to continue, because newer models reject a request that ends with assistant text. Neither that line
nor the thinking that follows is stored. A tool call that was cut off is not run. If thinking used up the
output limit, the limit is raised. After `MAX_AGAIN` further requests the turn ends. All state is derived from
the turn's messages.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from bot.contracts.base import Json, Message
from bot.contracts.model import ModelReply
from bot.core import blocks
from bot.core.context import LENGTH, RunningTurn
from bot.tags import ANSWER

MAX_AGAIN = 3
"""Max follow-up requests of one answer, after it hits a length limit or the provider pauses it."""
MAX_CUTS = 3
"""Max answers of a turn that are cut off in a tool call or in thinking; the last one ends the turn."""
RAISES = 4
"""Max output limit in multiples of the configured limit, if the model's own limit is unknown."""
GO_ON = "Continue exactly where you left off. Do not repeat what you already said, and say nothing about the break."

UNFINISHED: Json = {"type": "text", "text": "(not finished)"}
"""Placeholder text for an answer that contained only server tool calls."""

_LOOKED_AT = 4_000  # max characters examined on each side of a border between two parts
_SURE = 12  # min letters of an overlap that is no coincidence
_WIDE = 4  # number of letters that a Chinese or Japanese character counts as
_VARIED = 4  # min different characters, since a line of dashes overlaps with any other line of dashes


def tail(running: RunningTurn) -> tuple[Message, ...]:
    """Return the line that ends the next request and is not stored; () if the turn's own messages end the request."""
    last = running.last
    if last is None or paused(running):
        return ()
    if running.speaks:
        return (_line(GO_ON),)
    return () if last.stop_reason in LENGTH else (_line(ANSWER),)


def paused(running: RunningTurn) -> bool:
    """Return True if the provider paused. The provider then expects its own content back, unchanged."""
    last = running.last
    return running.speaks and last is not None and last.stop_reason == "pause_turn" and not last.continues


def goes_on(running: RunningTurn, *, answered: bool, owed: bool, more_room: bool) -> bool:
    """Return True if the model has to be asked again. `answered`: the person has the answer. `owed`: the
    person waits for a message. `more_room`: the next output limit may be higher.
    """
    last = running.last
    if last is None:
        return True
    again = last.continues + running.cuts + running.pauses
    if paused(running):
        return again <= MAX_AGAIN
    ended_early = last.stop_reason in {"max_tokens", "pause_turn"}
    if answered or (running.words and not ended_early):
        return False
    if not ended_early and last.stop_reason not in LENGTH:
        return owed and running.after_results and running.silences < 2
    if running.speaks and (ended_early or more_room):
        return again < MAX_AGAIN
    return more_room and running.thoughts < 2 and running.cuts < MAX_CUTS


def most_tokens(running: RunningTurn, limit: int, most: int | None) -> int:
    """Return the next output limit in tokens: doubled for each answer that was cut off, up to the model's own limit."""
    return max(limit, min(limit << running.cuts, most or RAISES * limit))


def continued(running: RunningTurn, reply: ModelReply) -> tuple[list[Json], int]:
    """Return an answer's content in its stored form, and how often the answer was continued. A continuation
    is merged into the answer before it, without the continuation's thinking.
    """
    content, line = list(reply.content), tail(running)
    if line:
        content = [block for block in content if block.get("type") not in blocks.THINKING]
    content = blocks.sayable(content, paused=reply.stop_reason == "pause_turn" and not line)
    if not line or running.last is None or not running.speaks:
        return content, 0
    begun = running.entries[-1].message["content"]
    return joined([] if begun == [UNFINISHED] else begun, content) or begun, running.last.continues + 1


def joined(first: Sequence[Json], second: Sequence[Json]) -> list[Json]:
    """Merge an answer and its continuation, dropping the beginning of `second` that repeats the end of `first`."""
    content = list(first)
    before = blocks.plain_text(first)
    for block in second:
        if block.get("type") != "text":
            content.append(block)
            continue
        words = block["text"][overlap(before, block["text"]) :]
        before += words
        last = content[-1] if content else {}
        if last.keys() == block.keys() == {"type", "text"}:
            content[-1] = {"type": "text", "text": last["text"] + words}
        elif words.strip():
            content.append({**block, "text": words})
    return content


def overlap(first: str, second: str) -> int:
    """Return the number of characters at the beginning of `second` that repeat the end of `first`.

    Takes the longest repetition if it is too long to be a coincidence. A phrase that occurs a third time on
    either side stays.
    """
    end, begin = first[-_LOOKED_AT:], second[:_LOOKED_AT]
    for length in range(min(len(end), len(begin)), 0, -1):
        part = begin[:length]
        if end.endswith(part):
            return length if _is_repeat(end[:-length], part, begin[length:]) else 0
    return 0


def _is_repeat(before: str, part: str, after: str) -> bool:
    """Return True if the model repeated `part` by mistake where the answer was continued."""
    said = part.strip()
    thrice = before.rstrip().endswith(said) or after.lstrip().startswith(said)
    return not thrice and len(set(part)) >= _VARIED and sum(map(_weight, part)) >= _SURE


def _weight(character: str) -> int:
    if character.isspace():
        return 0
    return _WIDE if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def _line(words: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": words}]}
