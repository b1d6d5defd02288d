"""Finds, creates and removes the console's Unix socket."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path

LONGEST = 100
"""Max bytes of a socket's path. With the final NUL, macOS allows 104 bytes and Linux 108."""
_FOLDER = "shipmate-console-"


def socket_path(home: Path) -> Path:
    """Return the path of the console's socket for this `.ship` folder."""
    with contextlib.suppress(FileNotFoundError):
        elsewhere = (home / "console.path").read_text(encoding="utf-8").strip()
        if elsewhere:
            return Path(elsewhere)
    return home / "console.sock"


def is_listening(path: Path) -> bool:
    """Return True if a running process listens on the socket."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.setblocking(False)
    with probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def open_socket(home: Path) -> tuple[socket.socket, Path]:
    """Return a bound socket that only this user may open, and its path. Replace the socket of a process that has ended."""
    remove_socket(home)
    path = home / "console.sock"
    if len(os.fsencode(path)) > LONGEST:
        path = Path(tempfile.mkdtemp(prefix=_FOLDER)) / "console.sock"
        note = home / "console.path"
        note.write_text(str(path), encoding="utf-8")
        note.chmod(0o600)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        # Set the mode before `listen`. Otherwise another user could connect in between.
        path.chmod(0o600)
        listener.setblocking(False)
    except OSError:
        listener.close()
        remove_socket(home)
        raise
    return listener, path


def remove_socket(home: Path) -> None:
    """Remove the socket. Also remove the file `console.path`, which names a socket outside `.ship`."""
    folder = socket_path(home).parent
    if folder.name.startswith(_FOLDER):
        shutil.rmtree(folder, ignore_errors=True)
    (home / "console.path").unlink(missing_ok=True)
    (home / "console.sock").unlink(missing_ok=True)
