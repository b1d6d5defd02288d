from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.approvals import QuestionButtons
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Command, Inbound
from bot.contracts.journal import Locale
from bot.journal import SqliteJournal, approvals, inbox, jobs, leases, outbox, schema, sqlite, steps
from bot.journal.connection import Connection
from bot.journal.schema import REPEATED
from bot.journal.sqlite import SqlJournal
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests import postgres as servers
from tests.contracts.journal_rig import inbound, outbound, step, still_open

NEWEST = len(schema.MIGRATIONS)
PARTIAL = {"outbox_untold", "approvals_open", "approvals_given"}
GIVEN = {"named", "item"}
"""Not tables: what the caller gives, and its items."""
"""Indexes that have no more rows than are wanted."""


@pytest.fixture
def db() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def version(db: sqlite3.Connection) -> int:
    (number,) = db.execute("PRAGMA user_version").fetchone()
    assert isinstance(number, int)
    return number


def tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def shape(db: sqlite3.Connection) -> list[tuple[str, str]]:
    return db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


def extra(db: Connection) -> None:
    db.execute("ALTER TABLE chats ADD COLUMN title TEXT")


def failing(db: Connection) -> None:
    db.execute("CREATE TABLE more (id TEXT PRIMARY KEY)")
    raise sqlite3.OperationalError("the disk is full")


def fill_first(db: sqlite3.Connection) -> None:
    """Rows as the first version wrote them."""
    for number, message_id in ((1, "9"), (2, None), (3, 7)):
        payload = json.dumps({**inbound(number).model_dump(by_alias=True), "messageId": message_id})
        db.execute(
            "INSERT INTO inbox VALUES (?, 'telegram:chat:5', '7', 1.0, 1.0, 'received', NULL, ?)",
            (inbound(number).request_id, payload),
        )
    db.execute("INSERT INTO inbox VALUES ('R9', 'telegram:chat:5', '7', 1.0, 1.0, 'claimed', NULL, 'torn {')")
    db.execute("INSERT INTO keys VALUES ('telegram:update:1', ?, 1.0)", (inbound(1).request_id,))
    db.execute("INSERT INTO chats VALUES ('telegram:chat:5', 1.0)")
    db.execute(
        """INSERT INTO outbox VALUES (?, ?, 'telegram:chat:5', '{"chat_id":"5"}', '答 👍', 'reply', 'sent', 'm1',
        NULL, 1.0, 2.0)""",
        (outbound(1).id, inbound(1).request_id),
    )
    db.execute("INSERT INTO dead_letters VALUES ('web', 'k', '{}', 'odd', 1.0)")
    db.execute("INSERT INTO once VALUES ('greeted', 1.0, 2e12)")


def test_a_fresh_file_gets_every_table(db: sqlite3.Connection) -> None:
    assert schema.migrate(db) == NEWEST
    assert tables(db) == {
        *("chats", "inbox", "keys", "outbox", "dead_letters", "once"),
        *("steps", "jobs", "leases", "closed_targets", "probe", "approvals", "lost", "turns"),
        *("lines", "locales"),
    }
    assert version(db) == NEWEST
    assert schema.migrate(db) == 0


async def test_what_an_older_outbox_said_in_words_and_ids_is_in_columns(tmp_path: Path) -> None:
    file = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    schema.migrate(file, schema.MIGRATIONS[:3])
    rows = (
        ("01A", "reply", "uncertain", None, "repeated"),
        ("01A-1", "reply", "intent", None, "deferred until 1800000060.500"),
        ("01A-2", "reply", "sending", None, None),
        ("01B", "reply", "failed", None, "expired"),
        ("01C", "preview", "sent", "m1", "became 01D"),
        ("01D", "reply", "intent", None, None),
        ("01E", "preview", "sent", "m2", "became 01F"),
        ("01G", "preview", "sent", "m3", "interrupted"),
    )
    for row in rows:
        file.execute(
            """INSERT INTO outbox VALUES (?, '01REQ', 'telegram:chat:5', '{"chat_id":"5"}', '答 👍', ?, ?, ?, ?,
            1.0, 2.0)""",
            row,
        )
    file.close()
    journal = SqliteJournal(tmp_path / "journal.db", clock=FakeClock(), log=MemoryLog())
    found = await journal.deliveries("01REQ")
    assert [
        (row.id, row.state, row.not_before, row.repeat_of, row.reason, row.replaces) for row in found
    ] == [
        ("01A", "unknown", None, None, None, None),
        ("01A-1", "ready", 1_800_000_060.5, "01A", None, None),
        ("01A-2", "sending", None, "01A", None, None),
        ("01B", "failed", None, None, "expired", None),
        ("01C", "sent", None, None, None, None),
        ("01D", "ready", None, None, None, "m1"),
        ("01E", "sending", None, None, None, None),  # what it became is not on file
        ("01G", "sent", None, None, None, None),
    ]
    assert not any(row.untold for row in found)
    await journal.close()


