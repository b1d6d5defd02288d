"""Reads only regular files: opening a pipe would block, and opening a device might trigger an action."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class NotRegular(OSError):
    """The path leads to a pipe, a socket or a device instead of a file."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EINVAL, "a pipe, a socket or a device", path)


def opener(path: str, flags: int) -> int:
    """Open a regular file; for the parameter `opener` of `open`. Raises OSError, including `NotRegular`."""
    # The path is checked before opening, because opening may already act or block. The opened file is checked again.
    must_be_regular(os.stat(path), path)  # noqa: PTH116
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        must_be_regular(os.fstat(handle), path)
    except OSError:
        os.close(handle)
        raise
    return handle


def read(path: Path, most: int) -> bytes:
    """Return the first `most` bytes of a file. Links are followed. Blocking. Raises OSError, including `NotRegular`."""
    with open(path, "rb", opener=opener) as file:
        return file.read(most)


def must_be_regular(found: os.stat_result, path: str) -> None:
    """Raise `NotRegular` for a pipe, a socket or a device, and IsADirectoryError for a folder."""
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(path)
