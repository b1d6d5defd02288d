"""Guards the project's files: instruction files, hidden names, and the provenance of files' text. All functions block.

A file is an instruction file because of its name, or because another instruction file includes or links to it. The sandbox makes
instruction files read-only for commands. An instruction file that a command makes is renamed when the command ends.

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
import secrets
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
from bot.tools.permissions.protected_code import ProtectedCode
from bot.tools.project import Project

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
MOST = 2_000
"""Max files with a mark of their own. Above this number, marks cover whole top-level folders, or the whole project."""
_NOTES = 10
"""Max notes about a command."""
_SLACK = 50_000_000
"""Max nanoseconds by which the kernel's file timestamps may lag behind the clock."""
Parts = tuple[str, ...]
_Known = set[tuple[str, str]]
"""Pair of each instruction file: its normalised name, and its path with all links resolved."""


class NotFollowed(OSError):
    """Raised when a command that still runs may have made an instruction file, so the file is not followed yet."""


@dataclass(frozen=True, slots=True)
class InstructionFileSet:
    paths: frozenset[Parts] = frozenset()
    """Normalised absolute paths of instruction files. A path is listed even if the file is missing."""
    nodes: frozenset[tuple[int, int]] = frozenset()
    """Device and inode of each instruction file."""
    files: tuple[str, ...] = ()
    """Paths of the followed files in the project, with links resolved."""
    named: Mapping[Path, str] = field(default_factory=dict)
    """Path, with links resolved, of each file that is an instruction file by its name or by inclusion."""

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


