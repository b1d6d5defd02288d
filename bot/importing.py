"""Imports the journal, archive and transcripts of version 0.1 into a new `shipmate.db`. This happens at the first start
in a `.ship` of version 0.1.

The database is written under a temporary name and renamed once it is complete. Only then are the old files moved to
`before-0.2`. If the process is killed, either everything has been imported or nothing. Ids are hashes of the imported
data.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bot.contracts.approvals import Approval, QuestionButtons, Verdict
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import ANYBODYS, ORIGIN, Inbound, Provenance, unpacked
from bot.core import events, memory
from bot.core.chat import Chat
from bot.core.chats import NO_CHAT
from bot.core.event_log import APPEND, FACT, KEY, POSITION, RESTORED, stored
from bot.core.events import Event, EventData, FactSet, StoredFile, encode, keys_of
from bot.core.outgoing import LastingApproval
from bot.core.removal import SENDS
from bot.core.sqlite_log import SCHEMA
from bot.storage import jsonl
from bot.system import SystemDisk, ulid_of

LOG, NEW, JOURNAL = "shipmate.db", "shipmate.db.importing", "journal.db"
BACKUP = "before-0.2"  # Folder in `.ship` to which the files of version 0.1 are moved
CLEAN = "clean"
"""Name of a file in the backup folder. It is created when a process that used the imported data exits cleanly."""
MOVED = ("chats", "transcripts", "index.db", "usage.db", "cache", JOURNAL)
"""Prefixes of the names of files that version 0.1 wrote. They are moved to the backup, the journal last. While the
journal exists, there are still files to move.
"""
BOOT = "before-0.2"
"""Boot id of all work that version 0.1 began. No process has this id, so unfinished work counts as interrupted."""
MOST_LINES = 5_000
"""Max lines that are read from the end of a transcript. No model's context can contain so many."""
ENDS: Mapping[str, events.TurnEndState] = {
    "done": "answered",
    "failed": "failed",
    "stopped": "stopped",
    "withdrawn": "withdrawn",
}
_LASTING: TypeAdapter[LastingApproval] = TypeAdapter(LastingApproval)
_APPROVALS: TypeAdapter[Approval] = TypeAdapter(Approval)
_FILES: TypeAdapter[StoredFile] = TypeAdapter(StoredFile)


def import_ship(
    home: Path,
    make: Callable[[ChatKey], Chat],
    *,
    needs_turn: Callable[[Inbound], bool],
    is_operator: Callable[[Inbound], bool],
) -> bool:
    """Import the folder `home`. Return False if it has no files of version 0.1. Raises OSError and `sqlite3.Error`."""
    if not (home / JOURNAL).exists():
        return False
    disk = SystemDisk()
    if not (home / LOG).exists():
        for left in home.glob(f"{NEW}*"):
            left.unlink()
        with contextlib.closing(sqlite3.connect(home / JOURNAL)) as old:
            old.row_factory = sqlite3.Row
            _write_log(home, _OldShip(old, home, needs_turn, is_operator), make)
        disk.rename(home / NEW, home / LOG)
    # A file that a killed import has already moved stays in the backup.
    backup = home / BACKUP
    backup.mkdir(exist_ok=True)
    for name in MOVED:
        for file in sorted(home.glob(f"{name}*"), reverse=True):
            if not (backup / file.name).exists():
                file.replace(backup / file.name)
    disk.sync(backup)
    disk.sync(home)
    (home / RESTORED).unlink(missing_ok=True)
    return True


