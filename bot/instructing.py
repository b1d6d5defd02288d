"""Which files of a project tell the model what to do: those named so, and whatever they include or link to, and so on.

Nothing here asks for more than names and text. Names are compared folded, so that case and form of letters open no door.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

INCLUDE = re.compile(r"@include[ \t]+(\S.*?)[ \t]*")
_LINK = re.compile(r"\]\(\s*(?:<([^<>\n]+)>|([^\s()]+(?:\([^\s()]*\)[^\s()]*)*))")
_NAMED = re.compile(r"^ {0,3}\[[^\]\n]+\]:[ \t]*(?:<([^<>\n]+)>|(\S+))", re.MULTILINE)
_HTML = re.compile(r"""<a\b[^>]*?\bhref\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_NAMES = frozenset({"agent.md", "skill.md"})
_SKIPPED = frozenset({".git", ".ship"})
LARGEST = 256 * 1024
"""Bytes of a file that are looked at."""
MOST = 2_000
"""Files that are followed."""
VISITS = 100_000
"""Entries of the project that are looked at."""

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Instructing:
    """The folded paths of these files, in parts from `/` on, and device and inode of those that are there."""

    paths: frozenset[Parts] = frozenset()
    nodes: frozenset[tuple[int, int]] = frozenset()
    linked: frozenset[tuple[int, int]] = frozenset()
    """Those of the nodes that have other names too."""
    files: tuple[str, ...] = ()
    """Those that are there in the project, behind every link."""

    def holds(self, path: Path) -> bool:
        """Whether a path is one of them, by any of its names. Blocking."""
        if not self.paths.isdisjoint({_parts(path), _parts(Path(os.path.realpath(path)))}):
            return True
        found = _stat(path)
        return found is not None and (found.st_dev, found.st_ino) in self.nodes


def instructing(root: Path, more: Iterable[Path] = ()) -> Instructing:
    """Those of a project; `more` are files elsewhere that instruct too. Blocking."""
    real = Path(os.path.realpath(root))
    left = [*_begin(real), *more]
    paths: set[Parts] = set()
    nodes: set[tuple[int, int]] = set()
    linked: set[tuple[int, int]] = set()
    seen: set[str] = set()
    files: set[str] = set()
    while left and len(seen) < MOST:
        path = left.pop()
        end = Path(os.path.realpath(path))
        paths |= {_parts(path), _parts(end)}
        if str(end) in seen:
            continue
        seen.add(str(end))
        found = _stat(end)
        if found is None or not stat.S_ISREG(found.st_mode):
            continue
        nodes.add(node := (found.st_dev, found.st_ino))
        if found.st_nlink > 1:
            linked.add(node)
        if end.is_relative_to(real):
            files.add(str(end))
        folder = end.parent if end.parent.is_relative_to(real) else real
        for named in _targets(end):
            target = Path(os.path.normpath(folder / named))
            # What is outside cannot be written from a chat.
            if target.is_relative_to(real) or Path(os.path.realpath(target)).is_relative_to(real):
                left.append(target)
    return Instructing(frozenset(paths), frozenset(nodes), frozenset(linked), tuple(sorted(files)))


def _begin(root: Path) -> Iterator[Path]:
    """The files of a project that instruct by their name, or by standing among the instructions of chats."""
    left, visits = [root, root / ".ship" / "instructions"], 0
    while left and visits < VISITS:
        folder = left.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    visits += 1
                    name = _folded(entry.name)
                    if name in _SKIPPED:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        left.append(Path(entry.path))
                    elif name in _NAMES or ".ship" in folder.parts:
                        yield Path(entry.path)
        except OSError:
            continue  # not there, or not to be read


def _targets(path: Path) -> Iterator[str]:
    """What a file includes or links to, as it names it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            words = file.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return
    for line in words.splitlines():
        if (included := INCLUDE.fullmatch(line)) is not None:
            yield os.path.expanduser(included[1])  # noqa: PTH111 - a text, which need not be a path
    for form in (_LINK, _NAMED, _HTML):
        for match in form.finditer(words):
            named = (match[1] or match[2] or "").partition("#")[0].partition("?")[0]
            for one in dict.fromkeys((named, unquote(named))):
                if one and "\0" not in one and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|//", one):
                    yield one


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _parts(path: Path) -> Parts:
    return tuple(map(_folded, path.parts))


def _folded(words: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", words).casefold())
