"""Everything of one person: found in all that is kept, given out, and erased.

Theirs are what they wrote, what answered it, and the chats in which nobody else wrote. Of other chats the archive goes on without
their lines; what the model was shown there goes as a whole, since it may tell of them anywhere, and is made anew from the
archive. It blocks, and is for a command.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from bot import errors, instance, telemetry
from bot.access_list import FILE as ACCESS_FILE
from bot.access_list import AccessList
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Disk, Ids, Log
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.journal import LineRow
from bot.contracts.log_kinds import TEXTS
from bot.contracts.memory_files import MemoryOwner
from bot.core import file_names, jsonl
from bot.core.archive import rotation
from bot.core.artifacts import ArtifactStore, what_of
from bot.core.notes.files import SESSION, NoteStore
from bot.history import line_stream
from bot.history.archive.store import ChatStore
from bot.history.search import index
from bot.history.transcript.store import Transcript
from bot.history.usage.sums import FILE as USAGE
from bot.history.usage.sums import UsageSums
from bot.journal import personal

SENT, RECEIVED, OUTGOING = "sent", "received", "outgoing"
PARTS = Path("cache", "uploads")
"""What came of files for the web page that were never whole; nothing says of whom they are, and nobody goes on with them."""
CHATS, TRANSCRIPTS, MEMORY, ARTIFACTS, LOGS = "chats", "transcripts", "memory", "artifacts", "logs"
JOURNAL, INDEX = "journal.db", "index.db"
NOTE = "erasing.json"
"""Says whom it is about while it is not done: what was found at first could not be found again."""
_READ = 1 << 20


class Kept(Enum):
    """Kinds of things that are kept of a person. The value has their names, for one and for several."""

    CHATS = "line of the archive", "lines of the archive"
    TRANSCRIPTS = "transcript", "transcripts"
    SHARED_TRANSCRIPTS = "transcript of a chat with others", "transcripts of chats with others"
    ARTIFACTS = "artifact", "artifacts"
    WEB_FILES = "file of the web page", "files of the web page"
    NOTES = "file of memory", "files of memory"
    NOTE_LINES = "line of memory", "lines of memory"
    JOURNAL = "row of the journal", "rows of the journal"
    ACCESS = "entry of the access list", "entries of the access list"
    LOGS = "line of the log", "lines of the log"
    USAGE = "sum of usage", "sums of usage"


@dataclass(slots=True)
class Found:
    """A person's requestIds, and their chats by chatKey: those of theirs alone, and those that others write in too."""

    requests: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)

    def add(self, chat_key: str, *, alone: bool) -> None:
        (self.own if alone else self.shared).add(chat_key)


