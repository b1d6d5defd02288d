"""Decides which paths are hidden from the model. It also opens regular files, and refuses pipes, sockets and devices."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
import unicodedata
from collections.abc import Mapping
from pathlib import Path

_HIDDEN = frozenset({".ship", ".git", "ship.json"})
SAVED = ".ship/commands.json"
"""File that lists the hidden files which existed before the running command. The file exists only while a command runs."""
_NOT_SEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Characters that some file systems ignore in file names."""
HiddenNames = Mapping[str, str | None]
"""Names of hidden files in a folder. The value is the target of a symbolic link, and None for any other file."""


def is_hidden(part: str) -> bool:
    """Return True for `.ship`, `.git`, `ship.json` and `.env*` in any case and Unicode form."""
    name = (part if part.isascii() else _NOT_SEEN.sub("", unicodedata.normalize("NFKD", part))).casefold()
    return name in _HIDDEN or name.startswith(".env")


def hidden(root: Path, path: Path) -> bool:
    """Return True if a path is outside the root folder or has a hidden part. Both paths must be resolved."""
    return not path.is_relative_to(root) or any(map(is_hidden, path.relative_to(root).parts))


def hidden_names(root: Path) -> HiddenNames:
    """Return the names of hidden files directly in the project's folder."""
    names = [path for path in root.iterdir() if is_hidden(path.name)]
    return {path.name: os.readlink(path) if path.is_symlink() else None for path in names}  # noqa: PTH115 - the link's own text


def set_aside(root: Path, known: HiddenNames) -> dict[str, str]:
    """Rename hidden files that a command created, and restore hidden links. Return each renamed file's old and new name."""
    moved: dict[str, str] = {}
    for name, leads in sorted(hidden_names(root).items()):
        if name in known and known[name] in {None, leads}:
            continue
        aside = f"refused-{name.lstrip('.')}-{secrets.token_hex(3)}"
        # The file may be gone: the command may have removed it, or a call for another command may have renamed it.
        with contextlib.suppress(FileNotFoundError):
            (root / name).rename(root / aside)
            moved[name] = aside
    for name, leads in known.items():
        if leads is not None:
            with contextlib.suppress(FileExistsError):
                (root / name).symlink_to(leads)
    return moved


def sweep(root: Path) -> dict[str, str]:
    """Run `set_aside` if Shipmate was killed while a command ran. Call this before settings are read."""
    try:
        known = dict(json.loads((root / SAVED).read_bytes())["known"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # no command ran, or another program wrote the file
    return set_aside(root, known)


class NotRegular(OSError):
    """The path leads to a pipe, a socket or a device instead of a file."""


def must_be_regular(found: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(errno.EINVAL, "a pipe, a socket or a device", path)


def opener(path: str, flags: int, dir_fd: int | None = None) -> int:
    """Open a regular file. Pass this function to `open` as `opener`. Raises OSError, including `NotRegular`."""
    # Opening a pipe or device may block or have effects, so the path is checked before and after opening.
    must_be_regular(os.stat(path, dir_fd=dir_fd, follow_symlinks=not flags & os.O_NOFOLLOW), path)
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        must_be_regular(os.fstat(handle), path)
    except OSError:
        os.close(handle)
        raise
    return handle


def read(path: Path, most: int) -> bytes:
    """Return the first `most` bytes of a file. Links are followed. This call blocks. Raises OSError (`NotRegular`)."""
    with open(path, "rb", opener=opener) as file:
        return file.read(most)
