"""Lists the project folder for a model that works with its files. Cheap: no command is run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from bot.hidden_paths import hidden

MOST_ENTRIES = 60
"""Of one folder; the others are counted."""
DEPTHS = (3, 2, 1)
Names = frozenset[str] | None
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})
_HASH = re.compile(r"[0-9a-f]{40,64}")
_READ = 1024 * 1024  # bytes of a file of Git's


def git_state(root: Path) -> str:
    """The branch and the commit that are checked out; "" where this is no Git tree. Blocking; raises OSError."""
    place = root / ".git"
    if place.is_file():  # a worktree or a submodule
        place = (root / _words(place).removeprefix("gitdir:").strip()).resolve()
    if not (place / "HEAD").is_file():
        return ""
    head = _words(place / "HEAD")
    name = head.removeprefix("ref:").strip()
    if name == head:
        return f"# Git\n\nNo branch is checked out, commit {head[:12]}." if _HASH.fullmatch(head) else ""
    common = place / "commondir"
    shared = (place / _words(common)).resolve() if common.is_file() else place
    commit = _commit(shared, name)
    branch = name.removeprefix("refs/heads/")
    return f"# Git\n\nBranch {branch}, " + (f"commit {commit[:12]}." if commit else "without a commit.")


def _commit(place: Path, name: str) -> str:
    loose = place / name
    if loose.is_file() and loose.resolve().is_relative_to(place.resolve()):
        return _words(loose)
    packed = place / "packed-refs"
    lines = _words(packed).splitlines() if packed.is_file() else ()
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")


def _words(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_READ).decode("utf-8", "replace").strip()


def folder_trees(root: Path, others: Callable[[], Names] = frozenset) -> list[str]:
    """The folder's tree, as deep as `DEPTHS`, the deepest first. Blocking; what cannot be read is left out.

    `others` gives the paths whose names may be words of others, None where that is all of them: those are counted and
    not named, since what stands here is taken for instructions.
    """
    real = root.resolve()
    left = others()
    if left is None:
        return [""]
    return ["# Project folder\n\n" + "\n".join(_tree(real, real, depth, left)) for depth in DEPTHS]


def _tree(root: Path, folder: Path, depth: int, others: frozenset[str], indent: str = "") -> Iterator[str]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    known = [entry for entry in entries if not _left_out(root, Path(entry.path))]
    shown = [entry for entry in known if str(Path(entry.path).relative_to(root)) not in others]
    for entry in shown[:MOST_ENTRIES]:
        inner = entry.is_dir(follow_symlinks=False)
        yield f"{indent}- {entry.name}" + ("/" if inner else "")
        if inner and depth > 1:
            yield from _tree(root, Path(entry.path), depth - 1, others, indent + "  ")
    if len(shown) > MOST_ENTRIES:
        yield f"{indent}- … and {len(shown) - MOST_ENTRIES} more"
    if unnamed := len(known) - len(shown):
        yield f"{indent}- … and {unnamed} more, written with words of others in view; `list_dir` names them"


def _left_out(root: Path, path: Path) -> bool:
    return path.name.startswith(".") or path.name in _SKIPPED or hidden(root, path)
