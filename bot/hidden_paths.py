"""Paths of a project that are hidden from the model: from tools, attachments and includes. Files that a command creates under such
names are renamed.
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
"""Characters that some file systems ignore in names."""


def is_hidden(part: str) -> bool:
    """True for `.ship`, `.git`, `ship.json` and `.env*`, in any case and Unicode form, also with ignored characters."""
    name = part if part.isascii() else _folded(part)
    name = name.casefold()
    return name in _HIDDEN or name.startswith(".env")


def _folded(part: str) -> str:
    return _NOT_SEEN.sub("", unicodedata.normalize("NFKD", part))


def any_hidden(parts: Iterable[str]) -> bool:
    """True if one of these parts of a path is hidden."""
    return any(map(is_hidden, parts))


def hidden(root: Path, path: Path) -> bool:
    """True if a resolved path is outside of the resolved root, or hidden by one of its parts."""
    return not path.is_relative_to(root) or any_hidden(path.relative_to(root).parts)


HiddenNames = Mapping[str, str | None]
"""Hidden names in a folder, with the target of each link; None if it is no link."""


def hidden_names(root: Path) -> HiddenNames:
    """The hidden names in the project's folder itself."""
    return {path.name: _leads(path) for path in root.iterdir() if is_hidden(path.name)}


def _leads(path: Path) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - the text itself, which a Path would normalise
    except OSError:
        return None


def set_aside(root: Path, known: HiddenNames) -> dict[str, str]:
    """Rename hidden names that a command created or replaced, or it could give us settings or secrets of its own. Our links, which no
    mask can cover, are restored. Returns the new names by the old ones.
    """
    moved: dict[str, str] = {}
    for name, leads in sorted(hidden_names(root).items()):
        if name in known and known[name] in {None, leads}:
            continue
        aside = f"refused-{name.lstrip('.')}-{secrets.token_hex(3)}"
        # Another command's end may have renamed it, or the command removed it.
        with contextlib.suppress(FileNotFoundError):
            (root / name).rename(root / aside)
            moved[name] = aside
    for name, leads in known.items():
        if leads is not None:
            with contextlib.suppress(FileExistsError):
                (root / name).symlink_to(leads)
    return moved


def save_names(root: Path, known: HiddenNames) -> None:
    """Save our names while commands run, for a start after a kill. Raises OSError."""
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
    """Remove the file of `save_names`: no command runs any more."""
    (root / _HOME / _NOTE).unlink(missing_ok=True)


def sweep(root: Path) -> dict[str, str]:
    """`set_aside` for commands that ran when Shipmate was killed; to be called before settings and secrets are read."""
    try:
        known = dict(json.loads((root / _HOME / _NOTE).read_bytes())["known"])
        if not all(leads is None or isinstance(leads, str) for leads in known.values()):
            return {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # no command ran, or the file is not ours
    return set_aside(root, known)
