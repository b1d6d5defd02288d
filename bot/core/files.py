"""Reads instruction files with their includes; never reads a hidden path."""

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
from bot.instruction_files import INCLUDE, LARGEST, prose
from bot.vetting import NotVetted, Vetting

FILE_LIMIT = LARGEST
"""Max bytes of one instruction file that are used."""
TOTAL_LIMIT = 512 * 1024
"""Max bytes of an instruction file with all of its includes that are used."""
DEPTH = 5
NO_TEXT = 20
"""Limit for binary files: a file is binary if more than one in `NO_TEXT` characters cannot be decoded."""
FEW = 10
"""Max undecodable characters that are tolerated in any file."""
_FENCE = re.compile(r" {0,3}(?:```|~~~)")


class Unreadable(errors.ShipmateError):
    """An instruction file exists but cannot be used."""


class _Missing(Exception):
    """The instruction file does not exist."""


def read(path: Path, name: Path, vetting: Vetting) -> tuple[str, bool] | None:
    """Return the text of a file by its resolved path, and whether the text is complete; None if the file
    does not exist. `vetting` decides by the file's `name` whether the file may be used. Blocks on disk
    access. Raises `Unreadable`.
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
    """Return the first bytes of a text, at most `most`: whole lines if possible, else whole characters."""
    cut = raw[:most]
    return raw if len(raw) <= most else cut[: cut.rfind(b"\n") + 1] or cut.decode(errors="ignore").encode()


def _raw(path: Path) -> tuple[bytes, os.stat_result]:
    """Return the content of a file, up to one byte more than `FILE_LIMIT`, and the file's stat result."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise Unreadable("it is no file")
        with open(path, "rb", opener=_opener) as file:
            return file.read(FILE_LIMIT + 1), os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError):
        raise _Missing from None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'no path'}") from None


def _opener(path: str, flags: int) -> int:
    return regular_files.opener(path, flags | os.O_NOFOLLOW)


@dataclass(slots=True)
class Including:
    """Reads one file with its includes; tracks the include chain and the bytes left."""

    root: Path
    log: Log
    vetting: Vetting
    opened: list[Path] = field(default_factory=list)
    left: int = TOTAL_LIMIT
    cut: list[str] = field(default_factory=list)
    """Names of files that were too large, so that only their beginning is used."""

    def text(self, path: Path, name: Path) -> str | None:
        """Return the text of a file with each `@include path` line replaced by the text of the included
        file. `name` is the path before symlinks are resolved. Blocks on disk access. Raises `Unreadable`
        for the file itself; an unusable include is logged and left out.
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
        """Return the folder that a file's includes are relative to: the file's own folder if it is in the
        project, else the project's root.
        """
        folder = by.parent.resolve()
        return self.root if hidden(self.root, folder) else folder


def must_read(root: Path, path: Path, log: Log, vetting: Vetting) -> str:
    """Return the text of a project file with its includes. Blocks on disk access. Raises `Unreadable`, also
    if the file does not exist.
    """
    real_root, real = root.resolve(), path.resolve()
    if hidden(real_root, real):
        raise Unreadable("it is outside of the project, or in a place that instructions may not show")
    words = Including(real_root, log, vetting).text(real, path)
    if words is None:
        raise Unreadable("there is no such file")
    return words
