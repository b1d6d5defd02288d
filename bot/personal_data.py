"""Finds, exports and erases all data of one person.

These data are the messages that the person wrote, the answers to them, and the chats in which nobody else writes. In a chat
where other people also write, erasing replaces each of the person's events with a blank row. Data for the model that was
derived from a whole chat (prompts, summaries, memory, injected history) may mention the person anywhere. Such data is removed
and derived again. The functions block, so only commands call them.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shutil
import zlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from bot import errors, instance
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Disk, Ids, Log
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.log_kinds import TEXTS
from bot.core import events, sqlite_log
from bot.core.access import ACCESS_FILE, AccessList
from bot.core.archive_files import ArchiveFiles
from bot.core.event_log import Session
from bot.core.events import Event, EventData
from bot.core.removal import REMOVED, Gone, blanked, emptied
from bot.features import replay
from bot.features.replay import RecordedRequests
from bot.storage import jsonl
from bot.storage.artifacts import ArtifactStore, what_of
from bot.storage.notes import SESSION, MemoryOwner, NoteStore
from bot.telemetry import log as telemetry

SENT, RECEIVED, OUTGOING = "sent", "received", "outgoing"
PARTS = Path("cache", "uploads")
"""Folder of unfinished uploads to the web page. It is unknown who began them, so an erasure deletes all of them."""
CHATS, MEMORY, ARTIFACTS, LOGS, EVENTS = "chats", "memory", "artifacts", "logs", "events"
INDEX = "index.db"
ERASED = "erased"
"""Kind of a blank row. Readers do not know this kind, so they skip the row. The text "erased" also replaces the person's id."""
DERIVED = frozenset({"framed", "remembered", "injected"})
"""Kinds of events with data for the model that is derived from a whole chat."""
_QUOTE = re.compile(r'[\\"]+')


class Kept(Enum):
    """Kinds of data about a person. Each value is the kind's name in singular and plural."""

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
    """Ids by which a person's data is found. Ids of chats and messages are grouped by chatKey."""

    requests: set[str] = field(default_factory=set)  # requestIds of the person's messages
    own: set[str] = field(default_factory=set)  # chats in which only the person writes
    shared: set[str] = field(default_factory=set)  # chats in which other people write too
    turns: set[str] = field(default_factory=set)  # turns that answered only the person
    mixed: set[str] = field(default_factory=set)  # turns that answered the person and other people
    joined: set[str] = field(default_factory=set)
    """requestIds of the person's messages that became part of mixed turns."""
    messages: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """For each chat, platform ids of messages that the person wrote or that were sent to the person."""


