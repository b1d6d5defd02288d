"""Finds code of the gateway in the project's folder: Shipmate itself, the interpreter's import and program folders and, in a
source tree, everything that `make` uses. No chat may change this code.
"""

from __future__ import annotations

import contextlib
import functools
import os
import site
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bot.text import folded

CLOSED = (
    "Shipmate's own code is in this project's folder, so nothing is written here and no command is run. Whoever runs me can "
    "give me a folder of its own: shipmate run --dir DIR"
)
OURS = "it is part of what Shipmate runs on"


@dataclass(frozen=True, slots=True)
class RunningCode:
    """The code of a running process. `runs` are the files and folders that the process imports or starts. `source` is
    Shipmate's source tree; None for an installed wheel. `base` is the interpreter's own prefix.
    """

    runs: tuple[Path, ...]
    source: Path | None = None
    base: Path | None = None

    @classmethod
    def running(cls) -> RunningCode:
        """Return the code of this process."""
        ours = Path(__file__).absolute().parents[3]
        started, python = Path(sys.argv[0]).absolute(), Path(sys.executable)
        named: list[str | Path] = [ours, *sys.path, python.parent, python.resolve().parent]
        named += [sys.prefix] if sys.prefix != sys.base_prefix else []
        named += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
        named += [started] if started.is_file() else []
        source = ours if (ours / "pyproject.toml").is_file() else None
        runs = tuple(dict.fromkeys(Path(one).absolute() for one in named))
        return cls(runs, source, base=Path(sys.base_prefix))


@dataclass(frozen=True, slots=True)
class ProtectedCode:
    """The protected part of the project's folder. If `closed` is True, the whole folder is protected. Otherwise only the paths
    in `sealed` are protected.
    """

    root: Path
    closed: bool = False
    sealed: tuple[Path, ...] = ()
    runs: tuple[Path, ...] = field(default=(), compare=False)
    """All code of the process, including code outside the folder."""

    def linked(self) -> frozenset[tuple[int, int]]:
        """Return device and inode of each file of the code that has several hard links. Installers such as uv share files
        between environments by hard links. The result is cached. This call blocks the thread.
        """
        return _linked(self.runs)

    def refuses(self, path: Path) -> bool:
        """Return True if a path is part of the protected code, by its name in any case or by its inode. This call blocks."""
        return self.closed or any(_below(one, path) for one in self.sealed)

    def changeable(self, path: Path) -> bool:
        """Return True if tools or commands can change the file at a path. If the path is a link, also check the link's target. This
        call blocks the thread.
        """
        if self.closed:
            return False
        places = (path.parent.resolve() / path.name, path.resolve())
        return any(_below(self.root, one) and not self.refuses(one) for one in places)

    def fixed(self, places: str) -> str:
        """Return the search path `places` without the folders in which a tool or command could create a program. This call
        blocks the thread.
        """
        folders = (one for one in places.split(os.pathsep) if os.path.isabs(one))  # noqa: PTH117 - "" is a folder too
        return os.pathsep.join(one for one in folders if not self.changeable(Path(one)))


def protected_code(root: Path, code: RunningCode | None = None) -> ProtectedCode:
    """Return the protected code in a folder. This call blocks the thread."""
    code = code or RunningCode.running()
    real = root.resolve()
    of_source = code.source is not None and _below(real, code.source.resolve())
    if of_source or any(_below(one.resolve(), real) for one in code.runs):
        return ProtectedCode(real, closed=True)
    parts = [one for one in (*code.runs, *([code.base] if code.base else [])) if _below(real, one.resolve())]
    sealed = _outermost(one.resolve() for one in parts if one.exists())
    # A command could create a missing path of the code, or replace a link. If the folder has such a path, protect all of the folder.
    names = dict.fromkeys(name for one in code.runs for name in (one, *one.parents))
    places = [one.parent.resolve() / one.name for one in names if one.is_symlink() or not one.exists()]
    loose = any(_below(real, one) and not any(named_below(kept, one) for kept in sealed) for one in places)
    return ProtectedCode(real, closed=loose, sealed=sealed, runs=code.runs)


@functools.lru_cache(maxsize=8)
def _linked(runs: tuple[Path, ...]) -> frozenset[tuple[int, int]]:
    nodes: set[tuple[int, int]] = set()
    left = [str(one) for one in _outermost(one.resolve() for one in runs)]
    while left:
        path = left.pop()
        with contextlib.suppress(OSError):  # the file was removed or is unreadable
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                nodes.add((found.st_dev, found.st_ino))
            elif stat.S_ISDIR(found.st_mode):
                left += (f"{path}/{name}" for name in os.listdir(path))  # noqa: PTH208 - tens of thousands of names
    return frozenset(nodes)


def _outermost(found: Iterable[Path]) -> tuple[Path, ...]:
    paths = dict.fromkeys(found)
    return tuple(one for one in paths if not any(other != one and _below(other, one) for other in paths))


def _below(upper: Path, lower: Path) -> bool:
    """Return True if `lower` equals `upper` or is below it, by name or by inode. Both paths are resolved."""
    if named_below(upper, lower):
        return True
    with contextlib.suppress(OSError):
        wanted = upper.stat()
        for one in (lower, *lower.parents):
            with contextlib.suppress(OSError):
                if os.path.samestat(wanted, one.stat()):
                    return True
    return False


def named_below(upper: Path, lower: Path) -> bool:
    first, second = [folded(part) for part in upper.parts], [folded(part) for part in lower.parts]
    return second[: len(first)] == first
