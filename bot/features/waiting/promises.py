"""Finds promises: sentences of an answer that say that the bot will do something later. In doubt there is none: quotes,
code, drafts, questions and offers are no promises. The phrases of each language are in a file in this folder.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from bot import text
from bot.core import phrases
from bot.core.phrases import Pattern, compiled

LANGUAGES = ("english", "chinese")
HEAD, TAIL = 500, 1_500
"""Max characters that are read at the beginning and at the end of an answer. Reading them takes milliseconds."""
LONGEST = 200
"""Max characters of a promise that are kept."""
_GAPS = re.compile(f"[□{phrases.COMMAND}]")


@dataclass(frozen=True, slots=True)
class _Language:
    cue: re.Pattern[str]
    sayings: tuple[Pattern, ...]
    before: Pattern
    around: Pattern

    def finds(self, sentence: str) -> bool:
        matches = (one.search(sentence) for one in self.sayings)
        return self.around.search(sentence) is None and any(
            found is not None and self.before.search(sentence[: found.start()]) is None for found in matches
        )


@functools.cache
def language(name: str) -> _Language:
    """Load a language file."""
    raw = phrases.load(Path(__file__).parent, name)
    return _Language(
        re.compile(raw["cue"]),
        tuple(map(compiled, raw["sayings"])),
        compiled(raw["before"]),
        compiled(raw["around"]),
    )


def promise_in(words: str, person: str = "") -> str:
    """Return the first promise in an answer to the text of a `person`; "" if there is none."""
    words = phrases.ends(words, HEAD, TAIL)
    # Nearly every answer ends here, after one search.
    if not any(language(name).cue.search(words.lower()) for name in LANGUAGES):
        return ""
    if phrases.composing(phrases.ends(person)):
        return ""
    for read, shown in phrases.sentences(words):
        known = [language(name) for name in phrases.languages(read) if name in LANGUAGES]
        if not phrases.asks(read) and any(one.finds(read) for one in known):
            return text.preview(_GAPS.sub("…", shown), LONGEST)
    return ""