@dataclass
class PersonalData:
    """The data of a person in a `.ship` folder. If the log is in PostgreSQL, `database` is its address."""

    home: Path
    person: UserRef
    disk: Disk
    clock: Clock
    ids: Ids
    log: Log
    database: str | None = None

    def __post_init__(self) -> None:
        home, disk, clock = self.home, self.disk, self.clock
        self._archives = ArchiveFiles(home / CHATS, disk)
        self._artifacts = ArtifactStore(home / ARTIFACTS, disk=disk, ids=self.ids, clock=clock, log=self.log)
        self._notes = NoteStore(home / MEMORY, disk=disk)
        self._lists = AccessList(home / ACCESS_FILE, disk, clock)

    # ------------------------------------------------------------ find

    def find(self) -> Found:
        """Find the person's data in events, archive and operator's log. Raises `errors.StorageError` and OSError."""
        found, logged = Found(), set[str]()
        writers: dict[str, set[str]] = defaultdict(set)
        for place, line in self._lines():
            if place == LOGS and self._is_by(line.get("details") or {}):
                logged.add(line.get("requestId") or "")
            # The archive is searched too, because the log may once have been lost.
            if place == CHATS and line.get("role") == "user" and line.get("channel") == self.person.channel:
                writers[str(line.get("chatKey"))].add(str(line.get("userId")))
                found.requests |= {_request(line)} if self._is_by(line) else set()
        self._find_events(found, writers)
        for chat, users in writers.items():
            if self.person.user_id in users:
                (found.own if users <= {self.person.user_id, ERASED} else found.shared).add(chat)
        found.requests = (found.requests | logged) - {""}
        return found

    def _find_events(self, found: Found, writers: dict[str, set[str]]) -> None:
        members: dict[str, set[str]] = defaultdict(set)
        sent: list[tuple[str, str, str]] = []
        with self._database() as db:
            # In other channels, the same id may belong to another person.
            prefix = f"{self.person.channel}:"
            statement = "SELECT chat, turn, kind, data FROM events WHERE substr(chat, 1, ?) = ?"
            for chat, turn, kind, raw in db.execute(statement, (len(prefix), prefix)):
                data = json.loads(raw)
                inbound = data.get("inbound") or {}
                if (user_id := inbound.get("user_id")) is not None:
                    writers[chat].add(user_id)
                if user_id == self.person.user_id:
                    found.requests.add(inbound.get("request_id") or "")
                    found.messages[chat] |= {inbound.get("message_id") or "", *(inbound.get("items") or {})}
                if kind in {"turn_started", "joined"}:
                    members[turn].update(data["members"])
                elif kind in {"row_ended", "shown"} and data.get("message_id"):
                    sent.append((chat, turn, data["message_id"]))
        theirs = {turn: requests & found.requests for turn, requests in members.items()}
        found.turns = {turn for turn, requests in theirs.items() if requests == members[turn]}
        found.mixed = {turn for turn, requests in theirs.items() if requests} - found.turns
        found.joined = set[str]().union(*(theirs[turn] for turn in found.mixed))
        for chat, turn, message in sent:
            if turn in found.turns | found.mixed:
                found.messages[chat].add(message)

    def _is_by(self, facts: Mapping[str, Any]) -> bool:
        return (facts.get("channel"), facts.get("userId")) == (self.person.channel, self.person.user_id)

    def _database(self, *, write: bool = False) -> contextlib.AbstractContextManager[Session]:
        return sqlite_log.session(
            self.home, self.database, "the log of the chats cannot be used", write=write
        )

    @contextlib.contextmanager
    def _recorded(self, *, readonly: bool) -> Iterator[RecordedRequests | None]:
        path = self.home / replay.FILE
        if not path.is_file():
            yield None
            return
        with (
            errors.as_storage_error("the recorded requests cannot be used", *replay.TROUBLE),
            closing(RecordedRequests(path, readonly=readonly)) as recorded,
        ):
            yield recorded

    def _events(self, db: Session, found: Found) -> Iterator[tuple[tuple[Any, ...], bool]]:
        """Yield each event's row (id, chat, turn, person, kind, time, data), and True if the event contains only the
        person's data. Such an event belongs to the person's own chat or turn, is the person's message outside a mixed
        turn, or is a stored value about the person.
        """
        everything = "SELECT id, chat, turn, person, kind, at, data FROM events WHERE kind <> ? ORDER BY n"
        for row in db.execute(everything, (ERASED,)):
            name, chat, turn, _, _, _, raw = row
            if chat in found.own or turn in found.turns or turn in found.requests - found.mixed:
                yield row, True
                continue
            data, here = json.loads(raw), chat.startswith(f"{self.person.channel}:")
            if "inbound" in data:
                theirs = data["inbound"].get("user_id") == self.person.user_id
                yield row, here and name not in found.joined and theirs
            elif data.get("request") in found.requests:
                yield row, "files" not in data
            else:
                yield row, "of" in data and self._mentions(data.get("key"), raw, here=here)

    def _mentions(self, key: object, raw: str, *, here: bool) -> bool:
        own = here and f'"{self.person.user_id}"' in raw
        return own or key == str(self.person) or f'"{self.person}"' in raw

    def _facts(self, db: Session, found: Found) -> list[tuple[str, str, str]]:
        return [
            (kind, key, value)
            for kind, key, value in db.execute("SELECT kind, key, value FROM facts")
            if key in found.own
            or any(f'"{chat}"' in value for chat in found.own)
            or self._mentions(key, value, here=f"{self.person.channel}:" in key + value)
        ]

    def _line_files(self) -> Iterator[tuple[str, Path, list[bytes]]]:
        """Yield each file of the archive and the operator's log, as (`CHATS` or `LOGS`, path, lines)."""
        for name in self._archives.chats():
            for path in self._archives.of(name):
                yield CHATS, path, self.disk.read(path).splitlines()
        for _, _, path in telemetry.day_files(self.home / LOGS, self.disk):
            data = self.disk.read(path)
            if path.suffix == telemetry.PACKED:
                broken = (EOFError, zlib.error, gzip.BadGzipFile)
                with errors.as_storage_error(f"{path.name} cannot be read", *broken):
                    data = gzip.decompress(data)
            yield LOGS, path, data.splitlines()

    def _lines(self) -> Iterator[tuple[str, Json]]:
        for place, _, lines in self._line_files():
            yield from ((place, line) for line in map(jsonl.loads, lines) if line is not None)

    def _is_theirs(self, place: str, line: Json, found: Found) -> bool:
        """Return True if a line of the archive is by the person or answers the person, or if a line of the operator's log is
        about the person. In chats with several people, lines by other people are left out.
        """
        if line.get("chatKey") in found.own:
            return True
        if place == CHATS:
            answers = line.get("role") != "user" and _request(line) in found.requests | found.mixed
            return answers or self._is_by(line)
        details = line.get("details") or {}
        # In other channels, the same id may belong to another person.
        here = details.get("channel") in {None, self.person.channel}
        return (
            line.get("requestId") in found.requests
            or (here and self.person.user_id in (details.get("userId"), details.get("user")))
            or str(self.person) in (details.get("by"), details.get("operator"), details.get("person"))
        )

    # ------------------------------------------------------------ export

    async def export(self) -> AsyncIterator[Json]:
        """Yield each item of the person's data: `from` is its place, `value` its content. A gateway may run meanwhile."""
        found = self.find()
        for place, line in self._lines():
            if self._is_theirs(place, line, found):
                yield {"from": place, "value": line}
        owners = [MemoryOwner("person", str(self.person))]
        owners += [MemoryOwner("chat", key) for key in sorted(found.own)]
        for owner in owners:
            for path in await self._notes.sizes(owner):
                if (file := await self._notes.read(owner, path)) is not None:
                    yield {"from": MEMORY, "owner": owner.key, "path": path, "value": file.text}
        for item in (*self._exported_artifacts(found), *self._exported_rows(found)):
            yield item
        for name in self._lists.lists_with(self.person.channel, self.person.user_id):
            yield {"from": ACCESS_FILE, "value": name}

    def _exported_artifacts(self, found: Found) -> Iterator[Json]:
        for chat_key in sorted(found.own | found.shared):
            folder = self.home / ARTIFACTS / _name(chat_key)
            for name in self.disk.names(folder):
                about = what_of(self.disk, folder / name) if name.endswith(".txt") else {}
                if about and (chat_key in found.own or about.get("requestId") in found.requests):
                    text = self.disk.read(folder / name).partition(b"\n")[2].decode("utf-8", "replace")
                    yield {"from": ARTIFACTS, "about": about, "value": text}

    def _exported_rows(self, found: Found) -> Iterator[Json]:
        with self._database() as db:
            for (name, chat, turn, _, kind, at, raw), theirs in self._events(db, found):
                if theirs or name in found.joined:
                    about = {"id": name, "chat": chat, "turn": turn, "kind": kind, "at": at}
                    yield {"from": EVENTS, "value": {**about, "data": json.loads(raw)}}
            for of, key, fact in self._facts(db, found):
                yield {"from": "facts", "value": {"kind": of, "key": key, "value": json.loads(fact)}}
            used = db.execute("SELECT * FROM usage WHERE person = ?", (str(self.person),))
            names = [column[0] for column in used.description]
            for row in used:
                yield {"from": "usage", "value": dict(zip(names, row, strict=True))}
        with self._recorded(readonly=True) as recorded:
            requests = sorted(found.requests) if recorded is not None else ()
            for one in (one for request in requests if recorded for one in recorded.find(request)):
                # A request of a shared chat contains other people's messages, so its body is left out.
                body = (one.body or b"").decode("utf-8", "replace") if one.chat_key in found.own else None
                about = {"id": one.id, "chat": one.chat_key, "turn": one.request_id, "model": one.model}
                yield {"from": "requests", "value": {**about, "body": body, "answer": one.answer}}

    # ------------------------------------------------------------ erase

    async def erase(self) -> dict[Kept, int]:
        """Erase all data of the person. Return the number of erased items of each kind. An interrupted erasure can be
        repeated: events are erased last, because they are needed to find all other data.

        No gateway may run. If there is a database, the caller must have locked `.ship`. Raises `errors.Unavailable` if
        a gateway runs, `errors.StorageError`, and OSError.
        """
        with contextlib.nullcontext() if self.database is not None else instance.locked(self.home):
            instance.must_be_whole(self.home)
            found = self.find()
            gone = await self._erase_notes(found)
            gone |= await self._erase_artifacts(found)
            gone[Kept.ACCESS] = self._lists.erase(self.person.channel, self.person.user_id)
            with self._recorded(readonly=False) as recorded:
                if recorded is not None:
                    gone[Kept.REQUESTS] = sum(len(recorded.find(one)) for one in found.requests | found.mixed)
                    recorded.transaction(lambda: [*map(recorded.forget, found.own | found.shared)])
            gone |= self._erase_lines(found)
            gone |= self._erase_events(found)
        return {kind: gone[kind] for kind in Kept if gone.get(kind)}

    async def _erase_notes(self, found: Found) -> dict[Kept, int]:
        if not (self.home / MEMORY).is_dir():
            return {}
        files = await self._notes.drop(MemoryOwner("person", str(self.person)))
        files += sum([await self._notes.drop(MemoryOwner("chat", key)) for key in found.own])
        files += sum([await self._notes.drop(MemoryOwner("chat", key), SESSION) for key in found.shared])
        owners = [MemoryOwner("chat", key) for key in await self._notes.chats()]
        owners += [MemoryOwner("person", key) for key in await self._notes.people()]
        lines = sum([await self._notes.forget(owner, found.requests) for owner in owners])
        for folder in sorted((self.home / MEMORY).rglob("*"), reverse=True):
            if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
                folder.rmdir()
        return {Kept.NOTES: files, Kept.NOTE_LINES: lines}

    async def _erase_artifacts(self, found: Found) -> dict[Kept, int]:
        shared = [await self._artifacts.forget(ChatKey.parse(key), found.requests) for key in found.shared]
        own = [self._drop(Path(ARTIFACTS, _name(key)), ".txt") for key in found.own]
        chats = {_name(str(ChatKey.parse(key).chat)) for key in found.own}
        files = [self._drop(Path(folder, name), ".bin") for name in chats for folder in (SENT, RECEIVED)]
        self._drop(PARTS, "")
        return {Kept.ARTIFACTS: sum(shared) + sum(own), Kept.WEB_FILES: sum(files)}

    def _drop(self, place: Path, suffix: str) -> int:
        """Delete a folder of `.ship`. Return the number of deleted files that had this suffix."""
        folder = self.home / place
        count = sum(name.endswith(suffix) for name in self.disk.names(folder))
        if folder.is_dir() and not folder.is_symlink():
            for path in folder.rglob("*"):
                if path.is_file():
                    self.disk.remove(path)
            shutil.rmtree(folder)
        return count

    def _erase_lines(self, found: Found) -> dict[Kept, int]:
        """Remove the person's lines from the archive and the operator's log. The search index is rebuilt later."""
        gone = Counter[str]()
        for name in self._archives.chats():
            self._archives.recover(name)
        for place, path, lines in self._line_files():
            kept = [left for raw in lines if (left := self._left_of(raw, place, path, found)) is not None]
            gone[place] += len(lines) - len(kept)
            data = b"".join(raw + b"\n" for raw in kept)
            if place == CHATS and not kept:
                self.disk.remove(path)
            elif kept != lines:
                self.disk.replace(path, gzip.compress(data) if path.suffix == telemetry.PACKED else data)
        for path in self.home.glob(f"{INDEX}*") if gone[CHATS] else ():
            self.disk.remove(path)
        return {Kept.CHATS: gone[CHATS], Kept.LOGS: gone[LOGS]}

    def _left_of(self, raw: bytes, place: str, path: Path, found: Found) -> bytes | None:
        """Return a line as it should be after the erasure; None deletes the line. The person's lines are deleted, and so are
        unreadable lines of the log and of the person's chats. Log lines of shared chats lose the texts of messages.
        """
        line = jsonl.loads(raw)
        if line is None:
            chats = map(_name, found.own | found.shared) if place == CHATS else ()
            return None if place == LOGS or path.name.partition(".")[0] in chats else raw
        if self._is_theirs(place, line, found):
            return None
        details = line.get("details") or {}
        if line.get("chatKey") not in found.shared or TEXTS.isdisjoint(details):
            return raw
        details = {name: value for name, value in details.items() if name not in TEXTS}
        return jsonl.dumps({**line, "details": details}).rstrip()

    def _erase_events(self, found: Found) -> dict[Kept, int]:
        with self._database(write=True) as db:
            # The server ends a transaction that is idle for two seconds, so the new rows are computed before the
            # transaction begins. No other process writes meanwhile.
            count, changed = self._blanked_rows(db, found)
            about = [(kind, key) for kind, key, _ in self._facts(db, found)]
            db.execute("BEGIN")
            db.executemany("UPDATE events SET turn = ?, person = ?, kind = ?, data = ? WHERE id = ?", changed)
            db.executemany("DELETE FROM facts WHERE kind = ? AND key = ?", about)
            used = db.execute("DELETE FROM usage WHERE person = ?", (str(self.person),)).rowcount
            for chat in found.own:
                for table in ("events", "chats", "usage", "counts"):
                    db.execute(f"DELETE FROM {table} WHERE chat = ?", (chat,))  # noqa: S608 - the table names are constants
            db.execute("COMMIT")
            if self.database is None:
                if count or about or used:
                    db.execute("VACUUM")
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for name in self.disk.names(self.home / OUTGOING):
                if not db.execute("SELECT 1 FROM events WHERE instr(data, ?) > 0", (name,)).fetchone():
                    self.disk.remove(self.home / OUTGOING / name)
        for path in self.home.glob(f"{sqlite_log.FILE}*.corrupt-*") if count else ():
            self.disk.remove(path)
        return {Kept.EVENTS: count, Kept.ROWS: len(about) + used}

    def _blanked_rows(self, db: Session, found: Found) -> tuple[int, list[tuple[Any, ...]]]:
        """Return the number of the person's events, and the new values of all events that change."""
        count, changed = 0, list[tuple[Any, ...]]()
        for (name, chat, turn, person, kind, at, raw), theirs in self._events(db, found):
            if theirs or (chat in found.shared and kind in DERIVED):
                count += theirs
                changed.append((None, None, ERASED, "{}", name))
            elif chat.startswith(f"{self.person.channel}:"):
                count += name in found.joined
                after = raw
                data = events.decode(kind, raw) if chat in found.shared else None
                if data is not None and not isinstance(data, events.Damaged):
                    without = self._without(Event(name, ChatKey.parse(chat), at, data, turn), raw, found)
                    after = raw if without is data else events.encode(without)
                for one in (self.person.user_id, str(self.person)):
                    after = after.replace(f'"{one}"', f'"{ERASED}"')
                changed.append((turn, person if person != self.person.user_id else None, kind, after, name))
        return count, changed

    def _without(self, event: Event, raw: str, found: Found) -> EventData:
        messages = frozenset(found.messages[str(event.chat)] - {""})
        data = blanked(event, Gone(frozenset(found.requests), frozenset(found.mixed), messages))
        match data:
            case events.Received(inbound) | events.Edited(inbound):
                empty = {"text": REMOVED, "user_name": None, "part": None, "files": ()}
                quoted = tuple(
                    one.model_copy(update=empty) if one.user_id == self.person.user_id else one
                    for one in inbound.quoted
                )
                if inbound.user_id == self.person.user_id:
                    return replace(data, inbound=emptied(inbound).model_copy(update={"user_name": None}))
                return replace(data, inbound=inbound.model_copy(update={"quoted": quoted}))
            case events.ToolEnded() if {self.person.user_id, *found.requests} & set(_QUOTE.split(raw)):
                return replace(data, result={**data.result, "content": REMOVED})
        return data


def _request(line: Json) -> str:
    return str((line.get("meta") or {}).get("requestId") or "")


def _name(chat_key: str) -> str:
    return jsonl.file_name(ChatKey.parse(chat_key))
