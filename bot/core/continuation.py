"""Answers that end before they are whole: what is asked next, and how the pieces become one message.

Text that reached the length limit is continued: the message so far, then a line of ours that says to go on (newer
models refuse a request that ends with the assistant's words). That line is never kept, so what the model thought
behind it is not either. A tool call that was cut is never run and thinking that used up the room says nothing: there
the model gets more room. Everything ends after `MAX_AGAIN` more requests. All of it follows from the messages of the turn.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from bot.contracts.base import Json, Message
from bot.contracts.model import ModelReply
from bot.core import blocks
from bot.core.context import LENGTH, RunningTurn
from bot.system_role import ANSWER

MAX_AGAIN = 3
"""Requests that the length limit and pauses may cost on top of the one that ended early."""
MAX_CUTS = 3
"""Answers of a turn that the limit may end in a tool call or in thinking; the last of them ends the turn."""
RAISES = 4
"""A raised limit may be so many times the configured one, if the model's own limit is not known."""
GO_ON = "Continue exactly where you left off. Do not repeat what you already said, and say nothing about the break."

UNFINISHED: Json = {"type": "text", "text": "(not finished)"}
"""Stands for an answer that held nothing but calls of the provider's own tools."""

_LOOKED_AT = 4_000  # characters of each side of a joint
_SURE = 12  # letters from which on an overlap is no coincidence
_WIDE = 4  # letters that a character of Chinese or Japanese counts for
_VARIED = 4  # different characters: a ruler of dashes overlaps with any other
_WORDS, _WORD, _GLUED = 6, 8, 5
"""Letters from which on whole words are no coincidence: several different ones; one; one with no space before its double,
as in "quickquick". "Had had", "ha ha" and "the the" are shorter.
"""
_LETTERS = re.compile(r"\w+")


def tail(running: RunningTurn) -> tuple[Message, ...]:
    """The line of ours with which the next request ends, and which is never kept; () where it ends with the turn's own messages."""
    last = running.last
    if last is None or paused(running):
        return ()
    if running.speaks:
        return (_line(GO_ON),)
    return () if last.stop_reason in LENGTH else (_line(ANSWER),)


def paused(running: RunningTurn) -> bool:
    """True if the provider has paused: it wants its own words back, unchanged."""
    last = running.last
    return running.speaks and last is not None and last.stop_reason == "pause_turn" and not last.continues


def goes_on(running: RunningTurn, *, answered: bool, owed: bool, more_room: bool) -> bool:
    """True if the model has not said all that it is to say. `answered`: the person has what they wait for; `owed`: they wait for a
    message; `more_room`: the next answer may be longer than the last one was.
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
    """The room of the next answer: twice as much for each that the limit has cut, up to what the model gives."""
    return max(limit, min(limit << running.cuts, most or RAISES * limit))


def continued(running: RunningTurn, reply: ModelReply) -> tuple[list[Json], int]:
    """The content of an answer as it is kept, and how often it was continued: one that goes on with another is one with it. What was
    thought behind a line that is not kept goes.
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
    """One message of an answer and its continuation: what the second repeats of the first is left out."""
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
    """Return how many characters at the beginning of `second` repeat the end of `first`.

    The longest such part counts, where it is too long to be a coincidence: a word that happens to be doubled stays, and
    so does what is said a third time on either side.
    """
    end, begin = first[-_LOOKED_AT:], second[:_LOOKED_AT]
    for length in range(min(len(end), len(begin)), 0, -1):
        part = begin[:length]
        if end.endswith(part):
            return length if _is_repeat(end[:-length], part, begin[length:]) else 0
    return 0


def _is_repeat(before: str, part: str, after: str) -> bool:
    """True if a part that ends one piece and begins the next was said twice by mistake."""
    said = part.strip()
    if before.rstrip().endswith(said) or after.lstrip().startswith(said) or len(set(part)) < _VARIED:
        return False
    if sum(map(_weight, part)) >= _SURE:
        return True
    words = _LETTERS.findall(part.casefold())
    glued = _is_letter(part[:1]) and _is_letter(part[-1:])
    whole = not (_is_letter(before[-1:]) and _is_letter(part[:1])) and not (
        _is_letter(part[-1:]) and _is_letter(after[:1])
    )
    again = _LETTERS.match(after.casefold().lstrip())
    if not words or not whole or (again is not None and again[0] == words[0]):
        return False
    least = _WORDS if len(set(words)) > 1 else _GLUED if glued else _WORD
    return sum(map(len, words)) >= least


def _is_letter(character: str) -> bool:
    return _LETTERS.match(character) is not None


def _weight(character: str) -> int:
    if character.isspace():
        return 0
    return _WIDE if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def _line(words: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": words}]}
