"""Guards the project's files: instruction files, hidden names, and the provenance of files' text. All functions block.

A file is an instruction file because of its name, or because another instruction file includes or links to it. A file that a
command created or changed is not followed until a person has accepted it. An operator accepts a file by approving that a file
tool writes it. A person who saves the file outside Shipmate accepts it too. Shipmate notices later changes by the file's ctime,
which commands cannot set.

A mark stores the provenance of a file that a tool or a command wrote while untrusted text was in the model's context.
The mark ends when the file is completely rewritten without untrusted text in the context, or when a person saves it.
"""

from __future__ import annotations

import contextlib
import html
import itertools
import json
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bot import errors, file_access
from bot.contracts.base import Json
from bot.contracts.environment import Disk, Log
from bot.contracts.identity import UserRef
from bot.contracts.messages import ANYBODYS, NOBODYS, Provenance, Taint, unpacked
from bot.file_access import HiddenNames, hidden, is_hidden
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
_SKILLS = (".claude", "skills")
_SKIPPED = frozenset({".git", ".ship"})
LARGEST = 256 * 1024
"""Max bytes that are read from an instruction file."""
NOT_VETTED = (
    "a command has made or changed it, so it is no instruction until an operator has it written with write_file, whole, "
    "or somebody saves it on the machine"
)
MOST = 2_000
"""Max files with a mark of their own. Above this number, marks cover whole top-level folders, or the whole project."""
_NOTES = 10
"""Max lines of each kind of note about a command."""
_SLACK = 50_000_000
"""Max nanoseconds by which the kernel's file timestamps may lag behind the clock."""
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
    """Device and inode of each instruction file."""
    files: tuple[str, ...] = ()
    """Paths of the followed files in the project, with links resolved."""
    changed: Mapping[Path, int] = field(default_factory=dict)
    """Change time (ctime in ns) by path, for each file that is an instruction file by its name or by inclusion."""

    def holds(self, path: Path) -> bool:
        """Return True if the file at a path is an instruction file, or would be one if somebody created it."""
        spellings = {_parts(path), _parts(Path(os.path.realpath(path)))}
        if any(one[-1] in _NAMES or _SKILLS in itertools.pairwise(one) for one in spellings):
            return True
        if not self.paths.isdisjoint(spellings):
            return True
        found = _state(path)
        return found is not None and (found.st_dev, found.st_ino) in self.nodes


def prose(raw: bytes) -> str:
    return raw.decode("utf-8-sig", "replace").replace("\0", "").replace("\r\n", "\n").strip()


def _folders(top: Path, skipped: Callable[[str], bool]) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
    """Yield each readable folder from `top` down, with its entries. Leave out entries whose names are skipped."""
    left = [top]
    for folder in left:  # the list grows during the loop
        with contextlib.suppress(OSError), os.scandir(folder) as found:
            entries = [entry for entry in found if not skipped(entry.name)]
            left += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
            yield folder, entries


def _named_files(root: Path) -> Iterator[Path]:
    for _, entries in _folders(root, lambda name: folded(name) in _SKIPPED):
        yield from (Path(entry.path) for entry in entries if folded(entry.name) in _NAMES)
    for _, entries in _folders(root / ".ship" / "instructions", lambda _: False):
        yield from (Path(entry.path) for entry in entries)  # `find_instruction_files` ignores folders


