"""Wildcards as closures: `*` stands for any run of characters, `?` for one; everything else for itself.

There are no other signs, so no pattern can be slow: each piece between two stars is looked for once.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

Match = Callable[[str], bool]

ANY_DEPTH = "**"


def folded(words: str) -> str:
    """The form in which names are compared where a difference in case or in form must not open a door."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", words).casefold())


def glob(pattern: str) -> Match:
    """Return a test that is true for a text that matches this form as a whole."""
    if "*" not in pattern and "?" not in pattern:
        return pattern.__eq__
    first, *rest = [re.escape(piece).replace(r"\?", ".") for piece in pattern.split("*")]
    # The leftmost place of each piece is as good as any other: what was found is never looked for again.
    whole = first + "".join(f"(?>.*?{piece})" for piece in rest[:-1]) + (".*" + rest[-1] if rest else "")
    matches = re.compile(whole, re.DOTALL).fullmatch
    return lambda words: matches(words) is not None


def path_glob(parts: Sequence[str]) -> Callable[[Sequence[str]], bool]:
    """Return a test that is true for parts of a path of this form; a part `**` stands for any number of parts."""
    pattern = [None if part == ANY_DEPTH else glob(part) for part in parts]
    return lambda path: matches_parts(pattern, path)


def matches_parts(pattern: Sequence[Callable[[str], object] | None], path: Sequence[str]) -> bool:
    """True if each part of a path matches that of a pattern; None stands for any number of parts. Takes no longer than
    the length of one times that of the other.
    """
    # How many parts of the path those of the pattern may have taken so far.
    taken = {0}
    for part in pattern:
        if part is None:
            taken = set(range(min(taken), len(path) + 1))
        else:
            taken = {at + 1 for at in taken if at < len(path) and part(path[at])}
        if not taken:
            return False
    return len(path) in taken
