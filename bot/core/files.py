"""Reading instruction files, with what they include, and never what is nobody's business."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bot import errors, regular_files
from bot.contracts.environment import Log
from bot.hidden_paths import hidden
from bot.instruction_files import HASHED, INCLUDE, LARGEST, prose
from bot.vetting import NotVetted, Vetting

FILE_LIMIT = LARGEST
"""Bytes of one file that are used; instructions are prose, not a data set."""
TOTAL_LIMIT = 512 * 1024
"""The same of one file with all that it includes."""
DEPTH = 5
NO_TEXT = 20
"""A file is no text if at least one character of so many cannot be read."""
FEW = 10
"""Characters that may be so in any case."""
_FENCE = re.compile(r" {0,3}(?:```|~~~)")


class Unreadable(errors.ShipmateError):
    """A file that is there and cannot be used."""


class _Missing(Exception):
    """There is none."""


def read(path: Path, name: Path, vetting: Vetting) -> tuple[str, bool] | None:
    """The text of a file, given by its resolved path, and whether that is all of it; None where there is none. Under its `name`
    it has to hold. Blocking. Raises `Unreadable`.
    """
    try:
        raw = vetting.read(name, lambda: _raw(path))
    except _Missing:
        return None
    except NotVetted as error:
        raise Unreadable(str(error)) from None
    used = _beginning(raw, FILE_LIMIT)
    words = used.decode("utf-8-sig", "replace")
    strange = words.count("\0") + words.count("\ufffd")
    if NO_TEXT * max(0, strange - FEW) > len(words):
        raise Unreadable("it is no text")
    return prose(used), used == raw


def _beginning(raw: bytes, most: int) -> bytes:
    """So many bytes of a text at the most: whole lines, else whole characters."""
    cut = raw[:most]
    return raw if len(raw) <= most else cut[: cut.rfind(b"\n") + 1] or cut.decode(errors="ignore").encode()


def _raw(path: Path) -> tuple[bytes, int]:
    """Return the content of a file, and the time at which it was saved."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise Unreadable("it is no file")
        with open(path, "rb", opener=_opener) as file:
            # As much as tells it from another one.
            return file.read(HASHED), os.fstat(file.fileno()).st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        raise _Missing from None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'no path'}") from None


def _opener(path: str, flags: int) -> int:
    return regular_files.opener(path, flags | os.O_NOFOLLOW)


@dataclass(slots=True)
class Including:
    """One file with its includes: what is open above the one being read, and how much more may be read."""

    root: Path
    log: Log
    vetting: Vetting
    opened: list[Path] = field(default_factory=list)
    left: int = TOTAL_LIMIT
    cut: list[str] = field(default_factory=list)
    """The names of files that are too large: their beginnings are used."""

    def text(self, path: Path, name: Path) -> str | None:
        """The text of a file, each `@include path` line replaced by that file; `name` is the path before links are resolved.
        Blocking. Raises `Unreadable` for the file itself; an include that cannot be used is logged and left out.
        """
        found = read(path, name, self.vetting)
        if found is None:
            return None
        raw = found[0].encode("utf-8", "replace")
        used = _beginning(raw, self.left)
        words, self.left = used.decode(), self.left - len(used)
        if not found[1] or used != raw:
            self.cut.append(name.name)
            self.log.write(
                "prompt",
                "an instruction file is too large: its beginning is used",
                level="warn",
                file=name.name,
            )
        self.opened.append(path)
        try:
            return "\n".join(self._expanded(words, path)).strip()
        finally:
            self.opened.pop()

    def _expanded(self, words: str, path: Path) -> Iterator[str]:
        fenced = False
        for line in words.splitlines():
            fenced ^= _FENCE.match(line) is not None
            named = None if fenced else INCLUDE.fullmatch(line)
            if named is None:
                yield line
                continue
            try:
                yield self._included(named[1], path)
            except (Unreadable, OSError, ValueError, RuntimeError) as error:
                self.log.write(
                    "prompt",
                    f"an include is left out: {error}",
                    level="warn",
                    file=path.name,
                    include=named[1][:200],
                )

    def _included(self, named: str, by: Path) -> str:
        name = self._folder(by) / Path(named).expanduser()
        target = name.resolve()
        if hidden(self.root, target):
            raise Unreadable("it is outside of the project, or in a place that instructions may not show")
        if target in self.opened:
            raise Unreadable("it includes itself")
        if len(self.opened) > DEPTH:
            raise Unreadable(f"includes are nested more than {DEPTH} deep")
        words = self.text(target, name)
        if words is None:
            raise Unreadable("there is no such file")
        return words

    def _folder(self, by: Path) -> Path:
        """Return the folder at which a file's paths begin: its own if that is in the project, else the project's root."""
        folder = by.parent.resolve()
        return self.root if hidden(self.root, folder) else folder


def must_read(root: Path, path: Path, log: Log, vetting: Vetting) -> str:
    """The text of a file of the project, with its includes. Blocking. Raises `Unreadable`, also where there is none."""
    real_root, real = root.resolve(), path.resolve()
    if hidden(real_root, real):
        raise Unreadable("it is outside of the project, or in a place that instructions may not show")
    words = Including(real_root, log, vetting).text(real, path)
    if words is None:
        raise Unreadable("there is no such file")
    return words
