"""Stores the memory files of chats and people, and the session memory of each chat. Beside each memory file, another file has
the sources of each line. Each owner has one folder; a path is encoded as a file name, so that no path leads outside the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from bot import errors, text
from bot.contracts.environment import Disk, Redact
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import Taint
from bot.storage import jsonl
from bot.storage.jsonl import on_disk


@dataclass(frozen=True, slots=True)
class Written:
    """A source of a line: the turn that wrote the line at the time `ts` (epoch ms). `taint` is the untrusted-text level of the
    text that this turn had read. `chat_key` is None if an operator wrote the line outside of all chats.
    """

    ts: int
    request_id: str
    chat_key: Annotated[ChatKey | None, BeforeValidator(lambda key: key or None)]
    user_id: str | None
    taint: Taint = Taint.NONE


MOST = 50  # Max sources that are stored for a line. The newest are kept.
_Source = TypeVar("_Source")


def carried(
    before: Sequence[tuple[str, tuple[_Source, ...]]], after: Sequence[str], new: Sequence[_Source]
) -> list[tuple[_Source, ...]]:
    """Return the sources of each line of the text `after`. An unchanged line keeps its sources. Any other line may
    paraphrase deleted lines, so it gets the sources of all deleted lines and the `new` sources, at most `MOST`.
    """
    left: dict[str, list[tuple[_Source, ...]]] = {}
    for line, sources in before:
        left.setdefault(line, []).append(sources)
    kept = [left[line].pop(0) if left.get(line) else None for line in after]
    gone = (source for lines in left.values() for sources in lines for source in sources)
    fresh = tuple(dict.fromkeys((*gone, *new)))[-MOST:]
    return [fresh if sources is None else sources for sources in kept]


@dataclass(frozen=True, slots=True)
class _Sources:
    """Content of a file of sources. `sha256` is the hash of the text that the sources belong to. `lines` has, for each line, the
    positions of its sources in `writers`. `before` has the sources of the previous text, which is on disk until it is replaced.
    """

    sha256: str
    writers: list[Written]
    lines: list[list[int]]
    before: _Sources | None = None
    v: int = 1


_SOURCES = TypeAdapter(_Sources)


def noted(
    raw: bytes, written: Sequence[Sequence[Written]], before: tuple[bytes, bytes] = (b"", b"")
) -> bytes:
    """Return the sources file of the text `raw`. `before` has the previous text and its sources file."""
    writers = list(dict.fromkeys(by for line in written for by in line))
    places = {by: at for at, by in enumerate(writers)}
    old = _about(*before)
    about = _Sources(
        hashlib.sha256(raw).hexdigest(),
        writers,
        [[places[by] for by in line] for line in written],
        None if old is None else replace(old, before=None),
    )
    return _SOURCES.dump_json(about) + b"\n"


def sources(raw: bytes, note: bytes) -> tuple[tuple[Written, ...], ...]:
    """Return the sources of each line of the text `raw`; () for each line if `note` is about another text."""
    about, count = _about(raw, note), raw.count(b"\n") + 1
    with contextlib.suppress(IndexError):  # somebody has edited the file of sources
        found = [tuple(about.writers[at] for at in line) for line in about.lines] if about else []
        if len(found) == count:
            return tuple(found)
    return ((),) * count


def _about(raw: bytes, note: bytes) -> _Sources | None:
    with contextlib.suppress(ValidationError):
        about = _SOURCES.validate_json(note)
        digest = hashlib.sha256(raw).hexdigest()
        return next((one for one in (about, about.before) if one and one.sha256 == digest), None)
    return None


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """The chat or person to whom memory files belong. `key` is a chatKey, or `<channel>:<user id>` for a person."""

    kind: Literal["chat", "person"]
    key: str


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A memory file. `written` has the sources of each line; () for each line if somebody has edited the file by hand."""

    path: str
    text: str
    written: tuple[tuple[Written, ...], ...]


