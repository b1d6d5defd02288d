"""`NoteStore`: memory files of chats and people, with the sources of each line in a file beside each.

Every owner has one flat folder of encoded file names, so that no path can lead outside the folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.environment import Disk, Redact
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.provenance import Taint
from bot.storage import file_names, jsonl
from bot.storage.jsonl import uninterrupted

Span = Literal["turn", "up_to", "any"]


@dataclass(frozen=True, slots=True)
class Written:
    """A source of a line: a turn and its time (`ts` in epoch milliseconds). `taint` is the untrusted-text
    level of this turn's context. `chat_key` is None if an operator wrote the line outside any chat.
    `span` says which turns the source stands for: this turn only, all turns up to this one, or any turn
    (then `request_id` is "").
    """

    ts: int
    request_id: str
    chat_key: ChatKey | None
    user_id: str | None
    taint: Taint = Taint.NONE
    span: Span = "turn"


MOST = 50
"""Max sources stored per line, newest first."""
_BEFORE = "before"
_Source = TypeVar("_Source")


def carried(
    before: Sequence[tuple[str, tuple[_Source, ...]]],
    after: Sequence[str],
    new: Sequence[_Source],
) -> list[tuple[_Source, ...]]:
    """Return the sources of each line of a new text, computed from the sources of the old text and the `new`
    sources.

    An unchanged line keeps its sources. Any other line may paraphrase deleted lines, so it also gets the
    sources of deleted lines. No content loses its source. Above the limit, the newest sources are kept.
    """
    left: dict[str, list[tuple[_Source, ...]]] = {}
    for line, sources in before:
        left.setdefault(line, []).append(sources)
    kept = [left[line].pop(0) if left.get(line) else None for line in after]
    gone = (source for lines in left.values() for sources in lines for source in sources)
    fresh = tuple(dict.fromkeys((*gone, *new)))
    if len(fresh) > MOST:
        fresh = fresh[-MOST:]
    return [fresh if sources is None else sources for sources in kept]


def noted(
    raw: bytes, written: Sequence[Sequence[Written]], before: tuple[bytes, bytes] = (b"", b"")
) -> bytes:
    """Return the content of the file that stores a text's sources. The content describes the previous text
    (`before`) too, because the text file is replaced later than the sources file.
    """
    writers = list(dict.fromkeys(by for line in written for by in line))
    places = {by: at for at, by in enumerate(writers)}
    about: Json = {
        "v": 1,
        "sha256": digest_of(raw),
        "writers": [_as_json(by) for by in writers],
        "lines": [[places[by] for by in line] for line in written],
    }
    if (old := _about(*before)) is not None:
        about[_BEFORE] = {name: value for name, value in old.items() if name != _BEFORE}
    return json.dumps(about, ensure_ascii=False).encode() + b"\n"


def sources(raw: bytes, note: bytes) -> tuple[tuple[Written, ...], ...]:
    """Return the stored sources of each line. If the text was changed without its sources, every line gets ()."""
    count = raw.count(b"\n") + 1
    unknown: tuple[tuple[Written, ...], ...] = ((),) * count
    about = _about(raw, note)
    if about is None:
        return unknown
    try:
        writers = [_writer(one) for one in about["writers"]]
        found = tuple(tuple(writers[at] for at in line) for line in about["lines"])
    except (KeyError, TypeError, IndexError, ValueError, AttributeError):
        return unknown
    return found if len(found) == count else unknown


def _as_json(by: Written) -> Json:
    return {
        "ts": by.ts,
        "request_id": by.request_id,
        "chat_key": str(by.chat_key) if by.chat_key is not None else "",
        "user_id": by.user_id,
        "taint": by.taint,
        "span": by.span,
    }


def _writer(told: Json) -> Written:
    key = told["chat_key"]
    typed = {"chat_key": ChatKey.parse(key) if key else None, "taint": Taint(told["taint"])}
    return Written(**told | typed)


def _about(raw: bytes, note: bytes) -> Json | None:
    """Return the stored entry whose hash matches this text; None if there is no such entry."""
    about = jsonl.loads(note) or {}
    digest = digest_of(raw)
    told = (about, about.get(_BEFORE))
    return next((one for one in told if isinstance(one, dict) and one.get("sha256") == digest), None)


def digest_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """The chat or person that memory files belong to. `key` is a chatKey, or `<channel>:<user id>` for a person."""

    kind: Literal["chat", "person"]
    key: str


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A memory file. `written` lists the sources of each line of `text`, oldest first, with one entry more
    than the text has line breaks. `written` is () if the sources are unknown, e.g. after somebody edited
    the file by hand.
    """

    path: str
    text: str
    written: tuple[tuple[Written, ...], ...]


