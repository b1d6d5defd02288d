"""Reads regular files only: pipes would block, devices might act."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class NotRegular(OSError):
    """A pipe, a socket or a device instead of a file."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EINVAL, "a pipe, a socket or a device", path)


def opener(path: str, flags: int) -> int:
    """For `open`. Raises OSError, `NotRegular` among it."""
    # Checked before opening, since opening may already act or block, and again on the opened file.
    must_be_regular(os.stat(path), path)  # noqa: PTH116
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        must_be_regular(os.fstat(handle), path)
    except OSError:
        os.close(handle)
        raise
    return handle


def read(path: Path, most: int) -> bytes:
    """The first bytes of a file, `most` of them; links are followed. Blocking. Raises OSError, `NotRegular` among it."""
    with open(path, "rb", opener=opener) as file:
        return file.read(most)


def must_be_regular(found: os.stat_result, path: str) -> None:
    """Raise `NotRegular` for a pipe, a socket or a device, IsADirectoryError for a folder."""
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(path)
