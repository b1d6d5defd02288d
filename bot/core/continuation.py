"""Incomplete answers: the text of an answer that still streams, and the continuation of an answer that was cut off. The
continuing request ends with a user message, because newer models reject assistant text at the end.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence

import jiter

from bot import text
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelReply, TextDelta, ToolInputDelta
from bot.core import blocks
from bot.core.context import LENGTH, RunningTurn
from bot.tags import ANSWER, SEND, SILENT

MAX_AGAIN = 3
"""Max further requests for one answer that hit a length limit or that the provider paused."""
MAX_CUTS = 3
"""Max answers of a turn that are cut off in a tool call or in thinking. The last of them ends the turn."""
RAISES = 4
"""Max factor by which the configured output limit is raised, if the model's own limit is unknown."""
GO_ON = "Continue exactly where you left off. Do not repeat what you already said, and say nothing about the break."
UNFINISHED: Json = {"type": "text", "text": "(not finished)"}
"""Placeholder for an answer that contained nothing but calls to the provider's tools."""
_LOOKED_AT = 4_000  # max characters compared on each side of the break
_SURE = 12  # min letters of an overlap that is no coincidence; a Chinese or Japanese character counts as four
_VARIED = 4  # min different characters of such an overlap, because lines of dashes overlap by chance


def tail(running: RunningTurn) -> tuple[Message, ...]:
    """Return the user message that must end the next request; () if none must. The message is not stored."""
    last = running.last
    if last is None or paused(running) or (not running.speaks and last.stop_reason in LENGTH):
        return ()
    words = GO_ON if running.speaks else ANSWER
    return ({"role": "user", "content": [{"type": "text", "text": words}]},)


def paused(running: RunningTurn) -> bool:
    """Return True if the provider paused its answer. It then expects this answer back, unchanged."""
    last = running.last
    return running.speaks and last is not None and last.stop_reason == "pause_turn" and not last.continues


def goes_on(running: RunningTurn, *, answered: bool, waits: bool, more_room: bool) -> bool:
    """Return True if the model must be called again. `answered`: the person has the answer. `waits`: the person waits
    for a message. `more_room`: the next answer may be longer.
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
    if not ended_early and last.stop_reason not in LENGTH:  # an empty answer, after tool results
        newest = itertools.takewhile(lambda one: one.message["role"] == "user", reversed(running.entries))
        results = any(one.message["content"][0].get("type") == "tool_result" for one in newest)
        return waits and results and running.silences < 2
    if running.speaks and (ended_early or more_room):
        return again < MAX_AGAIN
    return more_room and running.thoughts < 2 and running.cuts < MAX_CUTS


def continued(running: RunningTurn, reply: ModelReply) -> tuple[list[Json], int]:
    """Return an answer's content, merged with the answer that it continues, and the number of continuations."""
    content, line = list(reply.content), tail(running)
    if line:
        content = [block for block in content if block.get("type") not in blocks.THINKING]
    content = blocks.sayable(content, paused=reply.stop_reason == "pause_turn" and not line)
    if not line or running.last is None or not running.speaks:
        return content, 0
    begun = running.entries[-1].message["content"]
    return joined([] if begun == [UNFINISHED] else begun, content) or begun, running.last.continues + 1


def joined(first: Sequence[Json], second: Sequence[Json]) -> list[Json]:
    """Merge an answer with its continuation. Drop a beginning of `second` that repeats the end of `first`."""
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
    """Return the length of the beginning of `second` that repeats the end of `first`; 0 if that may be by chance."""
    end, begin = first[-_LOOKED_AT:], second[:_LOOKED_AT]
    lengths = range(min(len(end), len(begin)), 0, -1)
    length = next((one for one in lengths if end.endswith(begin[:one])), 0)
    part, said = begin[:length], begin[:length].strip()
    thrice = end[: len(end) - length].rstrip().endswith(said) or begin[length:].lstrip().startswith(said)
    letters = (one for one in part if not one.isspace())
    weight = sum(4 if unicodedata.east_asian_width(one) in {"W", "F"} else 1 for one in letters)
    return length if not thrice and len(set(part)) >= _VARIED and weight >= _SURE else 0


class PartialReply:
    """Collects an answer while it streams. If `plain` is False, only the text of `chat_send` calls is shown."""

    def __init__(self, *, plain: bool = True) -> None:
        self._shows_plain = plain
        self._text = ""
        self._calls: dict[str, str] = {}
        """Input (partial JSON) of each `chat_send` call so far, by call id."""
        self._said: dict[str, str] = {}
        self._first: tuple[str, str] | None = None
        """Id and name of the first tool call."""

    def take(self, event: TextDelta | ToolInputDelta | ModelReply) -> None:
        """Take in one event of the model's stream."""
        if isinstance(event, TextDelta):
            self._text += event.text
        elif isinstance(event, ToolInputDelta):
            self._first = self._first or (event.tool_use_id, event.name)
            if event.name == SEND:
                self._calls[event.tool_use_id] = self._calls.get(event.tool_use_id, "") + event.partial_json
        elif self._first is None:  # a call without input sends no input events
            calls = blocks.tool_calls(event.content)
            self._first = (calls[0].id, calls[0].name) if calls else None

    @property
    def speaks(self) -> bool:
        """Return True if the answer begins with text for people. Only `chat_send` calls have such text."""
        return self._first[1] == SEND if self._first is not None else self._shows_plain and bool(self._text)

    def shown(self) -> str:
        """Return the text so far of the first message. Plain text counts only while no tool call has begun."""
        if self._first is None:
            return _aloud(self._text.strip())
        return self._message(self._first[0]) if self.speaks else ""

    def words(self) -> str:
        """Return the text for people: that of `chat_send` calls if there is any, else the plain text."""
        sent = [words for call in self._calls if (words := self._message(call).strip())]
        return "\n\n".join(sent) or _aloud(self._text.strip())

    def _message(self, call: str) -> str:
        """Return the text of a `chat_send` call so far. If the input cannot be parsed, return the last known text."""
        try:
            raw = self._calls.get(call, "").encode("utf-8", "replace")
            value = jiter.from_json(raw, partial_mode="trailing-strings", cache_mode="none")
        except ValueError:
            return self._said.get(call, "")
        words = value.get("text") if isinstance(value, dict) else None
        self._said[call] = _aloud(words) if isinstance(words, str) else ""
        return self._said[call]


def _aloud(words: str) -> str:
    """Return the cleaned text; "" if it is, or may become, the marker for a silent answer."""
    words = text.clean(words)
    return "" if SILENT.startswith(words.strip()) or words.lstrip().startswith(SILENT) else words
