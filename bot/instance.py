"""One process on one `.ship`: a lock that ends with the process, and the pid of whoever holds it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import filelock

from bot import errors

LOCK = "lock"
PID = "pid"


def prepare_home(home: Path) -> None:
    """`.ship` as it should be: private, and ignored by git."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    ignore = home / ".gitignore"
    if not ignore.exists():
        _write(ignore, "*\n!.gitignore\n!schema/\n!schema/*.json\n")


def _write(path: Path, words: str) -> None:
    """Write a small file that only its owner may read, whatever the umask."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(words)


@contextlib.contextmanager
def held(home: Path) -> Iterator[None]:
    """Hold `.ship` for the block. Raises `errors.TryLater` with the pid where another process holds it.

    The operating system drops the lock when its holder dies, however it dies; a frozen holder keeps it.
    """
    lock = filelock.FileLock(home / LOCK, mode=0o600)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        raise errors.TryLater(_taken(home)) from None
    try:
        _write(home / PID, f"{os.getpid()}\n")
        yield
    finally:
        (home / PID).unlink(missing_ok=True)
        lock.release()


def is_held(home: Path) -> bool:
    """Whether another process holds `.ship` now. A folder that does not exist stays that way."""
    if not (home / LOCK).exists():
        return False
    try:
        with held(home):
            return False
    except errors.TryLater:
        return True


def _taken(home: Path) -> str:
    try:
        pid = (home / PID).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        pid = ""
    who = f"process {pid}" if pid.isdecimal() else "another process"
    return f"{home}: held by {who}; stop it first, or start in another folder with --dir"
