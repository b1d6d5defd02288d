"""Ignore patterns for listing and searching files, in the syntax of `.gitignore`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable

from bot import errors

DEFAULT = ("*.bak", ".git/", ".ship/")
"""Patterns that always apply."""


def matcher(lines: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tests whether a relative path is ignored. The path of a folder ends with `/`.
    An invalid line is skipped, as Git does.

    RE2 matches in linear time, so no pattern of a project can be slow. Raises `errors.ToolError` if the
    patterns exceed RE2's memory limit.
    """
    import re2  # importing this and pathspec takes 0.3 s
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
