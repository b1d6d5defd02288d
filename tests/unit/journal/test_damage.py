"""A torn tail loses nothing that was acknowledged; damage is told."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path, PosixPath

import pytest

from bot.journal import file, schema, wal
from tests.unit.journal.damage import CHECKPOINTED, Left, boot, killed

pytestmark = pytest.mark.together

FRAME = 24 + 4096
SEED = 3


class Leaving(PosixPath):
    """A file that another process takes away right after it was seen."""

    def exists(self) -> bool:
        return self.name.endswith(file.SIDES) or super().exists()


def test_a_log_that_whoever_closed_the_journal_last_takes_away_is_no_damage(tmp_path: Path) -> None:
    assert wal.damage(Leaving(tmp_path / "journal.db-wal"), None) == ""


def test_a_damaged_journal_is_set_aside_though_somebody_takes_its_log_away_meanwhile(tmp_path: Path) -> None:
    path = Leaving(tmp_path / "journal.db")
    path.write_bytes(b"no database")
    assert file.set_aside(path, 1).read_bytes() == b"no database"


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return killed(tmp_path_factory.mktemp("killed"))


def samples(left: Left) -> list[int]:
    """The borders of every frame of the last three, and what a seed picks between."""
    first = left.acknowledged[0][0]
    borders = [size + near for size in range(first, len(left.log) + 1, FRAME) for near in (-1, 0, 1, 25)]
    picked = random.Random(SEED).sample(range(first, len(left.log)), 20)
    return sorted({size for size in (0, 1, 31, 32, 33, *borders, *picked) if size <= len(left.log)})


def test_a_log_cut_anywhere_loses_only_what_was_not_acknowledged(left: Left, tmp_path: Path) -> None:
    for size in samples(left):
        found = boot(tmp_path / "boot", left.base, left.log[:size])
        assert found.unfinished == left.due(size), size
        assert (found.told, found.quarantined) == ([], []), size


@pytest.mark.parametrize("tail", [b"\0" * 512, b"\0" * FRAME, b"garbage \xff" * 700])
def test_what_was_written_behind_the_end_does_no_harm(left: Left, tmp_path: Path, tail: bytes) -> None:
    found = boot(tmp_path / "boot", left.base, left.log + tail)
    assert found.unfinished == left.due(len(left.log))


@pytest.mark.parametrize("ends", ["killed", "taken back"])
def test_a_large_change_that_was_not_acknowledged_is_no_damage(ends: str, tmp_path: Path) -> None:
    """SQLite writes it to the log in parts, and some pages of it twice: their checksums are right after its commit."""
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        schema.migrate(db)
        db.execute("BEGIN")
        db.execute("PRAGMA cache_size = 5")
        for _ in range(3):
            for number in range(200):
                db.execute("INSERT OR REPLACE INTO once VALUES (?, 1.0, 1.0)", (f"{number} {'x' * 900}",))
        if ends == "taken back":
            db.execute("ROLLBACK")
            db.execute("INSERT INTO chats VALUES ('telegram:chat:5', 1.0, NULL)")
        log = path.with_name("journal.db-wal").read_bytes()
        assert len(log) > 100 * FRAME
        found = boot(tmp_path / "boot", path.read_bytes(), log)
    assert (found.told, found.quarantined) == ([], [])


def test_nothing_of_a_change_is_in_the_log_before_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(file.open_to_write(path, print)) as db:
        db.execute("BEGIN")
        for number in range(2_000):
            db.execute("INSERT INTO once VALUES (?, 1.0, 1.0)", (f"{number} {'x' * 3_000}",))
        assert path.with_name("journal.db-wal").stat().st_size == 0


def test_a_log_that_was_changed_in_its_middle_is_set_aside_and_told(left: Left, tmp_path: Path) -> None:
    picked = random.Random(SEED).sample(range(32, len(left.log)), 25)
    heads = range(32, len(left.log), FRAME)
    salts = [place for start in heads[:-1] for place in range(start + 8, start + 16)]
    end = range(heads[-1] + 8, heads[-1] + 16)  # as of one that is left over from another log
    for place in sorted({0, 9, 20, 30, *picked, *random.Random(SEED).sample(salts, 5)} - {*end}):
        changed = bytearray(left.log)
        changed[place] ^= 0x10
        found = boot(tmp_path / "boot", left.base, bytes(changed))
        assert found.unfinished[:2] == CHECKPOINTED, place
        if found.unfinished != left.due(len(left.log)):
            assert "journal.db-wal is damaged" in found.told[0], place
            assert len(found.quarantined) == 1, place
            assert (tmp_path / "boot" / found.quarantined[0]).read_bytes() == bytes(changed)


def test_a_file_that_was_changed_anywhere_opens_and_what_is_missing_is_told(
    left: Left, tmp_path: Path
) -> None:
    lost = 0
    for place in (*range(0, 100, 9), *random.Random(SEED).sample(range(100, len(left.base)), 60)):
        changed = bytearray(left.base)
        changed[place] ^= 0x10
        found = boot(tmp_path / "boot", bytes(changed), b"")
        if len(found.unfinished) != len(CHECKPOINTED):
            assert found.told, place
            lost += 1
    assert lost


def test_an_index_that_no_longer_fits_its_table_does_not_hide_an_inbound_in_silence(
    left: Left, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(left.base)
    db = sqlite3.connect(copy)
    (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'inbox_open'").fetchone()
    db.close()
    page = slice((root - 1) * 4096, root * 4096)
    assert b"queued" in left.base[page]
    changed = bytearray(left.base)
    changed[page] = left.base[page].replace(b"queued", b"quedud")
    found = boot(tmp_path / "boot", bytes(changed), b"")
    assert found.unfinished == CHECKPOINTED  # its table is whole
    assert "set aside" in found.told[0]
    assert len(found.quarantined) == 1


@pytest.mark.parametrize(
    ("described", "changed"),
    [
        (b"received_at REAL", b"receivgd_at REAL"),
        (b"CREATE TABLE keys", b"CREATE TABLE kuys"),
        (b"'in_turn', 'answered'", b"'in_trun', 'answered'"),
        (b"WHERE state = 'sent'", b"WHERE state = 'seft'"),
    ],
)
def test_a_description_of_a_table_that_the_disk_has_changed_is_told_and_the_next_inbound_is_taken_in(
    described: bytes, changed: bytes, left: Left, tmp_path: Path
) -> None:
    assert described in left.base
    found = boot(tmp_path / "boot", left.base.replace(described, changed), b"")
    # Rows of which a column has no name cannot be carried over.
    assert found.unfinished == ([] if changed == b"receivgd_at REAL" else CHECKPOINTED)
    assert "set aside" in found.told[0]
    assert len(found.quarantined) == 1


def test_a_file_that_claims_an_older_version_than_it_describes_is_told(left: Left, tmp_path: Path) -> None:
    changed = bytearray(left.base)
    changed[63] = 1  # PRAGMA user_version: four bytes at 60 (https://www.sqlite.org/fileformat2.html)
    found = boot(tmp_path / "boot", bytes(changed), b"")
    assert found.unfinished == CHECKPOINTED
    assert "not that of version 1" in found.told[0]


def test_an_index_that_an_operator_has_added_is_left_alone(left: Left, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    path.write_bytes(left.base)
    db = sqlite3.connect(path)
    db.execute("CREATE INDEX mine ON inbox (user_id)")
    db.close()
    assert boot(tmp_path / "boot", path.read_bytes(), b"").unfinished == CHECKPOINTED
