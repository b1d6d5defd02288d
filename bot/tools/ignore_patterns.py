"""Matches ignore patterns of listing and searching, in the syntax of `.gitignore` (without named classes such as
`[:digit:]`).

A path is compared part by part, so no pattern takes longer than its length times the path's. `pathspec` breaks that
rule: it translates to backtracking expressions, and a project's own `*a*a*a*a*a*ab` holds it up for seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bot.tools.permissions.globs import matches_parts

DEFAULT = ("*.bak", ".git/", ".ship/")
"""Patterns that are ignored everywhere."""
LONGEST = 500
"""Characters of a pattern; a longer one matches nothing."""

Part = Callable[[str], object] | None
"""Matches one name; None stands for `**`, any number of them."""


@dataclass(frozen=True, slots=True)
class _Rule:
    parts: tuple[Part, ...]
    folders: bool
    again: bool


class IgnorePatterns:
    """Patterns in order: the last one that matches decides; one with `!` before it lets in again."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._rules = tuple(rule for pattern in patterns if (rule := _rule(pattern)) is not None)

    def ignored(self, path: str, *, folder: bool) -> bool:
        """True if a path, relative to the patterns' folder, is left out. The caller skips the contents of a folder that
        is left out.
        """
        names = path.split("/")
        for rule in reversed(self._rules):
            if (folder or not rule.folders) and matches_parts(rule.parts, names):
                return not rule.again
        return False


def _rule(pattern: str) -> _Rule | None:
    line = pattern.rstrip("\r\n")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#") or len(line) > LONGEST:
        return None
    again = line.startswith("!")
    line = line[again:]
    folders = line.endswith("/")
    line = line.removesuffix("/")
    names = line.removeprefix("/").split("/")
    if not line:
        return None
    if "/" not in line:
        names = ["**", *names]
    try:
        parts: tuple[Part, ...] = tuple(None if name == "**" else _part(name).fullmatch for name in names)
    except ValueError:
        return None
    if parts[-1] is None:
        # At the end it stands for what is inside, not for the folder itself: one name, whatever it is, then more.
        parts = (*parts[:-1], bool, None)
    return _Rule(parts, folders, again)


def _part(glob: str) -> re.Pattern[str]:
    """One name as an expression. Raises `ValueError` where it can match nothing."""
    pieces: list[str] = [""]
    at = 0
    while at < len(glob):
        sign = glob[at]
        if sign == "*":
            pieces.append("")
        elif sign == "?":
            pieces[-1] += "."
        elif sign == "[":
            piece, at = _class(glob, at)
            pieces[-1] += piece
        else:
            at += sign == "\\"
            if at == len(glob):
                raise ValueError("a backslash at the end")
            pieces[-1] += re.escape(glob[at])
        at += 1
    first, *rest = pieces
    # The leftmost place of a piece is as good as any other: what was found is never looked for again.
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    try:
        return re.compile(first + (f"{middle}.*{rest[-1]}" if rest else ""), re.DOTALL)
    except re.error:
        raise ValueError("no such range") from None


def _class(glob: str, begin: int) -> tuple[str, int]:
    """A `[…]` as an expression, and where it ends. Raises `ValueError` where it does not."""
    at = begin + 1
    negated = glob[at : at + 1] in {"!", "^"}
    at += negated
    inside, first = "", True
    while first or glob[at : at + 1] != "]":
        if at >= len(glob):
            raise ValueError("a bracket that is not closed")
        first = False
        if glob.startswith("[:", at):
            raise ValueError("a class with a name")
        if glob[at] == "\\":
            at += 1
        if at >= len(glob):
            raise ValueError("a bracket that is not closed")
        is_range = glob[at] == "-" and bool(inside) and glob[at + 1 : at + 2] not in {"]", ""}
        inside += "-" if is_range else re.escape(glob[at])
        at += 1
    return f"[{'^' if negated else ''}{inside}]", at
