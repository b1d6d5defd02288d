"""Resolves a path to its target, and to every name that the path has on the way to the target."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass

ReadLink = Callable[[str], str | None]
"""Function that returns the target of a symbolic link; None if there is no link at this path."""

LONGEST = 4_096
MOST_LINKS = 40

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A resolved path. `real` are the parts of the path with all links resolved, or None if the path cannot
    be resolved. `forms` are all spellings of the path: as written, and with each link replaced in turn.
    """

    real: Parts | None
    forms: tuple[Parts, ...]


NOWHERE = ResolvedPath(None, ())


class Paths:
    """Resolves paths relative to a root folder. Only symbolic links are read, through `readlink`."""

    def __init__(self, root: str, readlink: ReadLink) -> None:
        self._readlink = readlink
        self._root: Parts = ()
        real = self.place(root).real
        if real is None:
            raise ValueError("the root leads nowhere")
        self._root = real

    @property
    def root(self) -> Parts:
        return self._root

    def inside(self, place: ResolvedPath) -> bool:
        """Return True if the path is the root or is below the root."""
        return place.real is not None and place.real[: len(self._root)] == self._root

    def place(self, path: str) -> ResolvedPath:
        """Return the resolved path; a relative path is resolved against the root."""
        if not path or "\0" in path or len(path) > LONGEST:
            return NOWHERE
        left = _split(path)
        done: list[str] = [] if path.startswith("/") else list(self._root)
        forms = [_lexical(done, left)]
        links = 0
        while left:
            part = left.pop(0)
            if part == "..":
                done = done[:-1]
                continue
            target = self._readlink("/" + "/".join([*done, part]))
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > MOST_LINKS or not target or "\0" in target:
                return ResolvedPath(None, tuple(dict.fromkeys(forms)))
            forms.append(_lexical([*done, part], left))
            if target.startswith("/"):
                done = []
            left = _split(target) + left
        real = tuple(done)
        return ResolvedPath(real, tuple(dict.fromkeys([real, *forms])))


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _lexical(done: list[str], left: list[str]) -> Parts:
    """Return the normalised path without reading links."""
    return tuple(_split(posixpath.normpath("/" + "/".join([*done, *left]))))
