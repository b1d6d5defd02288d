"""Storage of a gateway under torture: its own folder or PostgreSQL. With PostgreSQL, each death may also delete the
folder.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bot.contracts.base import Json
from tests import postgres

EMBEDDED, POSTGRESQL, LOST_DISK = "embedded", "postgresql", "postgresql, and no disk lasts"
ENGINES = (EMBEDDED, POSTGRESQL, LOST_DISK)


def on(engine: str, *values: Any, torture: bool = False) -> Any:
    """Return a test's parameter values, with the engine last. The test is skipped if the engine is not installed."""
    absent = engine != EMBEDDED and postgres.programs() is None
    marks = [pytest.mark.skipif(absent, reason=postgres.MISSING), *[pytest.mark.torture] * torture]
    return pytest.param(*values, engine, marks=marks)


class Engine:
    """The engine with the log in a file. Other engines are subclasses."""

    def __init__(self) -> None:
        self.settings: Json = {}
        """Settings of the engine for ship.json."""

    def depose(self) -> None:
        """Prevent a process that counts as dead from changing the log."""

    def between(self, root: Path) -> None:
        """Prepare the next start after a death."""


class PostgresEngine(Engine):
    """A PostgreSQL server that is used by no other log. After each death `.ship` is empty, unless `lasts` is true."""

    def __init__(self, url: str, *, lasts: bool) -> None:
        super().__init__()
        self._url = url
        self._lasts = lasts
        self.settings = {"engine": {"kind": "postgresql", "databaseUrl": url}}

    def depose(self) -> None:
        """Take the lease as a new leader does, and give it back at once."""
        with (
            contextlib.suppress(psycopg.errors.UndefinedTable),  # the process died before that
            psycopg.connect(self._url, autocommit=True) as db,
        ):
            db.execute("UPDATE cluster_leader SET epoch = epoch + 1, holder = ''")

    def between(self, root: Path) -> None:
        self.depose()
        if not self._lasts:
            shutil.rmtree(root / ".ship", ignore_errors=True)