def _references(root: Path, path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the project's files that the file at `path` refers to: with True if it includes a file, False if it links to it."""
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


@dataclass(eq=False)
class Command:
    """A command that runs in the project. `origin` is the provenance of the text that the command may write. The ids in
    `origin` belong to `channel`. `since` is the start time in ns.
    """

    origin: Provenance = NOBODYS
    channel: str | None = None
    since: int = 0


@dataclass(frozen=True, slots=True)
class _Mark:
    """The provenance of a file's text, and the channel that the ids in the provenance belong to. `stamp` is the file's inode
    and mtime (ns), which stay the same when a command moves the file or a folder above it. If `stamp` is None, the mark covers
    the path in every state, and everything below it.
    """

    origin: Provenance = ANYBODYS
    channel: str = ""
    stamp: tuple[int, int] | None = None


class FileGuard:
    """Guards the files of one project. The state is stored in `file`; without a `file`, only in memory.

    While commands run, only instruction files that have not changed since these commands began are followed. When a
    command ends, or at the first start after Shipmate was killed, each changed instruction file must wait until a person
    accepts it. Text written by `operators` needs no mark.
    """

    def __init__(
        self,
        root: Path,
        file: Path | None = None,
        disk: Disk | None = None,
        log: Log | None = None,
        *,
        operators: Collection[UserRef] = frozenset(),
        more: tuple[Path, ...] = (),
        skills: tuple[Path, ...] = (),
    ) -> None:
        self._given, self._root = root, Path(os.path.realpath(root))
        self._file, self._disk, self._log = file, disk, log
        self._operators, self._more, self._skills = operators, more, skills
        self._lock = threading.RLock()
        self.changes = 0
        """Number of times that the set of followed files may have changed."""
        self._running: list[Command] = []
        self.own: HiddenNames = {}
        """Hidden names that were at the top of the project's folder before any of the running commands started. No
        command created these names.
        """
        self._known: _Times | None = None
        """Instruction files that were followed when the running commands began; None while no command runs."""
        self._waiting: _Times = set()
        self._marks: dict[str, _Mark] = {}
        self._load()

    # ------------------------------------------------------------ commands

    def begin(self, command: Command) -> InstructionFileSet:
        """Record that a command begins. Return the instruction files. Call `end` even if this method raises OSError."""
        with self._lock:
            command.since = time.time_ns() - _SLACK
            self._running.append(command)
            found = self.find_instruction_files()
            if self._known is None:
                own = file_access.hidden_names(self._root)
                file_access.save_names(self._root, own)
                known = {
                    (self._name(path), at) for path, at in found.changed.items() if self._followed(path, at)
                }
                self._save(known)
                self.own, self._known = own, known
            else:
                self._save(self._known)
            file_access.set_aside(self._root, self.own)
            return found

    def end(self, command: Command) -> list[str]:
        """Record that a command has ended: rename hidden files that the command created, let changed instruction files
        wait, and mark changed files. Return notes for the model.
        """
        with self._lock:
            self._running.remove(command)
            known, notes = self._known, list[str]()
            try:
                if known is not None:
                    moved = file_access.set_aside(self._root, self.own)
                    lines = [
                        f"{name} may not be made by a command; it is {to} now." for name, to in moved.items()
                    ]
                    more = (
                        [f"So it is with {len(lines) - _NOTES:,} names more."] if len(lines) > _NOTES else []
                    )
                    notes = [*lines[:_NOTES], *more]
            finally:
                if self._must_be_marked(command.origin, command.channel):
                    self._sweep(command.since, command.origin, command.channel)
                planted = self._compare() if known is not None else []
                if not self._running:
                    self._known, self.own = None, {}
                    file_access.save_names(self._root, None)
                # If the write fails, the earlier state stays on disk. Then the next start compares the files with that state.
                with contextlib.suppress(OSError):
                    self._save(self._known)
            return [*notes, *(f"{path}: {NOT_VETTED}." for path in planted[:_NOTES])]

    @contextlib.contextmanager
    def writing(self, path: str, origin: Provenance, channel: str | None, *, whole: bool) -> Iterator[None]:
        """Record that a file tool writes a file (completely if `whole` is True), with text of this provenance. After a
        crash in the block, anybody counts as the author of the file. Raises OSError, and `errors.ToolError` if a waiting
        instruction file is written only in part, because the operator who approved it did not see the other parts.
        """
        real = Path(os.path.realpath(self._root / path))
        with self._lock:
            vetted = self._known is not None or self._waiting
            found = self.find_instruction_files().changed.items() if vetted else ()
            names = {one: changed for one, changed in found if Path(os.path.realpath(one)) == real}
            if not whole and not all(self._followed(*one) for one in names.items()):
                raise errors.ToolError(f"{real.name} cannot be edited: {NOT_VETTED}.")
            origin |= NOBODYS if whole else self.of(path, channel)
            old, marked = self._marks.get(path), self._must_be_marked(origin, channel)
            new, changes = old, marked or old is not None
            try:
                if changes:
                    self._marks[path] = _Mark()
                    self._save(self._known)
                yield
                new = _Mark(origin, channel or "", self._stamp(path)) if marked else None
                if self._known is not None:
                    self._known |= {
                        (self._name(one), _changed_at(one, real.stat())) for one in {real, *names}
                    }
            finally:
                self._marks.pop(path, None)
                self._marks |= {path: new} if new is not None else {}
                if vetted or changes:
                    with contextlib.suppress(OSError):  # the mark on the disk covers every state of the file
                        self._save(self._known)

    # ------------------------------------------------------------ instruction files

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

    def _followed(self, path: Path, changed: int) -> bool:
        real = Path(os.path.realpath(path))
        if hidden(self._root, real):
            # A command may have replaced the file or a folder above it by a link to a hidden place, so check each folder.
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

    def _compare(self) -> list[str]:
        """Mark each instruction file that the bot does not follow as waiting for an operator. Return the newly marked paths."""
        found = self.find_instruction_files().changed.items()
        unvetted = {path: (self._name(path), at) for path, at in found if not self._followed(path, at)}
        news = [path for path, entry in unvetted.items() if entry not in self._waiting]
        inside = [path.relative_to(self._root) if path.is_relative_to(self._root) else path for path in news]
        # A file name may not be valid text.
        names = sorted(os.fsencode(path).decode(errors="replace") for path in inside)
        for one in names:
            self._log_line(f"an instruction file waits: {NOT_VETTED}", level="warn", file=one)
        self._waiting = set(unvetted.values())
        return names

    def _name(self, path: Path) -> str:
        """Return the name under which the result for a path is stored. `..` parts are kept, because after a link they lead to a different folder."""
        if path.is_relative_to(self._given):
            path = self._root / path.relative_to(self._given)
        return folded(str(path.relative_to(self._root) if path.is_relative_to(self._root) else path))

    # ------------------------------------------------------------ marks

    def of(self, path: str, channel: str | None) -> Provenance:
        """Return the provenance of a file, or of all names and files below a folder. The path is relative to the
        project's folder; "" and "." are the project's folder.
        """
        path = "" if path == "." else path
        with self._lock:
            below = {at: mark for at, mark in self._marks.items() if _below(path, at)}
            marks = [mark for at, mark in below.items() if mark.stamp in {None, self._stamp(at)}]
            if any(self._must_be_marked(one.origin, one.channel) for one in self._running) or any(
                one.stamp is None and _below(at, path) for at, one in self._marks.items()
            ):
                return ANYBODYS
        origin = NOBODYS
        for mark in marks:
            # Ids of another channel mean nothing on this channel, so the text counts as anybody's.
            origin |= mark.origin if mark.channel == (channel or "") else ANYBODYS
        return origin

    def _must_be_marked(self, origin: Provenance, channel: str | None) -> bool:
        others = any(UserRef(channel or "", one) not in self._operators for one in origin.people)
        return others or origin.taint == Taint.FOREIGN

    def _stamp(self, path: str) -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            found = (self._root / path).lstat()
            return found.st_ino, found.st_mtime_ns
        return None

    def _sweep(self, since: int, origin: Provenance, channel: str | None) -> None:
        """Mark every file that was changed after `since`, and every marked file that has a new name."""
        known = {mark.stamp: mark for mark in self._marks.values()}
        found: dict[str, _Mark] = {}
        for path in _files(self._root):
            with contextlib.suppress(OSError):
                state = (self._root / path).lstat()
                stamp = state.st_ino, state.st_mtime_ns
                if state.st_ctime_ns >= since:
                    found[path] = _Mark(origin, channel or "", stamp)
                elif stamp in known:
                    found[path] = known[stamp]
        if len(found) > MOST:
            found = {path.partition("/")[0] if "/" in path else "": _Mark() for path in found}
        self._marks = {path: mark for path, mark in self._marks.items() if mark.stamp is None} | found

    # ------------------------------------------------------------ state

    def _save(self, known: _Times | None) -> None:
        self.changes += 1
        if self._file is None or self._disk is None:
            return
        files = {
            path: {
                "origin": one.origin.packed(),
                "channel": one.channel,
                "inode": one.stamp[0],
                "saved": one.stamp[1],
            }
            for path, one in sorted(self._marks.items())
            if one.stamp is not None
        }
        state: Json = {
            "v": 1,
            "files": files,
            "folders": sorted(path for path, one in self._marks.items() if one.stamp is None),
            "begun": sorted(
                one.since for one in self._running if self._must_be_marked(one.origin, one.channel)
            ),
            "known": None if known is None else sorted(known),
            "waiting": sorted(self._waiting),
        }
        # File names may not be valid text, so they are written with JSON escapes.
        self._disk.replace(self._file, json.dumps(state).encode() + b"\n")

    def _load(self) -> None:
        try:
            state = self._stored(self._file)
            if self._file is not None and "waiting" not in state:
                # Version 0.2 stored which instruction files wait in a file of its own, as lists of times by name.
                old = self._stored(self._file.with_name("vetting.json"))
                lists = {one: (old.get(one) or {}).items() for one in ("known", "waiting")}
                times = {
                    one: [(name, at) for name, every in named for at in every] for one, named in lists.items()
                }
                state |= times | ({} if old.get("running") else {"known": None})
            self._waiting = {(str(name), int(at)) for name, at in state.get("waiting", ())}
            known = state.get("known")
            self._known = None if known is None else {(str(name), int(at)) for name, at in known}
            for path, mark in state.get("files", {}).items():
                # Early releases of 0.1 stored `state` (inode, time and size); later ones stored only `saved`, the time.
                inode = mark["inode"] if "inode" in mark else (self._stamp(path) or (0,))[0]
                inode, saved, *_ = mark["state"] if "state" in mark else (inode, mark["saved"])
                stamp = (int(inode), int(saved))
                self._marks[path] = _Mark(unpacked(mark["origin"]), str(mark["channel"]), stamp)
            self._marks |= {str(path): _Mark() for path in state.get("folders", ())}
            begun = list(map(int, state.get("begun", ())))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            # The list of written files is lost, so every file may contain anybody's text. No instruction file has to wait,
            # because commands cannot damage this file. Anybody else who can damage it controls Shipmate anyway.
            self._marks, self._known, self._waiting = {"": _Mark()}, None, set()
            self._log_line("the record of files cannot be read", level="error", cause=str(error))
            return
        if begun or self._known is not None:  # a command was running when Shipmate was killed
            if begun:
                self._sweep(min(begun), ANYBODYS, "")
            if self._known is not None:
                self._compare()
                self._known = None
            with contextlib.suppress(OSError):
                self._save(None)

    def _stored(self, file: Path | None) -> Json:
        raw = self._disk.read(file) if self._disk is not None and file is not None else b""
        state: Json = json.loads(raw) if raw else {}
        return state

    def _log_line(self, words: str, **more: Any) -> None:
        if self._log is not None:
            self._log.write("prompt", words, **more)


def _files(root: Path) -> Iterator[str]:
    """Yield all files of the project. Empty folders are yielded too, because their names can carry text."""
    start = len(f"{root}/")
    for folder, entries in _folders(root, is_hidden):
        if not entries and folder != root:
            yield str(folder)[start:]
        yield from (entry.path[start:] for entry in entries if not entry.is_dir(follow_symlinks=False))


def _below(upper: str, lower: str) -> bool:
    return upper in {"", lower} or lower.startswith(f"{upper}/")
