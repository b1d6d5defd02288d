"""The schema of `journal.db`: the tables of one version, and the steps from there on. `PRAGMA user_version` holds the version."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache

from bot import errors
from bot.contracts.journal import DataLoss
from bot.journal.connection import Connection

Migration = Callable[[Connection], None]

BASELINE = 17
"""The version that `TABLES` makes. Older ones were never released, and are not read."""
TABLES = (
    # Rows of the inbox go; that a conversation was taken up stays.
    "CREATE TABLE chats (chat_key TEXT PRIMARY KEY, first_at REAL NOT NULL, listening TEXT) WITHOUT ROWID",
    "CREATE TABLE keys (key TEXT PRIMARY KEY, request_id TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID",
    "CREATE INDEX keys_at ON keys (at)",
    """CREATE TABLE dead_letters (
        channel TEXT NOT NULL,
        key TEXT NOT NULL,
        raw TEXT NOT NULL,
        reason TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (channel, key)
    )""",
    "CREATE TABLE once (key TEXT PRIMARY KEY, at REAL NOT NULL, until REAL NOT NULL) WITHOUT ROWID",
    "CREATE INDEX once_until ON once (until)",
    """CREATE TABLE steps (
        request_id TEXT NOT NULL,
        id TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('model', 'tool')),
        name TEXT NOT NULL,
        began_at REAL NOT NULL,
        ended_at REAL,
        result TEXT, parent_id TEXT,
        PRIMARY KEY (request_id, id)
    )""",
    "CREATE INDEX steps_began ON steps (began_at)",
    "CREATE TABLE jobs (id TEXT PRIMARY KEY, chat_key TEXT NOT NULL, spec TEXT NOT NULL, served REAL)",
    """CREATE TABLE leases (
        name TEXT PRIMARY KEY,
        holder TEXT,
        number INTEGER NOT NULL,
        taken_at REAL NOT NULL,
        until REAL NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE closed_targets (
        channel TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        reason TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (channel, chat_id)
    ) WITHOUT ROWID""",
    "CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 1), at REAL NOT NULL)",
    "CREATE INDEX dead_letters_at ON dead_letters (at)",
    # The last loss of a damaged or missing journal. `at` is NULL until it was found out.
    """CREATE TABLE lost (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        what TEXT NOT NULL CHECK (what IN ('damaged', 'gone')),
        at REAL
    )""",
    """CREATE TABLE "outbox" (
        id TEXT PRIMARY KEY,
        request_id TEXT NOT NULL,
        chat_key TEXT NOT NULL,
        target TEXT NOT NULL,
        text TEXT NOT NULL,
        kind TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('ready', 'sending', 'sent', 'failed', 'unknown')),
        message_id TEXT,
        reason TEXT,
        step_id TEXT,
        replaces TEXT,
        repeat_of TEXT,
        not_before REAL,
        attempts INTEGER NOT NULL DEFAULT 0,
        untold INTEGER NOT NULL DEFAULT 0,
        created_at REAL NOT NULL,
        changed_at REAL NOT NULL
        , question_id TEXT, choices TEXT, language TEXT, file TEXT, zone TEXT, own_zone INTEGER NOT NULL DEFAULT 0,
        part_of TEXT, closes_as TEXT, delayed INTEGER NOT NULL DEFAULT 0)""",
    "CREATE INDEX outbox_request ON outbox (request_id)",
    "CREATE INDEX outbox_sent ON outbox (changed_at) WHERE state = 'sent'",
    "CREATE INDEX outbox_lost ON outbox (changed_at) WHERE state IN ('unknown', 'failed')",
    "CREATE INDEX outbox_open ON outbox (state) WHERE state IN ('ready', 'sending')",
    "CREATE INDEX outbox_shown ON outbox (chat_key, message_id) WHERE state = 'sent' AND kind = 'reply'",
    "CREATE INDEX outbox_newest ON outbox (chat_key) WHERE kind = 'reply'",
    "CREATE INDEX outbox_untold ON outbox (chat_key) WHERE untold = 1",
    """CREATE TABLE inbox (
        request_id TEXT PRIMARY KEY CHECK (request_id <> ''),
        chat_key TEXT NOT NULL,
        user_id TEXT NOT NULL,
        received_at REAL NOT NULL,
        changed_at REAL NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('queued', 'in_turn', 'answered', 'failed', 'stopped', 'withdrawn',
            'merged', 'handled', 'dead')),
        turn_id TEXT,
        merged_into TEXT,
        detail TEXT,
        message_id TEXT,
        payload TEXT NOT NULL
        , amends TEXT)""",
    "CREATE INDEX inbox_open ON inbox (state) WHERE state IN ('queued', 'in_turn')",
    "CREATE INDEX inbox_ended ON inbox (changed_at) WHERE state NOT IN ('queued', 'in_turn', 'dead')",
    "CREATE INDEX inbox_dead ON inbox (changed_at) WHERE state = 'dead'",
    "CREATE INDEX inbox_message ON inbox (chat_key, message_id) WHERE message_id IS NOT NULL",
    "CREATE INDEX inbox_turn ON inbox (turn_id) WHERE turn_id IS NOT NULL",
    """CREATE TABLE turns (
        id TEXT PRIMARY KEY,
        chat_key TEXT NOT NULL,
        state TEXT NOT NULL
            CHECK (state IN ('running', 'suspended', 'stopping', 'done', 'failed', 'stopped', 'withdrawn')),
        begun_at REAL NOT NULL,
        ended_at REAL
    )""",
    "CREATE INDEX turns_begun ON turns (begun_at)",
    # Lines of transcripts and archive that are on disk here until they are in their files.
    "CREATE TABLE lines (number INTEGER PRIMARY KEY, file TEXT NOT NULL, lines BLOB NOT NULL)",
    """CREATE TABLE locales (
        channel TEXT NOT NULL,
        user_id TEXT NOT NULL,
        language TEXT,
        language_chosen INTEGER NOT NULL,
        zone TEXT,
        zone_chosen INTEGER NOT NULL,
        PRIMARY KEY (channel, user_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE "approvals" (
        id TEXT PRIMARY KEY,
        request_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        chat_key TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        subject TEXT NOT NULL CHECK (subject IN ('call', 'task', 'budget', 'person')),
        asked TEXT NOT NULL,
        state TEXT NOT NULL
            CHECK (state IN ('waiting', 'approved', 'denied', 'steered', 'stopped', 'expired', 'nobody')),
        asked_at REAL NOT NULL,
        decided_by TEXT,
        decided_name TEXT,
        scope TEXT CHECK (scope IN ('once', 'chat', 'always')),
        decided_at REAL, decided_request_id TEXT,
        UNIQUE (request_id, call_id, fingerprint)
    )""",
    "CREATE INDEX approvals_open ON approvals (id) WHERE state IN ('waiting')",
    "CREATE INDEX approvals_asked ON approvals (asked_at)",
    "CREATE INDEX approvals_decided ON approvals (decided_at) WHERE decided_at IS NOT NULL",
    "CREATE INDEX approvals_given ON approvals (fingerprint) WHERE state IN ('approved')",
    "CREATE INDEX approvals_decided_by ON approvals (decided_request_id) WHERE decided_request_id IS NOT NULL",
)
"""Word for word what SQLite has on file of each: `damage` compares them, but for how much white space there is."""
LATER: Sequence[Migration] = ()
"""The step to each version after the baseline. One that was released is never changed."""
NEWEST = BASELINE + len(LATER)

Described = dict[str, tuple[str, ...]]
"""Name of a table or index: what it is, of which table, and the words that made it."""


LOSES = (
    "which loses messages without an answer, open questions, jobs, lasting permissions and people's settings"
)
"""What happens where a journal is moved away."""


def refusal(version: int, newest: int = NEWEST, what: str = "journal.db") -> str:
    """The reason why a journal of this version is not opened, and what to do; "" where it is. 0 is that of an empty one."""
    if version > newest:
        return (
            f"the journal has version {version}, this Shipmate knows versions up to {newest}: it was written by a newer one; run that, "
            f"or put {what}.version-{newest} in its place, which loses what came since, or move {what} away, {LOSES}"
        )
    if version and version < BASELINE:
        return (
            f"the journal has version {version}, this Shipmate knows versions from {BASELINE} on: it was written by an unreleased "
            f"earlier version; move {what} away, {LOSES}"
        )
    return ""


def damage(db: Connection) -> str:
    """A mismatch between a file's version and its schema; "" where they fit.

    SQLite trusts its own schema: a renamed column passes each of its checks, and fails at the first write. Tables and
    columns with names of others are left alone.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > NEWEST:
        return ""  # a newer one may know better
    older = bool(version) and version < BASELINE
    made, found = _made(BASELINE if older else version), _described(db)
    known = made.keys() | _made(NEWEST).keys()
    wrong = sorted(name for name in known if made.get(name) != found.get(name))
    if older:  # what is described as the baseline has only its number damaged
        return "" if wrong else f"its description is not that of version {version}"
    return f"its description of {wrong[0]} is not that of version {version}" if wrong else ""


def _in_memory(version: int) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    if version:
        migrate(db, LATER[: version - BASELINE])
    return db


@cache
def _made(version: int) -> Described:
    with closing(_in_memory(version)) as db:
        return _described(db)


def _described(db: Connection) -> Described:
    rows = db.execute("SELECT name, type, tbl_name, coalesce(sql, '') FROM sqlite_master").fetchall()
    return {name: (what, of, " ".join(words.split())) for name, what, of, words in rows}


def statements() -> list[str]:
    """Statements in SQLite's words that make the tables and indexes of the newest version."""
    return [words for _, _, words in _made(NEWEST).values() if words]


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table, and by which of them its rows are in order; `rowid` is the order in which they came."""

    columns: tuple[str, ...]
    order: tuple[str, ...]


@cache
def tables() -> Mapping[str, Table]:
    """The tables of the newest version, by their names."""
    found = dict[str, Table]()
    with closing(_in_memory(NEWEST)) as db:
        for name, (what, _, words) in _described(db).items():
            if what == "table":
                columns = db.execute(f"PRAGMA table_info({name})").fetchall()
                keyed = "WITHOUT ROWID" in words or "INTEGER PRIMARY KEY" in words
                keys = tuple(column[1] for column in columns if column[5]) if keyed else ("rowid",)
                found[name] = Table(tuple(column[1] for column in columns), keys)
    return found


def migrate(db: Connection, later: Sequence[Migration] = LATER) -> int:
    """Make the tables of an empty database, or bring those that are there up to date, wholly or not at all; returns how many
    steps those that were there lacked.

    Raises `errors.StorageError` where a version has written it that is not read.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    newest = BASELINE + len(later)
    if why := refusal(version, newest):
        raise errors.StorageError(why)
    missing = later[version - BASELINE :] if version else later
    if version != newest:
        db.execute("BEGIN IMMEDIATE")
        try:
            if not version:
                for statement in TABLES:
                    db.execute(statement)
                # With the tables, so that no kill in between hides that there was nothing.
                db.execute("INSERT INTO lost VALUES (1, 'gone', NULL)")
            for step in missing:
                step(db)
            db.execute(f"PRAGMA user_version = {newest}")
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
    return len(missing) if version else 0


def lost(db: Connection, *, damaged: bool, now: float) -> DataLoss | None:
    """The last loss on file, with what has just been found."""
    if damaged:
        db.execute(
            "INSERT INTO lost VALUES (1, 'damaged', ?) ON CONFLICT (id) DO UPDATE SET what = 'damaged', at = excluded.at",
            (now,),
        )
    db.execute("UPDATE lost SET at = ? WHERE at IS NULL", (now,))
    row = db.execute("SELECT what, at FROM lost").fetchone()
    return None if row is None else DataLoss(*row)
