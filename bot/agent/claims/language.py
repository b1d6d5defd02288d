"""`Language`: the phrases with which one language says that its speaker did something, and those that say anything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class Saying:
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
    deed: Pattern
    """Some word of each saying: a sentence without one is not read further."""
    sayings: tuple[Saying, ...]
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


def compiled(words: str) -> Pattern:
    """A pattern of words, in any case; `NAME` and `COMMAND` are filled in."""
    return regex.compile(words.replace("<name>", NAME).replace("<command>", COMMAND), regex.IGNORECASE)
