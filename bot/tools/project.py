"""The project's folder, as tools see it. Tools do not see files and folders with a hidden name.

A path is resolved once. Then each part of the path is opened in turn without following links. If somebody creates a link in the
meantime, the path is rejected.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from bot import errors, text
from bot.file_access import is_hidden, must_be_regular, opener
from bot.tools.permissions.protected_code import CLOSED, OURS, ProtectedCode, protected_code

IGNORE_FILE = ".shipmateignore"
"""Name of the file with further ignore patterns, one per line. Listings and searches omit matching files."""
IGNORE_BYTES = 64 * 1024
IGNORED = ("*.bak", ".git/", ".ship/")
"""Ignore patterns that always apply."""
LONGEST = 4_096
VISITS = 20_000
"""Max entries returned by one walk."""

Stamp = tuple[int, int, int]
Kind = Literal["file", "folder", "link", "other"]
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that a walk found: its path relative to the project's folder, and its size in bytes."""

    path: str
    kind: Kind
    size: int = 0


def path_matcher(lines: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tests a relative path. The function returns True if one of the patterns in `lines` (in the syntax
    of `.gitignore`) matches. The path of a folder must end with `/`. An invalid pattern is skipped, as Git does.

    RE2 matches in linear time, so no pattern of a project can be slow. Raises `errors.ToolError` if the patterns exceed
    RE2's memory limit.
    """
    import re2  # importing this and pathspec takes 0.3 s
    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    patterns = []
    for line in lines:
        with contextlib.suppress(ValueError, re.error):
            patterns.append(GitIgnoreSpecPattern(line))
    try:
        return GitIgnoreSpec(patterns, backend="re2").match_file
    except re2.error:
        raise errors.ToolError(
            "There are too many patterns to leave out files by, or too long ones."
        ) from None


class Project:
    """Opens, reads, writes and lists files of the project. All methods block. OSErrors name paths relative
    to the project's folder.
    """

    def __init__(self, root: Path, code: ProtectedCode | None = None) -> None:
        self.root = root.resolve()
        self.code = code or protected_code(root)
        """Shipmate's own code, which tools never change."""

    def place(self, named: str) -> str:
        """Return the resolved path, relative to the project's folder; "." for the folder itself. Raises `errors.ToolError` if the
        path leads outside the project, and `FileNotFoundError` if the path is hidden.
        """
        if not named or "\0" in named or len(named) > LONGEST or text.clean(named) != named:
            raise errors.ToolError(
                "This is no path. Give one such as src/main.py, from the project's folder on."
            )
        # `realpath` only reads links, so the target may be missing.
        real = Path(os.path.realpath(self.root / named))
        if not real.is_relative_to(self.root):
            raise errors.ToolError(
                f"{text.preview(named, 120)} leads out of the project's folder. Only what is inside can be used."
            )
        place = real.relative_to(self.root)
        if any(map(is_hidden, (*Path(named).parts, *place.parts))):
            shown = named if not named.startswith("/") else Path(named).name
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown)
        return str(place)

    @contextlib.contextmanager
    def folder(self, place: str) -> Iterator[int]:
        handle = os.open(self.root, _FOLDER)
        try:
            passed = ""
            for part in place.split("/") if place != "." else ():
                passed = f"{passed}/{part}".lstrip("/")
                with _naming_path(passed):
                    inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    def is_folder(self, place: str) -> bool:
        try:
            with self.folder(place):
                return True
        except NotADirectoryError:
            return False

    @contextlib.contextmanager
    def parent(self, place: str) -> Iterator[tuple[int, str]]:
        """Return an open descriptor of the folder that contains a file, and the file's name."""
        if place == ".":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), place)
        above, _, name = place.rpartition("/")
        with self.folder(above or ".") as folder, _naming_path(place):
            yield folder, name

    @contextlib.contextmanager
    def opened(self, place: str) -> Iterator[BinaryIO]:
        """Open a regular file for reading. Raises OSError."""
        with self.parent(place) as (folder, name):
            handle = opener(name, os.O_RDONLY | os.O_NOFOLLOW, folder)
        with os.fdopen(handle, "rb") as file:
            yield file

    def write(self, place: str, data: bytes, *, known: Stamp | None = None) -> bool:
        """Write a file atomically. Missing folders are created. A replaced file keeps its mode. Return True if the file
        existed before.

        Raises OSError, and `errors.ToolError` if the file's state differs from `known`.
        """
        if self.code.refuses(self.root / place):
            # Otherwise the gateway would run the changed code after its next start, outside the sandbox.
            told = f"{CLOSED}." if self.code.closed else f"{place} cannot be written: {OURS}."
            raise errors.ToolError(told)
        for above in [*Path(place).parents][-2::-1]:
            with self.parent(str(above)) as (folder, name), contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
        with self.parent(place) as (folder, name):
            if (old := _facts(folder, name)) is not None:
                must_be_regular(old, place)
            scratch = f".{secrets.token_hex(6)}.tmp"
            handle = os.open(
                scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder
            )
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    if old is not None:
                        os.fchmod(handle, stat.S_IMODE(old.st_mode))
                    os.fsync(handle)
                now = _facts(folder, name)
                if known is not None and (now is None or stamp(now) != known):
                    raise errors.ToolError(
                        f"{place} was changed meanwhile. Read it again; nothing was written."
                    )
                os.replace(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
            except (OSError, errors.ToolError):
                with contextlib.suppress(OSError):
                    os.unlink(scratch, dir_fd=folder)
                raise
            os.fsync(folder)
            return old is not None

    def walk(self, place: str, *, depth: int, most: int = VISITS) -> tuple[list[Entry], bool]:
        """Return the entries of a folder, up to `depth` levels deep, and True if there are more than `most`. The entries are
        sorted by name; each folder precedes its content. Hidden and ignored entries are left out, and links are not followed.
        Raises OSError if the folder itself is unreadable.
        """
        words = ""
        with contextlib.suppress(OSError, errors.ToolError), self.opened(IGNORE_FILE) as file:
            words = file.read(IGNORE_BYTES).decode("utf-8", "replace")
        ignored = path_matcher([*IGNORED, *words.splitlines()])
        entries, left, cut = list[Entry](), [(place, 1)], False
        while left and not cut:
            here, level = left.pop()
            try:
                found, cut = self._entries(here, ignored, most - len(entries))
            except OSError:
                if level == 1:
                    raise
                continue  # the file was removed or is unreadable
            entries += found
            if level < depth:
                inner = [one.path for one in found if one.kind == "folder"]
                left += [(one, level + 1) for one in reversed(inner)]
        return entries, cut

    def _entries(self, place: str, ignored: Callable[[str], bool], most: int) -> tuple[list[Entry], bool]:
        found: list[Entry] = []
        with self.folder(place) as handle, os.scandir(handle) as entries:
            for entry in itertools.islice(entries, most):
                path = entry.name if place == "." else f"{place}/{entry.name}"
                if text.clean(path) != path or is_hidden(entry.name):
                    continue
                one = Entry(path, *_kind(entry))
                if not ignored(f"{path}/" if one.kind == "folder" else path):
                    found.append(one)
            cut = next(entries, None) is not None
        return sorted(found, key=lambda one: one.path), cut


def stamp(found: os.stat_result) -> Stamp:
    """Return a value that changes whenever the file changes."""
    return found.st_ino, found.st_mtime_ns, found.st_size


def _facts(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _naming_path(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def _kind(entry: os.DirEntry[str]) -> tuple[Kind, int]:
    with contextlib.suppress(OSError):  # the file was removed
        if entry.is_symlink():
            return "link", 0
        if entry.is_dir(follow_symlinks=False):
            return "folder", 0
        if entry.is_file(follow_symlinks=False):
            return "file", entry.stat(follow_symlinks=False).st_size
    return "other", 0