async def test_what_stood_in_names_and_words_is_in_columns(tmp_path: Path) -> None:
    file = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    schema.migrate(file, schema.MIGRATIONS[:8])
    for name, called in (("call", "task"), ("TASK", "subagent call"), ("other", "subagentless tool")):
        file.execute(
            "INSERT INTO steps VALUES ('01REQ', ?, 'tool', ?, 1.0, NULL, NULL)",
            (name, called),
        )
    kept = {"channel": "slack", "userId": "U1", "zone": "Asia/Tokyo"}
    specs = {"zone:slack:U1": json.dumps(kept), "zone:slack:U2": "torn {", "J1": '{"says": "wake up"}'}
    for name, spec in specs.items():
        file.execute(
            "INSERT INTO jobs VALUES (?, ?, ?, NULL)", (name, "slack:chat:C1" if name == "J1" else "", spec)
        )
    asks = {"chat_id": "5", "approval": "01APPROVAL", "choices": "once deny"}
    earlier, closed = {"chat_id": "5", "approval": "01APPROVAL"}, {"chat_id": "5", "approval": ""}
    rows = (
        ("01A", "reply", "答 👍", None, {"chat_id": "5"}),
        ("01B", "reply", f"{REPEATED}答 👍", "01A", {"chat_id": "5"}),
        ("01C", "reply", f"{REPEATED}it says so itself", None, {"chat_id": "5"}),
        ("01D", "notice", "May I?", None, asks),
        ("01E", "notice", "May I?", None, earlier),
        ("01F", "notice", "decided", None, closed),
    )
    for name, kind, words, repeat_of, target in rows:
        file.execute(
            """INSERT INTO outbox (id, request_id, chat_key, target, text, kind, state, repeat_of, created_at,
            changed_at) VALUES (?, '01REQ', 'telegram:chat:5', ?, ?, ?, 'ready', ?, 1.0, 2.0)""",
            (name, json.dumps(target), words, kind, repeat_of),
        )
    file.close()
    journal = SqliteJournal(tmp_path / "journal.db", clock=FakeClock(), log=MemoryLog())
    assert [(one.id, one.name, one.parent_id) for one in await journal.steps("01REQ")] == [
        ("call", "task", None),
        ("TASK", "subagent", "call"),
        ("other", "subagentless tool", None),
    ]
    assert await journal.locales() == {UserRef("slack", "U1"): Locale(zone="Asia/Tokyo")}
    assert [job.id for job in await journal.jobs()] == ["J1"]
    found = await journal.deliveries("01REQ")
    assert [row.text for row in found][:3] == ["答 👍", "答 👍", f"{REPEATED}it says so itself"]
    assert [row.buttons for row in found] == [
        *[None] * 3,
        QuestionButtons("01APPROVAL", ("once", "deny")),
        QuestionButtons("01APPROVAL", ("once", "chat", "always", "deny")),
        None,
    ]
    assert [row.target for row in found][3:] == [{"chat_id": "5"}, {"chat_id": "5"}, closed]
    await journal.close()


ASKED = "May I?\n\n```\nx\n```\n\nAsked because."


