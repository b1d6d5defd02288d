"""Locates the code that runs as ourselves, as seen from the folder in which tools work: no chat may change it.

Shipmate's code, the places that its interpreter imports and starts programs from, and in a source tree all that `make` runs by.
"""

from __future__ import annotations

import contextlib
import functools
import os
import site
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bot.tools.permissions.globs import folded

CLOSED = (
    "Shipmate's own code is in this project's folder, so nothing is written here and no command is run. Whoever runs me can "
    "give me a folder of its own: shipmate run --dir DIR"
)
OURS = "it is part of what Shipmate runs on"


@dataclass(frozen=True, slots=True)
class RunningCode:
    """`runs` are files and folders that are imported or started; `source` is the tree that they are developed in, None where
    Shipmate is installed from a wheel; `base` is what the interpreter itself consists of.
    """

    runs: tuple[Path, ...]
    source: Path | None = None
    base: Path | None = None

    @classmethod
    def running(cls) -> RunningCode:
        """That of this process."""
        ours = Path(__file__).absolute().parents[3]
        started = Path(sys.argv[0]).absolute()
        environment = [sys.prefix] if sys.prefix != sys.base_prefix else []
        people = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
        programs = [Path(sys.executable).parent, Path(sys.executable).resolve().parent]
        named: tuple[str | Path, ...] = (
            ours,
            *environment,
            *sys.path,
            *people,
            *programs,
            *([started] if started.is_file() else []),
        )
        return cls(
            tuple(dict.fromkeys(Path(one).absolute() for one in named)),
            source=ours if (ours / "pyproject.toml").is_file() else None,
            base=Path(sys.base_prefix),
        )


@dataclass(frozen=True, slots=True)
class ProtectedCode:
    """`closed`: the whole folder counts as code. Otherwise nothing is written in what is `sealed`, all of it below the folder."""

    root: Path
    closed: bool = False
    sealed: tuple[Path, ...] = ()
    runs: tuple[Path, ...] = field(default=(), compare=False)
    """All of the code, wherever it is."""

    def linked(self) -> frozenset[tuple[int, int]]:
        """Device and inode of the files of the code that have other names too (hard links): installers such as uv share
        files between environments. Looked for once. Blocking.
        """
        return _linked(self.runs)

    def seals(self, path: Path) -> bool:
        """True if a place is part of the code, by its name alone, in any case and form."""
        return any(_named_below(one, path) for one in self.sealed)

    def refuses(self, path: Path) -> bool:
        """True if a place is part of the code, by its name or by what stands there. Blocking."""
        return self.closed or any(_below(one, path) for one in self.sealed)

    def changeable(self, path: Path) -> bool:
        """True if tools or commands can change what stands at a place, or where a link at it leads. Blocking."""
        if self.closed:
            return False
        places = (path.parent.resolve() / path.name, path.resolve())
        return any(_below(self.root, one) and not self.refuses(one) for one in places)

    def fixed(self, places: str) -> str:
        """The folders of a PATH into which no tool and no command can put a program. Blocking."""
        folders = (one for one in places.split(os.pathsep) if os.path.isabs(one))  # noqa: PTH117 - "" is a folder too
        return os.pathsep.join(one for one in folders if not self.changeable(Path(one)))

    def standing(self) -> list[Path]:
        """Return the sealed paths that exist."""
        return [one for one in self.sealed if one.exists()]


def protected_code(root: Path, code: RunningCode | None = None) -> ProtectedCode:
    """The border in a folder. Blocking."""
    code = code or RunningCode.running()
    real = root.resolve()
    if any(_below(one.resolve(), real) for one in code.runs):
        return ProtectedCode(real, closed=True)
    if code.source is not None and _below(real, code.source.resolve()):
        return ProtectedCode(real, closed=True)
    parts = [one for one in (*code.runs, *([code.base] if code.base else [])) if _below(real, one.resolve())]
    sealed = _outermost(dict.fromkeys(one.resolve() for one in parts if one.exists()))
    # What is not there yet, or is reached by a link in the folder, could be made or made anew by a command.
    loose = [one for one in _absent(code.runs, real) if not any(_named_below(kept, one) for kept in sealed)]
    return ProtectedCode(real, closed=bool(loose), sealed=sealed, runs=code.runs)


@functools.lru_cache(maxsize=8)
def _linked(runs: tuple[Path, ...]) -> frozenset[tuple[int, int]]:
    nodes: set[tuple[int, int]] = set()
    left = [str(one) for one in _outermost(dict.fromkeys(one.resolve() for one in runs))]
    while left:
        path = left.pop()
        with contextlib.suppress(OSError):  # gone meanwhile, or not to be read
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                nodes.add((found.st_dev, found.st_ino))
            elif stat.S_ISDIR(found.st_mode):
                left += (f"{path}/{name}" for name in os.listdir(path))  # noqa: PTH208 - tens of thousands of names
    return frozenset(nodes)


def _absent(runs: tuple[Path, ...], root: Path) -> list[Path]:
    """Names below the root at which nothing stands, or a link."""
    names = [name for one in runs for name in (one, *one.parents)]
    return [
        place
        for name in dict.fromkeys(names)
        if (name.is_symlink() or not name.exists())
        and _below(root, place := name.parent.resolve() / name.name)
    ]


def _outermost(paths: dict[Path, None]) -> tuple[Path, ...]:
    return tuple(one for one in paths if not any(other != one and _below(other, one) for other in paths))


def _below(upper: Path, lower: Path) -> bool:
    """True if a resolved path is another one or below it, by name, or by what stands there whatever it is called."""
    if _named_below(upper, lower):
        return True
    wanted = _identity(upper)
    return wanted is not None and any(_identity(one) == wanted for one in (lower, *lower.parents))


def _named_below(upper: Path, lower: Path) -> bool:
    first, second = [folded(part) for part in upper.parts], [folded(part) for part in lower.parts]
    return second[: len(first)] == first


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino
