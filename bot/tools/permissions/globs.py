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
    matches = [None if part == ANY_DEPTH else glob(part) for part in parts]

    def whole(path: Sequence[str]) -> bool:
        # Which patterns may come next, after each part of the path.
        open_ = _beyond({0}, matches)
        for part in path:
            after: set[int] = set()
            for at in open_:
                if at == len(matches):
                    continue
                match = matches[at]
                if match is None:
                    after.add(at)
                elif match(part):
                    after.add(at + 1)
            open_ = _beyond(after, matches)
            if not open_:
                return False
        return len(matches) in open_

    return whole


def _beyond(open_: set[int], matches: Sequence[Match | None]) -> set[int]:
    """With what comes after a `**` that stands for nothing."""
    found = set(open_)
    for at in open_:
        step = at
        while step < len(matches) and matches[step] is None:
            step += 1
            found.add(step)
    return found
