"""Records the usage of the model as one event per call, and reads the totals. Triggers in the log's database add each event
to tables of totals by hour, chat, person, model and purpose. Totals stay when old events are deleted (retention).
Erasing a chat or a person also deletes their totals.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bot import errors
from bot.core.archive_files import ChatStore, names_of, people_of
from bot.core.chats import NO_CHAT, Chats, Fact
from bot.core.event_log import Session
from bot.core.events import Used
from bot.core.sqlite_log import session
from bot.telemetry import log as telemetry
from bot.telemetry.usage import TOKENS, UsageTotals

HOUR, DAY = 3_600, 86_400

By = Literal["day", "person", "chat", "model"]
_GROUPS: Mapping[By, str] = {"day": "hour / 24", "person": "person", "chat": "chat", "model": "model"}
_SUMS = "sum(turns), sum(failed), sum(calls), sum(cost), sum(unpriced), sum(input), sum(cache_read), sum(cache_write), sum(output)"
_WHERE = " WHERE hour >= ? AND hour < ? AND chat = coalesce(?, chat) AND substr(chat, 1, ?) = ?"
SPAN = 2_000
"""Max number of events that are searched for a turn's answer. The search begins at the turn's first message."""
PARTS = 20
"""Max number of an answer's parts that are shown."""
_COUNT = "SELECT count(*) FROM events WHERE kind = 'waited' AND at >= ?"
_SLOW = """SELECT waits.turn, waits.chat, waits.at, waits.data, said.data FROM events AS waits LEFT JOIN events AS said
ON said.id = waits.turn WHERE waits.kind = 'waited' AND waits.at >= ? ORDER BY json_extract(waits.data, '$.ms') DESC LIMIT ? OFFSET ?"""
_REQUEST = "SELECT chat, seq, data FROM events WHERE id = ? AND kind = 'received'"
_ANSWER = "SELECT data FROM events WHERE chat = ? AND seq > ? AND seq < ? AND kind = 'queued' AND turn = ? ORDER BY seq LIMIT ?"


@dataclass(frozen=True, slots=True)
class TurnWait:
    """A person's wait for an answer. It took `ms` milliseconds and ended at the time `at` (epoch seconds). `words` is the
    person's message, `model_ms` the part of `ms` that was spent on the model.
    """

    request: str
    chat: str
    at: float
    person: str
    words: str
    ms: int
    model_ms: int


