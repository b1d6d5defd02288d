"""Names what stands at the top of the project folder, for a model that works with its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from bot.hidden_paths import hidden

CHARACTERS = 200
"""Of the names in one listing; the others are counted."""
Names = frozenset[str] | None
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})


def top_level(root: Path, others: Callable[[], Names] = frozenset) -> str:
    """The names in the folder itself, folders first. Blocking; raises OSError.

    `others` gives the paths whose names may be words of others, None where that is all of them: those are counted and
    not named, since what stands here is taken for instructions.
    """
    theirs = others()
    real = root.resolve()
    with os.scandir(real) as found:
        known = [entry for entry in found if not _left_out(real, Path(entry.path))]
    ours = [entry for entry in known if theirs is not None and entry.name not in theirs]
    folders = sorted(f"{entry.name}/" for entry in ours if entry.is_dir(follow_symlinks=False))
    files = sorted(entry.name for entry in ours if not entry.is_dir(follow_symlinks=False))
    return listed([*folders, *files], len(known) - len(ours))


def listed(names: Sequence[str], unnamed: int = 0) -> str:
    """As many names as `CHARACTERS` hold, and how many more there are."""
    shown: list[str] = []
    for name in names:
        if sum(len(one) + 2 for one in shown) + len(name) > CHARACTERS:
            break
        shown.append(name)
    more = len(names) - len(shown) + unnamed
    return (
        ", ".join([*shown, *([f"{more} more" if shown else f"{more}, not named here"] if more else [])])
        or "none"
    )


def _left_out(root: Path, path: Path) -> bool:
    return path.name.startswith(".") or path.name in _SKIPPED or hidden(root, path)
