"""What is particular to the journal in SQLite: the file, its batches, and a disk that fails."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.approvals import Verdict
from bot.contracts.identity import UserRef
from bot.contracts.journal import ANSWERED, DataLoss
from bot.journal import file
from bot.testing.log import MemoryLog
from tests.contracts.journal_approvals import approval
from tests.contracts.journal_rig import inbound, outbound, still_open
from tests.unit.journal.conftest import Make, connection


async def test_the_file_is_private_and_every_commit_reaches_the_disk(make: Make, path: Path) -> None:
    journal = make()
    assert not path.parent.exists()
    await journal.receive(inbound())
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
        "journal.db": 0o600,
        "journal.db-wal": 0o600,
        "journal.db-shm": 0o600,
        "journal.db-newest": 0o600,
    }
    assert path.parent.stat().st_mode & 0o777 == 0o700
    db = connection(journal)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    await journal.close()
    assert {file.name for file in path.parent.iterdir()} == {"journal.db", "journal.db-newest"}


async def test_what_waits_together_is_committed_together(make: Make) -> None:
    journal = make()
    await journal.open()
    busy, free = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        busy.set()
        free.wait(90)

    holding = asyncio.ensure_future(journal.base.run(hold))
    await asyncio.to_thread(busy.wait, 90)
    waiting = [asyncio.create_task(journal.receive(inbound(number))) for number in range(100)]
    await asyncio.sleep(0)  # each of them is queued now
    said: list[str] = []
    connection(journal).set_trace_callback(said.append)
    free.set()
    await asyncio.gather(holding, *waiting)
    assert said.count("COMMIT") == 2, "one for the work that held the others up, one for all of these"
    assert sum(one.startswith("INSERT INTO inbox") for one in said) == 100
    assert "SAVEPOINT operation" not in said, "none of them can take another one down"


async def test_of_what_is_over_no_state_is_kept_in_memory(make: Make) -> None:
    journal = make()
    first, second, alone = (inbound(number).request_id for number in (1, 2, 3))
    for number in (1, 2, 3):
        assert await journal.receive(inbound(number))
    assert not await journal.receive(inbound(1, request_id=inbound(4).request_id))
    await journal.begin_turn(first, inbound(1).chat_key, [first, second])
    await journal.put_outbox([outbound(1).begin()])
    assert len(journal.base.known) > 0
    await journal.update_outbox(outbound(1).begin().arrive("5"))
    await journal.end_turn(first, "done", {first: ANSWERED, second: ANSWERED})
    await journal.finish(alone, ANSWERED)
    assert len(journal.base.known) == 0


async def test_the_database_is_never_touched_on_the_event_loops_thread(make: Make) -> None:
    journal = make()
    threads: set[int] = set()
    await journal.base.run(lambda _: threads.add(threading.get_ident()))
    await journal.base.run(lambda _: threads.add(threading.get_ident()))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_a_row_that_cannot_be_read_becomes_a_dead_letter_and_the_others_go_on(
    make: Make, log: MemoryLog
) -> None:
    journal = make()
    for number in (1, 2):
        await journal.receive(inbound(number))
    bad = inbound(1).request_id
    connection(journal).execute("UPDATE inbox SET payload = '{\"v\":99}' WHERE request_id = ?", (bad,))
    assert await still_open(journal) == [inbound(2)]
    assert [entry.request_id for entry in log.at("error")] == [bad]
    db = connection(journal)
    assert db.execute("SELECT channel, key, raw FROM dead_letters").fetchall() == [
        ("journal", bad, '{"v":99}')
    ]
    assert await still_open(journal) == [inbound(2)]
    assert len(log.at("error")) == 1


async def test_letters_that_are_no_utf8_do_not_hide_the_other_rows(make: Make) -> None:
    journal = make()
    for number in (1, 2):
        await journal.receive(inbound(number))
    connection(journal).execute(
        "UPDATE inbox SET payload = CAST(x'7bff' AS TEXT) WHERE request_id = ?", (inbound(1).request_id,)
    )
    assert await still_open(journal) == [inbound(2)]


async def test_a_damaged_row_about_a_message_does_not_hide_the_others(make: Make) -> None:
    journal = make()
    for number in (1, 2):
        await journal.receive(inbound(number, message_id="9"))
    connection(journal).execute(
        "UPDATE inbox SET payload = '{\"items\":' WHERE request_id = ?", (inbound(1).request_id,)
    )
    found = await journal.about(inbound(2).chat_key, "9")
    assert [one.inbound for one in found] == [inbound(2, message_id="9")]


async def test_dead_letters_hold_what_was_buried(make: Make) -> None:
    journal = make()
    await journal.keep_dead_letter("slack", "Ev1", "{}", "first")
    await journal.keep_dead_letter("slack", "Ev1", "{1}", "second")
    await journal.keep_dead_letter("web", "Ev1", "{}", "other")
    rows = connection(journal).execute("SELECT channel, key, raw, reason, at FROM dead_letters").fetchall()
    assert rows == [
        ("slack", "Ev1", "{1}", "second", 1_800_000_000.0),
        ("web", "Ev1", "{}", "other", 1_800_000_000.0),
    ]


async def test_a_mark_that_hits_nothing_is_told_to_the_operator(make: Make, log: MemoryLog) -> None:
    journal = make()
    await journal.post.update_outbox(outbound(1, state="sent"))
    missing = f"{outbound(1).id} is missing"
    assert [(entry.level, entry.message) for entry in log.entries] == [
        ("error", f"the journal was told what cannot follow: {missing}")
    ]
    with pytest.raises(errors.IllegalTransition, match=missing):
        await journal.update_outbox(outbound(1, state="sent"))


async def test_on_a_full_disk_what_still_fits_is_written_and_what_does_not_is_refused(
    make: Make, log: MemoryLog
) -> None:
    journal = make()
    await journal.receive(inbound(1))
    db = connection(journal)
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages + 2}")
    batch = [inbound(2), inbound(3, text="x" * 100_000), inbound(4)]
    results = await asyncio.gather(*map(journal.receive, batch), return_exceptions=True)
    assert [isinstance(result, errors.StorageError) for result in results] == [False, True, False]
    assert "full" in journal.health()
    assert "full" in log.at("error")[0].message
    assert await still_open(journal) == [inbound(1), inbound(2), inbound(4)]
    assert journal.health()  # what could be read says nothing about writing
    with pytest.raises(errors.StorageError, match="full"):
        await journal.put_outbox([outbound(text="x" * 100_000)])
    db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    assert await journal.receive(inbound(3, text="x" * 100_000))
    assert journal.health() == ""


async def test_a_file_that_somebody_else_holds_is_refused_until_it_is_free(make: Make, path: Path) -> None:
    journal = make(busy_seconds=0.0)
    await journal.receive(inbound(1))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    results = await asyncio.gather(
        *(journal.receive(inbound(number)) for number in (2, 3)), return_exceptions=True
    )
    assert all(isinstance(result, errors.StorageError) for result in results)
    assert "locked" in journal.health()
    other.close()
    assert await journal.receive(inbound(2))
    assert await still_open(journal) == [inbound(1), inbound(2)]


async def test_a_file_held_by_somebody_else_while_it_is_opened_is_not_taken_for_damaged(
    make: Make, path: Path
) -> None:
    first = make()
    await first.receive(inbound(1))
    await first.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    journal = make(busy_seconds=0.0)
    with pytest.raises(errors.StorageError, match="locked"):
        await still_open(journal)
    other.close()
    assert await still_open(journal) == [inbound(1)]
    assert not list(path.parent.glob("*.corrupt-*"))


async def test_a_database_that_cannot_be_opened_is_tried_again_at_the_next_call(
    make: Make, path: Path
) -> None:
    path.parent.mkdir()
    path.mkdir()
    journal = make()
    for _ in range(2):
        with pytest.raises(errors.StorageError, match="unable to open"):
            await journal.receive(inbound(1))
    path.rmdir()
    assert await journal.receive(inbound(1))


async def test_a_disk_error_while_it_is_opened_is_no_damage(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN

    def refused(*_: object, **__: object) -> sqlite3.Connection:
        raise error

    journal = make()
    with monkeypatch.context() as patched:
        patched.setattr("bot.journal.file.sqlite3.connect", refused)
        with pytest.raises(errors.StorageError, match="unable to open"):
            await journal.receive(inbound(1))
    assert await journal.receive(inbound(1))
    assert [file.name for file in path.parent.glob("*corrupt*")] == []


async def test_an_operation_that_goes_wrong_in_python_fails_alone(make: Make) -> None:
    journal = make()
    results = await asyncio.gather(
        journal.receive(inbound(1)),
        journal.base.run(lambda db: db.execute("SELECT ?", (2**70,))),
        journal.base.run(lambda db: db.execute("SELECT ?", ("\ud800",))),
        journal.receive(inbound(2)),
        return_exceptions=True,
    )
    assert [isinstance(result, errors.StorageError) for result in results] == [False, True, True, False]
    assert len(await still_open(journal)) == 2


@pytest.mark.parametrize("damage", ["garbage", "page", "short"])
async def test_a_damaged_file_is_set_aside_and_a_fresh_one_begun(
    make: Make, path: Path, log: MemoryLog, damage: str
) -> None:
    journal = make()
    await asyncio.gather(*(journal.receive(inbound(number)) for number in range(200)))
    await journal.close()
    data = bytearray(path.read_bytes())
    if damage == "garbage":
        data[:] = b"this is no database" * 100
    elif damage == "page":
        for page in range(2, len(data) // 4096):
            data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    else:
        del data[len(data) // 2 // 4096 * 4096 + 100 :]
    path.write_bytes(data)
    journal = make()
    read = await still_open(journal)
    assert all(one in map(inbound, range(200)) for one in read)
    assert journal.lost() == DataLoss("damaged", 1_800_000_000.0)
    assert await journal.receive(inbound(300))
    name = f"journal.db.corrupt-{1_800_000_000_000}"
    assert path.with_name(name).read_bytes() == bytes(data)
    (error,) = log.at("error")
    assert name in error.message
    assert error.details["quarantine"] == name
    await journal.close()
    # A second one in the same moment gets a name of its own.
    path.write_bytes(b"no database either" * 100)
    assert await make().unfinished() == []
    assert path.with_name(f"journal.db.corrupt-{1_800_000_000_001}").exists()
    assert path.with_name(name).read_bytes() == bytes(data)


@pytest.mark.parametrize("after", [1, 2])
async def test_a_setting_aside_that_a_kill_cut_off_is_brought_to_its_end(
    make: Make, path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database" * 100)
    wal, shm = (path.with_name(f"{path.name}{side}") for side in ("-wal", "-shm"))
    other = sqlite3.connect(path.with_name("other.db"))
    other.execute("PRAGMA journal_mode = WAL")
    other.execute("CREATE TABLE left_over (words)")
    log_of_it = path.with_name("other.db-wal").read_bytes()
    other.close()
    wal.write_bytes(log_of_it)
    shm.write_bytes(b"")
    replace, count = Path.replace, 0

    def dying(source: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count > after:
            raise SystemExit
        return replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dying)
        with pytest.raises(SystemExit):
            file.set_aside(path, 1_700_000_000_000)
    assert await make().receive(inbound(1))
    aside = f"journal.db.corrupt-{1_700_000_000_000}"
    assert path.with_name(aside).read_bytes() == b"no database" * 100
    assert path.with_name(f"{aside}-wal").read_bytes() == log_of_it
    names = sqlite3.connect(path).execute("SELECT name FROM sqlite_master").fetchall()
    assert ("left_over",) not in names
    told = [entry for entry in log.at("error") if "set aside" in entry.message]
    assert len(told) == (1 if after == 1 else 0)


async def test_a_log_whose_file_is_gone_is_no_log_of_a_fresh_one(make: Make, path: Path) -> None:
    path.parent.mkdir()
    path.with_name("journal.db-wal").write_bytes(b"whatever")
    assert await make().receive(inbound(1))
    assert path.with_name(f"journal.db.corrupt-{1_800_000_000_000}-wal").read_bytes() == b"whatever"


async def test_damage_that_shows_at_work_is_set_aside_at_the_next_call(
    make: Make, path: Path, log: MemoryLog
) -> None:
    journal = make()
    await asyncio.gather(*(journal.receive(inbound(number)) for number in range(200)))
    await journal.close()
    await journal.open()
    connection(journal).execute("PRAGMA shrink_memory")
    with path.open("r+b") as raw:
        for page in range(1, path.stat().st_size // 4096):
            raw.seek(page * 4096)
            raw.write(b"\xff" * 64)
    with pytest.raises(errors.StorageError, match="malformed"):
        await still_open(journal)
    assert await journal.receive(inbound(1))
    assert await still_open(journal) == [inbound(1)]
    assert len(list(path.parent.glob("*.corrupt-*"))) == 1
    assert "set aside" in log.at("error")[-1].message


async def test_every_event_acknowledged_before_kill_9_is_there_after_it(make: Make, path: Path) -> None:
    script = Path(__file__).with_name("process_receives.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(path), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    acknowledged: list[str] = []
    while len(acknowledged) < 300:
        acknowledged.append((await process.stdout.readline()).decode().strip())
    process.kill()
    rest = await process.stdout.read()
    acknowledged += [name.decode() for name in rest.split(b"\n")[:-1]]
    await process.wait()
    there = [one.request_id for one in await still_open(make())]
    assert set(acknowledged) <= set(there)
    assert len(there) == len(set(there))


async def test_five_thousand_events_at_once_are_few_commits(make: Make) -> None:
    journal = make()
    await journal.open()
    said: list[str] = []
    connection(journal).set_trace_callback(said.append)
    taken = await asyncio.gather(*(journal.receive(inbound(number)) for number in range(5_000)))
    assert taken == [True] * 5_000
    assert said.count("COMMIT") <= 10


@pytest.mark.parametrize("asked", ["{", "[]", "null", '{"tool": "run_shell"}'])
async def test_a_question_that_cannot_be_read_hurts_no_other_work(make: Make, path: Path, asked: str) -> None:
    journal = make()
    whole = await journal.ask("A1", approval("whole"))
    await journal.ask("A2", approval("damaged"))
    await journal.close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE approvals SET asked = ? WHERE id = 'A2'", (asked,))
    assert await journal.open_approvals() == [whole]
    assert await journal.approval("A2") is None
    with pytest.raises(errors.StorageError):
        await journal.ask("A3", approval("damaged"))
    assert (await journal.receive(inbound()), journal.health()) == (True, "")


async def test_what_a_newer_shipmate_has_added_is_passed_over(make: Make, path: Path) -> None:
    journal = make()
    asked, received = await journal.ask("A1", approval()), inbound()
    await journal.receive(received)
    await journal.close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for table, column in (("approvals", "asked"), ("inbox", "payload")):
            db.execute(f"UPDATE {table} SET {column} = json_insert({column}, '$.later', 1)")
    assert await journal.open_approvals() == [asked]
    assert await still_open(journal) == [received]


@pytest.mark.parametrize("damaged", ["operator", "telegram:", ":5"])
async def test_what_was_decided_holds_though_nobody_can_tell_by_whom(make: Make, damaged: str) -> None:
    journal = make()
    await journal.ask("A1", approval())
    await journal.resolve("A1", Verdict("approved", UserRef("slack", "U7"), "always"))
    connection(journal).execute("UPDATE approvals SET decided_by = ?", (damaged,))
    held = Verdict("approved", None, "always")
    assert [one.verdict for one in await journal.lasting(approval().fingerprint)] == [held]
    asked_again = await journal.ask("A2", approval())
    assert (asked_again.id, asked_again.verdict) == ("A1", held)
