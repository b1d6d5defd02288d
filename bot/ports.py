"""Who holds a port, where the machine tells (Linux, through /proc)."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

_LISTEN = "0A"


def pid_on(port: int, proc: Path = Path("/proc")) -> int | None:
    """The process that listens on a TCP port; None where it cannot be seen."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not sockets:
        return None
    with contextlib.suppress(OSError):
        for process in proc.iterdir():
            if process.name.isdecimal() and not sockets.isdisjoint(_open_files(process)):
                return int(process.name)
    return None


def _inodes(port: int, proc: Path) -> list[str]:
    found = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and re.fullmatch(rf"[0-9A-F]+:{port:04X}", fields[1]):
                    found.append(fields[9])
    return found


def _open_files(process: Path) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for handle in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(str(handle.readlink()))
    return found