def _write_log(home: Path, old_ship: _OldShip, make: Callable[[ChatKey], Chat]) -> None:
    with contextlib.closing(sqlite3.connect(home / NEW, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = full")
        db.executescript(SCHEMA)
        db.execute("BEGIN")
        for key, found in old_ship.events().items():
            chat = make(key)
            for event in found:
                chat.apply(event)
                row = (str(key), event.seq, event.id, event.turn, event.person, event.kind, event.at)
                db.execute(APPEND, (*row, encode(event.data)))
                db.executemany(KEY, [(one, str(key), event.seq) for one in keys_of(event.data)])
                if isinstance(event.data, FactSet):
                    db.execute(*stored(event.data))
            db.execute(POSITION, (str(key), chat.position.base, chat.position.open))
        keys = [(row["key"].partition(":")[2], str(NO_CHAT), 0) for row in old_ship.rows("keys")]
        db.executemany(KEY, keys)
        if (home / RESTORED).exists():
            db.execute(FACT, (RESTORED, RESTORED, "{}"))
        db.execute("COMMIT")


def end_cleanly(home: Path) -> None:
    """Record that a process has exited cleanly, so that the next start removes the backup. Raises OSError."""
    if (backup := home / BACKUP).exists():
        (backup / CLEAN).touch()


def remove_backup(home: Path) -> bool:
    """Remove the backup if a process has exited cleanly since the import. Return True if the backup was removed. Errors
    are ignored.
    """
    clean = (home / BACKUP / CLEAN).exists()
    if clean:
        shutil.rmtree(home / BACKUP, ignore_errors=True)
    return clean


@dataclass(frozen=True, slots=True)
class _Fact:
    """An event for the new log. `made_from` identifies the old row or line from which the event was made."""

    at: float
    data: EventData
    made_from: str
    turn: str | None = None
    person: str | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    inbound: Inbound
    at: float
    state: str
    turn: str | None


@dataclass
class _OldShip:
    """The journal of version 0.1 and the files beside it, converted to events. An unreadable row or line is skipped, but
    is still in the backup.
    """

    db: sqlite3.Connection
    home: Path
    needs_turn: Callable[[Inbound], bool]
    is_operator: Callable[[Inbound], bool]

    def __post_init__(self) -> None:
        self._turns = {row["id"]: row for row in self.rows("turns")}
        self._steps = {(row["request_id"], row["id"]): row for row in self.rows("steps")}
        self._asked = {row["id"]: row for row in self.rows("approvals")}
        self._sent = self._named_rows()
        self._pending: dict[str, list[bytes]] = defaultdict(list)
        """Lines of the journal that may be missing in their files, keyed by file name."""
        for row in self.rows("lines", "ORDER BY number"):
            self._pending[row["file"]] += bytes(row["lines"]).splitlines()
        self._inbox: dict[ChatKey, list[_Row]] = defaultdict(list)
        for row in self.rows("inbox", "WHERE state <> 'merged' ORDER BY request_id"):
            # Rows in the state `merged` are left out, because another row contains their text. Invalid rows are skipped.
            with contextlib.suppress(ValidationError):
                inbound = Inbound.model_validate_json(row["payload"])
                self._inbox[inbound.chat_key].append(
                    _Row(inbound, row["received_at"], row["state"], row["turn_id"])
                )

    def rows(self, table: str, more: str = "") -> list[dict[str, Any]]:
        statement = f"SELECT * FROM {table} {more}"  # noqa: S608 - all table names are from this module
        return [dict(row) for row in self.db.execute(statement)]

    def events(self) -> dict[ChatKey, list[Event]]:
        facts: dict[ChatKey, list[_Fact]] = defaultdict(list)
        for chat in sorted({*self._inbox, *(ChatKey.parse(row["chat_key"]) for row in self._sent)}, key=str):
            facts[chat] += self._life(chat)
        for chat, lines in self._archived().items():
            facts[chat] += lines
        facts[NO_CHAT] += self._gateway()
        found = dict[ChatKey, list[Event]]()
        for chat, told in facts.items():
            told.extend(self._memory(chat, max((one.at for one in told), default=0.0)))
            told.sort(key=lambda one: one.at)  # a stable sort, so the events of one row keep their order
            once = dict[tuple[str, str], _Fact]()
            for one in told:  # several messages may show one question, but it needs only one event
                once.setdefault((one.made_from, one.data.kind), one)
            found[chat] = [
                Event(
                    fixed_ulid(one.at, f"{chat}\n{one.made_from}\n{one.data.kind}"),
                    *(chat, one.at, one.data, one.turn, one.person, number),
                )
                for number, one in enumerate(once.values(), 1)
            ]
        return found

    # ------------------------------------------------------------ inbox and turns

    def _life(self, chat: ChatKey) -> list[_Fact]:
        facts, rows = list[_Fact](), self._inbox.get(chat, [])
        lines, dropped = self._transcript(chat)
        for row in rows:
            facts += self._received(row)
        for name, turn in self._turns.items():
            if turn["chat_key"] != str(chat):
                continue
            members = [
                one
                for one in rows
                if one.turn == name and one.inbound.kind in {"message", "edit"}
                if not one.inbound.command or self.needs_turn(one.inbound)
            ]
            if members and members[0].inbound.command is not None and turn["state"] not in ENDS:
                # The command may have run. To prevent a second run, its turn is marked as handled.
                for data in (events.TurnStarted((name,), BOOT), events.TurnEnded("handled")):
                    facts.append(_Fact(members[0].at, data, f"{name} {data.kind}", name))
            elif members:
                mine = [] if name in dropped else [line for line in lines if line.get("requestId") == name]
                facts += self._turn(turn, members, mine)
        known = {f.data.row for f in facts if isinstance(f.data, events.Queued)}
        for out in self._sent:
            question = self._asked.get(out["question_id"])  # a failure notice has its turn's id here
            here = question["chat_key"] if question is not None else out["chat_key"]
            if here == str(chat) and out["name"] not in known:
                facts += self._out(out, question)
        return facts

    def _named_rows(self) -> list[Json]:
        """Return outbox rows with the ids that they get in the log. By these ids, a turn finds the messages that it has
        already sent.
        """
        rows = self.rows("outbox", "ORDER BY rowid")
        names, newest, counts = dict[str, str](), dict[str, str](), Counter[str]()
        for row in rows:
            name, of, said = row["id"], row["repeat_of"], f"{row['request_id']}/{row['step_id']}"
            if of in names:
                name = newest[of] = f"{newest.get(of, names[of])}'"
            elif row["question_id"] in self._asked:
                name = f"{row['question_id']}/{row['chat_key']}/{name}"
            elif row["step_id"]:
                name = f"{said}/{counts[said]}"
                counts[said] += 1
            names[row["id"]] = name
        repeated = {row["repeat_of"] for row in rows}
        return [
            row
            | {"name": names[row["id"]], "repeated": row["id"] in repeated}
            | {key: names.get(row[key], row[key]) for key in ("part_of", "repeat_of")}
            for row in rows
        ]

    def _received(self, row: _Row) -> Iterator[_Fact]:
        inbound, name = row.inbound, row.inbound.request_id
        beside = inbound.kind == "message" and not self.needs_turn(inbound)
        changes: dict[str, Callable[[Inbound], EventData]] = {"edit": events.Edited, "delete": events.Deleted}
        if inbound.kind in changes:
            data = changes[inbound.kind](inbound)
        elif inbound.is_stop:
            data = events.Stop(inbound, everyones=self.is_operator(inbound))
        else:
            data = events.Received(inbound, beside=beside)
        yield _Fact(row.at, data, name, person=str(inbound.person))
        closed = row.turn not in self._turns or beside or inbound.kind in changes or inbound.is_stop
        if closed and row.state not in {"queued", "in_turn"}:
            yield _Fact(row.at, events.Closed(name), f"{name} closed")

    def _turn(self, turn: Json, members: Sequence[_Row], lines: Sequence[Json]) -> list[_Fact]:
        name, at = turn["id"], max(turn["begun_at"], *(one.at for one in members))
        requests = tuple(one.inbound.request_id for one in members)
        # Version 0.1 did not store who wrote each part, so messages with quotes or files have no known author.
        plain = not any(one.inbound.quoted or one.inbound.attachments for one in members)
        people = Provenance(frozenset(one.inbound.user_id for one in members)) if plain else ANYBODYS
        facts = [_Fact(at, events.TurnStarted(requests, BOOT), name, name)]
        for line in lines:
            if line["type"] == "assistant":
                facts += self._answer(line, name)
            elif line.get("message") is not None:
                facts += self._told(line, name, requests, people, first=line is lines[0])
        if turn["state"] in ENDS:
            end = events.TurnEnded(ENDS[turn["state"]])
            facts.append(_Fact(turn["ended_at"] or at, end, f"{name} ended", name))
        times = itertools.accumulate((one.at for one in facts), max)
        return [replace(one, at=when) for one, when in zip(facts, times, strict=True)]

    def _answer(self, line: Json, name: str) -> Iterator[_Fact]:
        when, uuid, message, data = line["ts"] / 1000, line["uuid"], line["message"], line.get("data") or {}
        content = message["content"]
        kept = content if isinstance(content, list) else [{"type": "text", "text": content}]
        yield _Fact(when, events.Asked(uuid, BOOT, data.get("model", "")), f"{uuid} asked", name)
        answer = events.Answered(uuid, kept, data.get("stopReason"), origin=message.get("origin"))
        yield _Fact(when, answer, uuid, name)
        for call in [one["id"] for one in kept if one["type"] == "tool_use"]:
            if (step := self._steps.get((name, call))) is None:
                continue
            if step["name"] != SENDS:  # sending may be repeated, because its outbox rows have fixed ids
                begun = events.ToolStarted(call, step["name"], BOOT)
                yield _Fact(step["began_at"], begun, f"{call} begun", name)
            for row in self._sent:
                if (row["step_id"], row["request_id"]) == (call, name):
                    yield from self._out(row, None)
            if step["result"] is not None:
                yield _Fact(step["ended_at"], events.ToolEnded(call, json.loads(step["result"])), call, name)

    def _told(
        self, line: Json, turn: str, requests: tuple[str, ...], people: Provenance, *, first: bool
    ) -> Iterator[_Fact]:
        """Yield the events for a message to the model that contains text or tool results. The `first` message of a turn
        contains all `requests` of that turn.
        """
        message, when = line["message"], line["ts"] / 1000
        results = [
            one for one in message["content"] if isinstance(one, dict) and one.get("type") == "tool_result"
        ]
        if not results:
            raw = json.dumps(message)
            named = tuple(one for one in requests if one in raw)
            message.setdefault(ORIGIN, people.packed())
            yield _Fact(when, events.Told(message, named or (requests if first else ())), line["uuid"], turn)
        for one in results:
            call = one["tool_use_id"]
            if self._steps.get((turn, call), {}).get("result") is None:
                yield _Fact(when, events.ToolEnded(call, one), call, turn)

    def _out(self, row: Json, question: Json | None) -> Iterator[_Fact]:
        name, at, place = row["name"], row["created_at"], ChatKey.parse(row["chat_key"])
        choices = json.loads(row["choices"]) if row["choices"] else []
        queued = events.Queued(
            name,
            json.loads(row["target"]),
            row["text"],
            row["kind"],
            channel=place.channel,
            chat_id=place.chat_id,
            call=row["step_id"],
            part_of=row["part_of"],
            ends=row["kind"] == "reply" and row["step_id"] is None,
            replaces=row["replaces"],
            repeat_of=row["repeat_of"],
            not_before=row["not_before"],
            language=row["language"] or "en",
            buttons=QuestionButtons(row["question_id"], tuple(choices)) if choices else None,
            question=row["question_id"] if question is not None else None,
            closes_as=row["closes_as"] or "",
            zone=row["zone"] or "UTC",
            own_zone=bool(row["own_zone"]),
            file=_FILES.validate_json(row["file"]) if row["file"] else None,
        )
        turn = question["request_id"] if question is not None else row["request_id"]
        mine = turn if turn in self._turns or question is not None else None
        if question is not None:
            with contextlib.suppress(ValidationError):
                asked = events.QuestionAsked(question["id"], _APPROVALS.validate_json(question["asked"]))
                yield _Fact(question["asked_at"], asked, question["id"], question["request_id"])
        state, message, waits = row["state"], row["message_id"], row["not_before"]
        found: list[EventData] = [queued]
        found += [events.Deferred(name, waits)] if row["delayed"] and waits else []
        found += [events.Sending(name, BOOT, row["replaces"])] if state != "ready" else []
        found += [events.Shown(name, message)] if state == "sending" and message else []
        found += [events.RowEnded(name, "unknown")] if state == "sending" and row["repeated"] else []
        for data in found:
            yield _Fact(at, data, f"{name} {data.kind}", mine)
        if state in {"sent", "failed", "unknown"}:
            end = events.RowEnded(name, state, message, row["reason"] or "")
            when = max(at, row["changed_at"]) if state == "failed" else at
            yield _Fact(when, end, f"{name} {end.kind}", mine)

    # ------------------------------------------------------------ files

    def _transcript(self, chat: ChatKey) -> tuple[list[Json], set[str]]:
        """Return the lines of a chat's newest session that the model's context still contains, and the turns that the
        context no longer contains.
        """
        folder = f"transcripts/{jsonl.file_name(chat)}"
        files = {one.name: one.read_bytes().splitlines() for one in (self.home / folder).glob("*.jsonl")}
        for name, raws in self._pending.items():
            if name.startswith(f"{folder}/"):
                files.setdefault(Path(name).name, []).extend(raws)
        lines, dropped = list[Json](), set[str]()
        for _, line in _read(files[max(files)][-MOST_LINES:]) if files else ():
            if line.get("type") == "boundary":
                gone = (line.get("data") or {}).get("dropped")
                out = [one for one in lines if gone is None or one.get("uuid") in gone]
                dropped |= {str(one.get("requestId")) for one in out}
                lines = [one for one in lines if one not in out]
            elif line.get("type") in {"user", "assistant"}:
                lines.append(line)
        return lines, dropped

    def _archived(self) -> dict[ChatKey, list[_Fact]]:
        """Return, for each chat, the events for archive lines that have no row in the journal. Deleted lines are skipped."""
        files = [path.read_bytes().splitlines() for path in sorted((self.home / "chats").glob("*.jsonl"))]
        files += [raws for name, raws in self._pending.items() if name.startswith("chats/")]
        read = _read([raw for raws in files for raw in raws])
        lines = [one for one in read if {"chatKey", "ts", "role"} <= one[1].keys()]
        rows = {row["id"] for row in self._sent}
        taken = {one.inbound.request_id for some in self._inbox.values() for one in some}
        gone = {
            (meta.get("ofRole") or "user", str(one))
            for meta in [line.get("meta") or {} for _, line in lines if line["role"] == "system"]
            for one in (meta.get("deleted") and meta.get("of")) or ()
        }
        found: dict[ChatKey, list[_Fact]] = defaultdict(list)
        for raw, line in lines:
            meta = line.get("meta") or {}
            request = str(meta.get("requestId") or "")
            if (line["role"], request) in gone:
                continue
            with contextlib.suppress(ValueError, KeyError):
                chat = ChatKey.parse(line["chatKey"])
                if line["role"] == "user" and request not in taken:
                    found[chat] += _said(chat, line, meta, raw)
                elif line["role"] == "assistant" and rows.isdisjoint(meta.get("outboxIds") or ()):
                    at, made_from = line["ts"] / 1000, raw.decode("utf-8", "replace")
                    row = (meta.get("outboxIds") or [fixed_ulid(at, made_from)])[0]
                    where = {"channel": line["channel"], "chat_id": line["chatId"]}
                    queued = events.Queued(row, {}, line["text"], **where)
                    ended = events.RowEnded(row, "sent", line.get("messageId"))
                    found[chat] += (
                        _Fact(at, one, made_from, meta.get("requestId")) for one in (queued, ended)
                    )
        return found

    def _memory(self, chat: ChatKey, at: float) -> Iterator[_Fact]:
        """Yield the events for a chat's memory. Version 0.1 did not store which messages the memory covers."""
        folder = self.home / "memory" / jsonl.file_name(chat)
        with contextlib.suppress(OSError, ValueError):  # the file is missing or unreadable
            words = (folder / "session.md").read_text("utf-8")
            memory.read(words)
            about = json.loads((folder / "covers.json").read_text("utf-8"))
            yield _Fact(at, events.Remembered(words, None, unpacked(about.get(ORIGIN)).packed()), "memory")

    # ------------------------------------------------------------ facts without a chat

    def _gateway(self) -> Iterator[_Fact]:
        found = list[tuple[str, str, Json]]()
        for row in self.rows("locales"):
            value = {name: row[name] for name in ("language", "zone")}
            value |= {name: bool(row[name]) for name in ("language_chosen", "zone_chosen")}
            found.append(("locale", str(UserRef(row["channel"], row["user_id"])), value))
        for row in self.rows("chats", "WHERE listening IS NOT NULL"):
            found.append(("listening", row["chat_key"], {"to": row["listening"]}))
        found += [("job", row["id"], json.loads(row["spec"])) for row in self.rows("jobs")]
        for row in self.rows("approvals", "WHERE state = 'approved' AND scope <> 'once'"):
            by = UserRef.parse(row["decided_by"]) if row["decided_by"] else None
            name, request = row["decided_name"] or "", row["decided_request_id"] or ""
            with contextlib.suppress(ValidationError):
                asked = _APPROVALS.validate_json(row["asked"])
                verdict = Verdict("approved", by, row["scope"], name, request)
                lasting = LastingApproval(row["id"], asked, verdict, row["decided_at"])
                found.append(("approval", row["id"], _LASTING.dump_python(lasting, mode="json")))
        for of, key, value in found:
            yield _Fact(0.0, events.FactSet(of, key, value), f"{of} {key}")


def fixed_ulid(at: float, words: str) -> str:
    """Return an id that depends only on the arguments. A second import therefore makes the same ids."""
    digest = int.from_bytes(hashlib.sha256(words.encode("utf-8", "replace")).digest()[:10])
    return ulid_of(int(at * 1000) << 80 | digest)


def _read(raws: Sequence[bytes]) -> Iterator[tuple[bytes, Json]]:
    seen = set[bytes]()
    for raw in raws:
        if raw in seen:
            continue
        seen.add(raw)
        try:
            value = json.loads(raw)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield raw, value


def _said(chat: ChatKey, line: Json, meta: Json, raw: bytes) -> Iterator[_Fact]:
    at, made_from = line["ts"] / 1000, raw.decode("utf-8", "replace")
    name = str(meta.get("requestId") or fixed_ulid(at, made_from))
    inbound = Inbound(
        request_id=name,
        channel=line["channel"],
        chat_id=line["chatId"],
        chat_key=chat,
        chat_type=meta.get("chatType") or "direct",
        user_id=line.get("userId") or "",
        user_name=meta.get("username"),
        keys=(f"archive:{name}",),
        ts=line["ts"],
        target={},
        text=line["text"],
        message_id=line.get("messageId"),
    )
    yield _Fact(at, events.Received(inbound), made_from, person=str(inbound.person))
    yield _Fact(at, events.Closed(name), made_from)