class PersonalData:
    """The data of a person in a `.ship`."""

    def __init__(
        self,
        home: Path,
        person: UserRef,
        *,
        disk: Disk,
        clock: Clock,
        ids: Ids,
        log: Log,
        database: str | None = None,
    ) -> None:
        """`database` has the journal, where that is in PostgreSQL."""
        self._home = home
        self._person = person
        self._disk = disk
        self._clock = clock
        self._chats = ChatStore(home / CHATS, disk=disk, log=log, clock=clock)
        self._transcript = Transcript(home / TRANSCRIPTS, disk=disk, ids=ids, clock=clock, log=log)
        self._archives = rotation.ArchiveFiles(home / CHATS, disk)
        self._artifacts = ArtifactStore(home / ARTIFACTS, disk=disk, ids=ids, clock=clock, log=log)
        self._notes = NoteStore(home / MEMORY, disk=disk)
        self._usage = UsageSums(home, disk)
        self._database = database

    # ------------------------------------------------------------ finding

    def find(self) -> Found:
        """Look through archive, journal and log. Raises `errors.StorageError` and OSError."""
        found = Found()
        for name in self._archives.chats():
            keys, theirs, others = set[str](), set[str](), False
            for line in self._said(name):
                if self._wrote(line):
                    keys.add(str(line.get("chatKey")))
                    theirs.add(_request(line))
                elif line.get("role") == "user":
                    others = True
            for key in keys:
                found.add(key, alone=not others)
            found.requests |= theirs
        if self._journal is not None:
            requests, chats = personal.of_person(self._journal, self._person)
            found.requests |= requests
            for key, alone in chats.items():
                known = key in found.own or key in found.shared
                others = key in found.shared or not (alone and (known or not self._spoken(key)))
                found.own.discard(key)
                found.add(key, alone=not others)
        for line in self._logged():
            details = line.get("details") or {}
            if (details.get("channel"), details.get("userId")) == (
                self._person.channel,
                self._person.user_id,
            ):
                found.requests.add(str(line.get("requestId") or ""))
        found.requests.discard("")
        return found

    def _said(self, name: str) -> Iterator[Json]:
        for path in self._files(name):
            for raw in self._lines(path):
                if (line := jsonl.loads(raw)) is not None:
                    yield line

    def _files(self, name: str) -> list[Path]:
        older = [self._archives.archive(name, number) for number in self._archives.numbers(name)]
        return [*older, self._archives.main(name)]

    def _lines(self, path: Path) -> Iterator[bytes]:
        with closing(self._disk.open(path)) as file:
            yield from jsonl.lines(file)

    def _spoken(self, chat_key: str) -> bool:
        """True if anybody's line is in the archive of a chat."""
        return any(line.get("role") == "user" for line in self._said(_name(chat_key)))

    def _wrote(self, line: Json) -> bool:
        who = (line.get("channel"), line.get("userId"))
        return line.get("role") in {"user", "system"} and who == (self._person.channel, self._person.user_id)

    def _is_theirs(self, line: Json, found: Found) -> bool:
        """True of a line of the archive that they wrote, or that answers one. What others wrote never is, whatever it says."""
        others = line.get("role") == "user" and not self._wrote(line)
        return not others and (self._wrote(line) or _request(line) in found.requests)

    def _logged(self) -> Iterator[Json]:
        for _, _, path in telemetry.day_files(self._home / LOGS, self._disk):
            for raw in _unpacked(self._disk.read(path), path).split(b"\n"):
                if (line := jsonl.loads(raw)) is not None:
                    yield line

    def _is_logged_of(self, line: Json, found: Found) -> bool:
        details = line.get("details") or {}
        # Other channels may give the same id to somebody else.
        here = details.get("channel") in {None, self._person.channel}
        return (
            line.get("chatKey") in found.own
            or line.get("requestId") in found.requests
            or (here and self._person.user_id in (details.get("userId"), details.get("user")))
            or str(self._person) in (details.get("by"), details.get("operator"), details.get("person"))
        )

    # ------------------------------------------------------------ giving out

    async def export(self) -> AsyncIterator[Json]:
        """Each thing as an object: `from` names the place, `value` has the content. A gateway may run."""
        if self._database is None:  # else lines are those of the process that leads
            with contextlib.suppress(errors.Unavailable), instance.locked(self._home):
                self._bring_lines()
        found = self.find()
        for name in self._archives.chats():
            for line in filter(lambda one: self._goes(one, found), self._said(name)):
                yield {"from": CHATS, "value": line}
        async for note in self._exported_notes(found):
            yield note
        for item in self._exported_files(found):
            yield item
        for table, row in self._exported_rows(found):
            yield {"from": table, "value": row}
        for line in filter(lambda one: self._is_logged_of(one, found), self._logged()):
            yield {"from": LOGS, "value": line}
        for name in self._lists().lists_with(self._person.channel, self._person.user_id):
            yield {"from": ACCESS_FILE, "value": name}

    def _exported_rows(self, found: Found) -> Iterator[tuple[str, Json]]:
        if self._journal is not None:
            rows = personal.rows(self._journal, self._person, found.requests, found.own)
            for table, row in rows:
                yield f"journal.{table}", row
        if self._disk.size(self._home / USAGE):
            for row in self._usage.rows(str(self._person), found.own):
                yield USAGE, row

    async def _exported_notes(self, found: Found) -> AsyncIterator[Json]:
        owners = [MemoryOwner("person", str(self._person))]
        owners += [MemoryOwner("chat", key) for key in sorted(found.own)]
        for owner in owners:
            for path in await self._notes.sizes(owner):
                file = await self._notes.read(owner, path)
                if file is not None:
                    yield {"from": MEMORY, "owner": owner.key, "path": path, "value": file.text}

    def _exported_files(self, found: Found) -> Iterator[Json]:
        for chat_key in sorted(found.own | found.shared):
            alone = chat_key in found.own
            folder = self._home / TRANSCRIPTS / _name(chat_key)
            for name in self._disk.names(folder):
                for raw in self._lines(folder / name) if name.endswith(".jsonl") else ():
                    line = jsonl.loads(raw)
                    if line is not None and (alone or line.get("requestId") in found.requests):
                        yield {"from": TRANSCRIPTS, "value": line}
            folder = self._home / ARTIFACTS / _name(chat_key)
            for name in self._disk.names(folder):
                about = what_of(self._disk, folder / name) if name.endswith(".txt") else {}
                if about and (alone or about.get("requestId") in found.requests):
                    text = self._disk.read(folder / name).partition(b"\n")[2].decode("utf-8", "replace")
                    yield {"from": ARTIFACTS, "about": about, "value": text}

    # ------------------------------------------------------------ erasing

    async def erase(self) -> dict[Kept, int]:
        """Erase everything while no gateway runs; how many of each kind went. Cut off, it is done by doing it again.

        The caller holds `.ship` where there is a database. Raises `errors.Unavailable` where a gateway runs, `errors.StorageError` and OSError.
        """
        with contextlib.nullcontext() if self._database else instance.locked(self._home):
            instance.must_be_whole(self._home)
            self._bring_lines()
            counted = bool(self._disk.size(self._home / USAGE))
            # After a try that was cut off, days of the log are shorter: they would be counted anew, without what has gone.
            if counted and not self._disk.size(self._home / NOTE):
                self._usage.catch_up()
            found = self._taken_up(self.find())
            gone = self._erase_logs(found)
            if counted:
                gone[Kept.USAGE] = self._usage.erase(str(self._person), found.own)
            gone |= await self._erase_notes(found)
            gone |= await self._erase_artifacts(found)
            gone |= self._erase_transcripts(found)
            gone[Kept.ACCESS] = self._lists().erase(self._person.channel, self._person.user_id)
            gone[Kept.JOURNAL] = self._erase_journal(found)
            gone[Kept.CHATS] = self._erase_chats(found)
            self._disk.remove(self._home / NOTE)
        return {kind: gone[kind] for kind in Kept if gone.get(kind)}

    def _bring_lines(self) -> None:
        """Bring lines to their files that the last process left in the journal. Raises `errors.StorageError` and OSError."""

        def to_files(rows: Sequence[LineRow]) -> None:
            (*_, failed) = line_stream.replay(rows, {CHATS: self._chats, TRANSCRIPTS: self._transcript})
            for error in failed.values():
                raise error

        if self._journal is not None:
            personal.take_lines(self._journal, to_files)

    def _taken_up(self, found: Found) -> Found:
        """Add what an earlier try had found before it was cut off, and keep both on disk from now on."""
        before = jsonl.loads(self._disk.read(self._home / NOTE)) or {}
        if before.get("person") == str(self._person):
            found.requests |= set(before["requests"])
            found.shared |= set(before["shared"])
            found.own = (found.own | set(before["own"])) - found.shared
        note = {
            "v": 1,
            "person": str(self._person),
            "requests": sorted(found.requests),
            "own": sorted(found.own),
            "shared": sorted(found.shared),
        }
        self._disk.replace(self._home / NOTE, json.dumps(note).encode() + b"\n")
        return found

    def _erase_logs(self, found: Found) -> dict[Kept, int]:
        count = 0
        for _, _, path in telemetry.day_files(self._home / LOGS, self._disk):
            before = _unpacked(self._disk.read(path), path)
            kept = []
            for raw in before.splitlines(keepends=True):
                line = jsonl.loads(raw)
                if line is None or self._is_logged_of(line, found):
                    count += 1
                    continue
                details = line.get("details") or {}
                told = line.get("chatKey") in found.shared and TEXTS & details.keys()
                left = {name: value for name, value in details.items() if name not in TEXTS}
                kept.append(jsonl.dumps({**line, "details": left}) if told else raw)
            if (after := b"".join(kept)) != before:
                self._disk.replace(path, gzip.compress(after) if path.suffix == telemetry.PACKED else after)
        return {Kept.LOGS: count}

    async def _erase_notes(self, found: Found) -> dict[Kept, int]:
        if not (self._home / MEMORY).is_dir():
            return {}
        files = await self._notes.drop(MemoryOwner("person", str(self._person)))
        files += sum([await self._notes.drop(MemoryOwner("chat", key)) for key in found.own])
        files += sum([await self._notes.drop(MemoryOwner("chat", key), SESSION) for key in found.shared])
        owners = [MemoryOwner("chat", key) for key in await self._notes.chats()]
        owners += [MemoryOwner("person", key) for key in await self._notes.people()]
        lines = sum([await self._notes.forget(owner, found.requests) for owner in owners])
        for folder in sorted((self._home / MEMORY).rglob("*"), reverse=True):
            if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
                folder.rmdir()
        return {Kept.NOTES: files, Kept.NOTE_LINES: lines}

    async def _erase_artifacts(self, found: Found) -> dict[Kept, int]:
        shared = [await self._artifacts.forget(ChatKey.parse(key), found.requests) for key in found.shared]
        self._remove(self._home / PARTS)
        return {
            Kept.ARTIFACTS: sum(shared) + sum(self._drop(ARTIFACTS, key, ".txt") for key in found.own),
            Kept.WEB_FILES: sum(
                self._drop(folder, key, ".bin") for key in found.own for folder in (SENT, RECEIVED)
            ),
        }

    def _erase_transcripts(self, found: Found) -> dict[Kept, int]:
        own = sum(self._drop(TRANSCRIPTS, key, ".jsonl") for key in found.own)
        shared = sum(self._drop(TRANSCRIPTS, key, ".jsonl") for key in found.shared)
        return {Kept.TRANSCRIPTS: own, Kept.SHARED_TRANSCRIPTS: shared}

    def _erase_journal(self, found: Found) -> int:
        for kind in ("corrupt", "version"):
            for path in self._home.glob(f"{JOURNAL}.{kind}-*"):
                self._disk.remove(path)
        if self._journal is None:
            return 0
        count = personal.erase(self._journal, self._person, found.requests, found.own, found.shared)
        left = personal.outgoing_files(self._journal)
        for name in self._disk.names(self._home / OUTGOING):
            if name not in left:
                self._disk.remove(self._home / OUTGOING / name)
        return count

    def _erase_chats(self, found: Found) -> int:
        own, shared = ({_name(key) for key in keys} for keys in (found.own, found.shared))
        count = 0
        # In every chat: operators were asked, and told, about their turns in others.
        for name in self._archives.chats():
            self._archives.recover(name)
            for path in self._files(name):
                count += self._erase_lines(path, found, all_of_it=name in own, damaged=name in shared)
        for name in self._disk.names(self._home / CHATS):
            if name.partition(".")[0] in own | shared and ".corrupt-" in name:
                self._disk.remove(self._home / CHATS / name)
        if count:
            # Words stay in the pages of a database that forgets them.
            for path in self._home.glob(f"{INDEX}*"):
                self._disk.remove(path)
            index.rebuild(self._home / INDEX, self._home / CHATS, self._disk)
        return count

    def _erase_lines(self, path: Path, found: Found, *, all_of_it: bool, damaged: bool) -> int:
        """Erase their lines, and those that are `damaged` where nobody can tell whose they are; how many there were."""
        raws = list(self._lines(path))
        kept = []
        for raw in raws if not all_of_it else ():
            line = jsonl.loads(raw)
            if not (damaged if line is None else self._goes(line, found)):
                kept.append(raw)
        if len(kept) == len(raws):
            return 0
        if kept:
            self._disk.replace(path, b"".join(raw + b"\n" for raw in kept))
        else:
            self._disk.remove(path)
        return len(raws) - len(kept)

    def _goes(self, line: Json, found: Found) -> bool:
        """True of a line of the archive that is theirs."""
        return line.get("chatKey") in found.own or self._is_theirs(line, found)

    def _drop(self, room: str, chat_key: str, suffix: str) -> int:
        """Remove the folder of a chat; how many files of this kind it had."""
        folder = self._home / room / _name(chat_key)
        count = sum(name.endswith(suffix) for name in self._disk.names(folder))
        self._remove(folder)
        return count

    def _remove(self, folder: Path) -> None:
        if folder.is_dir() and not folder.is_symlink():
            for path in folder.rglob("*"):
                if path.is_file():
                    self._disk.remove(path)
            shutil.rmtree(folder)

    @property
    def _journal(self) -> personal.Journal | None:
        """None where there is none."""
        path = self._home / JOURNAL
        return self._database or (path if self._disk.size(path) else None)

    def _lists(self) -> AccessList:
        return AccessList(self._home / ACCESS_FILE, self._disk, self._clock)


def _request(line: Json) -> str:
    return str((line.get("meta") or {}).get("requestId") or "")


def _name(chat_key: str) -> str:
    return file_names.encode(ChatKey.parse(chat_key))


def _unpacked(data: bytes, path: Path) -> bytes:
    if path.suffix != telemetry.PACKED:
        return data
    with errors.as_storage_error(f"{path.name} cannot be read", EOFError, zlib.error, gzip.BadGzipFile):
        return gzip.decompress(data)
