"""Finds the instruction files of a project, and decides which of them are followed. All functions block.

A file is an instruction file because of its name, or because another instruction file includes or links to it. A file
that a command created or changed is not followed until a person has accepted it. An operator accepts a file by
approving that a file tool writes it. Saving the file outside Shipmate accepts it too. Shipmate notices later changes by
the file's ctime, which commands cannot set.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import stat
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bot import errors, file_access
from bot.contracts.base import Json
from bot.contracts.environment import Disk, Log
from bot.file_access import hidden
from bot.text import folded

INCLUDE = re.compile(r"@include[ \t]+(\S.*?)[ \t]*")
_LINK = re.compile(
    r"\]\(\s*(?:<([^<>\n]+)>|([^\s()]+(?:\([^\s()]*\)[^\s()]*)*))"  # [text](target)
    r"|^[ >]*\[[^\]\n]+\]:\s*(?:<([^<>\n]+)>|(\S+))"  # [name]: target
    r"""|\b(?:cite|data|href|poster|src)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))""",  # HTML
    re.IGNORECASE | re.MULTILINE,
)
_FILE = re.compile(r"^file:(?://(?:localhost)?(?=/))?", re.IGNORECASE)
"""Start of a file URL on this machine (RFC 8089)."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_NAMES = frozenset({"agent.md", "skill.md"})
_SKIPPED = frozenset({".git", ".ship"})
LARGEST = 256 * 1024
"""Max bytes of an instruction file that are read."""
NOT_VETTED = (
    "a command has made or changed it, so it is no instruction until an operator has it written with write_file, whole, "
    "or somebody saves it on the machine"
)
Parts = tuple[str, ...]
_Times = set[tuple[str, int]]
"""Normalised name and change time (ctime in ns) of each file."""


class NotVetted(errors.ShipmateError):
    """A command created or changed an instruction file, and no person has accepted the file."""


@dataclass(frozen=True, slots=True)
class InstructionFileSet:
    paths: frozenset[Parts] = frozenset()
    """Normalised absolute paths of instruction files. A path is listed even if the file is missing."""
    nodes: frozenset[tuple[int, int]] = frozenset()
    """Device and inode of each file."""
    files: tuple[str, ...] = ()
    """Paths of the followed files in the project, with links resolved."""
    changed: Mapping[Path, int] = field(default_factory=dict)
    """Change time (ctime in ns) by path, for each file that is an instruction file by its name or by inclusion."""

    def holds(self, path: Path) -> bool:
        if not self.paths.isdisjoint({_parts(path), _parts(Path(os.path.realpath(path)))}):
            return True
        found = _state(path)
        return found is not None and (found.st_dev, found.st_ino) in self.nodes


def prose(raw: bytes) -> str:
    return raw.decode("utf-8-sig", "replace").replace("\0", "").replace("\r\n", "\n").strip()


def _named_files(root: Path) -> Iterator[Path]:
    left = [root, root / ".ship" / "instructions"]
    for folder in left:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                name = folded(entry.name)
                if name not in _SKIPPED and entry.is_dir(follow_symlinks=False):
                    left.append(Path(entry.path))
                elif name in _NAMES or ".ship" in folder.parts:
                    yield Path(entry.path)