LARGEST = 32 * 1024  # Max bytes of a memory file
MOST_LINES = 2_000
ALL_BYTES = 256 * 1024
MOST_FILES = 100  # Max memory files of a chat or person
DEEPEST = 4
LONGEST = 180  # Max bytes of a path that is encoded as a file name
SESSION = "session.md"
"""Path of a chat's session memory. The file is listed among the chat's memory files, but the model cannot write it."""
LARGEST_SESSION = 256 * 1024  # Max bytes of a session memory's file. A larger file is ignored.
LINES = ".lines"  # Suffix of the file with the sources of a memory file's lines
_WORDS = ".md"
_PEOPLE = "people"
_FAILURE = "memory files cannot be used"


@dataclass(eq=False)
class NoteStore:
    """Stores memory files: a chat's files in `folder/<encoded chatKey>/files/`, a person's files in
    `folder/people/<channel>-<encoded id>/`.

    Paths are relative to the owner's folder. Methods raise `errors.ToolError` for a path that the model must not use.
    """

    folder: Path
    _: KW_ONLY
    disk: Disk
    redact: Redact = str

    @on_disk(_FAILURE, alone=True)
    def sizes(self, owner: MemoryOwner) -> dict[str, int]:
        """Return the size in bytes of each file of an owner, sorted by path."""
        return self._sizes(owner)

    @on_disk(_FAILURE, alone=True)
    def read(self, owner: MemoryOwner, path: str) -> MemoryFile | None:
        return self._read(owner, checked(path))

    @on_disk(_FAILURE, alone=True)
    def change(
        self,
        owner: MemoryOwner,
        path: str,
        change: Callable[[str | None], str],
        by: Written,
        also: Callable[[str], Sequence[Written]] = lambda _: (),
    ) -> MemoryFile:
        """Replace a file's text by the result of `change`. `change` runs on another thread; its argument is the old text,
        or None for a new file. Secrets are redacted. New lines have the source `by` and the sources that `also` returns
        for the line. Raises `errors.ToolError` if the file or the owner's files would become too large. Only an operator,
        whose `by` has no request id, may change the session memory.
        """
        name = checked(path)
        if by.request_id:
            _own(owner, name)
        sizes, old = self._sizes(owner), self._read(owner, name)
        words = text.clean(self.redact(change(old.text if old is not None else None))).replace("\r\n", "\n")
        if any(char not in "\n\t" and unicodedata.category(char) == "Cc" for char in words):
            raise errors.ToolError("Memory files hold text only, without control characters.")
        if old is None:
            _free(sizes, name)
        size = len(words.encode())
        others = sum(size for path, size in sizes.items() if path not in {name, SESSION})
        if size > LARGEST or words.count("\n") >= MOST_LINES:
            raise errors.ToolError(
                f"A memory file holds at most {LARGEST // 1024} kB and {MOST_LINES} lines. Nothing was written; make "
                "it shorter, or use several files."
            )
        if others + size > ALL_BYTES or (old is None and len(sizes) >= MOST_FILES):
            raise errors.ToolError(
                f"There is room for {ALL_BYTES // 1024} kB in {MOST_FILES} memory files here. Nothing was written; "
                "delete what is no longer needed."
            )
        before = list(zip(old.text.split("\n"), old.written, strict=True)) if old is not None else []
        lines = words.split("\n")
        written = zip(lines, carried(before, lines, [by]), strict=True)
        more = ((also(line) if by in known else (), known) for line, known in written)
        kept = tuple(tuple(dict.fromkeys((*new, *known)))[-MOST:] for new, known in more)
        file = MemoryFile(name, words, kept)
        self._write(owner, file)
        return file

    @on_disk(_FAILURE, alone=True)
    def drop(self, owner: MemoryOwner, path: str | None = None, *, session: bool = True) -> int:
        """Delete a file or all files below a path; None deletes all files. Return the number of deleted files. If `session`
        is False, refuse the session memory.
        """
        if path is not None and not session:
            _own(owner, checked(path))
        found = self._under(owner, checked(path)) if path is not None else list(self._sizes(owner))
        for name in found:
            self._unlink(owner, name)
        return len(found)

    @on_disk(_FAILURE, alone=True)
    def move(self, owner: MemoryOwner, old: str, new: str, by: Written) -> int:
        """Move a file, or all files below a path, and add `by` to the sources of each line. Return the number of moved files."""
        source, target = checked(old), checked(new)
        _own(owner, source)
        _own(owner, target)
        found = self._under(owner, source)
        moved = {path: checked(target + path.removeprefix(source)) for path in found}
        rest = [path for path in self._sizes(owner) if path not in moved]
        for path in moved.values():
            _free(rest, path)
        for before, after in moved.items():
            file = self._read(owner, before)
            if file is not None and before != after:
                # The new name comes from `by`, so `by` becomes a source of the file's lines.
                written = tuple((*line, by)[-MOST:] if line else () for line in file.written)
                self._write(owner, MemoryFile(after, file.text, written))
                self._unlink(owner, before)
        return len(found)

    @on_disk(_FAILURE, alone=True)
    def forget(self, owner: MemoryOwner, requests: Collection[str]) -> int:
        """Delete every line that has one of these turns as a source; return the number of deleted lines."""
        count = 0
        for name in self._sizes(owner):
            file = None if name == SESSION else self._read(owner, name)
            if file is None:
                continue
            lines = zip(file.text.split("\n"), file.written, strict=True)
            kept = [(line, by) for line, by in lines if not any(one.request_id in requests for one in by)]
            count += (lost := len(file.written) - len(kept))
            if lost and any(line.strip() for line, _ in kept):
                words = "\n".join(line for line, _ in kept)
                left = MemoryFile(name, words, tuple(by for _, by in kept))
                self._write(owner, left)
                about = self._path(owner, name).with_suffix(LINES)
                # `_write` kept the previous text's sources too, in case of a crash. Remove them now.
                self.disk.replace(about, noted(words.encode(), left.written))
            elif lost:
                self._unlink(owner, name)
        return count

    @on_disk(_FAILURE, alone=True)
    def people(self) -> list[str]:
        """Return every person who has memory files, as `<channel>:<user id>`."""
        found: list[str] = []
        for folder in self.disk.names(self.folder / _PEOPLE):
            channel, _, user_id = folder.partition("-")
            name = jsonl.text_of(user_id)
            if name is not None and self.disk.names(self.folder / _PEOPLE / folder):
                found.append(str(UserRef(channel, name)))
        return found

    @on_disk(_FAILURE, alone=True)
    def chats(self) -> list[str]:
        """Return the chatKeys of all chats that have files. A chat whose folder's name is hashed is listed by that name; all
        methods accept the name in place of the chatKey.
        """
        names = (name for name in self.disk.names(self.folder) if name not in {_PEOPLE, jsonl.LOCK})
        keys = (jsonl.text_of(name) or (name if jsonl.is_hashed(name) else None) for name in names)
        return [key for key in keys if key is not None and self._sizes(MemoryOwner("chat", key))]

    @on_disk("the memory cannot be read")
    def load_session(self, chat_key: ChatKey) -> str | None:
        """Return a chat's session memory as Markdown; None if the file is missing or too large."""
        raw = self.disk.read(self._path(MemoryOwner("chat", str(chat_key)), SESSION))
        return raw.decode("utf-8", "replace") if 0 < len(raw) <= LARGEST_SESSION else None

    @on_disk("the memory cannot be written", alone=True)
    def save_session(self, chat_key: ChatKey, markdown: str) -> None:
        """Replace a chat's session memory by `markdown`. Redact secrets before this call."""
        path = self._path(MemoryOwner("chat", str(chat_key)), SESSION)
        self.disk.replace(path, text.clean(markdown).encode())

    # The methods below run on a thread, under the lock.

    def _path(self, owner: MemoryOwner, name: str) -> Path:
        """Return the path of a memory file on disk. For the name "", return the folder with the owner's files."""
        if owner.kind == "chat":
            key = owner.key if jsonl.is_hashed(owner.key) else jsonl.file_name(owner.key)
            if name == SESSION:
                return self.folder / key / SESSION
            place = self.folder / key / "files"
        else:
            person = UserRef.parse(owner.key)
            names = jsonl.file_name(person.channel), jsonl.file_name(person.user_id)
            place = self.folder / _PEOPLE / "-".join(names)
        return place / f"{jsonl.file_name(name)}{_WORDS}" if name else place

    def _sizes(self, owner: MemoryOwner) -> dict[str, int]:
        place, found = self._path(owner, ""), dict[str, int]()
        for file in () if place.is_symlink() else self.disk.names(place):
            name = jsonl.text_of(file.removesuffix(_WORDS)) if file.endswith(_WORDS) else None
            if name is not None and not (place / file).is_symlink():
                found[name] = self.disk.size(place / file)
        if owner.kind == "chat" and (size := self.disk.size(self._path(owner, SESSION))):
            found[SESSION] = size
        return dict(sorted(found.items()))

    def _read(self, owner: MemoryOwner, name: str) -> MemoryFile | None:
        if name not in self._sizes(owner):
            return None
        path = self._path(owner, name)
        raw = self.disk.read(path)[: 8 * LARGEST]
        written = sources(raw, self.disk.read(path.with_suffix(LINES)))
        return MemoryFile(name, raw.decode("utf-8", "replace"), written)

    def _write(self, owner: MemoryOwner, file: MemoryFile) -> None:
        place, path, raw = self._path(owner, ""), self._path(owner, file.path), file.text.encode()
        if place.is_symlink() or place.parent.is_symlink():
            raise errors.ToolError(
                "This memory folder cannot be used. Tell the person that an operator must look."
            )
        jsonl.tidy(self.disk, place)
        # Write the file of sources first, including the old text's sources, so that a crash between the writes loses none.
        about = path.with_suffix(LINES)
        before = self.disk.read(path), self.disk.read(about)
        self.disk.replace(about, noted(raw, file.written, before))
        self.disk.replace(path, raw)

    def _under(self, owner: MemoryOwner, name: str) -> list[str]:
        return [path for path in self._sizes(owner) if path == name or path.startswith(f"{name}/")]

    def _unlink(self, owner: MemoryOwner, name: str) -> None:
        path = self._path(owner, name)
        self.disk.remove(path)
        self.disk.remove(path.with_suffix(LINES))


