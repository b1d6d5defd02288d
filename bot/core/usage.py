"""Usage of the model: an event for each call, and totals that are kept longer than the events.

The totals are tables in the log's database, updated by triggers: by hour, chat, person, model and purpose.
Erasing a chat or person deletes the totals of that `chat` or `person`; the retention time does not apply to
totals.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bot import errors
from bot.core.sql_log import Session
from bot.core.sqlite_log import FILE
from bot.telemetry.usage import TOKENS, UsageTotals

BUSY_SECONDS = 30.0
HOUR, DAY = 3_600, 86_400

By = Literal["day", "person", "chat", "model"]
_GROUPS: Mapping[By, str] = {"day": "hour / 24", "person": "person", "chat": "chat", "model": "model"}
_SUMS = "sum(turns), sum(failed), sum(calls), sum(input), sum(cache_read), sum(cache_write), sum(output), sum(cost), sum(unpriced)"
_WHERE = " WHERE hour >= ? AND chat = coalesce(?, chat) AND substr(chat, 1, ?) = ?"


class UsageSums:
    """Reads the usage totals of a folder, or of the database at `url`. Blocks on disk access; may be used on
    any thread and in several processes. Raises `errors.StorageError`.
    """

    def __init__(self, home: Path, url: str | None = None) -> None:
        self._path = home / FILE
        self._url = url

    def total(self, *, chat: str | None = None, channel: str = "", since: float = 0.0) -> UsageTotals:
        """Return the totals of one chat, of a channel or of all chats since a time (epoch seconds, rounded down to the hour)."""
        given, found = _given(chat, since, channel), UsageTotals()
        with self._opened() as db:
            if db is None:
                return found
            for _, sums in _grouped(db, ["chat IS NULL"], given):
                found = sums
            counts: dict[str, Counter[Any]] = {
                "error": found.errors,
                "wait": found.waits,
                "spent": found.spent,
                "rating": found.ratings,
            }
            select = f"SELECT what, name, sum(count) FROM counts{_WHERE} GROUP BY what, name"  # noqa: S608 - constants
            for what, name, count in db.execute(select, given):
                if what in counts:
                    counts[what][int(name) if what == "wait" else name] += count
            models = f"SELECT model, sum(calls) FROM usage{_WHERE} GROUP BY model HAVING sum(calls) > 0"  # noqa: S608 - constants
            found.models.update(dict(db.execute(models, given).fetchall()))
        return found

    def by(
        self, name: By, *, chat: str | None = None, channel: str = "", since: float = 0.0
    ) -> list[tuple[str, UsageTotals]]:
        """Return totals by day (UTC) in order, or by person, chat or model with the highest cost first.
        Errors, models and waits are left out. The name "" collects usage that belongs to no person,
        chat or model.
        """
        with self._opened() as db:
            groups = _grouped(db, [_GROUPS[name]], _given(chat, since, channel)) if db is not None else ()
            found = [(one, sums) for (one,), sums in groups]
        if name == "day":
            return [(datetime.fromtimestamp(day * DAY, UTC).date().isoformat(), sums) for day, sums in found]
        if name == "model":
            found = [one for one in found if one[0]]
        return sorted(found, key=lambda one: (-one[1].cost, -one[1].prompt, one[0]))

    def last_chats(self, people: Collection[str]) -> dict[str, str]:
        """Return, for each of these people, the chat in which the person last caused usage."""
        if not people:
            return {}
        marks = ", ".join("?" * len(people))
        # The last row of each person overwrites earlier rows.
        select = f"SELECT person, chat FROM usage WHERE person IN ({marks}) GROUP BY person, chat ORDER BY max(hour), chat DESC"  # noqa: S608 - marks
        with self._opened() as db:
            return dict(db.execute(select, tuple(people)).fetchall()) if db is not None else {}

    def failed(self, since: float) -> frozenset[str]:
        """Return the chats in which a turn failed since a time (epoch seconds, rounded down to the hour)."""
        with self._opened() as db:
            select = "SELECT DISTINCT chat FROM usage WHERE hour >= ? AND failed > 0"
            rows = () if db is None else db.execute(select, (math.floor(since / HOUR),)).fetchall()
            return frozenset(chat for (chat,) in rows)

    def spent(self, since: float) -> list[tuple[tuple[str, ...], UsageTotals]]:
        """Return the usage totals for each combination of chat, person and model since a time (epoch seconds)."""
        with self._opened() as db:
            groups = ["chat", "person", "model"]
            return [] if db is None else list(_grouped(db, groups, _given(None, since)))

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Session | None]:
        """Open a session that reads the usage totals; None if nothing was ever written."""
        words = "the sums of usage cannot be read"
        if self._url is not None:
            # Imported late, since psycopg is installed only if PostgreSQL is used.
            from bot.core.postgres_log import reading

            with reading(self._url, words) as session:
                yield session
            return
        if not self._path.exists():
            yield None
            return
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        with (
            errors.as_storage_error(words, sqlite3.Error, OSError),
            contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as db,
        ):
            yield db


def _grouped(
    db: Session, groups: Sequence[str], given: Sequence[Any]
) -> Iterator[tuple[tuple[Any, ...], UsageTotals]]:
    names = ", ".join(groups)
    select = f"SELECT {_SUMS}, {names} FROM usage{_WHERE} GROUP BY {names} ORDER BY {names}"  # noqa: S608 - constants
    for turns, failed, calls, fresh, read, write, answer, cost, unpriced, *group in db.execute(select, given):
        tokens = Counter(dict(zip(TOKENS, (fresh, read, write, answer), strict=True)))
        yield tuple(group), UsageTotals(turns, failed, calls, tokens=tokens, cost=cost, unpriced=unpriced)


def _given(chat: str | None, since: float, channel: str = "") -> Sequence[Any]:
    prefix = f"{channel}:" if channel else ""
    return math.floor(since / HOUR), chat, len(prefix), prefix
