"""Decides which versions of instruction files are followed: one that a command made or changed is not, until a person
has accepted it.

The version from before the first of the running commands stays in force. Another version found under an instructing
name, when a command ends or at the start after a kill, waits until an operator has it written by a file tool, or a
person saves it outside of Shipmate. This does not depend on isolation, nor on the number of commands. Everything is
blocking.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Disk, Log
from bot.hidden_paths import hidden
from bot.instruction_files import (
    FileVersion,
    InstructionFileSet,
    TrustState,
    digest,
    find_instruction_files,
    folded,
)

NOT_VETTED = (
    "a command has made or changed it, so it is no instruction until an operator has it written with write_file, whole, "
    "or somebody saves it on the machine"
)
_V, _KNOWN, _WAITING, _MET = "v", "known", "waiting", "met"


@dataclass(frozen=True, slots=True)
class _UnvettedVersion:
    """A version that waits under a name. `kept`: another version was in force before, so commands still cannot change
    it.
    """

    digest: str
    saved: int
    kept: bool

    def fits(self, said: FileVersion) -> bool:
        return (self.digest, self.saved) == (said.digest, said.saved)


_Waits = Mapping[str, frozenset[_UnvettedVersion]]
"""By name; where letters differ in case or form alone, there may be several."""


@dataclass(frozen=True, slots=True)
class _State:
    known: Mapping[str, frozenset[str]] | None = None
    """While commands run: what held when they began, as hashes by name."""
    waiting: _Waits = field(default_factory=dict)
    met: frozenset[str] | None = None
    """The names known or written since, after a command left more than could be looked at; no other one is followed."""

    def waits(self, name: str, said: FileVersion) -> _UnvettedVersion | None:
        return next((one for one in self.waiting.get(name, ()) if one.fits(said)), None)

    def standing(self, name: str, said: FileVersion) -> TrustState:
        if self.known is not None:
            if said.digest in self.known.get(name, ()):
                return TrustState.FOLLOWED
            return TrustState.KEPT if name in self.known else TrustState.LOOSE
        if (waits := self.waits(name, said)) is not None:
            return TrustState.KEPT if waits.kept else TrustState.LOOSE
        return TrustState.FOLLOWED if self.met is None or name in self.met else TrustState.LOOSE


class Vetting:
    """That of one project, kept in `file`; without one, in memory alone. `more` are files elsewhere that instruct too, `skills`
    folders of skills.
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
        """The number of times that it has changed what holds."""
        self._state = _State()
        self._loaded = False

    def find_instruction_files(self) -> InstructionFileSet:
        """The files that instruct, or would."""
        with self._ready():
            return self._look(self._state)

    def begin(self) -> InstructionFileSet:
        """A command begins: what instructs. Raises OSError where that cannot be kept for a start after a kill."""
        with self._ready():
            state = self._state
            found = self._look(state)
            if state.known is None:
                known: dict[str, frozenset[str]] = {}
                waiting: _Waits = state.waiting
                for path, said in found.said.items():
                    name = self._name(path)
                    if self._standing(state, path, said) is TrustState.FOLLOWED:
                        known[name] = known.get(name, frozenset()) | {said.digest}
                    elif state.waits(name, said) is None:
                        waiting = _added(waiting, name, _UnvettedVersion(said.digest, said.saved, kept=False))
                self._change(_State(known, waiting, state.met))
            return found

    def end(self, *, last: bool) -> list[str]:
        """A command has ended, the `last` of those that ran: the paths of what it has made or changed that would instruct."""
        with self._ready():
            return self._compare(last=last) if self._state.known is not None else []

    def read(self, path: Path, look: Callable[[], tuple[bytes, int]]) -> bytes:
        """The text of a file, read under this name by `look`, which gives its bytes and save time. Raises `NotVetted`,
        and what `look` raises.
        """
        while True:
            changes = self.changes
            raw, saved = look()
            self.hold(path, raw, saved)
            if changes == self.changes:  # else a command has begun or ended meanwhile
                return raw

    def hold(self, path: Path, raw: bytes, saved: int) -> None:
        """Raises `NotVetted` unless this version of the file is followed. Not reliable if `changes` was another one
        before the read.
        """
        with self._ready():
            standing = self._standing(self._state, path, FileVersion(digest(raw), saved, read=True))
        if standing is not TrustState.FOLLOWED:
            raise NotVetted(NOT_VETTED)

    @contextlib.contextmanager
    def writing(self, path: Path, data: bytes, *, whole: bool) -> Iterator[None]:
        """A file tool writes these bytes in the block, which has asked an operator where that instructs. Raises
        `errors.ToolError` where only a part of what waits would be shown to them.
        """
        real = Path(os.path.realpath(path))
        with self._ready():
            old = self._state
            if old == _State():
                yield
                return
            here = {
                self._name(one): (one, said)
                for one, said in self._look(old).said.items()
                if Path(os.path.realpath(one)) == real
            }
            if not whole and any(
                self._standing(old, *one) is not TrustState.FOLLOWED for one in here.values()
            ):
                raise errors.ToolError(f"{path.name} cannot be edited: {NOT_VETTED}.")
            yield
            waiting = {
                name: left
                for name, waits in old.waiting.items()
                if (
                    left := waits
                    if name not in here
                    else frozenset(one for one in waits if not one.fits(here[name][1]))
                )
            }
            names = {*here, self._name(real)}
            known = None if old.known is None else dict(old.known)
            if known is not None:
                for name in names:
                    known[name] = known.get(name, frozenset()) | {digest(data)}
            met = None if old.met is None else old.met | names
            self._change(_State(known, waiting, met))

    # ------------------------------------------------------------ inside

    def _compare(self, *, last: bool) -> list[str]:
        """Have wait what is not as it was known."""
        state = self._state
        found = self._look(state)
        waiting: _Waits = dict(state.waiting) if found.cut else {}
        told: list[str] = []
        for path, said in found.said.items():
            standing = self._standing(state, path, said)
            if standing is TrustState.FOLLOWED:
                continue
            name = self._name(path)
            old = state.waits(name, said)
            kept = standing is TrustState.KEPT or (old is not None and old.kept)
            waiting = _added(waiting, name, old or _UnvettedVersion(said.digest, said.saved, kept))
            if said.read and old is None:
                told.append(self._shown(path))
        met = frozenset(map(self._name, found.said)) if found.cut else None
        for shown in told:
            if self._log is not None:
                self._log.write(
                    "prompt", f"an instruction file waits: {NOT_VETTED}", level="warn", file=shown
                )
        # Where it cannot be written, what was known is on the disk still: the next start compares with that.
        with contextlib.suppress(OSError):
            self._change(_State(None if last else state.known, waiting, met))
        return sorted(told)

    def _look(self, state: _State) -> InstructionFileSet:
        return find_instruction_files(
            self._root,
            self._more,
            self._skills,
            lambda path, said: self._standing(state, path, said),
        )

    def _standing(self, state: _State, path: Path, said: FileVersion) -> TrustState:
        real = Path(os.path.realpath(path))
        if hidden(self._root, real):
            if not self._reached(path):
                return TrustState.FOLLOWED
            if real.is_relative_to(self._root):
                return TrustState.LOOSE  # anybody's words, and written without anybody's yes
        return state.standing(self._name(path), said)

    def _reached(self, path: Path) -> bool:
        """True if a command could have made this name, or a folder on the way to it: a link to where none comes."""
        path = Path(os.path.normpath(path))
        places = (Path(os.path.realpath(one.parent)) / one.name for one in (path, *path.parents) if one.name)
        return any(one != self._root and not hidden(self._root, one) for one in places)

    def _change(self, state: _State) -> None:
        self._state = state
        self.changes += 1
        if self._file is None or self._disk is None:
            return
        about = {
            _V: 1,
            _KNOWN: None
            if state.known is None
            else {name: sorted(known) for name, known in sorted(state.known.items())},
            _WAITING: {
                name: sorted([one.digest, one.saved, one.kept] for one in waits)
                for name, waits in sorted(state.waiting.items())
            },
            _MET: None if state.met is None else sorted(state.met),
        }
        # Escaped: a name need not be text.
        self._disk.replace(self._file, json.dumps(about).encode() + b"\n")

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
            about: Json = json.loads(raw) if raw else {}
            known, met = about.get(_KNOWN), about.get(_MET)
            self._state = _State(
                None
                if known is None
                else {str(name): frozenset(map(str, one)) for name, one in known.items()},
                {
                    str(name): frozenset(
                        _UnvettedVersion(str(one[0]), int(one[1]), bool(one[2])) for one in waits
                    )
                    for name, waits in about.get(_WAITING, {}).items()
                },
                None if met is None else frozenset(map(str, met)),
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            # No command can write there; whoever has, has taken all over.
            if self._log is not None:
                self._log.write(
                    "prompt", "what instruction files wait cannot be read", level="error", cause=str(error)
                )
        if self._state.known is not None:
            # A command was cut off.
            self._compare(last=True)

    def _name(self, path: Path) -> str:
        """The key of a name: from the project's folder on, folded. Its `..` stay, since behind a link they mean another
        place.
        """
        if path.is_relative_to(self._given):
            path = self._root / path.relative_to(self._given)
        return folded(str(path.relative_to(self._root) if path.is_relative_to(self._root) else path))

    def _shown(self, path: Path) -> str:
        shown = path.relative_to(self._root) if path.is_relative_to(self._root) else path
        return os.fsencode(shown).decode(errors="replace")


class NotVetted(errors.ShipmateError):
    """An instruction file was made or changed by a command, and no person has accepted it."""


def _added(waiting: _Waits, name: str, one: _UnvettedVersion) -> dict[str, frozenset[_UnvettedVersion]]:
    return {**waiting, name: waiting.get(name, frozenset()) | {one}}
