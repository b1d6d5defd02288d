"""Wildcards compiled to closures: `*` matches any run of characters, `?` matches one character. There is no
other syntax and no backtracking, so matching takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Match = Callable[[str], bool]

ANY_DEPTH = "**"


def glob(pattern: str) -> Match:
    """Return a function that matches whole texts against a pattern."""
    if "*" not in pattern and "?" not in pattern:
        return pattern.__eq__
    first, *rest = [re.escape(piece).replace(r"\?", ".") for piece in pattern.split("*")]
    # If a piece matches at all, its leftmost match is sufficient, so atomic groups need no backtracking.
    whole = first + "".join(f"(?>.*?{piece})" for piece in rest[:-1]) + (".*" + rest[-1] if rest else "")
    matches = re.compile(whole, re.DOTALL).fullmatch
    return lambda words: matches(words) is not None


def path_glob(parts: Sequence[str]) -> Callable[[Sequence[str]], bool]:
    """Return a function that matches the parts of a path against the parts of a pattern. A pattern part `**`
    matches any number of path parts.
    """
    pattern = [None if part == ANY_DEPTH else glob(part) for part in parts]
    return lambda path: matches_parts(pattern, path)


def matches_parts(pattern: Sequence[Callable[[str], object] | None], path: Sequence[str]) -> bool:
    """Return True if the parts of a path match the parts of a pattern; None in the pattern matches any
    number of parts. The time is at most proportional to the product of both lengths.
    """
    # For the pattern parts so far: the possible numbers of matched path parts.
    taken = {0}
    for part in pattern:
        if part is None:
            taken = set(range(min(taken), len(path) + 1))
        else:
            taken = {at + 1 for at in taken if at < len(path) and part(path[at])}
        if not taken:
            return False
    return len(path) in taken