@dataclass(eq=False)
class UsageSums:
    """Reads the usage totals from the log in the folder `home`, or in the PostgreSQL database at `url`. Methods block, may
    run on any thread and in several processes, and raise `errors.StorageError`. Times are in epoch seconds. `since` is
    rounded down to the hour, `until` up.
    """

    home: Path
    url: str | None = None

    def total(
        self, *, chat: str | None = None, channel: str = "", since: float = 0.0, until: float = math.inf
    ) -> UsageTotals:
        """Return the totals of one chat, of one channel, or of all chats."""
        return self._periods("hour * 0", *_source(chat, since, channel, until)).get(0, UsageTotals())

    def series(self, hours: int, *, since: float) -> dict[int, UsageTotals]:
        """Return the totals of each period of `hours` hours. The keys number the periods from 1970 (UTC)."""
        return self._periods(f"hour / {hours}", *_source(None, since))

    def _periods(self, period: str, of: str, given: Sequence[Any]) -> dict[int, UsageTotals]:
        found = defaultdict[int, UsageTotals](UsageTotals)
        select = (
            f"SELECT {period}, what, name, sum(count) FROM counts{of}{_WHERE} GROUP BY {period}, what, name"  # noqa: S608 - constants
        )
        with self._opened() as db:
            for (at, model), sums in _grouped(db, [period, "model"], given, of):
                found[at].add(sums)
                found[at].models[model] += sums.calls
            for at, what, name, count in db.execute(select, given):
                sums = found[at]
                counts = {"error": sums.errors, "spent": sums.spent, "rating": sums.ratings}
                if what == "wait":
                    sums.waits[int(name)] += count
                elif what in counts:
                    counts[what][name] += count
        for sums in found.values():
            sums.models = +sums.models
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
        """Return totals by day (UTC), oldest first, or by person, chat or model, highest cost first. The totals do not
        include the counts of errors, models and waits. The name "" stands for usage that has no person or chat.
        """
        of, given = "", _given(chat, since, channel, until)
        if name in {"day", "model"}:
            of, given = _source(chat, since, channel, until)
        with self._opened() as db:
            found = [(one, sums) for (one,), sums in _grouped(db, [_GROUPS[name]], given, of)]
        if name == "day":
            return [(f"{datetime.fromtimestamp(day * DAY, UTC):%Y-%m-%d}", sums) for day, sums in found]
        if name == "model":
            found = [one for one in found if one[0]]
        return sorted(found, key=lambda one: (-one[1].cost, -one[1].prompt, one[0]))

    def last_chats(self, people: Collection[str]) -> dict[str, str]:
        """Return the chat in which each of these people last caused usage."""
        marks = ", ".join("?" * len(people)) or "NULL"
        # The last row of each person overwrites earlier rows.
        select = f"SELECT person, chat FROM usage WHERE person IN ({marks}) GROUP BY person, chat ORDER BY max(hour), chat DESC"  # noqa: S608 - only `?` marks
        with self._opened() as db:
            return dict(db.execute(select, tuple(people)).fetchall())

    def failed(self, since: float) -> frozenset[str]:
        """Return the chats in which a turn failed since a time."""
        with self._opened() as db:
            select = "SELECT DISTINCT chat FROM usage WHERE hour >= ? AND failed > 0"
            return frozenset(chat for (chat,) in db.execute(select, (math.floor(since / HOUR),)))

    def spent(self, since: float) -> list[tuple[tuple[str, ...], UsageTotals]]:
        """Return the usage totals for each combination of chat, person and model since a time."""
        with self._opened() as db:
            return list(_grouped(db, ["chat", "person", "model"], _given(None, since)))

    def slowest(self, since: float, offset: int, limit: int) -> tuple[list[TurnWait], int]:
        """Return the waits that ended after `since`, and their total number. The longest wait comes first. `offset` and
        `limit` select the page.
        """
        with self._opened() as db:
            (total,) = db.execute(_COUNT, (since,)).fetchone()
            rows = db.execute(_SLOW, (since, limit, offset)).fetchall()
        found = list[TurnWait]()
        for request, chat, at, waited, received in rows:
            wait, said = json.loads(waited), _inbound(received)
            person = f"{said['channel']}:{said['user_id']}" if said else ""
            words, of_model = str(said.get("text") or ""), (wait.get("parts") or {}).get("model", 0)
            found.append(TurnWait(request, chat, at, person, words, wait["ms"], of_model))
        return found, total

    def words_of(self, request: str) -> tuple[str, str]:
        """Return the person's message and the answer of a turn. Each is "" if it is not in the log."""
        with self._opened() as db:
            found = db.execute(_REQUEST, (request,)).fetchone()
            if found is None:
                return "", ""
            chat, seq, said = found
            rows = db.execute(_ANSWER, (chat, seq, seq + SPAN, request, PARTS)).fetchall()
        queued = [json.loads(row) for (row,) in rows]
        answer = [one["text"] for one in queued if one.get("text") and "question" not in one]
        return str(_inbound(said).get("text") or ""), "\n\n".join(answer)

    def _opened(self) -> AbstractContextManager[Session]:
        return session(self.home, self.url, "the sums of usage cannot be read")


def _inbound(received: str | None) -> Mapping[str, Any]:
    return json.loads(received or "{}").get("inbound") or {}


async def names_of_groups(
    archive: ChatStore, sums: UsageSums, by: By, groups: Sequence[str]
) -> dict[str, str]:
    """Return people's names for totals by chat or person; {} for other totals. Raises `errors.StorageError`."""
    if by == "chat":
        return await people_of(archive, groups)
    return await names_of(archive, await asyncio.to_thread(sums.last_chats, groups)) if by == "person" else {}


def _grouped(
    db: Session, groups: Sequence[str], given: Sequence[Any], of: str = ""
) -> Iterator[tuple[tuple[Any, ...], UsageTotals]]:
    names = ", ".join(groups)
    select = f"SELECT {_SUMS}, {names} FROM usage{of}{_WHERE} GROUP BY {names} ORDER BY {names}"  # noqa: S608 - constants
    for turns, failed, calls, cost, unpriced, *found in db.execute(select, given):
        tokens = Counter(dict(zip(TOKENS, found, strict=False)))
        yield (
            tuple(found[len(TOKENS) :]),
            UsageTotals(turns, failed, calls, tokens=tokens, cost=cost, unpriced=unpriced),
        )


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


@dataclass(eq=False)
class UsageRecorder:
    """Appends a usage event for each model call. The recorder learns of calls from lines of the operators' log (`JsonlLog`)."""

    chats: Chats
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def observe(self, line: Mapping[str, Any]) -> None:
        """Append a usage event for a line of the operators' log about a model's response. Ignore all other lines."""
        if line["kind"] != "llm_response":
            return
        details, running = line["details"], telemetry.current()
        used = Used(
            str(details.get("model") or ""),
            str(details.get("purpose") or ""),
            str(details.get("person") or ""),
            details.get("usage"),
            details.get("costUsd"),
            str(details.get("error") or ""),
        )
        fact = Fact(running.chat_key or NO_CHAT, used, running.request_id)
        if self.chats.loaded(fact.chat) is not None:
            self.chats.append(fact)
            return
        task = asyncio.get_running_loop().create_task(self._append(fact), name="usage")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _append(self, fact: Fact) -> None:
        with contextlib.suppress(errors.StorageError):  # the operators' log contains the usage anyway
            await self.chats.get(fact.chat)
            self.chats.append(fact)
