"""The schema of `journal.db`, as numbered steps. `PRAGMA user_version` holds the number of the last one done.

A step that was released is never changed; what comes next is a new one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import Any

from bot import errors, text
from bot.contracts.journal import DataLoss
from bot.journal.connection import Connection

Migration = Callable[[Connection], None]


def inbox_and_outbox(db: Connection) -> None:
    """Inbox with its keys, outbox, dead letters, and what may happen only once in a while."""
    for statement in (
        # Rows of the inbox go; that a conversation was taken up stays.
        "CREATE TABLE chats (chat_key TEXT PRIMARY KEY, first_at REAL NOT NULL) WITHOUT ROWID",
        """CREATE TABLE inbox (
            request_id TEXT PRIMARY KEY CHECK (request_id <> ''),
            chat_key TEXT NOT NULL,
            user_id TEXT NOT NULL,
            received_at REAL NOT NULL,
            changed_at REAL NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('received', 'claimed', 'done', 'dead')),
            outcome TEXT,
            payload TEXT NOT NULL
        )""",
        "CREATE INDEX inbox_open ON inbox (state) WHERE state IN ('received', 'claimed')",
        "CREATE INDEX inbox_closed ON inbox (changed_at) WHERE state IN ('done', 'dead')",
        "CREATE TABLE keys (key TEXT PRIMARY KEY, request_id TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID",
        "CREATE INDEX keys_at ON keys (at)",
        """CREATE TABLE outbox (
            id TEXT PRIMARY KEY,
            request_id TEXT NOT NULL,
            chat_key TEXT NOT NULL,
            target TEXT NOT NULL,
            text TEXT NOT NULL,
            kind TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('intent', 'sending', 'sent', 'uncertain', 'failed')),
            message_id TEXT,
            detail TEXT,
            created_at REAL NOT NULL,
            changed_at REAL NOT NULL
        )""",
        "CREATE INDEX outbox_request ON outbox (request_id)",
        "CREATE INDEX outbox_sent ON outbox (changed_at) WHERE state = 'sent'",
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
    ):
        db.execute(statement)


def steps_schedule_and_leases(db: Connection) -> None:
    """Steps, jobs, leases and closed targets; inbound and replies can be found by the platform's message id."""
    for statement in (
        "ALTER TABLE inbox ADD COLUMN message_id TEXT",
        """CREATE TABLE steps (
            request_id TEXT NOT NULL,
            id TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('model', 'tool')),
            name TEXT NOT NULL,
            began_at REAL NOT NULL,
            ended_at REAL,
            result TEXT,
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
        "DROP INDEX inbox_closed",
        "CREATE INDEX inbox_done ON inbox (changed_at) WHERE state = 'done'",
        "CREATE INDEX inbox_dead ON inbox (changed_at) WHERE state = 'dead'",
        "CREATE INDEX outbox_lost ON outbox (changed_at) WHERE state IN ('uncertain', 'failed')",
        "CREATE INDEX outbox_open ON outbox (state) WHERE state IN ('intent', 'sending')",
        """CREATE INDEX outbox_shown ON outbox (chat_key, message_id)
            WHERE state = 'sent' AND kind = 'reply'""",
        "CREATE INDEX outbox_newest ON outbox (chat_key) WHERE kind = 'reply'",
        "CREATE INDEX dead_letters_at ON dead_letters (at)",
    ):
        db.execute(statement)
    for rowid, payload in db.execute("SELECT rowid, payload FROM inbox").fetchall():
        db.execute("UPDATE inbox SET message_id = ? WHERE rowid = ?", (_message_id(payload), rowid))
    db.execute("CREATE INDEX inbox_message ON inbox (chat_key, message_id) WHERE message_id IS NOT NULL")


def _message_id(payload: str) -> str | None:
    try:
        found = json.loads(payload).get("messageId")
    except (ValueError, RecursionError, AttributeError):
        return None  # a row that cannot be read becomes a dead letter when it is its turn
    return found if isinstance(found, str) else None


def approvals(db: Connection) -> None:
    """Questions to people about tool calls."""
    db.execute("""CREATE TABLE approvals (
        id TEXT PRIMARY KEY,
        request_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        chat_key TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        asked TEXT NOT NULL,
        asked_at REAL NOT NULL,
        ended TEXT,
        decided_by TEXT,
        scope TEXT CHECK (scope IN ('once', 'chat', 'always')),
        decided_at REAL,
        UNIQUE (request_id, call_id, fingerprint)
    )""")
    db.execute("CREATE INDEX approvals_open ON approvals (id) WHERE ended IS NULL")
    db.execute("CREATE INDEX approvals_asked ON approvals (asked_at)")
    db.execute("CREATE INDEX approvals_given ON approvals (fingerprint) WHERE ended = 'approved'")


def outbox_columns(db: Connection) -> None:
    """Columns for facts that stood in the words of `detail` and in the endings of ids."""
    counted = "INTEGER NOT NULL DEFAULT 0"
    for column in ("not_before REAL", "repeat_of TEXT", f"attempts {counted}", f"untold {counted}"):
        db.execute(f"ALTER TABLE outbox ADD COLUMN {column}")
    db.execute("CREATE INDEX outbox_untold ON outbox (chat_key) WHERE untold = 1")
    db.execute("""UPDATE outbox SET not_before = CAST(substr(detail, 16) AS REAL), detail = NULL
        WHERE detail LIKE 'deferred until %'""")
    db.execute("UPDATE outbox SET repeat_of = substr(id, 1, instr(id, '-') - 1) WHERE instr(id, '-') > 0")


def last_loss(db: Connection) -> None:
    """The last loss of a damaged or missing journal. `at` is NULL until it was found out."""
    db.execute("""CREATE TABLE lost (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        what TEXT NOT NULL CHECK (what IN ('damaged', 'gone')),
        at REAL
    )""")


def outbox_rows(db: Connection) -> None:
    """States as `contracts.outbound.OutboxState` has them. Why a message is not in the chat, and in whose place it comes, get
    columns; nothing stands in words any more.
    """
    db.execute("""CREATE TABLE outbox_rows (
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
    )""")
    reasons = ", ".join(f"'{reason}'" for reason in _REASONS)
    db.execute(f"""INSERT INTO outbox_rows (id, request_id, chat_key, target, text, kind, state, message_id, reason,
            repeat_of, not_before, attempts, untold, created_at, changed_at)
        SELECT id, request_id, chat_key, target, text, kind,
            CASE state WHEN 'intent' THEN 'ready' WHEN 'uncertain' THEN 'unknown' ELSE state END, message_id,
            CASE WHEN detail IN ({reasons}) THEN detail END, repeat_of, not_before, attempts, untold, created_at, changed_at
        FROM outbox ORDER BY rowid""")
    became = "SELECT id, message_id, substr(detail, 8) FROM outbox WHERE detail LIKE 'became %'"
    for preview, message_id, reply in db.execute(became).fetchall():
        change = db.execute("UPDATE outbox_rows SET replaces = ? WHERE id = ?", (message_id, reply))
        if not change.rowcount:  # it ended before its reply was on file: that is still to come
            db.execute("UPDATE outbox_rows SET state = 'sending' WHERE id = ?", (preview,))
    db.execute("DROP TABLE outbox")
    db.execute("ALTER TABLE outbox_rows RENAME TO outbox")
    for statement in (
        "CREATE INDEX outbox_request ON outbox (request_id)",
        "CREATE INDEX outbox_sent ON outbox (changed_at) WHERE state = 'sent'",
        "CREATE INDEX outbox_lost ON outbox (changed_at) WHERE state IN ('unknown', 'failed')",
        "CREATE INDEX outbox_open ON outbox (state) WHERE state IN ('ready', 'sending')",
        "CREATE INDEX outbox_shown ON outbox (chat_key, message_id) WHERE state = 'sent' AND kind = 'reply'",
        "CREATE INDEX outbox_newest ON outbox (chat_key) WHERE kind = 'reply'",
        "CREATE INDEX outbox_untold ON outbox (chat_key) WHERE untold = 1",
    ):
        db.execute(statement)


def turns(db: Connection) -> None:
    """Turns get rows, and each inbound the id of its turn. States as `contracts.journal.InboxState` has them."""
    db.execute("""CREATE TABLE turns (
        id TEXT PRIMARY KEY,
        chat_key TEXT NOT NULL,
        state TEXT NOT NULL
            CHECK (state IN ('running', 'suspended', 'done', 'failed', 'stopped', 'withdrawn')),
        begun_at REAL NOT NULL,
        ended_at REAL
    )""")
    # Dropped before its successor is made, which then begins where it did: early in the file.
    db.execute("CREATE TEMP TABLE inbox_before AS SELECT rowid AS number, * FROM inbox")
    db.execute("DROP TABLE inbox")
    db.execute("""CREATE TABLE inbox (
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
    )""")
    db.execute("""INSERT INTO inbox (request_id, chat_key, user_id, received_at, changed_at, state, turn_id, detail,
            message_id, payload)
        SELECT request_id, chat_key, user_id, received_at, changed_at,
            CASE
                WHEN state = 'received' THEN 'queued'
                WHEN state = 'claimed' THEN 'in_turn'
                WHEN state = 'dead' THEN 'dead'
                WHEN outcome IN ('done', 'told before a restart', 'nothing to answer') THEN 'answered'
                WHEN outcome LIKE 'joined %' THEN 'answered'
                WHEN outcome IN ('failed', 'stopped', 'withdrawn') THEN outcome
                WHEN outcome = 'replaced' THEN 'merged'
                ELSE 'handled'
            END,
            CASE
                WHEN state = 'claimed' THEN request_id
                WHEN outcome LIKE 'joined %' THEN substr(outcome, 8)
                WHEN outcome IN ('done', 'failed', 'told before a restart', 'nothing to answer') THEN request_id
            END,
            outcome, message_id, payload
        FROM inbox_before ORDER BY number""")
    db.execute("DROP TABLE inbox_before")
    _gather_turns(db)
    db.execute("""INSERT INTO turns (id, chat_key, state, begun_at)
        SELECT request_id, chat_key, 'running', changed_at FROM inbox
            WHERE state = 'in_turn' AND turn_id = request_id""")
    for statement in (
        "CREATE INDEX inbox_open ON inbox (state) WHERE state IN ('queued', 'in_turn')",
        "CREATE INDEX inbox_ended ON inbox (changed_at) WHERE state NOT IN ('queued', 'in_turn', 'dead')",
        "CREATE INDEX inbox_dead ON inbox (changed_at) WHERE state = 'dead'",
        "CREATE INDEX inbox_message ON inbox (chat_key, message_id) WHERE message_id IS NOT NULL",
        "CREATE INDEX inbox_turn ON inbox (turn_id) WHERE turn_id IS NOT NULL",
        "CREATE INDEX turns_begun ON turns (begun_at)",
    ):
        db.execute(statement)


def _gather_turns(db: Connection) -> None:
    """Find the messages that a running turn began with: of its person, and claimed within a second of its first one, as
    earlier versions told them from others.
    """
    heads: dict[tuple[str, str], tuple[str, float]] = {}
    rows = db.execute("""SELECT request_id, chat_key, user_id, changed_at, payload FROM inbox
        WHERE state = 'in_turn' ORDER BY rowid""").fetchall()
    for request_id, chat_key, user_id, claimed_at, payload in rows:
        if not _plain(payload):
            continue
        head, at = heads.setdefault((chat_key, user_id), (request_id, claimed_at))
        if abs(claimed_at - at) < 1.0:
            db.execute("UPDATE inbox SET turn_id = ? WHERE request_id = ?", (head, request_id))


def _plain(payload: str) -> bool:
    """True of words for the model: no command, no edit, no job."""
    try:
        inbound = json.loads(payload)
        return bool(inbound["kind"] == "message" and not inbound.get("command") and not inbound.get("due"))
    except (ValueError, RecursionError, KeyError, TypeError):
        return False


def last_words(db: Connection) -> None:
    """An inbound whose person was told how it ended, or is being told, has ended; the outbox alone looks after those words. A
    turn can be on its way to its end: 'stopping'.
    """
    db.execute("CREATE TEMP TABLE turns_before AS SELECT * FROM turns")
    db.execute("DROP TABLE turns")
    db.execute("""CREATE TABLE turns (
        id TEXT PRIMARY KEY,
        chat_key TEXT NOT NULL,
        state TEXT NOT NULL
            CHECK (state IN ('running', 'suspended', 'stopping', 'done', 'failed', 'stopped', 'withdrawn')),
        begun_at REAL NOT NULL,
        ended_at REAL
    )""")
    db.execute("INSERT INTO turns SELECT id, chat_key, state, begun_at, ended_at FROM turns_before")
    db.execute("CREATE INDEX turns_begun ON turns (begun_at)")
    db.execute("DROP TABLE turns_before")
    db.execute("""CREATE TEMP TABLE told AS SELECT DISTINCT inbox.request_id AS id FROM inbox
        JOIN outbox ON outbox.request_id = inbox.request_id
        WHERE inbox.state IN ('queued', 'in_turn')
            AND outbox.kind = 'notice' AND outbox.state IN ('ready', 'sending', 'sent')""")
    db.execute("""UPDATE outbox SET not_before = created_at
        WHERE state IN ('ready', 'sending') AND kind = 'notice' AND not_before IS NULL
            AND request_id IN (SELECT id FROM told)""")
    db.execute("""UPDATE inbox SET state = 'answered', detail = 'told before an update'
        WHERE state IN ('queued', 'in_turn')
            AND (request_id IN (SELECT id FROM told) OR turn_id IN (SELECT id FROM told))""")
    db.execute("""UPDATE turns SET state = 'done', ended_at = begun_at
        WHERE state IN ('running', 'suspended') AND id IN (SELECT id FROM told)""")
    db.execute("DROP TABLE told")
    _edits_that_are_part_of_a_turn(db)


def _edits_that_are_part_of_a_turn(db: Connection) -> None:
    """An open edit names the message, or the edit, of a turn that has its words. Nothing but the words told that before."""
    of_turns: dict[tuple[object, ...], str] = {}
    rows = db.execute("""SELECT request_id, state, chat_key, user_id, message_id, payload FROM inbox
        WHERE state IN ('queued', 'in_turn') AND message_id IS NOT NULL ORDER BY rowid""").fetchall()
    for request_id, state, chat_key, user_id, message_id, payload in rows:
        try:
            kept = json.loads(payload)
        except ValueError:
            continue
        what = (chat_key, user_id, message_id, kept.get("text"))
        if state == "in_turn":
            of_turns.setdefault(what, request_id)
        elif kept.get("kind") == "edit" and what in of_turns:
            db.execute("UPDATE inbox SET merged_into = ? WHERE request_id = ?", (of_turns[what], request_id))


REPEATED = "(I am not sure that this has arrived, so here it is, perhaps again.)\n\n"
"""Before the words of a repeat, as earlier versions kept them."""


def facts_in_columns(db: Connection) -> None:
    """Columns for what stood in names and words: the call of a task, the time zones of people, the buttons below a question.
    The words of a repeat are those of its original.
    """
    for statement in (
        "ALTER TABLE steps ADD COLUMN parent_id TEXT",
        "ALTER TABLE outbox ADD COLUMN question_id TEXT",
        "ALTER TABLE outbox ADD COLUMN choices TEXT",
        """CREATE TABLE zones (
            channel TEXT NOT NULL,
            user_id TEXT NOT NULL,
            zone TEXT NOT NULL,
            PRIMARY KEY (channel, user_id)
        ) WITHOUT ROWID""",
        "UPDATE steps SET name = 'subagent', parent_id = substr(name, 10) WHERE name LIKE 'subagent %'",
    ):
        db.execute(statement)
    db.execute(
        "UPDATE outbox SET text = substr(text, ?) WHERE repeat_of IS NOT NULL AND instr(text, ?) = 1",
        (len(REPEATED) + 1, REPEATED),
    )
    for (spec,) in db.execute("SELECT spec FROM jobs WHERE id LIKE 'zone:%' ORDER BY rowid").fetchall():
        if (told := _read(spec)).keys() >= {"channel", "userId", "zone"}:
            db.execute(
                "INSERT OR REPLACE INTO zones VALUES (?, ?, ?)",
                (told["channel"], told["userId"], told["zone"]),
            )
    db.execute("DELETE FROM jobs WHERE id LIKE 'zone:%'")
    asking = "SELECT id, target FROM outbox WHERE kind = 'notice' AND instr(target, '\"approval\"')"
    for name, target in db.execute(asking).fetchall():
        place = _read(target)
        question_id, choices = place.pop("approval", None), place.pop("choices", "once chat always deny")
        if isinstance(question_id, str) and question_id:
            db.execute(
                "UPDATE outbox SET target = ?, question_id = ?, choices = ? WHERE id = ?",
                (json.dumps(place, ensure_ascii=False), question_id, json.dumps(choices.split()), name),
            )


def listening(db: Connection) -> None:
    """A chat has what the bot listens to there (`contracts.inbound.Listening`), where somebody has said so."""
    db.execute("ALTER TABLE chats ADD COLUMN listening TEXT")


def languages(db: Connection) -> None:
    """A person has the language that they are spoken to in, and a message that in which it is said."""
    db.execute(
        """CREATE TABLE languages (
            channel TEXT NOT NULL,
            user_id TEXT NOT NULL,
            language TEXT NOT NULL,
            chosen INTEGER NOT NULL,
            PRIMARY KEY (channel, user_id)
        ) WITHOUT ROWID"""
    )
    db.execute("ALTER TABLE outbox ADD COLUMN language TEXT")


def outgoing_files(db: Connection) -> None:
    """A message may be a file (`contracts.outbound.StoredFile`)."""
    db.execute("ALTER TABLE outbox ADD COLUMN file TEXT")


def locales(db: Connection) -> None:
    """A person has a locale, which is language and time zone in one, and a message the time zone in which it tells times."""
    for statement in (
        """CREATE TABLE locales (
            channel TEXT NOT NULL,
            user_id TEXT NOT NULL,
            language TEXT,
            language_chosen INTEGER NOT NULL,
            zone TEXT,
            zone_chosen INTEGER NOT NULL,
            PRIMARY KEY (channel, user_id)
        ) WITHOUT ROWID""",
        "INSERT INTO locales SELECT channel, user_id, language, chosen, NULL, 0 FROM languages",
        """INSERT INTO locales SELECT channel, user_id, NULL, 0, zone, 0 FROM zones WHERE true
            ON CONFLICT (channel, user_id) DO UPDATE SET zone = excluded.zone""",
        "DROP TABLE languages",
        "DROP TABLE zones",
        "ALTER TABLE outbox ADD COLUMN zone TEXT",
    ):
        db.execute(statement)


def names_and_own_zones(db: Connection) -> None:
    """A decision has the name of who made it, and a message tells whether its zone is that of its readers."""
    db.execute("ALTER TABLE approvals ADD COLUMN decided_name TEXT")
    db.execute("ALTER TABLE outbox ADD COLUMN own_zone INTEGER NOT NULL DEFAULT 0")


def questions(db: Connection) -> None:
    """A question has what it is about and its state in columns, and the reason for asking by its name. A row of the outbox names the
    first part of its message, and has the words that stay once its question is decided.
    """
    db.execute("""CREATE TABLE approval_rows (
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
        decided_at REAL,
        UNIQUE (request_id, call_id, fingerprint)
    )""")
    before = db.execute("""SELECT id, request_id, call_id, chat_key, fingerprint, asked, coalesce(ended, 'waiting'), asked_at,
        decided_by, decided_name, scope, decided_at FROM approvals ORDER BY rowid""").fetchall()
    for *names, asked, state, asked_at, by, called, scope, decided_at in before:
        subject, facts = _subject(asked)
        db.execute(
            """INSERT INTO approval_rows (id, request_id, call_id, chat_key, fingerprint, subject, asked, state, asked_at,
                decided_by, decided_name, scope, decided_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (*names, subject, facts, state, asked_at, by, called, scope, decided_at),
        )
    for statement in (
        "DROP TABLE approvals",
        "ALTER TABLE approval_rows RENAME TO approvals",
        "CREATE INDEX approvals_open ON approvals (id) WHERE state IN ('waiting')",
        "CREATE INDEX approvals_asked ON approvals (asked_at)",
        "CREATE INDEX approvals_decided ON approvals (decided_at) WHERE decided_at IS NOT NULL",
        "CREATE INDEX approvals_given ON approvals (fingerprint) WHERE state IN ('approved')",
        "ALTER TABLE outbox ADD COLUMN part_of TEXT",
        "ALTER TABLE outbox ADD COLUMN closes_as TEXT",
    ):
        db.execute(statement)
    copies: dict[tuple[str, str], tuple[str, str]] = {}
    rows = db.execute("""SELECT id, question_id, chat_key, text FROM outbox
        WHERE kind = 'notice' AND question_id IN (SELECT id FROM approvals) ORDER BY rowid""").fetchall()
    for name, question_id, chat_key, words in rows:
        line = words.partition("\n")[0]
        first, begins = copies.get((question_id, chat_key), (name, line))
        if line == begins:  # asked again, a question begins as it did before
            first = name
        copies[question_id, chat_key] = (first, begins)
        lines = words.split("\n")
        left = "\n".join(one for one in lines if not one.endswith(_WHILE_OPEN)) or words
        db.execute(
            "UPDATE outbox SET part_of = ?, closes_as = ? WHERE id = ?",
            (None if first == name else first, None if lines[-1].startswith(_DECIDED) else left, name),
        )


_WHILE_OPEN = (
    "can decide within 30 minutes.",
    "I've asked, and wait for up to 30 minutes.",
    "allows exactly this in this chat from now on.",
    "可以在 30 分钟内决定。",
    "我已经问了管理员，最多等 30 分钟。",
    "表示以后在这个聊天里都允许完全相同的操作。",
)
"""The ends of the lines that held until a question was decided, as earlier versions said them."""
_DECIDED = ("✅ ", "⛔ ", "⌛ ", "⏹ ", "Nobody needs to decide this any more", "已无需决定")
"""The beginnings of the lines that said how it was decided."""
_WHY = {
    "text from the web, a server, a file or people without rights is in view": "tainted",
    "it changes what I am told to do": "instructs",
    "text of the project's files is in view": "read",
    "it needs an approval": "default",
    "a rule of this installation wants it approved": "rule",
    "a rule that forbids something cannot judge it": "doubt",
}
"""The reasons for asking as earlier versions kept them."""
_REFUSED = "calls of this task were refused"


def _subject(asked: str) -> tuple[str, str]:
    """The subject of a question, and its facts with the name of the reason."""
    try:
        facts = json.loads(asked)
        why = str(facts["why"])
    except (ValueError, RecursionError, KeyError, TypeError):
        return "call", asked
    subject = "person" if facts.pop("admits", False) else "call"
    if why.startswith("budget_"):
        subject = "budget"
    elif _REFUSED in why:
        subject, why = "task", "refused"
    else:
        why = _WHY.get(why, why if why in _WHY.values() else "")
    return subject, json.dumps({**facts, "why": why}, ensure_ascii=False)


def facts_of_time(db: Connection) -> None:
    """A decision names the inbound by which it was made, an edit the message that had not ended when it came, and a message tells
    whether it was put off: times told that before. A job that is paused has the name of the reason.
    """
    for statement in (
        "ALTER TABLE inbox ADD COLUMN amends TEXT",
        "ALTER TABLE approvals ADD COLUMN decided_request_id TEXT",
        "CREATE INDEX approvals_decided_by ON approvals (decided_request_id) WHERE decided_request_id IS NOT NULL",
        "ALTER TABLE outbox ADD COLUMN delayed INTEGER NOT NULL DEFAULT 0",
        "UPDATE outbox SET delayed = 1 WHERE not_before > created_at",
    ):
        db.execute(statement)
    rows = db.execute("""SELECT request_id, chat_key, user_id, received_at, payload FROM inbox
        WHERE state IN ('queued', 'in_turn') ORDER BY rowid""").fetchall()
    for request_id, chat_key, user_id, received_at, payload in rows:
        said = _object(payload)
        if said.get("kind") == "edit":
            _name_its_message(db, request_id, (chat_key, user_id), received_at, str(said.get("messageId")))
        elif isinstance(command := said.get("command"), dict):
            state, by = _DECIDES.get(str(command.get("name"))), text.clean(f"{said.get('channel')}:{user_id}")
            decided = (by, state, received_at)
            _name_its_decision(db, request_id, decided, chat_key, str(command.get("args")))
    for name, spec in db.execute("SELECT id, spec FROM jobs").fetchall():
        job = _object(spec)
        if (paused := str(job.get("paused") or "")) not in {"", "failed", "person"}:
            job["paused"] = "person" if paused.startswith("by ") else "failed"
            db.execute(
                "UPDATE jobs SET spec = ? WHERE id = ?",
                (text.clean(json.dumps(job, ensure_ascii=False)), name),
            )


_DECIDES = {"approve": "approved", "deny": "denied"}


def _name_its_message(
    db: Connection, request_id: str, of: tuple[str, str], received_at: float, message_id: str
) -> None:
    """Of an edit that is open."""
    messages = db.execute(
        """SELECT request_id, message_id, payload FROM inbox WHERE chat_key = ? AND user_id = ? AND message_id IS NOT NULL
        AND received_at <= ? AND (state IN ('queued', 'in_turn') OR changed_at > ?) ORDER BY rowid""",
        (*of, received_at, received_at),
    ).fetchall()
    for name, known_as, payload in messages:
        said = _object(payload)
        items = said.get("items")
        names = {known_as, *(items if isinstance(items, dict) else ())}
        if said.get("kind") == "message" and message_id in names:
            db.execute("UPDATE inbox SET amends = ? WHERE request_id = ?", (name, request_id))
            return


def _name_its_decision(
    db: Connection, request_id: str, decided: tuple[str, str | None, float], chat_key: str, args: str
) -> None:
    """Of an answer to a question that is open; of any other command there is nothing to be found. Without a name it was about a
    question of its own chat. Of several that it can have decided none is taken.
    """
    words = [word for word in args.split() if word.lower() not in {"once", "chat", "always"}]
    found = db.execute(
        """SELECT id, chat_key FROM approvals WHERE decided_by = ? AND state = ? AND decided_at >= ? AND decided_request_id IS NULL
        ORDER BY decided_at""",
        decided,
    ).fetchall()
    meant = " ".join(words).upper()
    names = [
        name
        for name, asked_in in found
        if (
            name.endswith(meant)
            if len(meant) >= 6
            else not meant and f"{asked_in}:".startswith(f"{chat_key}:")
        )
    ]
    if len(names) == 1:
        db.execute("UPDATE approvals SET decided_request_id = ? WHERE id = ?", (request_id, names[0]))


def _object(raw: str) -> dict[str, Any]:
    """A JSON object; {} where the disk has damaged it."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read(raw: str) -> dict[str, str]:
    """A JSON object of texts; {} where the disk has damaged it."""
    found = _object(raw)
    return found if all(isinstance(value, str) for value in found.values()) else {}


def lines_ahead(db: Connection) -> None:
    """Lines of transcripts and archive that are on disk here until they are in their files."""
    db.execute("CREATE TABLE lines (number INTEGER PRIMARY KEY, file TEXT NOT NULL, lines BLOB NOT NULL)")


_REASONS = (
    "failed",
    "throttled",
    "uncertain",
    "edit refused",
    "expired",
    "gone",
    "stopped",
    "not shown",
    "not found",
)


MIGRATIONS: Sequence[Migration] = (
    inbox_and_outbox,
    steps_schedule_and_leases,
    approvals,
    outbox_columns,
    last_loss,
    outbox_rows,
    turns,
    last_words,
    facts_in_columns,
    listening,
    lines_ahead,
    languages,
    outgoing_files,
    locales,
    names_and_own_zones,
    questions,
    facts_of_time,
)

Described = dict[str, tuple[str, ...]]
"""Name of a table or index: what it is, of which table, and the words that made it."""


def damage(db: Connection) -> str:
    """A mismatch between a file's version and its schema; "" where they fit.

    SQLite trusts its own schema: a renamed column passes each of its checks, and fails at the first write. Tables and
    columns with names of others are left alone.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not 0 <= version <= len(MIGRATIONS):
        return ""  # a newer one may know better
    made, found = _made(version), _described(db)
    known = made.keys() | _made(len(MIGRATIONS)).keys()
    wrong = sorted(name for name in known if made.get(name) != found.get(name))
    return f"its description of {wrong[0]} is not that of version {version}" if wrong else ""


@cache
def _made(version: int) -> Described:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for step in MIGRATIONS[:version]:
            step(db)
        return _described(db)


def _described(db: Connection) -> Described:
    rows = db.execute("SELECT name, type, tbl_name, coalesce(sql, '') FROM sqlite_master").fetchall()
    return {name: (what, of, " ".join(words.split())) for name, what, of, words in rows}


def statements(version: int = 0) -> list[str]:
    """Statements in SQLite's words that make the tables and indexes of a version, by default the newest."""
    return [words for _, _, words in _made(version or len(MIGRATIONS)).values() if words]


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table, and by which of them its rows are in order; `rowid` is the order in which they came."""

    columns: tuple[str, ...]
    order: tuple[str, ...]


@cache
def tables() -> Mapping[str, Table]:
    """The tables of the newest version, by their names."""
    found = dict[str, Table]()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for step in MIGRATIONS:
            step(db)
        for name, (what, _, words) in _described(db).items():
            if what == "table":
                columns = db.execute(f"PRAGMA table_info({name})").fetchall()
                keyed = "WITHOUT ROWID" in words or "INTEGER PRIMARY KEY" in words
                keys = tuple(column[1] for column in columns if column[5]) if keyed else ("rowid",)
                found[name] = Table(tuple(column[1] for column in columns), keys)
    return found


def mismatch(version: int, own: int = len(MIGRATIONS)) -> str:
    """Say of a journal of another version whose it is, and what to do; "" of one of this version."""
    if version > own:
        return (
            f"the journal has version {version}, this Shipmate knows versions up to {own}: it was written by a newer one; run that, "
            f"or put .ship/journal.db.version-{own} in the place of journal.db, which loses what came since; to move it away loses "
            "messages without an answer, open questions, jobs, lasting permissions and people's settings"
        )
    if version < own:
        return (
            f"the journal has version {version}, this Shipmate's is {own}: it was written by an older one; a start brings it up to "
            "date and keeps a copy of it"
        )
    return ""


def migrate(db: Connection, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring a database up to date, all steps or none; returns how many were missing.

    Raises `errors.StorageError` where a newer Shipmate has written it.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(migrations):
        raise errors.StorageError(mismatch(version, len(migrations)))
    missing = migrations[version:]
    if missing:
        db.execute("BEGIN IMMEDIATE")
        try:
            for step in missing:
                step(db)
            if not version and last_loss in missing:
                # With the tables, so that no kill in between hides that there was nothing.
                db.execute("INSERT INTO lost VALUES (1, 'gone', NULL)")
            db.execute(f"PRAGMA user_version = {len(migrations)}")
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
    return len(missing)


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