def _with_older_questions(file: Connection) -> list[str]:
    """Write what version 15 kept of questions; the ids of these."""
    known = {
        "request_id": "01REQ",
        "call_id": "c",
        "chat_key": "tele:chat:5",
        "tool": "t",
        "fingerprint": "f",
        "shown": "",
        "rule": "",
        "channel": "tele",
        "user_id": "7",
        "granted": False,
        "lasting": True,
    }
    asked = (
        ("A1", {"why": "a rule of this installation wants it approved", "admits": False}, None),
        ("A2", {"why": "budget_chat"}, "approved"),
        (
            "A3",
            {"why": "3 calls of this task were refused; it goes on only if somebody wants it to"},
            "stopped",
        ),
        ("A4", {"why": "", "admits": True}, None),
        ("A5", {"why": "words of long ago"}, "expired"),
    )
    for name, facts, ended in asked:
        file.execute(
            "INSERT INTO approvals VALUES (?, '01REQ', ?, 'tele:chat:5', 'f', ?, 1.0, ?, NULL, 'once', ?, NULL)",
            (name, name, json.dumps({**known, **facts}), ended, ended and 2.0),
        )
    rows = (
        ("01A", "A1", f"{ASKED}\nOperators can decide within 30 minutes."),
        ("01B", "A1", "its second part"),
        ("01C", "A1", "May I?\n我已经问了管理员，最多等 30 分钟。"),
        ("01D", "A2", f"{ASKED}\n\n✅ Allowed by Ann, 08:00."),
        ("01E", "R7", "Try again?"),
    )
    for name, question_id, words in rows:
        file.execute(
            """INSERT INTO outbox (id, request_id, chat_key, target, text, kind, state, question_id, choices, created_at,
            changed_at) VALUES (?, '01REQ', 'tele:chat:5', '{}', ?, 'notice', 'sent', ?, '[]', 1.0, 2.0)""",
            (name, words, question_id),
        )
    return [name for name, *_ in asked]


async def _in_columns(journal: SqlJournal, names: list[str]) -> None:
    records = [await journal.approval(name) for name in names]
    assert [one and (one.asked.subject, one.asked.why, one.state) for one in records] == [
        ("call", "rule", "waiting"),
        ("budget", "budget_chat", "approved"),
        ("task", "refused", "stopped"),
        ("person", "", "waiting"),
        ("call", "", "expired"),
    ]
    assert [one.id for one in await journal.open_approvals()] == ["A1", "A4"]
    found = await journal.deliveries("01REQ")
    assert [(row.id, row.part_of, row.closes_as) for row in found] == [
        ("01A", None, ASKED),
        ("01B", "01A", "its second part"),
        ("01C", None, "May I?"),
        ("01D", None, None),
        ("01E", None, None),
    ]


async def test_what_an_older_question_said_in_words_is_in_columns(tmp_path: Path) -> None:
    file = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    schema.migrate(file, schema.MIGRATIONS[:15])
    names = _with_older_questions(file)
    file.close()
    journal = SqliteJournal(tmp_path / "journal.db", clock=FakeClock(), log=MemoryLog())
    await _in_columns(journal, names)
    await journal.close()


def _in_postgresql(
    version: int, fill: Callable[[Connection], object], monkeypatch: pytest.MonkeyPatch
) -> SqlJournal:
    """A journal of an earlier version, with what `fill` writes."""
    import psycopg

    from bot.journal import postgres

    server = servers.shared()
    with psycopg.connect(server.url(), autocommit=True) as plain:
        plain.execute("DROP SCHEMA IF EXISTS earlier CASCADE")
        plain.execute("CREATE SCHEMA earlier")
    url = server.url("earlier")
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:version])
        with closing(postgres.connect(url)) as db:
            fill(db)
    return postgres.PostgresJournal(url, clock=FakeClock(), log=MemoryLog())


@pytest.mark.skipif(servers.programs() is None, reason=servers.MISSING)
async def test_what_an_older_question_said_is_in_columns_in_postgresql_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = list[str]()
    journal = _in_postgresql(15, lambda db: names.extend(_with_older_questions(db)), monkeypatch)
    await _in_columns(journal, names)
    await journal.close()