def checked(path: str) -> str:
    """Return the path of a memory file in Unicode normal form. Raises `errors.ToolError` for an invalid path."""
    name = unicodedata.normalize("NFC", path)
    parts = name.split("/")
    if len(parts) > DEEPEST or not all(map(_plain, parts)):
        raise errors.ToolError(
            "This is no path for a memory file. Use letters, digits, '-', '_', '.' and spaces, at most "
            f"{DEEPEST - 1} folders deep, as in notes/people.md."
        )
    if len(jsonl.file_name(name)) > LONGEST:
        raise errors.ToolError("This path is too long for a memory file. Use a shorter one.")
    return name


def _plain(part: str) -> bool:
    letters = all(char in "-_. " or unicodedata.category(char)[0] in "LMN" for char in part)
    return bool(part) and letters and part == part.strip(" ") and part[0] != "." and part[-1] != "."


def _own(owner: MemoryOwner, name: str) -> None:
    if owner.kind == "chat" and name.casefold().partition("/")[0] == SESSION:
        raise errors.ToolError(f"{SESSION} is written by Shipmate itself and can only be viewed.")


def _free(taken: Iterable[str], name: str) -> None:
    """Raise `errors.ToolError` if a path is in use. Case is ignored, because some disks ignore it."""
    folded = name.casefold()
    for other in taken:
        there = other.casefold()
        if there == folded or there.startswith(f"{folded}/") or folded.startswith(f"{there}/"):
            # The error does not name the existing path, because anybody may have chosen it.
            raise errors.ToolError(
                "There is something at this path already. Use another path, or delete that first."
            )
