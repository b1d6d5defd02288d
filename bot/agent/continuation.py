"""Answers that end before they are whole: what is asked next, and how the pieces become one message.

Text that reached the length limit is continued: the message so far, then a line of ours that says to go on (newer
models refuse a request that ends with the assistant's words). That line is never kept, so what the model thought
behind it is not either. A tool call that was cut is never run and thinking that used up the room says nothing: there
the model gets more room. Everything ends after `MAX_AGAIN` more requests.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.agent.deps import AgentDeps
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelReply
from bot.core import blocks
from bot.system_role import ANSWER

MAX_AGAIN = 3
"""Requests that the length limit and pauses may cost on top of the one that ended early."""
MAX_CUTS = 3
"""Answers of a turn that the limit may end in a tool call or in thinking; the last of them ends the turn."""
RAISES = 4
"""A raised limit may be so many times the configured one, if the model's own limit is not known."""
LENGTH = frozenset({"max_tokens", "model_context_window_exceeded"})
GO_ON = "Continue exactly where you left off. Do not repeat what you already said, and say nothing about the break."

_LOOKED_AT = 4_000  # characters of each side of a joint
_SURE = 12  # letters from which on an overlap is no coincidence
_WIDE = 4  # letters that a character of Chinese or Japanese counts for
_VARIED = 4  # different characters: a ruler of dashes overlaps with any other
_WORDS, _WORD, _GLUED = 6, 8, 5
"""Letters from which on whole words are no coincidence: several different ones; one; one with no space before its double,
as in "quickquick". "Had had", "ha ha" and "the the" are shorter.
"""
_LETTERS = re.compile(r"\w+")


@dataclass(slots=True)
class ContinuationPolicy:
    """Decides how a turn goes on after an answer that ended early: `tail` is added to the next request, the counts limit retries."""

    deps: AgentDeps
    max_tokens: int
    tail: tuple[Message, ...] = ()
    continued: int = 0
    """Continuations of the answer that is being given."""
    cuts: int = 0
    pauses: int = 0
    thought: bool = False
    prompted: bool = False
    paused: bool = False
    """True if the next request gives the provider its own words back."""

    @property
    def goes_on(self) -> bool:
        """True if the next request goes on with an answer of which something is there."""
        return bool(self.tail) or self.continued > 0 or self.paused

    @classmethod
    def begun(cls, deps: AgentDeps) -> ContinuationPolicy:
        return cls(deps, deps.budget().max_tokens)

    def taken(self, reply: ModelReply) -> ModelReply:
        """The reply as it may be kept: what was thought behind a line of ours that is not kept goes."""
        self.paused = False
        if not self.tail:
            return reply
        content = [block for block in reply.content if block.get("type") not in blocks.THINKING]
        return replace(reply, content=content)

    def after_tools(self, *, cut: bool) -> bool:
        """Tools were called, some of them perhaps in a call that was `cut`. False where the turn had better end."""
        self.tail, self.continued = (), 0
        if not cut:
            return True
        self.cuts += 1
        self._raise("in a tool call at the limit")
        return self.cuts < MAX_CUTS

    def pause(self) -> bool:
        """The provider paused: it wants its own words back, unchanged."""
        self.tail = ()
        self.pauses += 1
        self.paused = self.pauses + self.continued + self.cuts <= MAX_AGAIN
        return self.paused

    def unpaused(self) -> int:
        """The provider does not take its own words back: it is asked to go on with them. Returns how often it was."""
        self.paused = False
        self.continued += 1
        self.tail = (_said(GO_ON),)
        self._log("in a pause that cannot be gone on with; it goes on", number=self.continued)
        return self.continued

    def continue_text(self, *, spoke: bool) -> bool:
        """The text of an answer reached the limit. False where it has gone on often enough. `spoke`: the last piece
        was more than thinking.
        """
        if self.continued + self.cuts + self.pauses >= MAX_AGAIN:
            return False
        self.continued += 1
        self.tail = (_said(GO_ON),)
        self._log("in the text at the limit; it goes on", number=self.continued)
        if not spoke:
            self._raise("in thinking at the limit")
        return True

    def retry_with_more_output(self) -> bool:
        """Nothing but thinking came before the limit: it is asked once more, with twice the room. False where it was already, or more
        room is not to be had.
        """
        again, self.thought = not self.thought, True
        return again and self.smaller() and self._raise("in thinking at the limit")

    def smaller(self) -> bool:
        """Nothing came before the window was full, and there is more room in it now."""
        self.cuts += 1
        return self.cuts < MAX_CUTS

    def limit_output(self, most: int) -> None:
        """Ask for no more output than this from now on: the provider gives no more."""
        self.max_tokens = most

    def prompt(self) -> bool:
        """Nothing was said after tools had run. False where it was said to answer once already."""
        if self.prompted:
            return False
        self.prompted = True
        self.tail = (_said(ANSWER),)
        self._log("without a word after its tools", number=1)
        return True

    def _raise(self, where: str) -> bool:
        model = self.deps.models.name
        most = self.deps.models.windows.max_output(model) or RAISES * self.deps.budget().max_tokens
        before, self.max_tokens = self.max_tokens, max(self.max_tokens, min(2 * self.max_tokens, most))
        self._log(where, number=self.cuts)
        return self.max_tokens > before

    def _log(self, where: str, *, number: int) -> None:
        self.deps.log.write(
            "continue",
            f"the answer ended {where}",
            level="warn",
            number=number,
            max_tokens=self.max_tokens,
        )


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


def _said(words: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": words}]}
