"""What of a project does not exist for the model: not for its tools, not for what is attached or included."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_HIDDEN = frozenset({".ship", ".git", "ship.json"})


def is_hidden(part: str) -> bool:
    """Whether a name is one of `.ship`, `.git`, `ship.json` and `.env*`, in any case."""
    name = part.casefold()
    return name in _HIDDEN or name.startswith(".env")


def any_hidden(parts: Iterable[str]) -> bool:
    """Whether a path with these parts is or leads through something that does not exist."""
    return any(map(is_hidden, parts))


def hidden(root: Path, path: Path) -> bool:
    """Whether a resolved path does not exist here: outside of the resolved root, or hidden by one of its parts."""
    return not path.is_relative_to(root) or any_hidden(path.relative_to(root).parts)
