"""Locks that allow one process per `.ship` folder and one process per token. A lock is released when its process ends.
The lock file contains the pid of the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from bot import errors
from bot.invocation import command

LOCK = "lock"
PID = "pid"
SERVICE = Path("/run/shipmate")
"""Runtime folder of the systemd unit. It is used because the unit's `/tmp` is private: other processes cannot see it."""
RESTORING = ".restoring"
"""Name of a folder in `.ship` that contains the files which a restore still has to move. While the folder exists,
`.ship` is incomplete.
"""


def prepare_home(home: Path) -> None:
    """Create the folder `.ship`. Other users cannot read it, and git ignores it. Raises `errors.ConfigError`."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise errors.ConfigError(
            f"{home}: found no folder that can be made ({error.strerror}); expected one that this user may write; mend that, or name "
            "another folder with --dir"
        ) from None
    home.chmod(0o700)
    if not (ignore := home / ".gitignore").exists():
        _write(ignore, "*\n!.gitignore\n!schema/\n!schema/*.json\n")


def _write(path: Path, words: str) -> None:
    """Write a small file with mode 0600."""
    path.touch(0o600)
    path.write_text(words, "ascii")


@contextlib.contextmanager
def held(home: Path) -> Iterator[str]:
    """Lock `.ship` while the context is open. Yield a word for how the last run ended: `ended`, `killed`, or `none` if
    there was no run. Raises `errors.Unavailable` with the pid of the process that has the lock, and
    `errors.ConfigError` after an incomplete restore.

    The lock ends with its process, even if the process is killed. A frozen process keeps the lock.
    """
    known = (home / LOCK).exists() or (home / "journal.db").exists()
    with locked(home):
        must_be_whole(home)
        last = "killed" if (home / PID).exists() else "ended" if known else "none"
        # Only people read the pid in the file. So if a full disk refuses to write the pid, the start continues.
        with contextlib.suppress(OSError):
            _write(home / PID, f"{os.getpid()}\n")
        try:
            yield last
        finally:
            (home / PID).unlink(missing_ok=True)


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """Lock `.ship` while the context is open. Raises `errors.Unavailable` if another process has the lock."""
    with contextlib.ExitStack() as lock:
        try:
            lock.enter_context(_locked(home / LOCK))
        except BlockingIOError:
            raise errors.Unavailable(
                f"{home}: held by {_who(holder(home))}; stop it first, or start in another folder with --dir"
            ) from None
        yield


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Lock a file while the context is open, and yield its descriptor. Raises BlockingIOError if the file is locked."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle
    finally:
        os.close(handle)


def must_be_whole(home: Path) -> None:
    """Raise `errors.ConfigError` if a restore is incomplete."""
    if (home / RESTORING).exists():
        raise errors.ConfigError(
            f"{home}: found a restore that was cut off; expected one that has ended; run `{command('restore FILE', home.parent)}` again"
        )


def is_held(home: Path) -> bool:
    """Return True if another process has locked `.ship`. The folder is not created."""
    if not (home / LOCK).exists():
        return False
    try:
        with locked(home):
            return False
    except errors.Unavailable:
        return True


def holder(home: Path) -> str:
    """Return the pid of the process that has locked `.ship`; "" if unknown."""
    try:
        return (home / PID).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _who(pid: str) -> str:
    """Return a description of the process with this pid. If there is no such process, the pid was written by an earlier run, so
    the description leaves the pid out.
    """
    if pid.isdecimal() and len(pid) < 10:
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return "another process"
        except PermissionError:
            pass  # the process exists and belongs to another user
        return f"process {pid}"
    return "another process"


@contextlib.contextmanager
def tokens_held(
    tokens: Mapping[str, tuple[str, str]], root: Path, folder: Path | None = None
) -> Iterator[None]:
    """Lock tokens while the context is open. `tokens` maps the key in ship.json to (token, address of the service).
    Without these locks, two processes with the same token would take messages from each other, even in different
    `.ship` folders.

    Each lock file is in a folder of this user and is named by a hash of the token. Lock files are never removed;
    otherwise two processes could lock the same name. Raises `errors.Unavailable` with the pid of the process that has a
    lock, and `errors.ConfigError` if the folder cannot be trusted.
    """
    with contextlib.ExitStack() as locks:
        place = _private_folder(folder) if tokens else root
        for key, (token, address) in tokens.items():
            name = hashlib.sha256(f"shipmate token lock\0{address}\0{token}".encode()).hexdigest()[:40]
            file = place / f"{name}.lock"
            try:
                handle = locks.enter_context(_locked(file))
            except BlockingIOError:
                pid, _, where = file.read_text("utf-8", "replace").strip().partition("\n")
                where = f" in {where}" if where else ""
                raise errors.Unavailable(
                    f"{key}: this token is used by {_who(pid)}{where}; stop it first, or give this one a token of its own"
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n{root}\n".encode("utf-8", "replace"), 0)
        yield


def _private_folder(folder: Path | None) -> Path:
    """Return a folder that only this user can write to, and create it if it is missing. The default is the user's
    runtime folder. Raises `errors.ConfigError`.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if folder is None and runtime.startswith("/") and Path(runtime).is_dir():
        folder = Path(runtime) / "shipmate"
    elif folder is None:
        service = SERVICE.is_dir() and SERVICE.stat().st_uid == os.getuid()
        folder = SERVICE if service else Path(tempfile.gettempdir()) / f"shipmate-{os.getuid()}"
    found = None
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    own = found is not None and stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if found is None or not own or found.st_mode & 0o077:
        raise errors.ConfigError(
            f"{folder}: found something that is missing or open to others; expected a folder of your own; remove it, or set "
            "XDG_RUNTIME_DIR to a folder that only you can write to"
        )
    return folder
