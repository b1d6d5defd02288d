"""`Language`: the phrases with which one language says that its speaker did something, and those that say anything else.
They stand in a file for each language beside this module.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import regex

Kind = Literal["sent", "mailed", "saved", "deleted", "ran", "scheduled", "acted"]
"""The kind of a claim. `sent` may mean this very chat, `mailed` means somewhere else; `acted` is anything else that has an
effect on the world (installed, booked, paid …).
"""
Pattern = regex.Pattern[str]
COMMAND = "⌘"
"""Stands for code inside of a line that is not the name of a file."""
NAME = r"(?:[\w./~-]*\w\.(?:cfg|conf|cpp|css|csv|docx?|env|go|html?|ini|ics|java|jsx?|json|jsonl|lock|log|md|pdf|php|png|jpe?g|pptx?|py|rb|rs|sh|sql|svg|toml|tsx?|txt|xlsx?|xml|ya?ml|zip)\b)"
"""The name of a file."""
_WORD = re.compile(r"<(\w+)>")
_LOADED: dict[str, Language] = {}


@dataclass(frozen=True, slots=True)
class ClaimPattern:
    """One way to claim something. `own`: it says by itself that the speaker did it; what does not could be news of
    somebody else's doing.
    """

    kind: Kind
    pattern: Pattern
    own: bool = True


@dataclass(frozen=True, slots=True)
class Language:
    """`before` is looked for in a sentence up to the end of a claim, `around` in the claim's own clause: what follows is no
    claim then. `earlier` says that it was done before this turn, `admits` that something did not work.
    """

    name: str
    deed: re.Pattern[str]
    """Some word of each saying, in small letters."""
    sayings: tuple[ClaimPattern, ...]
    before: Pattern
    around: Pattern
    earlier: Pattern
    admits: Pattern
    draft: Pattern
    """Leads into a text that is somebody else's, or meant for somebody else."""
    composing: Pattern
    """Asks for such a text."""
    requests: Pattern
    """Asks for something to be done, though it may look like a question."""
    reviewing: Pattern
    """Asks whether something was done."""
    orders: dict[Kind, Pattern]
    """Asks for what a claim of this kind would be the answer to."""
    done: dict[Kind, Pattern]
    """Says that somebody has done such a thing."""
    note: str
    """The note below a reply; `{claim}` is the sentence in question."""

    def names_deed(self, words: str) -> bool:
        """True if there is some word of a saying: what has none is not read further."""
        return self.deed.search(words.lower()) is not None


def loaded(name: str) -> bool:
    """True once the phrases of a language are compiled, which takes a tenth of a second."""
    return name in _LOADED


def language(name: str) -> Language:
    """The language of a file. Its patterns match in any case; `<WORD>` in them is one of its [words], NAME or COMMAND."""
    if name not in _LOADED:
        raw = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
        words = {"name": NAME, "command": COMMAND}
        for word, pattern in raw.pop("words").items():
            words[word] = _filled(pattern, words)
        rest = {
            key: _compiled(value, words)
            for key, value in raw.items()
            if key not in {"name", "note", "sayings", "deed"}
        }
        sayings = tuple(
            ClaimPattern(one["kind"], _compiled(one["pattern"], words), one.get("own", True))
            for one in raw["sayings"]
        )
        # Every reply is searched for it: small letters cost a quarter of either case.
        deed = re.compile(_filled(raw["deed"], words))
        _LOADED[name] = Language(name=raw["name"], note=raw["note"], sayings=sayings, deed=deed, **rest)
    return _LOADED[name]


def _compiled(value: Any, words: dict[str, str]) -> Any:
    """A pattern, or a table of patterns by their names."""
    if isinstance(value, dict):
        return {key: _compiled(pattern, words) for key, pattern in value.items()}
    return regex.compile(_filled(value, words), regex.IGNORECASE)


def _filled(pattern: str, words: dict[str, str]) -> str:
    return _WORD.sub(lambda found: words[found[1]], pattern)
