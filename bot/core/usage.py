"""Records the usage of the model as one event per call, and reads the totals. Triggers in the log's database add each event
to tables of totals by hour, chat, person, model and purpose. Totals stay when old events are deleted (retention).
Erasing a chat or a person also deletes their totals.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bot import errors
from bot.core.chats import NO_CHAT, Chats, Fact
from bot.core.event_log import Session
from bot.core.events import Used
from bot.core.sqlite_log import FILE, SCHEMA
from bot.telemetry import context
from bot.telemetry.usage import TOKENS, UsageTotals

BUSY_SECONDS = 30.0
HOUR, DAY = 3_600, 86_400

By = Literal["day", "person", "chat", "model"]
_GROUPS: Mapping[By, str] = {"day": "hour / 24", "person": "person", "chat": "chat", "model": "model"}
_SUMS = "sum(turns), sum(failed), sum(calls), sum(input), sum(cache_read), sum(cache_write), sum(output), sum(cost), sum(unpriced)"
_WHERE = " WHERE hour >= ? AND hour < ? AND chat = coalesce(?, chat) AND substr(chat, 1, ?) = ?"


class UsageSums:
    """Reads the usage totals from the log in the folder `home`, or in the PostgreSQL database at `url`. Methods block, may
    run on any thread and in several processes, and raise `errors.StorageError`.
    """

    def __init__(self, home: Path, url: str | None = None) -> None:
        self._path = home / FILE
        self._url = url

    def total(
        self, *, chat: str | None = None, channel: str = "", since: float = 0.0, until: float = math.inf
    ) -> UsageTotals:
        """Return the totals of one chat, of one channel, or of all chats. `since` and `until` are epoch seconds; `since` is
        rounded down to the hour, `until` up.
        """
        (of, given), found = _source(chat, since, channel, until), UsageTotals()
        with self.opened() as db:
            for (model,), sums in _grouped(db, ["model"], given, of):
                found.add(sums)
                if sums.calls:
                    found.models[model] = sums.calls
            select = f"SELECT what, name, sum(count) FROM counts{of}{_WHERE} GROUP BY what, name"  # noqa: S608 - constants
            for what, name, count in db.execute(select, given):
                _count(found, what, name, count)
        return found

    def by(
        self,
        name: By,
        *,
        chat: str | None = None,
        channel: str = "",
        since: float = 0.0,
        until: float = math.inf,
    ) -> list[tuple[str, UsageTotals]]:
        """Return totals by day (UTC), oldest first, or by person, chat or model, highest cost first. Errors, models and waits
        are not counted. The name "" stands for usage that has no person or chat.
        """
        of, given = "", _given(chat, since, channel, until)
        if chat is None and name in {"day", "model"}:
            of, given = _source(chat, since, channel, until)
        with self.opened() as db:
            found = [(one, sums) for (one,), sums in _grouped(db, [_GROUPS[name]], given, of)]
        if name == "day":
            days = (datetime.fromtimestamp(day * DAY, UTC).date() for day, _ in found)
            return [(day.isoformat(), sums) for day, (_, sums) in zip(days, found, strict=True)]
        if name == "model":
            found = [one for one in found if one[0]]
        return sorted(found, key=lambda one: (-one[1].cost, -one[1].prompt, one[0]))

    def series(self, hours: int, *, since: float) -> dict[int, UsageTotals]:
        """Return the totals of each period of `hours` hours, including errors and waits. The keys number the periods from 1970 (UTC)."""
        of, given = _source(None, since)
        select = f"SELECT hour / {hours}, what, name, sum(count) FROM counts{of}{_WHERE} GROUP BY hour / {hours}, what, name"  # noqa: S608 - a number
        with self.opened() as db:
            found = {period: sums for (period,), sums in _grouped(db, [f"hour / {hours}"], given, of)}
            for period, what, name, count in db.execute(select, given):
                _count(found.setdefault(period, UsageTotals()), what, name, count)
        return found

    def last_chats(self, people: Collection[str]) -> dict[str, str]:
        """Return the chat in which each of these people last caused usage."""
        if not people:
            return {}
        marks = ", ".join("?" * len(people))
        # The last row of each person overwrites earlier rows.
        select = f"SELECT person, chat FROM usage WHERE person IN ({marks}) GROUP BY person, chat ORDER BY max(hour), chat DESC"  # noqa: S608 - marks
        with self.opened() as db:
            return dict(db.execute(select, tuple(people)).fetchall())

    def failed(self, since: float) -> frozenset[str]:
        """Return the chats in which a turn failed since a time (epoch seconds, rounded down to the hour)."""
        with self.opened() as db:
            select = "SELECT DISTINCT chat FROM usage WHERE hour >= ? AND failed > 0"
            return frozenset(chat for (chat,) in db.execute(select, (math.floor(since / HOUR),)))

    def spent(self, since: float) -> list[tuple[tuple[str, ...], UsageTotals]]:
        """Return the usage totals for each combination of chat, person and model since a time (epoch seconds)."""
        with self.opened() as db:
            return list(_grouped(db, ["chat", "person", "model"], _given(None, since)))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Session]:
        """Open a read-only session on the log's database. If the database file does not exist, the session is empty."""
        words, there = "the sums of usage cannot be read", self._path.exists()
        if self._url is not None:
            # Imported late, since psycopg is installed only if PostgreSQL is used.
            from bot.core.postgres_log import reading

            with reading(self._url, words) as session:
                yield session
            return
        address = f"{self._path.absolute().as_uri()}?mode={'ro' if there else 'memory'}"
        with (
            errors.as_storage_error(words, sqlite3.Error, OSError),
            contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as db,
        ):
            if not there:
                db.executescript(SCHEMA)
            yield db


