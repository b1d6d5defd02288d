"""Ignore patterns of listing and searching, in the syntax of `.gitignore`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable

from bot import errors

DEFAULT = ("*.bak", ".git/", ".ship/")
"""Patterns that always apply."""


def matcher(lines: Iterable[str]) -> Callable[[str], bool]:
    """Return a test for relative paths; that of a folder ends with `/`. A line that is no pattern is skipped, as Git does.

    RE2 matches in linear time, whatever patterns a project brings. Raises `errors.ToolError` if they exceed its memory.
    """
    import re2  # with pathspec 0.3 s to import
    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    patterns = []
    for line in lines:
        with contextlib.suppress(ValueError, re.error):
            patterns.append(GitIgnoreSpecPattern(line))
    try:
        return GitIgnoreSpec(patterns, backend="re2").match_file
    except re2.error:
        raise errors.ToolError(
            "There are too many patterns to leave out files by, or too long ones."
        ) from None
