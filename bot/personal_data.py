"""Everything of one person: found in all that is kept, given out, and erased.

Theirs are what they wrote, what answered it, and the chats in which nobody else wrote. Of other chats the log goes on with blank rows in
the place of theirs; what was made of such a chat for the model (prompts, summaries, memory, injected history) goes as a whole, since it
may tell of them anywhere, and is made anew. It blocks, and is for a command.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shutil
import sqlite3
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from bot import errors, instance, telemetry
from bot.access_list import FILE as ACCESS_FILE
from bot.access_list import AccessList
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Disk, Ids, Log
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.log_kinds import TEXTS
from bot.core import events, recorded_requests, sqlite_log
from bot.core.archive import rotation
from bot.core.events import Event, EventData
from bot.core.recorded_requests import RecordedRequests
from bot.core.removal import REMOVED, Gone, blanked, emptied
from bot.core.sql_log import Session
from bot.storage import file_names, jsonl
from bot.storage.artifacts import ArtifactStore, what_of
from bot.storage.notes import SESSION, MemoryOwner, NoteStore

SENT, RECEIVED, OUTGOING = "sent", "received", "outgoing"
PARTS = Path("cache", "uploads")
"""Parts of files for the web page that were never whole; nothing says of whom they are, and nobody goes on with them."""
CHATS, MEMORY, ARTIFACTS, LOGS, EVENTS = "chats", "memory", "artifacts", "logs", "events"
INDEX = "index.db"
ERASED = "erased"
"""The kind of a row of which nothing is left, which no reader knows, and the id of a person who is gone."""
DERIVED = frozenset({"framed", "remembered", "injected"})
"""Kinds that hold what was made of a whole chat for the model."""
_QUOTE = re.compile(r'[\\"]+')


class Kept(Enum):
    """Kinds of things that are kept of a person. The value has their names, for one and for several."""

    CHATS = "line of the archive", "lines of the archive"
    EVENTS = "event", "events"
    ROWS = "fact or sum of usage", "facts and sums of usage"
    REQUESTS = "request to the model", "requests to the model"
    ARTIFACTS = "artifact", "artifacts"
    WEB_FILES = "file of the web page", "files of the web page"
    NOTES = "file of memory", "files of memory"
    NOTE_LINES = "line of memory", "lines of memory"
    ACCESS = "entry of the access list", "entries of the access list"
    LOGS = "line of the log", "lines of the log"


@dataclass(slots=True)
class Found:
    """A person's requestIds, and their chats by chatKey: those of theirs alone, and those that others write in too. `turns` answered them
    alone, `mixed` others as well, who have `joined` requests of theirs; `messages` are the platform's ids of what they wrote and got.
    """

    requests: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    turns: set[str] = field(default_factory=set)
    mixed: set[str] = field(default_factory=set)
    joined: set[str] = field(default_factory=set)
    messages: dict[str, set[str]] = field(default_factory=dict)


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
        """`database` is the address of the log's, where it is no file."""
        self._url = database
        self._home = home
        self._person = person
        self._disk = disk
        self._clock = clock
        self._codec = events.Codec()
        self._archives = rotation.ArchiveFiles(home / CHATS, disk)
        self._artifacts = ArtifactStore(home / ARTIFACTS, disk=disk, ids=ids, clock=clock, log=log)
        self._notes = NoteStore(home / MEMORY, disk=disk)

    # ------------------------------------------------------------ finding

    def find(self) -> Found:
        """Look through events and the operator's log. Raises `errors.StorageError` and OSError."""
        found = Found()
        with self._database() as db:
            self._find_chats(db, found)
            self._find_turns(db, found)
        for line in self._logged():
            details = line.get("details") or {}
            if (details.get("channel"), details.get("userId")) == (
                self._person.channel,
                self._person.user_id,
            ):
                found.requests.add(str(line.get("requestId") or ""))
        found.requests.discard("")
        return found

    def _find_chats(self, db: Session, found: Found) -> None:
        people: dict[str, set[str]] = {}
        said = (
            """SELECT chat, data FROM events WHERE substr(chat, 1, ?) = ? AND instr(data, '"inbound"') > 0"""
        )
        for chat, raw in self._of_channel(db, said):
            inbound = json.loads(raw).get("inbound") or {}
            if (user_id := inbound.get("user_id")) is None:
                continue
            people.setdefault(chat, set()).add(user_id)
            if user_id == self._person.user_id:
                found.requests.add(inbound.get("request_id") or "")
                names = {inbound.get("message_id") or "", *(inbound.get("items") or {})}
                found.messages.setdefault(chat, set()).update(names - {""})
        # The archive may reach further back than a log that was lost.
        for line in (one for name in self._archives.chats() for one in self._said(name)):
            if line.get("role") == "user" and line.get("channel") == self._person.channel:
                people.setdefault(str(line.get("chatKey")), set()).add(str(line.get("userId")))
                if line.get("userId") == self._person.user_id:
                    found.requests.add(str((line.get("meta") or {}).get("requestId") or ""))
        for chat, users in people.items():
            if self._person.user_id in users:
                (found.own if users <= {self._person.user_id, ERASED} else found.shared).add(chat)

    def _find_turns(self, db: Session, found: Found) -> None:
        members: dict[str, set[str]] = {}
        started = """SELECT turn, data FROM events WHERE substr(chat, 1, ?) = ? AND kind IN ('turn_started', 'joined')"""
        for turn, raw in self._of_channel(db, started):
            members.setdefault(turn, set()).update(json.loads(raw)["members"])
        for turn, names in members.items():
            if names <= found.requests:
                found.turns.add(turn)
            elif names & found.requests:
                found.mixed.add(turn)
                found.joined |= names & found.requests
        sent = "SELECT chat, turn, data FROM events WHERE substr(chat, 1, ?) = ? AND kind IN ('row_ended', 'shown')"
        for chat, turn, raw in self._of_channel(db, sent):
            if (message := json.loads(raw).get("message_id")) and turn in found.turns | found.mixed:
                found.messages.setdefault(chat, set()).add(message)

    def _of_channel(self, db: Session, statement: str) -> Any:
        """The rows of a statement about the chats of the person's channel, which alone know their id."""
        below = f"{self._person.channel}:"
        return db.execute(statement, (len(below), below))

    @contextlib.contextmanager
    def _database(self) -> Iterator[Session]:
        """The log of the chats, an empty one where there is none. Raises `errors.StorageError`."""
        words, path = "the log of the chats cannot be used", self._home / sqlite_log.FILE
        if self._url is not None:
            from bot.core import postgres_log  # its library is there where it is wanted

            with postgres_log.as_storage_error(words), closing(postgres_log.prepared(self._url)) as session:
                yield session
            return
        with (
            errors.as_storage_error(words, sqlite3.Error),
            closing(sqlite3.connect(path if path.is_file() else ":memory:", isolation_level=None)) as db,
        ):
            db.execute("PRAGMA busy_timeout = 5000")
            db.executescript("PRAGMA secure_delete = on;" + ("" if path.is_file() else sqlite_log.SCHEMA))
            yield db

    @contextlib.contextmanager
    def _recorded(self, *, readonly: bool) -> Iterator[RecordedRequests | None]:
        path = self._home / recorded_requests.FILE
        if not path.is_file():
            yield None
            return
        with (
            errors.as_storage_error("the recorded requests cannot be used", *recorded_requests.TROUBLE),
            closing(RecordedRequests(path, readonly=readonly)) as recorded,
        ):
            yield recorded

    def _is_gone(self, chat: str, turn: str | None, name: str, raw: str, found: Found) -> bool:
        """True of an event that is the person's as a whole: a chat of theirs, a turn of theirs, what they said outside a turn of others, a
        fact about them.
        """
        if chat in found.own or turn in found.turns or turn in found.requests - found.mixed:
            return True
        data = json.loads(raw)
        if "inbound" in data:
            here = chat.startswith(f"{self._person.channel}:") and name not in found.joined
            return here and data["inbound"].get("user_id") == self._person.user_id
        if data.get("request") in found.requests:
            return "files" not in data
        return "of" in data and self._tells(chat, data.get("key"), raw)

    def _tells(self, chat: str, key: object, raw: str) -> bool:
        """True of a fact about the person, or by them."""
        here = chat.startswith(f"{self._person.channel}:")
        return (
            key == str(self._person)
            or f'"{self._person}"' in raw
            or (here and f'"{self._person.user_id}"' in raw)
        )

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
        found = self.find()
        for name in self._archives.chats():
            for line in self._said(name):
                if self._goes(line, found):
                    yield {"from": CHATS, "value": line}
        async for note in self._exported_notes(found):
            yield note
        for item in (*self._exported_artifacts(found), *self._exported_rows(found)):
            yield item
        for line in self._logged():
            if self._is_logged_of(line, found):
                yield {"from": LOGS, "value": line}
        for name in self._lists().lists_with(self._person.channel, self._person.user_id):
            yield {"from": ACCESS_FILE, "value": name}

    def _said(self, name: str) -> Iterator[Json]:
        for path in self._files(name):
            with closing(self._disk.open(path)) as file:
                yield from filter(None, map(jsonl.loads, jsonl.lines(file)))

    def _files(self, name: str) -> list[Path]:
        older = [self._archives.archive(name, number) for number in self._archives.numbers(name)]
        return [*older, self._archives.main(name)]

    def _goes(self, line: Json, found: Found) -> bool:
        """True of a line of the archive that they wrote, or that answers one. What others wrote never is, whatever it says."""
        wrote = (line.get("channel"), line.get("userId")) == (self._person.channel, self._person.user_id)
        request = str((line.get("meta") or {}).get("requestId") or "")
        others = line.get("role") == "user" and not wrote
        return line.get("chatKey") in found.own or (
            not others and (wrote or request in found.requests | found.mixed)
        )

    def _exported_rows(self, found: Found) -> Iterator[Json]:
        with self._database() as db:
            for chat, name, turn, kind, at, raw in db.execute(
                "SELECT chat, id, turn, kind, at, data FROM events ORDER BY n"
            ):
                if self._is_gone(chat, turn, name, raw, found) or name in found.joined:
                    value = {
                        "id": name,
                        "chat": chat,
                        "turn": turn,
                        "kind": kind,
                        "at": at,
                        "data": json.loads(raw),
                    }
                    yield {"from": EVENTS, "value": value}
            for of, key, fact in self._facts(db, found):
                yield {"from": "facts", "value": {"kind": of, "key": key, "value": json.loads(fact)}}
            used = db.execute("SELECT * FROM usage WHERE person = ?", (str(self._person),))
            names = [column[0] for column in used.description]
            for row in used:
                yield {"from": "usage", "value": dict(zip(names, row, strict=True))}
        with self._recorded(readonly=True) as recorded:
            for request in sorted(found.requests) if recorded else ():
                for one in recorded.find(request) if recorded else ():
                    # Others have said some of what stands in the request of a chat of theirs.
                    body = (one.body or b"").decode("utf-8", "replace") if one.chat_key in found.own else None
                    about = {"id": one.id, "chat": one.chat_key, "turn": one.request_id, "model": one.model}
                    yield {"from": "requests", "value": {**about, "body": body, "answer": one.answer}}

    def _facts(self, db: Session, found: Found) -> list[tuple[str, str, str]]:
        return [
            (kind, key, value)
            for kind, key, value in db.execute("SELECT kind, key, value FROM facts")
            if key in found.own
            or any(f'"{chat}"' in value for chat in found.own)
            or self._tells(
                f"{self._person.channel}:" if f"{self._person.channel}:" in key + value else "", key, value
            )
        ]

    async def _exported_notes(self, found: Found) -> AsyncIterator[Json]:
        owners = [MemoryOwner("person", str(self._person))]
        owners += [MemoryOwner("chat", key) for key in sorted(found.own)]
        for owner in owners:
            for path in await self._notes.sizes(owner):
                file = await self._notes.read(owner, path)
                if file is not None:
                    yield {"from": MEMORY, "owner": owner.key, "path": path, "value": file.text}

    def _exported_artifacts(self, found: Found) -> Iterator[Json]:
        for chat_key in sorted(found.own | found.shared):
            folder = self._home / ARTIFACTS / _name(chat_key)
            for name in self._disk.names(folder):
                about = what_of(self._disk, folder / name) if name.endswith(".txt") else {}
                if about and (chat_key in found.own or about.get("requestId") in found.requests):
                    text = self._disk.read(folder / name).partition(b"\n")[2].decode("utf-8", "replace")
                    yield {"from": ARTIFACTS, "about": about, "value": text}

    # ------------------------------------------------------------ erasing

    async def erase(self) -> dict[Kept, int]:
        """Erase everything while no gateway runs; how many of each kind went. Cut off, it is done by doing it again: the events, by which
        all else is found, go last.

        The caller holds `.ship` where there is a database. Raises `errors.Unavailable` where a gateway runs, `errors.StorageError` and
        OSError.
        """
        with contextlib.nullcontext() if self._url is not None else instance.locked(self._home):
            instance.must_be_whole(self._home)
            found = self.find()
            gone = self._erase_logs(found)
            gone |= await self._erase_notes(found)
            gone |= await self._erase_artifacts(found)
            gone[Kept.ACCESS] = self._lists().erase(self._person.channel, self._person.user_id)
            gone[Kept.REQUESTS] = self._erase_requests(found)
            gone[Kept.CHATS] = self._erase_exports(found)
            gone |= self._erase_events(found)
        return {kind: gone[kind] for kind in Kept if gone.get(kind)}

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

    def _erase_requests(self, found: Found) -> int:
        with self._recorded(readonly=False) as recorded:
            if recorded is None:
                return 0
            count = sum(len(recorded.find(request)) for request in found.requests | found.mixed)

            def forget() -> None:
                for chat in found.own | found.shared:
                    recorded.forget(chat)

            recorded.transaction(forget)
        return count

    def _erase_exports(self, found: Found) -> int:
        """Remove their lines of the archive, and the search index, which is made anew; how many lines there were."""
        own, shared = ({_name(key) for key in keys} for keys in (found.own, found.shared))
        count = 0
        for name in self._archives.chats():
            self._archives.recover(name)
            for path in self._files(name):
                with closing(self._disk.open(path)) as file:
                    lines = list(jsonl.lines(file))
                kept = [
                    raw
                    for raw in lines
                    if name not in own and not self._is_erased(raw, found, shared=name in shared)
                ]
                if len(kept) < len(lines):
                    count += len(lines) - len(kept)
                    self._disk.replace(path, b"".join(raw + b"\n" for raw in kept))
                if not kept:
                    self._disk.remove(path)
        for name in self._disk.names(self._home / CHATS):
            if name.partition(".")[0] in own | shared and ".corrupt-" in name:
                self._disk.remove(self._home / CHATS / name)
        for path in self._home.glob(f"{INDEX}*") if count else ():
            self._disk.remove(path)
        return count

    def _is_erased(self, raw: bytes, found: Found, *, shared: bool) -> bool:
        """True of a line that is theirs, and of one that nobody can read in a chat of theirs."""
        line = jsonl.loads(raw)
        return shared if line is None else self._goes(line, found)

    def _erase_events(self, found: Found) -> dict[Kept, int]:
        with self._database() as db:
            # Nobody else writes, and a server ends a transaction in which nothing comes for two seconds.
            count, changed = self._blanked_rows(db, found)
            about = [(kind, key) for kind, key, _ in self._facts(db, found)]
            db.execute("BEGIN")
            db.executemany("UPDATE events SET turn = ?, person = ?, kind = ?, data = ? WHERE id = ?", changed)
            db.executemany("DELETE FROM facts WHERE kind = ? AND key = ?", about)
            rows = (
                len(about) + db.execute("DELETE FROM usage WHERE person = ?", (str(self._person),)).rowcount
            )
            for chat in found.own:
                for table in ("events", "chats", "usage", "counts"):
                    db.execute(f"DELETE FROM {table} WHERE chat = ?", (chat,))  # noqa: S608 - constants
            db.execute("COMMIT")
            if self._url is None:
                if count or rows:
                    db.execute("VACUUM")
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for name in self._disk.names(self._home / OUTGOING):
                if not db.execute("SELECT 1 FROM events WHERE instr(data, ?) > 0", (name,)).fetchone():
                    self._disk.remove(self._home / OUTGOING / name)
        for pattern in ("*.corrupt-*", "*.version-*"):
            for path in self._home.glob(sqlite_log.FILE + pattern) if count else ():
                self._disk.remove(path)
        return {Kept.EVENTS: count, Kept.ROWS: rows}

    def _blanked_rows(self, db: Session, found: Found) -> tuple[int, list[tuple[Any, ...]]]:
        """The number of events that are theirs, and the rows that change: these, and what tells of them in other events."""
        count, changed = 0, list[tuple[Any, ...]]()
        everything = "SELECT id, chat, turn, person, kind, at, data FROM events WHERE kind <> ?"
        for name, chat, turn, person, kind, at, raw in db.execute(everything, (ERASED,)):
            if self._is_gone(chat, turn, name, raw, found):
                count += 1
                changed.append((None, None, ERASED, "{}", name))
            elif chat in found.shared and kind in DERIVED:
                changed.append((None, None, ERASED, "{}", name))
            elif chat.startswith(f"{self._person.channel}:"):
                count += name in found.joined
                after = raw
                if chat in found.shared and not isinstance(
                    told := self._codec.decode(kind, raw), events.Damaged
                ):
                    without = self._without(Event(name, ChatKey.parse(chat), at, told, turn), raw, found)
                    after = raw if without is told else self._codec.encode(without)
                for one in (self._person.user_id, str(self._person)):
                    after = after.replace(f'"{one}"', f'"{ERASED}"')
                changed.append((turn, person if person != self._person.user_id else None, kind, after, name))
        return count, changed

    def _without(self, event: Event, raw: str, found: Found) -> EventData:
        """The data of an event of a chat of others without what is the person's."""
        messages = frozenset(found.messages.get(str(event.chat), ()))
        data = blanked(event, Gone(frozenset(found.requests), frozenset(found.mixed), messages))
        match data:
            case events.Received() | events.Edited():
                return replace(data, inbound=self._inbound_without(data.inbound))
            case events.ToolEnded() if {self._person.user_id, *found.requests} & set(_QUOTE.split(raw)):
                return replace(data, result={**data.result, "content": REMOVED})
            case events.Cut() | events.SessionMoved() if data.head is not None:
                return replace(data, head=None)
        return data

    def _inbound_without(self, inbound: Inbound) -> Inbound:
        if inbound.user_id == self._person.user_id:
            return emptied(inbound).model_copy(update={"user_name": None})
        quoted = tuple(
            one.model_copy(update={"text": REMOVED, "user_name": None, "part": None, "files": ()})
            if one.user_id == self._person.user_id
            else one
            for one in inbound.quoted
        )
        return inbound.model_copy(update={"quoted": quoted})

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

    def _lists(self) -> AccessList:
        return AccessList(self._home / ACCESS_FILE, self._disk, self._clock)


def _name(chat_key: str) -> str:
    return file_names.encode(ChatKey.parse(chat_key))


def _unpacked(data: bytes, path: Path) -> bytes:
    if path.suffix != telemetry.PACKED:
        return data
    with errors.as_storage_error(f"{path.name} cannot be read", EOFError, zlib.error, gzip.BadGzipFile):
        return gzip.decompress(data)