def _grouped(
    db: Session, groups: Sequence[str], given: Sequence[Any], of: str = ""
) -> Iterator[tuple[tuple[Any, ...], UsageTotals]]:
    names = ", ".join(groups)
    select = f"SELECT {_SUMS}, {names} FROM usage{of}{_WHERE} GROUP BY {names} ORDER BY {names}"  # noqa: S608 - constants
    for turns, failed, calls, fresh, read, write, answer, cost, unpriced, *group in db.execute(select, given):
        tokens = Counter(dict(zip(TOKENS, (fresh, read, write, answer), strict=True)))
        yield tuple(group), UsageTotals(turns, failed, calls, tokens=tokens, cost=cost, unpriced=unpriced)


def _count(found: UsageTotals, what: str, name: str, count: int) -> None:
    counts: dict[str, Counter[str]] = {"error": found.errors, "spent": found.spent, "rating": found.ratings}
    if what == "wait":
        found.waits[int(name)] += count
    elif what in counts:
        counts[what][name] += count


def _source(
    chat: str | None, since: float, channel: str = "", until: float = math.inf
) -> tuple[str, Sequence[Any]]:
    """Return the suffix of the tables to read, and the parameters of `_WHERE`. Tables with the suffix `_hours` have the sums
    of all chats of a channel; their column `chat` contains the channel.
    """
    if chat is not None:
        return "", _given(chat, since, until=until)
    return "_hours", _given(channel or None, since, until=until)


def _given(chat: str | None, since: float, channel: str = "", until: float = math.inf) -> Sequence[Any]:
    prefix = f"{channel}:" if channel else ""
    return math.floor(since / HOUR), until / HOUR, chat, len(prefix), prefix


class UsageRecorder:
    """Appends a usage event for each model call. The lines of the operators' log (`JsonlLog`) inform it about calls."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self._tasks = set[asyncio.Task[None]]()

    def observe(self, line: Mapping[str, Any]) -> None:
        """Append a usage event for a line of the operators' log about a model's response. Ignore all other lines."""
        if line["kind"] != "llm_response":
            return
        details, running = line["details"], context.current()
        used = Used(
            str(details.get("model") or ""),
            str(details.get("purpose") or ""),
            str(details.get("person") or ""),
            details.get("usage"),
            details.get("costUsd"),
            str(details.get("error") or ""),
        )
        fact = Fact(running.chat_key or NO_CHAT, used, running.request_id)
        if self._chats.loaded(fact.chat) is not None:
            self._chats.append(fact)
            return
        task = asyncio.get_running_loop().create_task(self._append(fact), name="usage")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _append(self, fact: Fact) -> None:
        with contextlib.suppress(errors.StorageError):  # the operators' log contains the usage anyway
            await self._chats.get(fact.chat)
            self._chats.append(fact)