def _references(root: Path, path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the project's files that the file at `path` includes (each with True) or links to (each with False)."""
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
    the path in every state, and everything below the path.
    """

    origin: Provenance = ANYBODYS
    channel: str = ""
    stamp: tuple[int, int] | None = None


class FileGuard:
    """Guards the files of one project. The state is stored in `file`; without a `file`, only in memory.

    While commands run, only the instruction files that existed when these commands began are followed. When a command ends,
    or at the first start after Shipmate was killed, each new instruction file is renamed. Text written by `operators` needs
    no mark.
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
        self._project = Project(self._root, ProtectedCode(self._root))
        self._lock = threading.RLock()
        self._running: list[Command] = []
        self.own: HiddenNames | None = None
        """Hidden names that were at the top of the project's folder before any of the running commands started. No
        command created these names. None while no command runs.
        """
        self._known: _Known | None = None
        """Instruction files that were followed when the running commands began. None means that all are followed."""
        self._held: dict[tuple[str, str], int] = {}
        """Open descriptor of each file in `_known`, by its name and the path that the name leads to. If the path now leads to
        another file, a command may have replaced the file.
        """
        self._marks: dict[str, _Mark] = {}
        self._load()

    # ------------------------------------------------------------ commands

    def begin(self, command: Command) -> InstructionFileSet:
        """Record that a command begins. Return the instruction files that the sandbox must protect. Call `end` even if this method raises OSError."""
        with self._lock:
            command.since = time.time_ns() - _SLACK
            self._running.append(command)
            found = self.find_instruction_files()
            if self.own is None:
                own = file_access.hidden_names(self._root)
                if self._disk is not None:
                    saved = {"v": 1, "known": dict(own)}
                    self._disk.replace(self._root / file_access.SAVED, json.dumps(saved).encode())
                self.own = own
            named = found.named.items()
            if self._known is None:
                self._known = {(self._name(one), end) for one, end in named if self._followed(one, Path(end))}
            for path, end in named:
                entry = self._name(path), end
                if entry in self._known and entry not in self._held:
                    self._held[entry] = os.open(end, os.O_PATH | os.O_CLOEXEC)
            self._save()
            file_access.set_aside(self._root, self.own)
            return found

    def end(self, command: Command) -> list[str]:
        """Record that a command has ended: rename hidden files and instruction files that the command created, and mark changed
        files. Return notes for the model.
        """
        with self._lock:
            self._running.remove(command)
            moved, clean = dict[str, str](), True
            try:
                if self.own is not None:
                    moved = file_access.set_aside(self._root, self.own)
            finally:
                clean = self._set_aside(moved)
                if self._must_be_marked(command.origin, command.channel):
                    self._sweep(command.since, command.origin, command.channel)
                if not self._running:
                    # If a file could not be renamed, new instruction files are not followed until a later command's end.
                    self.own, self._known = None, None if clean else self._known
                    while self._held:
                        os.close(self._held.popitem()[1])
                    if self._disk is not None:
                        self._disk.remove(self._root / file_access.SAVED)
                # If the write fails, the earlier state stays on disk. Then the next start compares the files with that state.
                with contextlib.suppress(OSError):
                    self._save()
            notes = [f"{name} may not be made by a command; it is {to} now." for name, to in moved.items()]
            more = [f"So it is with {len(notes) - _NOTES:,} names more."] if len(notes) > _NOTES else []
            return notes[:_NOTES] + more

    def _set_aside(self, moved: dict[str, str]) -> bool:
        """Rename each instruction file that was not followed when the running commands began, and add its old and new name to
        `moved`. Return False if a file could not be renamed.
        """
        if self._known is None:
            return True
        clean, named = True, self.find_instruction_files().named.items()
        ends = (Path(end) for path, end in named if self._is_known(path, end))
        known = {above for end in ends for above in (end, *end.parents)}
        for path, end in named:
            real = Path(end)
            if self._is_known(path, end) or (real.is_relative_to(self._root) and hidden(self._root, real)):
                continue
            # If a link gives a known file another name, the link is renamed, and the file keeps its place.
            places = (one for one in self._places(path) if one not in known or one.is_symlink())
            if (place := next(places, None)) is None:
                continue
            aside = place.with_name(f"refused-{place.name[:50]}-{secrets.token_hex(3)}")
            # A file name may contain bytes that are no valid text.
            names = (os.fsencode(one.relative_to(self._root)) for one in (place, aside))
            old, new = (name.decode(errors="replace") for name in names)
            try:
                # Another command may still run and replace folders by links, so no link is followed.
                with self._project.parent(str(place.relative_to(self._root))) as (folder, name):
                    if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=True):
                        os.fchmod(folder, 0o700)
                    os.rename(name, aside.name, src_dir_fd=folder, dst_dir_fd=folder)
                moved[old] = new
                self._log_line(
                    "a command made an instruction file, which has a new name", level="warn", file=old
                )
            except FileNotFoundError:
                pass  # the file was already renamed under another of its names
            except OSError as error:
                self._log_line(
                    "an instruction file cannot be renamed", level="error", file=old, cause=str(error)
                )
            clean = clean and not path.exists()
        return clean

    def _is_known(self, path: Path, end: str) -> bool:
        """Return True if no running command can have made or changed an instruction file."""
        entry, found = (self._name(path), end), _state(Path(end))
        if self._known is None or next(self._places(path), None) is None:
            return True
        held = self._held.get(entry)
        same = held is None or (found is not None and os.path.samestat(os.fstat(held), found))
        return entry in self._known and same

    def _places(self, path: Path) -> Iterator[Path]:
        """Yield the file and the folders and links above it that commands can rename, lowest first."""
        for one in (path, *path.parents):
            place = Path(os.path.realpath(one.parent)) / one.name
            inside = place.relative_to(self._root).parts if place.is_relative_to(self._root) else ()
            if one.name not in {"", ".."} and inside and not is_hidden(inside[0]):
                yield place

    @contextlib.contextmanager
    def writing(self, path: str, origin: Provenance, channel: str | None, *, whole: bool) -> Iterator[None]:
        """Record that a file tool writes a file (completely if `whole` is True), with text of this provenance. After a
        crash in the block, anybody counts as the author of the file. Raises OSError, and `errors.ToolError` if the file is an
        instruction file and a command runs, because the command could change the new file.
        """
        with self._lock:
            if self._running and self.find_instruction_files().holds(self._root / path):
                raise errors.ToolError(
                    f"{path} instructs, and a command runs. Write the file when the command has ended."
                )
            origin |= NOBODYS if whole else self.of(path, channel)
            old, marked = self._marks.get(path), self._must_be_marked(origin, channel)
            if not marked and old is None:
                yield
                return
            new = old
            try:
                self._marks[path] = _Mark()
                self._save()
                yield
                new = _Mark(origin, channel or "", self._stamp(path)) if marked else None
            finally:
                self._marks.pop(path, None)
                self._marks |= {path: new} if new is not None else {}
                with contextlib.suppress(OSError):  # the mark on the disk covers every state of the file
                    self._save()

    # ------------------------------------------------------------ instruction files

    def find_instruction_files(self) -> InstructionFileSet:
        """Return all instruction files. References in files that are not followed are ignored."""
        names, nodes = set[Parts](), set[tuple[int, int]]()
        files, expanded, named = set[str](), set[Path](), dict[Path, str]()
        visible = _folders(self._root, lambda name: folded(name) in _SKIPPED)
        paths = [Path(one.path) for _, entries in visible for one in entries if folded(one.name) in _NAMES]
        paths += (self._root / ".ship" / "instructions").rglob("*")
        skills = (self._root / ".claude" / "skills", *self._skills)
        paths += [place / "SKILL.md" for folder in skills for place in folder.glob("*/")]
        todo = [(path, True) for path in (*paths, *self._more)]
        with self._lock:
            for path, instructs in todo:  # the list grows during the loop
                end = Path(os.path.realpath(path))
                names |= {_parts(path), _parts(Path(os.path.normpath(path))), _parts(end)}
                if path in named or (found := _state(end)) is None or not stat.S_ISREG(found.st_mode):
                    continue
                nodes.add((found.st_dev, found.st_ino))
                if instructs:
                    named[path] = str(end)
                    if not self._followed(path, end):
                        continue
                if end.is_relative_to(self._root):
                    files.add(str(end))
                if instructs and end not in expanded:
                    expanded.add(end)
                    todo += _references(self._root, end)
        return InstructionFileSet(frozenset(names), frozenset(nodes), tuple(sorted(files)), named)

    def read(self, path: Path, real: Path, most: int) -> bytes:
        """Return up to `most` bytes of the instruction file `path`. `real` is its path with links resolved. Raises OSError."""
        # Commands wait for the lock before they begin or end, so no command begins or ends during the read.
        opener = lambda name, flags: file_access.opener(name, flags | os.O_NOFOLLOW)  # noqa: E731
        with self._lock, open(real, "rb", opener=opener) as file:
            raw = file.read(most)
            if not self._followed(path, real):
                raise NotFollowed(
                    "a running command may have made it, so it is no instruction before the command has ended"
                )
            return raw

    def _followed(self, path: Path, real: Path) -> bool:
        if next(self._places(path), None) is None:
            return True  # no command can change it
        if hidden(self._root, real):
            if real.is_relative_to(self._root):
                return False  # anybody may have written the file without approval
        elif not all(
            os.access(one, os.R_OK, effective_ids=True)
            for one in real.parents
            if one.is_relative_to(self._root)
        ):
            return False  # no search finds a file in a folder that cannot be listed
        return self._is_known(path, str(real))

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

    def _save(self) -> None:
        if self._file is None or self._disk is None:
            return
        files, folders = dict[str, Json](), list[str]()
        for path, one in sorted(self._marks.items()):
            if one.stamp is None:
                folders.append(path)
            else:
                facts = {"origin": one.origin.packed(), "channel": one.channel}
                files[path] = facts | {"inode": one.stamp[0], "saved": one.stamp[1]}
        begun = [one.since for one in self._running if self._must_be_marked(one.origin, one.channel)]
        state: Json = {
            "v": 1,
            "files": files,
            "folders": folders,
            "begun": begun,
            "known": None if self._known is None else sorted(self._known),
        }
        # A file name may contain bytes that are no valid text, so names are written with JSON escapes.
        self._disk.replace(self._file, json.dumps(state).encode() + b"\n")

    def _load(self) -> None:
        try:
            state = self._stored("")
            # In version 0.2, `vetting.json` listed the known instruction files and those that waited for an approval.
            old = self._stored("vetting.json") if "known" not in state else {}
            good, waiting = (set(old.get(one) or ()) for one in ("known", "waiting"))
            known = state.get("known")
            self._known = None if known is None else {(str(name), str(end)) for name, end in known}
            for path, mark in state.get("files", {}).items():
                # Version 0.1 stored no inode. Its marks cover every state of the file.
                stamp = (int(mark["inode"]), int(mark["saved"])) if "inode" in mark else None
                self._marks[path] = _Mark(unpacked(mark["origin"]), str(mark["channel"]), stamp)
            self._marks |= {str(path): _Mark() for path in state.get("folders", ())}
            begun = list(map(int, state.get("begun", ())))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            # The list of written files is lost, so every file may contain anybody's text. All instruction files are followed,
            # because commands cannot damage this file. Anybody else who can damage this file controls Shipmate anyway.
            self._marks, self._known = {"": _Mark()}, None
            self._log_line("the record of files cannot be read", level="error", cause=str(error))
            return
        if old:
            every = {(self._name(path), end) for path, end in self.find_instruction_files().named.items()}
            good = good if old.get("running") else {name for name, _ in every} - waiting
            self._known = {one for one in every if one[0] in good}
        if begun or self._known is not None:  # a command was running when Shipmate was killed
            if self._set_aside({}):
                self._known = None
            if begun:
                self._sweep(min(begun), ANYBODYS, "")
            with contextlib.suppress(OSError):
                self._save()

    def _stored(self, name: str) -> Json:
        if self._disk is None or self._file is None:
            return {}
        raw = self._disk.read(self._file.with_name(name) if name else self._file)
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
