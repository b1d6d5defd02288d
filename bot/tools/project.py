"""The project's folder as tools see it: only files and folders inside it that are not hidden.

A path is resolved once and then opened part by part without following links, so that a link put there meanwhile is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bot import errors, text
from bot.hidden_paths import any_hidden
from bot.tools import ignore_patterns
from bot.tools.permissions.protected_code import CLOSED, OURS, ProtectedCode, protected_code

IGNORE_FILE = ".shipmateignore"
"""Further names that listing and searching omit, one pattern a line."""
IGNORE_BYTES = 64 * 1024
LONGEST = 4_096
VISITS = 20_000
"""Max entries of one walk."""

Stamp = tuple[int, int, int]
Kind = Literal["file", "folder", "link", "other"]
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CALM = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ProjectPath:
    """A resolved path, as parts below the project's folder; () is the folder itself."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return "/".join(self.parts) or "."


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a walk: its path below the project's folder, and its size in bytes."""

    path: str
    kind: Kind
    size: int = 0


@dataclass(slots=True)
class FolderEntries:
    """The entries of a walk; `cut` if there are more than its limit."""

    entries: list[Entry]
    cut: bool = False


class Project:
    """Everything is blocking. OSErrors name paths below the project's folder."""

    def __init__(self, root: Path, code: ProtectedCode | None = None) -> None:
        self.root = root.resolve()
        self.code = code or protected_code(root)
        """Shipmate's own code, which is never written."""

    def place(self, named: str) -> ProjectPath:
        """Resolve a path. Raises `errors.ToolError` if it leads outside, `FileNotFoundError` if it is hidden."""
        if not named or "\0" in named or len(named) > LONGEST or text.clean(named) != named:
            raise errors.ToolError(
                "This is no path. Give one such as src/main.py, from the project's folder on."
            )
        given = Path(named)
        if any_hidden(given.parts):
            raise _missing(named)
        # `realpath` reads links only; the end need not exist.
        real = Path(os.path.realpath(self.root / given))
        if not real.is_relative_to(self.root):
            raise errors.ToolError(
                f"{text.preview(named, 120)} leads out of the project's folder. Only what is inside can be used."
            )
        parts = real.relative_to(self.root).parts
        if any_hidden(parts):
            raise _missing(named)
        return ProjectPath(parts)

    @contextlib.contextmanager
    def folder(self, place: ProjectPath) -> Iterator[int]:
        """An open folder. Raises OSError."""
        handle = os.open(self.root, _FOLDER)
        try:
            for at, part in enumerate(place.parts):
                with _naming_path(str(ProjectPath(place.parts[: at + 1]))):
                    inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def parent(self, place: ProjectPath) -> Iterator[tuple[int, str]]:
        """The open folder that a file is in, and its name there. Raises OSError."""
        if not place.parts:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(place))
        with self.folder(ProjectPath(place.parts[:-1])) as folder:
            yield folder, place.parts[-1]

    def open(self, place: ProjectPath) -> int:
        """Open a regular file for reading; the caller closes it. Raises OSError, and `errors.ToolError` for other kinds."""
        with self.parent(place) as (folder, name), _naming_path(str(place)):
            # Opening a device may have effects: the kind is checked before, and again on what was opened.
            _must_be_file(os.stat(name, dir_fd=folder, follow_symlinks=False), place)
            handle = os.open(name, os.O_RDONLY | _CALM, dir_fd=folder)
            try:
                _must_be_file(os.fstat(handle), place)
            except (OSError, errors.ToolError):
                os.close(handle)
                raise
            return handle

    def stat(self, place: ProjectPath) -> os.stat_result:
        """The state of a path, links not followed. Raises OSError."""
        with self.parent(place) as (folder, name), _naming_path(str(place)):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def read(self, place: ProjectPath, most: int) -> bytes:
        """The first `most` bytes of a file. Raises as `open` does."""
        with os.fdopen(self.open(place), "rb") as file:
            return file.read(most)

    def write(self, place: ProjectPath, data: bytes, *, known: Stamp | None = None) -> bool:
        """Write a file atomically, creating missing folders and keeping the mode of the replaced file; returns whether there was one.

        Raises OSError, and `errors.ToolError` if the file is no longer in its `known` state.
        """
        real = self.root.joinpath(*place.parts)
        if self.code.refuses(real):
            # It would run as the gateway after the next start, outside the sandbox.
            raise errors.ToolError(
                f"{CLOSED}." if self.code.closed else f"{place} cannot be written: {OURS}."
            )
        self._make(place)
        with self.parent(place) as (folder, name), _naming_path(str(place)):
            old = _facts(folder, name)
            if old is not None:
                _must_be_file(old, place)
            scratch = f".{secrets.token_hex(6)}.tmp"
            handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CALM, 0o666, dir_fd=folder)
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

    def _make(self, place: ProjectPath) -> None:
        """Make the folders above a file that are missing."""
        for depth in range(1, len(place.parts)):
            here = ProjectPath(place.parts[:depth])
            with (
                self.parent(here) as (folder, name),
                _naming_path(str(here)),
                contextlib.suppress(FileExistsError),
            ):
                os.mkdir(name, dir_fd=folder)

    def ignoring(self) -> Callable[[str], bool]:
        """Return the test of listing and searching for the paths that are left out; that of a folder ends with `/`."""
        try:
            words = self.read(ProjectPath((IGNORE_FILE,)), IGNORE_BYTES).decode("utf-8", "replace")
        except (OSError, errors.ToolError):
            words = ""
        return ignore_patterns.matcher([*ignore_patterns.DEFAULT, *words.splitlines()])

    def walk(self, place: ProjectPath, *, depth: int, most: int = VISITS) -> FolderEntries:
        """List a folder to `depth` levels, in order of name, a folder before its content. Omits what is hidden or ignored, does not
        follow links. Raises OSError for the folder itself.
        """
        walk = FolderEntries([])
        ignored = self.ignoring()
        left = [(place, 1)]
        while left and not walk.cut:
            here, level = left.pop()
            try:
                found = self._entries(here, ignored, most - len(walk.entries), walk)
            except OSError:
                if here is place:
                    raise
                continue  # removed meanwhile, or unreadable
            walk.entries += found
            if level < depth:
                inner = [ProjectPath(tuple(one.path.split("/"))) for one in found if one.kind == "folder"]
                left += [(one, level + 1) for one in reversed(inner)]
        return walk

    def _entries(
        self, place: ProjectPath, ignored: Callable[[str], bool], most: int, walk: FolderEntries
    ) -> list[Entry]:
        found: list[Entry] = []
        with self.folder(place) as handle, os.scandir(handle) as entries:
            for seen, entry in enumerate(entries):
                if seen >= most:
                    walk.cut = True
                    break
                path = "/".join([*place.parts, entry.name])
                kind = _kind(entry)
                if text.clean(path) != path or any_hidden((entry.name,)):
                    continue
                if not ignored(f"{path}/" if kind == "folder" else path):
                    found.append(Entry(path, kind, _size(entry) if kind == "file" else 0))
        return sorted(found, key=lambda one: one.path)


def stamp(found: os.stat_result) -> Stamp:
    """What identifies one state of a file."""
    return found.st_ino, found.st_mtime_ns, found.st_size


def _facts(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _missing(named: str) -> FileNotFoundError:
    shown = named if not named.startswith("/") else Path(named).name
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown)


@contextlib.contextmanager
def _naming_path(path: str) -> Iterator[None]:
    """OSErrors raised in the block name this path."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def _must_be_file(found: os.stat_result, place: ProjectPath) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(place))
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place))
    if not stat.S_ISREG(found.st_mode):
        raise errors.ToolError(f"{place} is a pipe, a socket or a device, not a file. It cannot be used.")


def _kind(entry: os.DirEntry[str]) -> Kind:
    try:
        if entry.is_symlink():
            return "link"
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file(follow_symlinks=False) else "other"
    except OSError:
        return "other"


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0  # removed meanwhile
