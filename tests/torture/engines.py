"""What a gateway under torture has its log and files in: its own folder, or PostgreSQL, where each death may take the folder
as well.
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
    """Values of a test's parameters, the engine last. It is skipped where that is not installed."""
    absent = engine != EMBEDDED and postgres.programs() is None
    marks = [pytest.mark.skipif(absent, reason=postgres.MISSING), *[pytest.mark.torture] * torture]
    return pytest.param(*values, engine, marks=marks)


class Engine:
    """The log in a file."""

    def __init__(self) -> None:
        self.settings: Json = {}
        """What ship.json has of it."""

    def depose(self) -> None:
        """Let nothing more of a process that counts as dead reach it."""

    def between(self, root: Path) -> None:
        """After a death, and before the next start."""


class PostgresEngine(Engine):
    """One server, on which nobody else has a log. The next life has an empty `.ship`, unless the disk `lasts`."""

    def __init__(self, url: str, *, lasts: bool) -> None:
        super().__init__()
        self._url = url
        self._lasts = lasts
        self.settings = {"engine": {"kind": "postgresql", "databaseUrl": url}}

    def depose(self) -> None:
        """As the next leader does, who gives its lease back at once."""
        with (
            contextlib.suppress(psycopg.errors.UndefinedTable),  # it did not come so far
            psycopg.connect(self._url, autocommit=True) as db,
        ):
            db.execute("UPDATE cluster_leader SET epoch = epoch + 1, holder = ''")

    def between(self, root: Path) -> None:
        self.depose()
        if not self._lasts:
            shutil.rmtree(root / ".ship", ignore_errors=True)