def _with_facts_in_times(file: Connection) -> None:
    """Write what version 16 kept of decisions, edits, delays and paused jobs whose work is open."""

    def said(number: int, state: str, received_at: float, changed_at: float, **fields: Any) -> None:
        one = inbound(number, **fields)
        file.execute(
            "INSERT INTO inbox VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, NULL, ?, ?)",
            (
                *(one.request_id, str(one.chat_key), one.user_id, received_at, changed_at, state),
                *(one.message_id, one.model_dump_json(by_alias=True)),
            ),
        )

    said(1, "answered", 1.0, 5.0, message_id="m")
    said(2, "queued", 4.0, 4.0, kind="edit", message_id="m")
    said(3, "queued", 5.5, 5.5, kind="edit", message_id="m")
    said(4, "queued", 4.0, 4.0, kind="edit", message_id="m", user_id="8")
    said(5, "in_turn", 2.0, 2.0, message_id="a", items={"a": "", "b": ""})
    said(6, "queued", 3.0, 3.0, kind="edit", message_id="b")
    said(7, "handled", 3.0, 3.5, kind="edit", message_id="b")
    for number, name, args in (
        (11, "approve", "01KNOWN once"),
        (12, "approve", "01known"),
        (13, "deny", "known2"),
        (14, "deny", ""),
        (15, "jobs", "01KNOWN"),
        (16, "approve", "n"),
        (17, "approve", ""),
    ):
        said(number, "queued", 6.0, 6.0, command=Command(name=name, args=args))
    file.execute(
        "INSERT INTO inbox VALUES ('R9', 'telegram:chat:5', '7', 6.0, 6.0, 'queued', NULL, NULL, NULL, NULL, '{')"
    )
    asked = json.dumps({"chat_key": "telegram:chat:5", **dict.fromkeys(_ASKED, "")})
    for name, state, by, at in (
        ("01KNOWN", "approved", "telegram:7", 7.0),
        ("01KNOWN2", "denied", "telegram:7", 7.0),
        ("01ELSEWHERE", "approved", "telegram:7", 8.0),
        ("01EARLIER", "denied", "telegram:7", 5.0),
        ("01OTHERS", "denied", "telegram:8", 7.0),
        ("01OVER", "expired", "", 7.0),
    ):
        file.execute(
            "INSERT INTO approvals VALUES (?, '01REQ', ?, ?, 'f', 'call', ?, ?, 1.0, ?, NULL, 'once', ?)",
            (name, name, f"telegram:chat:{6 if 'ELSE' in name else 5}", asked, state, by, at),
        )
    for name, not_before in (("01A", None), ("01B", 1.0), ("01C", 1.5)):
        file.execute(
            """INSERT INTO outbox (id, request_id, chat_key, target, text, kind, state, not_before, created_at, changed_at)
            VALUES (?, '01REQ', 'telegram:chat:5', '{}', 'x', 'notice', 'ready', ?, 1.0, 2.0)""",
            (name, not_before),
        )
    reasons = {"J1": "it failed three times in a row", "J2": "by 77", "J3": "person", "J4": ""}
    for name, paused in reasons.items():
        spec = json.dumps({"prompt": "起床", "paused": paused})
        file.execute("INSERT INTO jobs VALUES (?, 'telegram:chat:5', ?, NULL)", (name, spec))
    file.execute("INSERT INTO jobs VALUES ('J5', 'telegram:chat:5', 'torn {', NULL)")
    file.execute(
        "INSERT INTO jobs VALUES ('J6', 'telegram:chat:5', ?, NULL)",
        ('{"paused": "by x", "prompt": "\\ud83d"}',),
    )


_ASKED = (
    *(
        "request_id",
        "call_id",
        "tool",
        "fingerprint",
        "shown",
        "why",
        "rule",
        "channel",
        "user_id",
        "granted",
    ),
    "lasting",
)


async def _facts_in_columns(journal: SqlJournal) -> None:
    found = [await journal.inbound(inbound(number).request_id) for number in range(1, 8)]
    message, album = inbound(1).request_id, inbound(5).request_id
    assert [one and one.amends for one in found] == [None, message, None, None, None, album, None]
    decided = {number: await journal.decided_by(inbound(number).request_id) for number in range(11, 18)}
    assert {number: one.id for number, one in decided.items() if one is not None} == {
        11: "01KNOWN",
        13: "01KNOWN2",
    }
    assert [row.delayed for row in await journal.deliveries("01REQ")] == [False, False, True]
    jobs = {job.id: job.spec for job in await journal.jobs()}
    assert jobs.pop("J6")["paused"] == "person"
    reasons = {"J1": "failed", "J2": "person", "J3": "person", "J4": ""}
    assert jobs == {name: {"prompt": "起床", "paused": paused} for name, paused in reasons.items()}


async def test_what_times_told_of_decisions_and_edits_is_in_columns(tmp_path: Path) -> None:
    file = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    schema.migrate(file, schema.MIGRATIONS[:16])
    _with_facts_in_times(file)
    file.close()
    journal = SqliteJournal(tmp_path / "journal.db", clock=FakeClock(), log=MemoryLog())
    await _facts_in_columns(journal)
    await journal.close()


