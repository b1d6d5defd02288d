"""Sums of what calls of the model used and cost, and of errors by cause, counted from the operator's log: `.ship/usage.db`.

The log is the source: beside the sums stands how far each of its files is counted, in the same transaction, so that a kill leaves
neither out nor twice. Sums of usage are kept when the log of their day is removed; causes go with it, as they have its words.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Disk
from bot.history.search import index_file
from bot.history.usage import causes
from bot.telemetry.log import PACKED, day_files

VERSION = 1
FILE = "usage.db"
BUSY_SECONDS = 30.0
READ = 1024 * 1024
TOKENS = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
_COUNTED = ("turns", "failed", "calls", *TOKENS, "costUsd", "unpriced")
_NEEDLES = (b'"llm_response"', b'"turn_end"', b'"feedback"', *causes.NEEDLES)
_HOUR = 3_600
_EPOCH = date(1970, 1, 1)
_TABLES = f"""
CREATE TABLE files (name TEXT PRIMARY KEY, size INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE usage (
    hour INTEGER, chat TEXT, person TEXT, model TEXT, purpose TEXT,
    {", ".join(f"{name} NOT NULL" for name in _COUNTED)},
    PRIMARY KEY (hour, chat, person, model, purpose)
) WITHOUT ROWID;
CREATE TABLE failures (
    hour INTEGER, chat TEXT, error TEXT, count INTEGER NOT NULL, PRIMARY KEY (hour, chat, error)
) WITHOUT ROWID;
CREATE TABLE latencies (
    hour INTEGER, chat TEXT, ms INTEGER, count INTEGER NOT NULL, PRIMARY KEY (hour, chat, ms)
) WITHOUT ROWID;
"""

_RATINGS = """CREATE TABLE IF NOT EXISTS ratings (
    hour INTEGER, chat TEXT, rating TEXT, count INTEGER NOT NULL, PRIMARY KEY (hour, chat, rating)
) WITHOUT ROWID"""
"""A table that is made where an earlier version has left it out: no line that it counts was written before."""
_COUNTS = ("failures", "latencies", "ratings")

_COLUMNS = ("hour", "chat", "person", "model", "purpose", *_COUNTED)
_MARKS = ", ".join("?" * len(_COLUMNS))
_MORE = ", ".join(f"{name} = {name} + excluded.{name}" for name in _COUNTED)
_ADD = f"INSERT INTO usage VALUES ({_MARKS}) ON CONFLICT DO UPDATE SET {_MORE}"  # noqa: S608 - constants
_ADD_COUNT = "INSERT INTO {} VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count"

_WHERE = " WHERE hour >= :hour AND (:chat IS NULL OR chat = :chat)"
Level = Literal["error", "warn"]
By = Literal["day", "person", "chat", "model"]
_GROUPS: Mapping[By, str] = {
    "day": "date(hour * 3600, 'unixepoch')",
    "person": "person",
    "chat": "chat",
    "model": "model",
}


@dataclass
class UsageTotals:
    """Totals of log lines. Failures that the provider bills count with their tokens and cost, not as calls."""

    turns: int = 0
    failed: int = 0
    calls: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    """Answers by model."""
    tokens: Counter[str] = field(default_factory=Counter)
    cost: float = 0.0
    unpriced: int = 0
    latencies: Counter[int] = field(default_factory=Counter)
    """Answers by milliseconds, of which two digits are kept."""
    ratings: Counter[str] = field(default_factory=Counter)
    """Ratings of answers; a person who thinks again counts again."""

    def take(self, line: Mapping[str, Any]) -> None:
        """Count one line; most are no matter."""
        details = causes.details_of(line)
        if line.get("kind") == "turn_end":
            self.turns += 1
            self.failed += details.get("status") == "failed"
        elif line.get("kind") == "feedback":
            self.ratings[str(details.get("rating") or "none")] += 1
        elif line.get("kind") == "llm_response":
            usage, error = details.get("usage"), details.get("error")
            if isinstance(usage, dict):
                self._billed(usage, details)
            if error is not None or not isinstance(usage, dict):
                self.errors[str(error or "unknown")] += 1
            else:
                self.calls += 1
                self.models[str(details.get("model") or "unknown")] += 1
                self.latencies[_two_digits(_number(details.get("latencyMs")))] += 1

    def _billed(self, usage: Mapping[str, Any], details: Mapping[str, Any]) -> None:
        for name in TOKENS:
            self.tokens[name] += _number(usage.get(name))
        cost = details.get("costUsd")
        if isinstance(cost, int | float):
            self.cost += cost
        else:
            self.unpriced += 1

    @property
    def prompt(self) -> int:
        """Tokens that were read, from the cache too."""
        return sum(self.tokens[name] for name in TOKENS[:3])

    @property
    def cached(self) -> float | None:
        """The share of what was read that came from the cache; None if nothing was."""
        return self.tokens["cacheReadTokens"] / self.prompt if self.prompt else None

    def latency(self, share: float) -> int | None:
        """The latency that this share of the answers did not exceed, in milliseconds; None if there was none."""
        left = max(1, math.ceil(share * self.latencies.total()))
        for ms, count in sorted(self.latencies.items()):
            left -= count
            if left <= 0:
                return ms
        return None

    @property
    def counted(self) -> tuple[float, ...]:
        """The figures, in the order of the table."""
        tokens = (self.tokens[name] for name in TOKENS)
        return self.turns, self.failed, self.calls, *tokens, self.cost, self.unpriced


_Key = tuple[int, str, str, str, str]


class UsageSums:
    """The sums of a folder's log. Blocking, for any thread and for several processes; raises `errors.StorageError`."""

    def __init__(self, home: Path, disk: Disk) -> None:
        self._path = home / FILE
        self._logs = home / "logs"
        self._disk = disk

    def catch_up(self) -> None:
        """Count what the log has that is not counted yet. A file that has become shorter is counted anew, with its day."""
        with self._opened() as db:
            self._count(db)

    def damage(self) -> str:
        """The first damage that is found in the file, which stays as it is; "" where it is whole."""
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        try:
            with contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as db:
                (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            return str(error)
        return "" if found == "ok" else str(found)

    def rebuild(self) -> tuple[int, int]:
        """Count everything anew; the number of days of the log, and of days whose sums stay as they are since their log is
        gone.
        """
        with self._opened() as db:
            days = {day for day, _, _ in day_files(self._logs, self._disk)}
            self._count_causes(db)
            with index_file.transaction(db):
                for day in days:
                    _forget(db, day)
            self._count(db)
            kept = {hour // 24 for (hour,) in db.execute("SELECT DISTINCT hour FROM usage")}
            return len(days), len(kept - {(day - _EPOCH).days for day in days})

    def total(self, *, chat: str | None = None, since: float = 0.0) -> UsageTotals:
        """All that was counted from the hour of a time on (epoch seconds), of one chat or of all."""
        given, found = _given(chat, since), UsageTotals()
        with self._opened() as db:
            for _, sums in self._grouped(db, ["''"], given):
                found = sums
            for counts, table, name, count in (
                (found.errors, "failures", "error", "count"),
                (found.latencies, "latencies", "ms", "count"),
                (found.models, "usage", "model", "calls"),
                (found.ratings, "ratings", "rating", "count"),
            ):
                select = f"SELECT {name}, SUM({count}) FROM {table}{_WHERE} GROUP BY 1"  # noqa: S608 - constants
                counts.update(dict(db.execute(select, given)))
        found.models = +found.models
        return found

    def by(self, name: By, *, chat: str | None = None, since: float = 0.0) -> list[tuple[str, UsageTotals]]:
        """The same by day (UTC) in order, or by person, chat or model, the dearest first. Without errors, models, latencies.
        "" is what belongs to no person, chat or model.
        """
        with self._opened() as db:
            found = [(one, sums) for (one,), sums in self._grouped(db, [_GROUPS[name]], _given(chat, since))]
        if name == "model":
            found = [one for one in found if one[0]]
        if name != "day":
            found.sort(key=lambda one: (-one[1].cost, -one[1].prompt, one[0]))
        return found

    def last_chats(self, people: Collection[str]) -> dict[str, str]:
        """The chat in which each of these people caused something last."""
        marks = ", ".join("?" * len(people))
        select = (
            f"SELECT person, chat, MAX(hour) FROM usage WHERE chat != '' AND person IN ({marks}) GROUP BY 1"  # noqa: S608 - marks
        )
        with self._opened() as db:
            return {person: chat for person, chat, _ in db.execute(select, tuple(people))}

    def spent(self, since: float) -> list[tuple[tuple[str, ...], UsageTotals]]:
        """The same by chat, person and model together."""
        with self._opened() as db:
            return list(self._grouped(db, ["chat", "person", "model"], _given(None, since)))

    def causes(
        self, level: Level, since: float, *, offset: int = 0, limit: int
    ) -> tuple[list[causes.Cause], int] | None:
        """Errors, or warnings too, by cause, from the hour of a time on: those with the newest lines first, and the number of all.
        None where they are not counted yet.
        """
        with self._opened() as db:
            if not causes.are_counted(db):
                return None
            return causes.newest(db, level, math.floor(since / _HOUR), offset, limit)

    def rows(self, person: str, chats: Collection[str]) -> list[dict[str, Any]]:
        """The sums of a person, and of chats."""
        with self._opened() as db:
            return [dict(zip(_COLUMNS, row, strict=True)) for row in _of(db, "usage", person, chats)]

    def erase(self, person: str, chats: Collection[str]) -> int:
        """Take the names of a person and of chats off the sums, which stay; how many rows had one. The log counts as counted as it
        is now: lines were erased from it. Causes are counted anew.
        """
        with self._opened() as db:
            count = 0
            with index_file.transaction(db):
                for table, add in (("usage", _ADD), *((one, _ADD_COUNT.format(one)) for one in _COUNTS)):
                    count += _unname(db, table, add, person, chats)
                sizes = [(_name(path), self._size(path)) for _, _, path in day_files(self._logs, self._disk)]
                db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?)", sizes)
                db.execute("DROP TABLE IF EXISTS causes")
            self._count_causes(db)
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return count

    @staticmethod
    def _grouped(
        db: sqlite3.Connection, groups: Sequence[str], given: Mapping[str, Any]
    ) -> Iterator[tuple[tuple[str, ...], UsageTotals]]:
        sums = ", ".join(f"SUM({name})" for name in _COUNTED)
        names = ", ".join(groups)
        select = f"SELECT {sums}, {names} FROM usage{_WHERE} GROUP BY {names} ORDER BY {names}"  # noqa: S608 - constants
        for turns, failed, calls, fresh, read, write, answer, cost, unpriced, *group in db.execute(
            select, given
        ):
            counted = Counter(dict(zip(TOKENS, (fresh, read, write, answer), strict=True)))
            yield (
                tuple(group),
                UsageTotals(turns, failed, calls, tokens=counted, cost=cost, unpriced=unpriced),
            )

    # ------------------------------------------------------------ the file

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """A connection to tables of this version; a file that is damaged or of another version is made anew from the log."""
        with errors.as_storage_error("the sums of usage cannot be kept", sqlite3.Error, OSError):
            try:
                db = self._connect()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                index_file.remove(self._path)
                db = self._connect()
            with contextlib.closing(db):
                yield db

    def _connect(self) -> sqlite3.Connection:
        # What a power cut takes with it is counted again, as with the index.
        db = index_file.connect(self._path, BUSY_SECONDS)
        try:
            db.execute("PRAGMA secure_delete=ON")
            if db.execute("PRAGMA user_version").fetchone() != (VERSION,):
                _make_anew(db)
            db.execute(_RATINGS)
        except sqlite3.Error:
            db.close()
            raise
        return db

    # ------------------------------------------------------------ the log

    def _count(self, db: sqlite3.Connection) -> None:
        self._count_causes(db)
        files = day_files(self._logs, self._disk)
        with index_file.transaction(db):
            first = min((day for day, _, _ in files), default=date.max)
            db.execute("DELETE FROM causes WHERE hour < ?", ((first - _EPOCH).days * 24,))
            # A power cut may have taken the end of a file that was counted. One that is gone was removed or compressed.
            for day in {day for day, _, path in files if 0 < self._size(path) < _counted(db, path)}:
                _forget(db, day)
        for _, _, path in files:
            if self._size(path) > _counted(db, path):
                with index_file.transaction(db):
                    self._count_file(db, path)

    def _count_causes(self, db: sqlite3.Connection) -> None:
        """Count the causes of all that is counted, where there is no table of them."""
        if causes.are_counted(db):
            return
        with index_file.transaction(db):
            if causes.are_counted(db):
                return  # by another process, meanwhile
            db.execute(causes.TABLE)
            for _, _, path in day_files(self._logs, self._disk):
                found, done = causes.CauseCounts(), _counted(db, path)
                for end, whole in self._whole_lines(path, 0):
                    counted = whole[: max(0, done - end + len(whole) + 1)]
                    for hour, line in _wanted(counted, causes.NEEDLES):
                        found.take(line, hour)
                found.add_to(db)

    def _count_file(self, db: sqlite3.Connection, path: Path) -> None:
        at = _counted(db, path)
        groups: dict[_Key, UsageTotals] = defaultdict(UsageTotals)
        found = causes.CauseCounts()
        for end, whole in self._whole_lines(path, at):
            at = end
            for hour, line in _wanted(whole, _NEEDLES):
                _take(groups, line, hour)
                found.take(line, hour)
        _add(db, groups)
        found.add_to(db)
        # Nothing is added any more to a file that is compressed, be it damaged.
        done = self._size(path) if path.suffix == PACKED else at
        db.execute("INSERT OR REPLACE INTO files VALUES (?, ?)", (_name(path), done))

    def _whole_lines(self, path: Path, at: int) -> Iterator[tuple[int, bytes]]:
        """The whole lines of a file from a place on, many at once, with the place behind them."""
        rest = b""
        for piece in self._pieces(path, at):
            whole, end, rest = (rest + piece).rpartition(b"\n")
            if end:
                at += len(whole) + 1
                yield at, whole

    def _size(self, path: Path) -> int:
        """Bytes of a file, uncompressed."""
        if path.suffix != PACKED:
            return self._disk.size(path)
        with contextlib.closing(self._disk.open(path)) as file:
            return int.from_bytes(file.read(max(0, file.size - 4), 4), "little")

    def _pieces(self, path: Path, begin: int) -> Iterator[bytes]:
        """The bytes of a file from a place on, uncompressed."""
        with contextlib.closing(self._disk.open(path)) as file:
            if path.suffix != PACKED:
                for at in range(begin, file.size, READ):
                    yield file.read(at, READ)
                return
            unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS + 16)
            with contextlib.suppress(zlib.error):
                for at in range(0, file.size, READ):
                    piece = unpacker.decompress(file.read(at, READ))
                    yield piece[begin:]
                    begin = max(0, begin - len(piece))


def _make_anew(db: sqlite3.Connection) -> None:
    with index_file.transaction(db):
        for (name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall():
            db.execute(f'DROP TABLE "{name}"')
        for statement in _TABLES.split(";\n"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version={VERSION}")


def _counted(db: sqlite3.Connection, path: Path) -> int:
    found = db.execute("SELECT size FROM files WHERE name = ?", (_name(path),)).fetchone()
    return 0 if found is None else int(found[0])


def _forget(db: sqlite3.Connection, day: date) -> None:
    first = (day - _EPOCH).days * 24
    for table in ("usage", *_COUNTS, "causes"):
        hours = f"DELETE FROM {table} WHERE hour >= ? AND hour < ?"  # noqa: S608 - constants
        db.execute(hours, (first, first + 24))
    db.execute("DELETE FROM files WHERE name GLOB ?", (f"{day.isoformat()}.*",))


def _wanted(lines: bytes, needles: Sequence[bytes]) -> Iterator[tuple[int, Json]]:
    """The lines that hold one of these, with their hour."""
    if not any(needle in lines for needle in needles):
        return
    for raw in lines.split(b"\n"):
        if any(needle in raw for needle in needles):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                line = json.loads(raw)
                hour = math.floor(datetime.fromisoformat(line["timestamp"]).timestamp() / _HOUR)
                yield hour, line


def _take(groups: Mapping[_Key, UsageTotals], line: Json, hour: int) -> None:
    if line.get("kind") not in {"llm_response", "turn_end", "feedback"}:
        return
    details = causes.details_of(line)
    who = (line.get("chatKey"), details.get("person"), details.get("model"), details.get("purpose"))
    chat, person, model, purpose = (str(one or "") for one in who)
    groups[hour, chat, person, model, purpose].take(line)


def _add(db: sqlite3.Connection, groups: Mapping[_Key, UsageTotals]) -> None:
    # A rating alone is no use of the model.
    db.executemany(
        _ADD, ((*key, *sums.counted) for key, sums in groups.items() if any(sums.counted) or not sums.ratings)
    )
    for (hour, chat, *_), sums in groups.items():
        for table, counts in (
            ("failures", sums.errors),
            ("latencies", sums.latencies),
            ("ratings", sums.ratings),
        ):
            rows = [(hour, chat, name, count) for name, count in counts.items()]
            db.executemany(_ADD_COUNT.format(table), rows)


def _of(db: sqlite3.Connection, table: str, person: str, chats: Collection[str]) -> list[tuple[Any, ...]]:
    """The rows of a table that name a person, or one of these chats."""
    rows = db.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - a constant
    return [row for row in rows if row[1] in chats or (table == "usage" and row[2] == person)]


def _unname(db: sqlite3.Connection, table: str, add: str, person: str, chats: Collection[str]) -> int:
    found = _of(db, table, person, chats)
    keys = 5 if table == "usage" else 3
    names = [column[1] for column in db.execute(f"PRAGMA table_info({table})")][:keys]
    where = " AND ".join(f"{name} = ?" for name in names)
    db.executemany(f"DELETE FROM {table} WHERE {where}", (row[:keys] for row in found))  # noqa: S608 - constants
    for hour, chat, third, *rest in found:
        left = "" if chat in chats else chat
        db.execute(
            add.format(table), (hour, left, "" if table == "usage" and third == person else third, *rest)
        )
    return len(found)


def _given(chat: str | None, since: float) -> Mapping[str, Any]:
    return {"chat": chat, "hour": math.floor(since / _HOUR)}


def _name(path: Path) -> str:
    return path.name.removesuffix(PACKED)


def _number(value: object) -> int:
    return round(value) if isinstance(value, int | float) else 0


def _two_digits(value: int) -> int:
    return value if value < 100 else round(value, 2 - len(str(value)))
