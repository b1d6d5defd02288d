"""Journals as earlier versions wrote them, out of those of version 5: `python -m tests.corpus.older`.

The tables come from the first steps of `bot.journal.schema`, and rows stand in them as the code of that time put them:
what has a column today stood in words and in the endings of ids, or was not known at all.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from bot.contracts.base import Json
from bot.journal import schema
from tests.corpus.make import JOURNALS
from tests.corpus.stage import described, rows_of

FROM = JOURNALS / "5"
CHOSEN = {
    4: (
        "approval-waits",
        "deletion-in-the-middle",
        "inbound-joined",
        "job-due",
        "outbox-repeat-unknown",
        "stop-on-file-alone",
    ),
    3: (
        "approval-given-not-used",
        "command-answer-unsent",
        "inbound-merged",
        "outbox-put-off",
        "outbox-repeat-unknown",
        "preview-last-edit-not-made",
        "step-recorded",
    ),
    2: (
        "album-queued",
        "inbound-joined",
        "outbox-put-off",
        "outbox-sending-arrived",
        "slack-thread-goes-on",
        "step-recorded",
    ),
    1: ("edit-on-file-alone", "inbound-asked", "inbound-queued", "outbox-sending-arrived-on-slack"),
}
FIELDS = {"links": 5, "due": 3, "items": 3, "changes": 3}
"""Fields of an inbound, and the first version whose journals have them."""


def made(source: sqlite3.Connection, version: int) -> sqlite3.Connection:
    """The journal that a process of this version would have left."""
    source.row_factory = sqlite3.Row
    found = sqlite3.connect(":memory:", isolation_level=None)
    for step in schema.MIGRATIONS[:version]:
        step(found)
    found.execute(f"PRAGMA user_version = {version}")
    names: dict[str, str] = {}
    for (table,) in found.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        columns = [row[1] for row in found.execute(f"PRAGMA table_info({table})")]
        for row in source.execute(f"SELECT * FROM {table} ORDER BY {_order(table)}"):
            values = dict(row)
            if table == "inbox":
                values["payload"] = _payload(values["payload"], version)
            if table == "outbox" and version < 4:
                _in_words(values, names)
            marks = ", ".join("?" * len(columns))
            found.execute(f"INSERT INTO {table} VALUES ({marks})", [values[name] for name in columns])
    return found


def _order(table: str) -> str:
    return "rowid" if table in {"inbox", "outbox", "steps", "jobs", "approvals"} else "1"


def _payload(payload: str, version: int) -> str:
    inbound: Json = json.loads(payload)
    known = {name: value for name, value in inbound.items() if FIELDS.get(name, 0) <= version}
    return json.dumps(known, ensure_ascii=False)


def _in_words(row: dict[str, Any], names: dict[str, str]) -> None:
    """An outbox row without its later columns. `names` are the ids that repeats have got."""
    if row["not_before"] is not None:
        row["detail"] = f"deferred until {row['not_before']:.3f}"
    if row["repeat_of"] is not None:
        count = Counter(names.values())[row["repeat_of"]]
        names[row["id"]] = row["repeat_of"]
        row["id"] = f"{row['repeat_of']}-{count + 1}"


def make(name: str, folder: Path, version: int) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as source:
        source.executescript((FROM / "schema.sql").read_text("utf-8"))
        source.executescript((FROM / name / "journal.sql").read_text("utf-8"))
        with closing(made(source, version)) as older:
            (folder / name).mkdir(parents=True)
            (folder / "schema.sql").write_text(described(older), encoding="utf-8")
            (folder / name / "journal.sql").write_text(rows_of(older), encoding="utf-8")


def main() -> None:
    for version, names in CHOSEN.items():
        shutil.rmtree(JOURNALS / str(version), ignore_errors=True)
        for name in names:
            make(name, JOURNALS / str(version), version)
            sys.stdout.write(f"{version} {name}\n")


if __name__ == "__main__":
    main()