LARGEST = 32 * 1024
"""Max bytes per file."""
MOST_LINES = 2_000
ALL_BYTES = 256 * 1024
MOST_FILES = 100
"""Max files per owner."""
DEEPEST = 4
LONGEST = 180
"""Max bytes of an encoded file name."""
SESSION = "session.md"
"""Name of the session memory (see `bot.storage.memories`). The session memory is listed among a chat's
files, but is read-only in this store.
"""
COVERS = "covers.json"
_WORDS, _ABOUT = ".md", ".lines"
_PEOPLE = "people"
_R = TypeVar("_R")


class NoteStore:
    """Stores the memory files of every owner, in `folder/<encoded chatKey>/files/` and
    `folder/people/<channel>-<encoded id>/`.

    A path is relative to the owner's folder. A path that a model may not write raises `errors.ToolError`.
    Every method raises `errors.StorageError` if the disk fails.
    """

    def __init__(
        self,
        folder: Path,
        *,
        disk: Disk,
        redact: Redact = str,
        keys: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """Create the store. `keys` maps a hashed name to its chatKey if no file here contains the chatKey."""
        self._folder = folder
        self._disk = disk
        self._redact = redact
        self._keys = keys

    async def sizes(self, owner: MemoryOwner) -> dict[str, int]:
        """Return the paths of all files in order, each with its size in bytes."""
        return await self._done(lambda: self._sizes(owner), shared=True)

    async def read(self, owner: MemoryOwner, path: str) -> MemoryFile | None:
        """Return one file; None if it does not exist."""
        name = checked(path)
        return await self._done(lambda: self._read(owner, name), shared=True)

    async def change(
        self,
        owner: MemoryOwner,
        path: str,
        change: Callable[[str | None], str],
        by: Written,
        also: Callable[[str], Sequence[Written]] = lambda _: (),
    ) -> MemoryFile:
        """Replace the text of a file by the result of `change`, with known secrets replaced. `change` gets
        None if the file does not exist yet. `change` runs on another thread; its exceptions are raised by
        this method. New lines get the source `by`; `also` returns further sources of a line. Raises
        `errors.ToolError` if the file or the folder would become too large.
        """
        name = checked(path)
        return await self._done(lambda: self._change(owner, name, change, by, also))

    async def remove(self, owner: MemoryOwner, path: str) -> int:
        """Delete a file, or a folder with its files; return the number of deleted files."""
        name = checked(path)
        return await self._done(lambda: self._remove(owner, name))

    async def move(self, owner: MemoryOwner, old: str, new: str, by: Written) -> int:
        """Move a file or a folder, adding `by` as a source; return the number of moved files. Raises
        `errors.ToolError` if `new` exists.
        """
        source, target = checked(old), checked(new)
        return await self._done(lambda: self._move(owner, source, target, by))

    async def forget(self, owner: MemoryOwner, requests: Collection[str]) -> int:
        """Delete every line that has one of these turns as a source; return the number of deleted lines."""
        gone = frozenset(requests)
        return await self._done(lambda: self._forget(owner, gone))

    async def put(self, owner: MemoryOwner, path: str, words: str, by: Written) -> MemoryFile:
        """Replace a file with a text written by an operator; the session memory may be replaced too. Raises
        the same errors as `change`.
        """
        name = checked(path)
        return await self._done(
            lambda: self._change(owner, name, lambda _: words, by, lambda _: (), operator=True)
        )

    async def drop(self, owner: MemoryOwner, path: str | None = None) -> int:
        """Delete a file, a folder, or everything for an operator, including the session memory; return the
        number of deleted files.
        """
        name = checked(path) if path is not None else None
        return await self._done(lambda: self._drop(owner, name))

    async def people(self) -> list[str]:
        """Return every person with files, as `<channel>:<user id>`."""
        return await self._done(self._people, shared=True)

    async def chats(self) -> list[str]:
        """Return the chatKeys that have files or a session memory. A hashed name whose chatKey is unknown is
        returned as it is; every method accepts such a name as a key.
        """
        return await self._done(self._chats, shared=True)

    # The methods below may run on any thread.

    async def _done(self, work: Callable[[], _R], *, shared: bool = False) -> _R:
        def locked() -> _R:
            with jsonl.locked(self._folder, shared=shared):
                return work()

        with errors.as_storage_error("memory files cannot be used"):
            working = asyncio.to_thread(locked)
            return await (working if shared else uninterrupted(working))

    def _place(self, owner: MemoryOwner) -> Path:
        if owner.kind == "chat":
            return self._home(owner.key) / "files"
        person = UserRef.parse(owner.key)
        return (
            self._folder
            / _PEOPLE
            / f"{file_names.encode(person.channel)}-{file_names.encode(person.user_id)}"
        )

    def _home(self, chat_key: str) -> Path:
        return self._folder / (chat_key if file_names.is_hashed(chat_key) else file_names.encode(chat_key))

    def _path(self, owner: MemoryOwner, name: str) -> Path:
        if owner.kind == "chat" and name == SESSION:
            return self._home(owner.key) / SESSION
        return self._place(owner) / f"{file_names.encode(name)}{_WORDS}"

    def _sizes(self, owner: MemoryOwner) -> dict[str, int]:
        place = self._place(owner)
        found = {} if place.is_symlink() else self._listed(place)
        if owner.kind == "chat" and (size := self._disk.size(self._path(owner, SESSION))):
            found[SESSION] = size
        return dict(sorted(found.items()))

    def _listed(self, place: Path) -> dict[str, int]:
        found: dict[str, int] = {}
        for file in self._disk.names(place):
            name = file_names.decode(file.removesuffix(_WORDS)) if file.endswith(_WORDS) else None
            if name is not None and not (place / file).is_symlink():
                found[name] = self._disk.size(place / file)
        return found

    def _read(self, owner: MemoryOwner, name: str) -> MemoryFile | None:
        if name not in self._sizes(owner):
            return None
        path = self._path(owner, name)
        raw = self._disk.read(path)[: 8 * LARGEST]
        written = sources(raw, self._disk.read(path.with_suffix(_ABOUT)))
        return MemoryFile(name, raw.decode("utf-8", "replace"), written)

    def _change(
        self,
        owner: MemoryOwner,
        name: str,
        change: Callable[[str | None], str],
        by: Written,
        also: Callable[[str], Sequence[Written]],
        *,
        operator: bool = False,
    ) -> MemoryFile:
        if not operator:
            _own(owner, name)
        sizes = self._sizes(owner)
        old = self._read(owner, name)
        words = self._kept(change(old.text if old is not None else None))
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
        file = MemoryFile(
            name, words, tuple(tuple(dict.fromkeys((*new, *known)))[-MOST:] for new, known in more)
        )
        self._write(owner, file)
        return file

    def _kept(self, words: str) -> str:
        """Return the text as it will be stored, without secrets. Raises `errors.ToolError` for control characters."""
        clean = text.clean(self._redact(words)).replace("\r\n", "\n")
        if any(char not in "\n\t" and unicodedata.category(char) == "Cc" for char in clean):
            raise errors.ToolError("Memory files hold text only, without control characters.")
        return clean

    def _write(self, owner: MemoryOwner, file: MemoryFile) -> None:
        path, raw = self._path(owner, file.path), file.text.encode()
        place = self._place(owner)
        if place.is_symlink() or place.parent.is_symlink():
            raise errors.ToolError(
                "This memory folder cannot be used. Tell the person that an operator must look."
            )
        jsonl.tidy(self._disk, place)
        # The sources are written first and describe the old text too, so that every text on disk has sources.
        about = path.with_suffix(_ABOUT)
        before = self._disk.read(path), self._disk.read(about)
        self._disk.replace(about, noted(raw, file.written, before))
        self._disk.replace(path, raw)

    def _under(self, owner: MemoryOwner, name: str) -> list[str]:
        """Return the file of this name, or the files inside a folder of this name."""
        return [path for path in self._sizes(owner) if path == name or path.startswith(f"{name}/")]

    def _remove(self, owner: MemoryOwner, name: str) -> int:
        _own(owner, name)
        found = self._under(owner, name)
        for path in found:
            self._unlink(owner, path)
        return len(found)

    def _drop(self, owner: MemoryOwner, name: str | None) -> int:
        found = self._under(owner, name) if name is not None else list(self._sizes(owner))
        for path in found:
            self._unlink(owner, path)
            if owner.kind == "chat" and path == SESSION:
                self._disk.remove(self._path(owner, path).with_name(COVERS))
        return len(found)

    def _unlink(self, owner: MemoryOwner, name: str) -> None:
        path = self._path(owner, name)
        self._disk.remove(path)
        self._disk.remove(path.with_suffix(_ABOUT))

    def _move(self, owner: MemoryOwner, source: str, target: str, by: Written) -> int:
        _own(owner, source)
        _own(owner, target)
        found = self._under(owner, source)
        moved = {path: checked(target + path.removeprefix(source)) for path in found}
        rest = dict.fromkeys(path for path in self._sizes(owner) if path not in moved)
        for path in moved.values():
            _free(rest, path)
        for old, new in moved.items():
            file = self._read(owner, old)
            if file is not None and old != new:
                # The mover chose the new name, so the mover becomes a source of the file.
                written = tuple((*line, by)[-MOST:] if line else () for line in file.written)
                self._write(owner, MemoryFile(new, file.text, written))
                self._unlink(owner, old)
        return len(found)

    def _forget(self, owner: MemoryOwner, gone: frozenset[str]) -> int:
        count = 0
        for name in self._sizes(owner):
            file = None if name == SESSION else self._read(owner, name)
            if file is None:
                continue
            lines = zip(file.text.split("\n"), file.written, strict=True)
            kept = [(line, by) for line, by in lines if gone.isdisjoint(one.request_id for one in by)]
            if lost := len(file.written) - len(kept):
                count += lost
                if any(line.strip() for line, _ in kept):
                    words = "\n".join(line for line, _ in kept)
                    left = MemoryFile(name, words, tuple(by for _, by in kept))
                    self._write(owner, left)
                    about = self._path(owner, name).with_suffix(_ABOUT)
                    self._disk.replace(
                        about, noted(words.encode(), left.written)
                    )  # drops the entry about the previous text
                else:
                    self._unlink(owner, name)
        return count

    def _people(self) -> list[str]:
        found: list[str] = []
        for folder in self._disk.names(self._folder / _PEOPLE):
            channel, _, user_id = folder.partition("-")
            name = file_names.decode(user_id)
            if name is not None and self._disk.names(self._folder / _PEOPLE / folder):
                found.append(str(UserRef(channel, name)))
        return found

    def _chats(self) -> list[str]:
        found: list[str] = []
        for folder in self._disk.names(self._folder):
            if folder in {_PEOPLE, jsonl.LOCK} or not (self._folder / folder).is_dir():
                continue
            key = (
                self._decoded(folder) or folder if file_names.is_hashed(folder) else file_names.decode(folder)
            )
            if key is not None and self._sizes(MemoryOwner("chat", key)):
                found.append(key)
        return found

    def _decoded(self, name: str) -> str | None:
        """Return the chatKey of a hashed name, read from the stored sources of lines."""
        owner = MemoryOwner("chat", name)
        for path in self._sizes(owner):
            file = self._read(owner, path)
            for by in dict.fromkeys(by for line in file.written for by in line) if file is not None else ():
                if by.chat_key is not None and file_names.encode(by.chat_key) == name:
                    return str(by.chat_key)
        return self._keys(name)


def checked(path: str) -> str:
    """Return the normal form of a relative path. Raises `errors.ToolError` for an invalid path."""
    name = unicodedata.normalize("NFC", path)
    parts = name.split("/")
    if len(parts) > DEEPEST or not all(map(_plain, parts)):
        raise errors.ToolError(
            "This is no path for a memory file. Use letters, digits, '-', '_', '.' and spaces, at most "
            f"{DEEPEST - 1} folders deep, as in notes/people.md."
        )
    if len(file_names.encode(name)) > LONGEST:
        raise errors.ToolError("This path is too long for a memory file. Use a shorter one.")
    return name


def _plain(part: str) -> bool:
    letters = all(char in "-_. " or unicodedata.category(char)[0] in "LMN" for char in part)
    return bool(part) and letters and part == part.strip(" ") and part[0] != "." and part[-1] != "."


def _own(owner: MemoryOwner, name: str) -> None:
    """Reject changes to a file that another writer owns."""
    if owner.kind == "chat" and name.casefold().partition("/")[0] == SESSION:
        raise errors.ToolError(f"{SESSION} is written by Shipmate itself and can only be viewed.")


def _free(taken: Iterable[str], name: str) -> None:
    """Raise `errors.ToolError` if a path exists already. A path that differs only in case counts, because
    some disks do not distinguish case.
    """
    folded = name.casefold()
    for other in taken:
        there = other.casefold()
        if there == folded or there.startswith(f"{folded}/") or folded.startswith(f"{there}/"):
            # Somebody chose the name, so an error must not repeat it.
            raise errors.ToolError(
                "There is something at this path already. Use another path, or delete that first."
            )
