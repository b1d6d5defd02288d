"""Decides which paths of a project are hidden from the model: from tools, attachments and includes. Files
that a command creates under hidden names are renamed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path

_HIDDEN = frozenset({".ship", ".git", "ship.json"})
_HOME = ".ship"
_NOTE = "commands.json"
_NOT_SEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Characters that some file systems ignore in file names."""


def is_hidden(part: str) -> bool:
    """Return True for `.ship`, `.git`, `ship.json` and `.env*`. The comparison ignores case, Unicode form
    and characters that file systems ignore.
    """
    name = part if part.isascii() else _folded(part)
    name = name.casefold()
    return name in _HIDDEN or name.startswith(".env")


def _folded(part: str) -> str:
    return _NOT_SEEN.sub("", unicodedata.normalize("NFKD", part))


def any_hidden(parts: Iterable[str]) -> bool:
    """Return True if one of these parts of a path is hidden."""
    return any(map(is_hidden, parts))


def hidden(root: Path, path: Path) -> bool:
    """Return True if a resolved path is outside of the resolved root or has a hidden part."""
    return not path.is_relative_to(root) or any_hidden(path.relative_to(root).parts)


HiddenNames = Mapping[str, str | None]
"""Hidden names in a folder. Each name maps to its target if it is a link, and to None otherwise."""


def hidden_names(root: Path) -> HiddenNames:
    """Return the hidden names that are directly in the project's folder."""
    return {path.name: _leads(path) for path in root.iterdir() if is_hidden(path.name)}


def _leads(path: Path) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - the text itself, which a Path would normalise
    except OSError:
        return None


def set_aside(root: Path, known: HiddenNames) -> dict[str, str]:
    """Rename hidden files that a command created or replaced; otherwise a command could plant settings or
    secrets. Hidden links of ours, which the sandbox cannot mask, are restored. Return the new names by
    the old names.
    """
    moved: dict[str, str] = {}
    for name, leads in sorted(hidden_names(root).items()):
        if name in known and known[name] in {None, leads}:
            continue
        aside = f"refused-{name.lstrip('.')}-{secrets.token_hex(3)}"
        # The file may be gone: another command's end has renamed it, or the command itself has removed it.
        with contextlib.suppress(FileNotFoundError):
            (root / name).rename(root / aside)
            moved[name] = aside
    for name, leads in known.items():
        if leads is not None:
            with contextlib.suppress(FileExistsError):
                (root / name).symlink_to(leads)
    return moved


def save_names(root: Path, known: HiddenNames) -> None:
    """Save the hidden names before a command runs. A start after a kill reads them. Raises OSError."""
    place = root / _HOME / _NOTE
    if not place.parent.is_dir():
        return
    scratch = place.with_suffix(".new")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(json.dumps({"v": 1, "known": dict(known)}).encode("ascii"))
        file.flush()
        os.fsync(handle)
    scratch.replace(place)


def remove_saved_names(root: Path) -> None:
    """Remove the file that `save_names` wrote. Call this when no command is running any more."""
    (root / _HOME / _NOTE).unlink(missing_ok=True)


def sweep(root: Path) -> dict[str, str]:
    """Run `set_aside` for commands that were running when Shipmate was killed. Call this before settings and
    secrets are read.
    """
    try:
        known = dict(json.loads((root / _HOME / _NOTE).read_bytes())["known"])
        if not all(leads is None or isinstance(leads, str) for leads in known.values()):
            return {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # no command ran, or the file is not ours
    return set_aside(root, known)
