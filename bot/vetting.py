"""Decides which instruction files are followed. A file that a command created or changed is not followed
until a person has accepted it.

While commands run, only files that have not changed since the first of these commands began are followed.
When a command ends, every other file with an instructing name waits for acceptance; the same happens at the
start after a kill. A file is accepted if an operator approves that a file tool writes it, or if a person
saves it outside of Shipmate. Changes are detected by the file's ctime, which no command can set. Vetting
works with and without a sandbox. All methods block.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Disk, Log
from bot.hidden_paths import hidden
from bot.instruction_files import InstructionFileSet, changed_at, find_instruction_files
from bot.text import folded

NOT_VETTED = (
    "a command has made or changed it, so it is no instruction until an operator has it written with write_file, whole, "
    "or somebody saves it on the machine"
)
_Times = dict[str, set[int]]
"""Change times (ctime in ns) of files by normalised name. Several files can share a normalised name if the
names differ only in case.
"""


class NotVetted(errors.ShipmateError):
    """A command created or changed an instruction file, and no person has accepted the file."""


class Vetting:
    """Vets the instruction files of one project. The list of waiting files is stored in `file`, or only in
    memory if `file` is None. `more` are instruction files elsewhere, and `skills` are folders of skills.
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
        self._loaded = False
        self._running = False
        self._known: _Times | None = None
        """Names and change times of the files that were followed when the running commands began. After a
        search that a limit stopped, this has the names that the search found, and no other files are
        followed.
        """
        self._waiting: _Times = {}

    def find_instruction_files(self) -> InstructionFileSet:
        """Return the files that are instructions, including the files that still wait for acceptance."""
        with self._ready():
            return find_instruction_files(self._root, self._more, self._skills, self._followed)

    def begin(self) -> InstructionFileSet:
        """Record that a command begins. Return the present instruction files. Raises OSError if their state
        cannot be saved for a start after a kill.
        """
        with self._ready():
            found = self.find_instruction_files()
            if not self._running:
                followed = [path for path, one in found.changed.items() if self._followed(path, one)]
                known = _times((self._name(path), found.changed[path]) for path in followed)
                self._save(known, self._waiting, running=True)
                self._known, self._running = known, True
            return found

    def end(self, *, last: bool) -> list[str]:
        """Record that a command has ended. `last` is True if no other command still runs. Return the paths
        of the new instruction files that now wait for acceptance.
        """
        with self._ready():
            return self._compare(last=last) if self._running else []

    def read(self, path: Path, read: Callable[[], tuple[bytes, os.stat_result]]) -> bytes:
        """Return the content of a file. `read` reads the file under this name and returns its content and
        state. Raises `NotVetted`, and everything that `read` raises.
        """
        while True:
            changes = self.changes
            raw, found = read()
            self.must_be_followed(path, found)
            if changes == self.changes:  # otherwise a command began or ended during the read
                return raw

    def must_be_followed(self, path: Path, found: os.stat_result) -> None:
        """Raise `NotVetted` unless the file in this state is followed under this name. The result is valid
        only if `changes` has the same value before and after the file was read.
        """
        with self._ready():
            if not self._followed(path, changed_at(path, found)):
                raise NotVetted(NOT_VETTED)

    @contextlib.contextmanager
    def writing(self, path: Path, *, whole: bool) -> Iterator[None]:
        """Record that a file tool writes a file while the context is open, after an operator approved
        instructions. `whole` is False if only part of the file is written. Raises `errors.ToolError` for
        a partial write to a file that waits for acceptance, because the operator would not see the rest
        of the file.
        """
        real = Path(os.path.realpath(path))
        with self._ready():
            if self._known is None and not self._waiting:
                yield
                return
            found = self.find_instruction_files().changed
            names = {one: changed for one, changed in found.items() if Path(os.path.realpath(one)) == real}
            if not whole and not all(self._followed(*one) for one in names.items()):
                raise errors.ToolError(f"{path.name} cannot be edited: {NOT_VETTED}.")
            yield
            if self._known is not None:
                for name in {real, *names}:
                    self._known.setdefault(self._name(name), set()).add(changed_at(name, real.stat()))
                self._save(self._known, self._waiting, running=self._running)
            self.changes += 1

    # ------------------------------------------------------------ inside

    def _followed(self, path: Path, changed: int) -> bool:
        real = Path(os.path.realpath(path))
        if hidden(self._root, real):
            if not self._writable(path):
                return True
            if real.is_relative_to(self._root):
                return False  # anybody may have written the file, without approval
        name = self._name(path)
        if changed in self._waiting.get(name, ()):
            return False
        if self._known is None:
            return True
        return changed in self._known.get(name, ()) if self._running else name in self._known

    def _writable(self, path: Path) -> bool:
        """Return True if a command could have created this name or a folder on the way to it, for example as
        a link to a place where the command cannot write.
        """
        path = Path(os.path.normpath(path))
        places = (Path(os.path.realpath(one.parent)) / one.name for one in (path, *path.parents) if one.name)
        return any(one != self._root and not hidden(self._root, one) for one in places)

    def _compare(self, *, last: bool) -> list[str]:
        """Mark every file that is not followed in its present state as waiting for acceptance. Return the
        paths of the files that were not waiting before.
        """
        found = self.find_instruction_files()
        unvetted = [(path, one) for path, one in found.changed.items() if not self._followed(path, one)]
        waiting = _times((self._name(path), changed) for path, changed in unvetted)
        news = sorted(
            os.fsencode(path.relative_to(self._root) if path.is_relative_to(self._root) else path).decode(
                errors="replace"
            )
            for path, changed in unvetted
            if path in found.read and changed not in self._waiting.get(self._name(path), ())
        )
        if self._log is not None:
            for one in news:
                self._log.write("prompt", f"an instruction file waits: {NOT_VETTED}", level="warn", file=one)
        if found.cut:
            for name, times in self._waiting.items():
                waiting.setdefault(name, set()).update(times)
        if last:
            self._running = False
            self._known = {self._name(path): set() for path in found.changed} if found.cut else None
        self._waiting = waiting
        # If the write fails, the disk still has the earlier state, and the next start compares with that state.
        with contextlib.suppress(OSError):
            self._save(self._known, waiting, running=self._running)
        return news

    def _save(self, known: _Times | None, waiting: _Times, *, running: bool) -> None:
        self.changes += 1
        if self._file is None or self._disk is None:
            return
        state = {
            "v": 1,
            "known": None if known is None else {name: sorted(times) for name, times in known.items()},
            "waiting": {name: sorted(times) for name, times in waiting.items()},
            "running": running,
        }
        # JSON escapes are needed, because a file name may not be valid text.
        self._disk.replace(self._file, json.dumps(state, sort_keys=True).encode() + b"\n")

    @contextlib.contextmanager
    def _ready(self) -> Iterator[None]:
        with self._lock:
            if not self._loaded:
                self._loaded = True
                self._load()
            yield

    def _load(self) -> None:
        try:
            raw = self._disk.read(self._file) if self._disk is not None and self._file is not None else b""
            state: Json = json.loads(raw) if raw else {}
            known, waiting = state.get("known"), _read(state.get("waiting", {}))
            self._known, self._waiting = None if known is None else _read(known), waiting
            self._running = bool(state.get("running"))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            # No command can write this file. An attacker who can write it controls Shipmate already.
            if self._log is not None:
                self._log.write(
                    "prompt", "what instruction files wait cannot be read", level="error", cause=str(error)
                )
        if self._running:
            self._compare(last=True)  # a command was running when Shipmate was killed

    def _name(self, path: Path) -> str:
        """Return the key of a path: relative to the project's folder and normalised. `..` parts are kept,
        because after a link they lead to a different folder.
        """
        if path.is_relative_to(self._given):
            path = self._root / path.relative_to(self._given)
        return folded(str(path.relative_to(self._root) if path.is_relative_to(self._root) else path))


def _times(found: Iterator[tuple[str, int]]) -> _Times:
    times: _Times = {}
    for name, changed in found:
        times.setdefault(name, set()).add(changed)
    return times


def _read(value: Mapping[str, list[int]]) -> _Times:
    return {str(name): set(map(int, times)) for name, times in value.items()}