def _references(root: Path, path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the project's files that a file refers to: with True for a file that it includes, False for a linked one."""
    try:
        words = prose(file_access.read(path, LARGEST))
    except OSError:
        return
    included = [found[1] for line in words.splitlines() if (found := INCLUDE.fullmatch(line)) is not None]
    named = {(os.path.expanduser(one), True) for one in included}  # noqa: PTH111 - the text may not be a valid path
    for found in _LINK.finditer(words):
        link = html.unescape(next(filter(None, found.groups()), "")).replace("\\", "").strip()
        target = _FILE.sub("", link).partition("#")[0].partition("?")[0]
        for one in {target, unquote(target)}:
            if one and "\0" not in one and not _ADDRESS.match(one):
                # On repository pages, a link that begins with a slash is relative to the project's folder.
                named |= {(one, False), (f"{root}/{one}", False)} if one.startswith("/") else {(one, False)}
    folder = root if hidden(root, path.parent) else path.parent
    for one, instructs in sorted(named):
        target_path = folder / one
        ends = (os.path.normpath(target_path), os.path.realpath(target_path))
        if any(Path(end).is_relative_to(root) for end in ends):
            yield target_path, instructs


def _changed_at(path: Path, found: os.stat_result) -> int:
    """Return the ctime of a file in ns. For a link, return the later ctime of the link and the file."""
    with contextlib.suppress(OSError):
        return max(found.st_ctime_ns, path.lstat().st_ctime_ns)
    return found.st_ctime_ns


def _state(path: Path) -> os.stat_result | None:
    with contextlib.suppress(OSError, ValueError):
        return path.stat()
    return None


def _parts(path: Path) -> Parts:
    return tuple(map(folded, path.parts))


class Vetting:
    """Decides which instruction files of one project are followed.

    While commands run, only files that have not changed since these commands began are followed. When a command ends, or
    at the first start after Shipmate was killed, each changed file must wait until a person accepts it. The list of
    waiting files is stored in `file`.
    """

    def __init__(
        self,
        root: Path,
        file: Path | None = None,
        disk: Disk | None = None,
        log: Log | None = None,
        *,
        more: tuple[Path, ...] = (),
        skills: tuple[Path, ...] = (),
    ) -> None:
        self._given, self._root = root, Path(os.path.realpath(root))
        self._file, self._disk, self._log = file, disk, log
        self._more, self._skills = more, skills
        self._lock = threading.RLock()
        self.changes = 0
        """Number of times that the set of followed files may have changed."""
        self._known: _Times | None = None
        """Files that were followed when the running commands began; None while no command runs."""
        self._waiting: _Times = set()
        self._load()

    def find_instruction_files(self) -> InstructionFileSet:
        """Return all instruction files, including those that wait. References in files that wait are ignored."""
        names, nodes = set[Parts](), set[tuple[int, int]]()
        files, expanded, changed = set[str](), set[Path](), dict[Path, int]()
        folders = (self._root / ".claude" / "skills", *self._skills)
        skills = [place / "SKILL.md" for folder in folders for place in folder.glob("*/")]
        todo = [(path, True) for path in (*_named_files(self._root), *self._more, *skills)]
        with self._lock:
            for path, instructs in todo:  # the list grows during the loop
                end = Path(os.path.realpath(path))
                names |= {_parts(path), _parts(Path(os.path.normpath(path))), _parts(end)}
                if path in changed or (found := _state(end)) is None or not stat.S_ISREG(found.st_mode):
                    continue
                nodes.add((found.st_dev, found.st_ino))
                if instructs:
                    changed[path] = _changed_at(path, found)
                    if not self._followed(path, changed[path]):
                        continue
                if end.is_relative_to(self._root):
                    files.add(str(end))
                if instructs and end not in expanded:
                    expanded.add(end)
                    todo += _references(self._root, end)
        return InstructionFileSet(frozenset(names), frozenset(nodes), tuple(sorted(files)), changed)

    def begin(self) -> InstructionFileSet:
        """Record that a command begins. Return the instruction files. Raises OSError if the record cannot be saved."""
        with self._lock:
            found = self.find_instruction_files()
            if self._known is None:
                known = {
                    (self._name(path), at) for path, at in found.changed.items() if self._followed(path, at)
                }
                self._save(known, self._waiting)
                self._known = known
            return found

    def end(self, *, last: bool) -> list[str]:
        """Record that a command has ended. If `last` is True, no other command runs. Return the paths of files that now
        wait.
        """
        with self._lock:
            return self._compare(last=last) if self._known is not None else []

    def read(self, path: Path, real: Path, most: int) -> bytes:
        """Return the beginning of the file `real`, which is read under the name `path`. Raises `NotVetted` and OSError."""
        # Commands wait for the lock before they begin or end, so no command begins or ends during the read.
        opener = lambda name, flags: file_access.opener(name, flags | os.O_NOFOLLOW)  # noqa: E731
        with self._lock, open(real, "rb", opener=opener) as file:
            raw = file.read(most)
            self.must_be_followed(path, os.fstat(file.fileno()))
            return raw

    def must_be_followed(self, path: Path, found: os.stat_result) -> None:
        """Raise `NotVetted` if the file is not followed. The result is valid as long as `changes` stays the same."""
        with self._lock:
            if not self._followed(path, _changed_at(path, found)):
                raise NotVetted(NOT_VETTED)

    @contextlib.contextmanager
    def writing(self, path: Path, *, whole: bool) -> Iterator[None]:
        """Record that a file tool writes a file after an operator's approval. Raises `errors.ToolError` if a waiting
        file is written only in part (not `whole`), because the operator would not see the other parts.
        """
        real = Path(os.path.realpath(path))
        with self._lock:
            if self._known is None and not self._waiting:
                yield
                return
            found = self.find_instruction_files().changed
            names = {one: changed for one, changed in found.items() if Path(os.path.realpath(one)) == real}
            if not whole and not all(self._followed(*one) for one in names.items()):
                raise errors.ToolError(f"{path.name} cannot be edited: {NOT_VETTED}.")
            yield
            if self._known is not None:
                self._known |= {(self._name(name), _changed_at(name, real.stat())) for name in {real, *names}}
                self._save(self._known, self._waiting)
            self.changes += 1

    def _followed(self, path: Path, changed: int) -> bool:
        real = Path(os.path.realpath(path))
        if hidden(self._root, real):
            # A command may have made the file, or a folder above it, a link to a hidden place. So each folder is checked.
            way = Path(os.path.normpath(path))
            above = [one for one in (way, *way.parents) if one.name]
            places = [Path(os.path.realpath(one.parent)) / one.name for one in above]
            if all(one == self._root or hidden(self._root, one) for one in places):
                return True
            if real.is_relative_to(self._root):
                return False  # anybody may have written the file without approval
        else:
            inside = (one for one in real.parents if one.is_relative_to(self._root))
            if not all(os.access(one, os.R_OK, effective_ids=True) for one in inside):
                return False  # no search finds a file in a folder that cannot be listed
        entry = (self._name(path), changed)
        return entry not in self._waiting and (self._known is None or entry in self._known)

    def _compare(self, *, last: bool) -> list[str]:
        """Mark every file that is not followed as waiting. Return the paths of the files that have become waiting."""
        found = self.find_instruction_files().changed.items()
        unvetted = {path: (self._name(path), at) for path, at in found if not self._followed(path, at)}
        news = [path for path, entry in unvetted.items() if entry not in self._waiting]
        inside = [path.relative_to(self._root) if path.is_relative_to(self._root) else path for path in news]
        # A file name may not be valid text.
        names = sorted(os.fsencode(path).decode(errors="replace") for path in inside)
        for one in names:
            self._log_line(f"an instruction file waits: {NOT_VETTED}", level="warn", file=one)
        self._waiting = set(unvetted.values())
        if last:
            self._known = None
        # If the write fails, the disk has the earlier state. The next start then compares with that state.
        with contextlib.suppress(OSError):
            self._save(self._known, self._waiting)
        return names

    def _save(self, known: _Times | None, waiting: _Times) -> None:
        self.changes += 1
        if self._file is not None and self._disk is not None:
            state: Json = {"v": 1, "known": {}, "waiting": {}, "running": known is not None}
            for kind, entries in (("known", known or ()), ("waiting", waiting)):
                for name, changed in sorted(entries):
                    state[kind].setdefault(name, []).append(changed)
            # File names may not be valid text, so they are written with JSON escapes.
            self._disk.replace(self._file, json.dumps(state).encode() + b"\n")

    def _load(self) -> None:
        try:
            raw = self._disk.read(self._file) if self._disk is not None and self._file is not None else b""
            state: Json = json.loads(raw) if raw else {}
            self._waiting, known = (
                {(name, changed) for name, times in (state.get(kind) or {}).items() for changed in times}
                for kind in ("waiting", "known")
            )
        except (OSError, ValueError) as error:
            # No file waits then. Commands cannot damage this file, and anybody else who can controls Shipmate anyway.
            self._log_line("what instruction files wait cannot be read", level="error", cause=str(error))
            return
        if state.get("running"):  # a command was running when Shipmate was killed
            self._known = known
            self._compare(last=True)

    def _log_line(self, words: str, **more: Any) -> None:
        if self._log is not None:
            self._log.write("prompt", words, **more)

    def _name(self, path: Path) -> str:
        """Return the name under which the result for a path is stored. `..` parts are kept, because after a link they lead to a different folder."""
        if path.is_relative_to(self._given):
            path = self._root / path.relative_to(self._given)
        return folded(str(path.relative_to(self._root) if path.is_relative_to(self._root) else path))