@pytest.mark.skipif(servers.programs() is None, reason=servers.MISSING)
async def test_what_times_told_is_in_columns_in_postgresql_too(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = _in_postgresql(16, _with_facts_in_times, monkeypatch)
    await _facts_in_columns(journal)
    await journal.close()


async def test_languages_and_time_zones_of_people_are_one_thing(tmp_path: Path) -> None:
    file = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    schema.migrate(file, schema.MIGRATIONS[:12])
    file.execute("INSERT INTO languages VALUES ('slack', 'U1', 'zh', 1), ('slack', 'U2', 'en', 0)")
    file.execute("INSERT INTO zones VALUES ('slack', 'U1', 'Asia/Tokyo'), ('telegram', '3', 'America/Lima')")
    file.close()
    journal = SqliteJournal(tmp_path / "journal.db", clock=FakeClock(), log=MemoryLog())
    assert await journal.locales() == {
        UserRef("slack", "U1"): Locale("zh", language_chosen=True, zone="Asia/Tokyo"),
        UserRef("slack", "U2"): Locale("en"),
        UserRef("telegram", "3"): Locale(zone="America/Lima"),
    }
    await journal.close()


@pytest.mark.parametrize("start", range(NEWEST + 1))
def test_from_every_version_the_newest_is_reached_in_the_same_shape(
    db: sqlite3.Connection, start: int
) -> None:
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(fresh)
    schema.migrate(db, schema.MIGRATIONS[:start])
    assert schema.migrate(db) == NEWEST - start
    assert shape(db) == shape(fresh)
    fresh.close()


async def test_a_file_of_the_first_version_keeps_its_rows_and_is_found_by_message_id(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    old = sqlite3.connect(path, isolation_level=None)
    old.execute("PRAGMA journal_mode = WAL")
    schema.migrate(old, schema.MIGRATIONS[:1])
    fill_first(old)
    old.close()
    journal = SqliteJournal(path, clock=FakeClock(), log=MemoryLog())
    (found,) = await journal.about(ChatKey.parse("telegram:chat:5"), "9")
    assert found.inbound == inbound(1, message_id="9")
    assert [one.request_id for one in await still_open(journal)] == [
        inbound(number).request_id for number in (1, 2)
    ]
    assert not await journal.receive(inbound(8, keys=("update:1",)))
    assert await journal.delivered_as(ChatKey.parse("telegram:chat:5"), "m1") == inbound(1).request_id
    (row,) = await journal.deliveries(inbound(1).request_id)
    assert (row.text, row.target, row.created_at, row.changed_at) == ("答 👍", {"chat_id": "5"}, 1.0, 2.0)
    assert not await journal.once("greeted", 1.5, 100)
    assert await journal.knows(ChatKey.parse("telegram:chat:5"))
    await journal.begin_step(step(1))
    assert await journal.amend(inbound(2, message_id="10"))
    assert [one.inbound.text for one in await journal.about(ChatKey.parse("telegram:chat:5"), "10")] == [
        "text 2"
    ]
    await journal.close()


def test_only_the_missing_steps_are_done_and_what_is_there_stays(db: sqlite3.Connection) -> None:
    schema.migrate(db, schema.MIGRATIONS[:1])
    db.execute("INSERT INTO chats VALUES ('web:chat:1', 5.0)")
    assert schema.migrate(db, [*schema.MIGRATIONS[:1], extra]) == 1
    assert db.execute("SELECT * FROM chats").fetchall() == [("web:chat:1", 5.0, None)]
    assert version(db) == 2


def test_steps_that_fail_are_done_not_at_all(db: sqlite3.Connection) -> None:
    schema.migrate(db, schema.MIGRATIONS[:1])
    fill_first(db)
    before = shape(db)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        schema.migrate(db, [*schema.MIGRATIONS, failing])
    assert (shape(db), version(db), db.in_transaction) == (before, 1, False)
    assert schema.migrate(db) == NEWEST - 1


async def test_a_file_of_a_newer_shipmate_is_refused_in_plain_words_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    newer = sqlite3.connect(path)
    newer.execute("CREATE TABLE future (x)")
    newer.execute(f"PRAGMA user_version = {NEWEST + 1}")
    newer.close()
    journal = SqliteJournal(path, clock=FakeClock(), log=MemoryLog())
    for _ in range(2):
        with pytest.raises(errors.StorageError, match="written by a newer one"):
            await journal.open()
    with pytest.raises(errors.StorageError):
        await journal.receive(inbound())
    with pytest.raises(errors.StorageError, match=f"version {NEWEST + 1}"):
        await still_open(journal)
    assert "newer" in journal.health()
    await journal.close()
    again = sqlite3.connect(path)
    assert tables(again) == {"future"}
    again.close()
    assert not list(tmp_path.glob("*.corrupt-*"))


def statements() -> list[tuple[str, str]]:
    """Every statement that finds rows of a table which grows."""
    found: list[tuple[str, str]] = []
    for module in (inbox, steps, outbox, jobs, leases, approvals, sqlite):
        for name, value in vars(module).items():
            said = value if isinstance(value, tuple) else (value,)
            words = [
                one for one in said if isinstance(one, str) and name.startswith("_") and " WHERE " in one
            ]
            found += [(name, one) for one in words if one.lstrip().startswith(("SELECT", "UPDATE", "DELETE"))]
    return found


def test_the_statements_are_found() -> None:
    assert {"_UNFINISHED", "_STEPS", "_DELIVERIES", "_UNTOLD", "_NEAR", "_HELD", "_SWEEPS"} <= {
        name for name, _ in statements()
    }


@pytest.mark.parametrize(("name", "statement"), statements())
def test_no_statement_looks_through_a_whole_table(db: sqlite3.Connection, name: str, statement: str) -> None:
    schema.migrate(db)
    named = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
    plan = [
        row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", named or (1,) * statement.count("?"))
    ]
    scans = [
        line
        for line in plan
        if line.startswith("SCAN") and not {line.split()[1], line.split()[-1]} & (PARTIAL | GIVEN)
    ]
    assert plan, name
    assert not scans, name


async def test_what_an_older_inbox_said_in_words_and_times_is_in_columns(tmp_path: Path) -> None:
    file = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    schema.migrate(file, schema.MIGRATIONS[:6])
    rows: list[tuple[Inbound, str, float, str | None]] = [
        (inbound(1), "received", 1.0, None),
        (inbound(2), "claimed", 5.0, None),
        (inbound(3), "claimed", 5.4, None),
        (inbound(4, user_id="8"), "claimed", 5.5, None),
        (inbound(5, chat_key="telegram:chat:6"), "claimed", 5.5, None),
        (inbound(6), "claimed", 6.0, None),
        (inbound(7, command=Command(name="undo")), "claimed", 5.1, None),
        (inbound(8), "done", 9.0, "done"),
        (inbound(9), "done", 9.0, f"joined {inbound(8).request_id}"),
        (inbound(10), "done", 9.0, "stopped"),
        (inbound(11, kind="edit"), "done", 9.0, "replaced"),
        (inbound(12, kind="delete"), "done", 9.0, "withdrew"),
        (inbound(13), "dead", 9.0, "unreadable"),
    ]
    for one, state, changed_at, outcome in rows:
        file.execute(
            "INSERT INTO inbox VALUES (?, ?, ?, 1.0, ?, ?, ?, ?, NULL)",
            (
                one.request_id,
                str(one.chat_key),
                one.user_id,
                changed_at,
                state,
                outcome,
                one.model_dump_json(by_alias=True),
            ),
        )
    file.close()
    journal = SqliteJournal(tmp_path / "journal.db", clock=FakeClock(), log=MemoryLog())
    found = [await journal.inbound(one.request_id) for one, *_ in rows]
    numbers = {one.request_id: number for number, (one, *_) in enumerate(rows, 1)}
    assert [(one.state, numbers.get(one.turn_id or "")) for one in found if one is not None] == [
        ("queued", None),
        ("in_turn", 2),
        ("in_turn", 2),
        ("in_turn", 4),
        ("in_turn", 5),
        ("in_turn", 6),
        ("in_turn", 7),
        ("answered", 8),
        ("answered", 8),
        ("stopped", None),
        ("merged", None),
        ("handled", None),
        ("dead", None),
    ]
    turns = [await journal.turn(inbound(number).request_id) for number in (2, 3, 8)]
    assert [turn and (turn.state, turn.begun_at) for turn in turns] == [("running", 5.0), None, None]
    await journal.close()
