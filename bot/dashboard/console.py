"""The console: read-only web pages for operators."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from aiohttp import web

from bot import errors, text
from bot.access_list import PendingUser
from bot.contracts.archive import HistoryQuery
from bot.contracts.environment import Clock, Disk
from bot.contracts.identity import ChatKey
from bot.core.archive.store import ChatStore, names_of, people_of
from bot.core.usage import By, UsageSums
from bot.dashboard.metrics import Figures
from bot.sizes import in_words
from bot.telemetry.causes import CauseCounts, Level
from bot.telemetry.log_reader import LineFilter, LogReader
from bot.telemetry.trace import steps_of, total_of
from bot.telemetry.usage import UsageTotals
from bot.words import DEFAULT, best_language, say, speaking


@dataclass(frozen=True, slots=True)
class PartHealth:
    """Health of one part of the gateway. `detail` is for operators. `heard` is the number of seconds since
    the part last gave a sign of life. If `needed` is False, the part does not affect readiness.
    """

    ok: bool
    detail: str = ""
    heard: float | None = None
    needed: bool = True


PAGES = Path(__file__).with_name("pages")
ROWS = 50
"""Max rows of a table on a page."""
COUNT_SECONDS = 0.5
"""Max seconds that the errors page waits for the count of errors. The first count reads the whole log and takes longer."""
STEPS = 500
"""Max steps of a turn that are shown."""
LONGEST = 4_000
"""Max characters of a message that are shown."""
POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
_DAY = 86_400
_PERIODS = ("1", "7", "30", "all")
_GROUPS: Mapping[str, By] = {"day": "day", "person": "person", "chat": "chat", "model": "model"}
Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ActiveChat:
    """A chat in which a turn runs or waits. `state` is `running`, `queued`, or `suspended` if the turn waits for
    an approval. `since` (epoch seconds) is the time of the message that the turn answers.
    """

    chat_key: str
    state: str
    waiting: int
    request_id: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True)
class ConsoleSources:
    """Data sources of the pages. `logs` is the folder of the operator's log."""

    parts: Callable[[], Mapping[str, PartHealth]]
    figures: Callable[[], Figures]
    active: Callable[[], Sequence[ActiveChat]]
    settings: Callable[[], Mapping[str, str]]
    pending: Callable[[], Sequence[PendingUser]]
    archive: ChatStore
    usage: UsageSums
    logs: Path
    disk: Disk
    clock: Clock


class Console:
    """Renders the pages. Pages are rendered one at a time in a separate thread, so that requests do not slow
    down turns.
    """

    def __init__(self, sources: ConsoleSources) -> None:
        self._of = sources
        self._one = asyncio.Lock()
        self._causes = CauseCounts(sources.logs, sources.disk)
        self._counting: asyncio.Task[tuple[list[Any], int] | None] | None = None
        self._templates = _environment(sources.clock)

    def add_to(self, app: web.Application) -> None:
        for path, name, find in (
            ("/", "now", self._now),
            ("/conversations", "conversations", self._conversations),
            ("/conversations/{chat}", "conversation", self._conversation),
            ("/turns/{request}", "turn", self._turn),
            ("/costs", "costs", self._costs),
            ("/errors", "errors", self._errors),
            ("/waiting", "waiting", self._waiting),
            ("/configuration", "configuration", self._configuration),
        ):
            app.router.add_get(path, functools.partial(self._page, name, find))
        app.router.add_get("/style.css", _file)
        app.router.add_get("/icon.svg", _file)

    async def _page(
        self, name: str, find: Callable[[web.Request], Any], request: web.Request
    ) -> web.Response:
        """Render the page `name` with the result of `find`, in the language of the browser. The status is 404 if the result is None, and 503
        if data is unreadable.
        """
        status = 200
        code = best_language(request.headers.get("Accept-Language", "")) or DEFAULT
        async with self._one:
            with speaking(code):
                try:
                    found = await find(request)
                except errors.StorageError as error:
                    name, found, status = "problem", {"words": str(error)}, 503
                if found is None:
                    name, found, status = "problem", {"words": say("dashboard.nothing")}, 404
                template = self._templates.get_template(f"{name}.html")
                body = await asyncio.to_thread(template.render, page=name, language=code, **found)
        return web.Response(text=body, content_type="text/html", status=status, headers=_HEADERS)

    # ------------------------------------------------------------ the pages

    async def _now(self, request: web.Request) -> Found:
        active = self._of.active()
        today = self._since("1")
        return {
            "live": "still" not in request.query,
            "parts": self._of.parts(),
            "figures": self._of.figures(),
            "active": active[:ROWS],
            "more": max(0, len(active) - ROWS),
            "names": await people_of(self._of.archive, [one.chat_key for one in active[:ROWS]]),
            "usage": await asyncio.to_thread(self._of.usage.total, since=today),
            "waiting": len(self._of.pending()),
        }

    async def _conversations(self, request: web.Request) -> Found:
        page = _number(request, "page", 1)
        chats, total = await self._of.archive.recent((page - 1) * ROWS, ROWS)
        names = await people_of(self._of.archive, [one.chat_key for one in chats])
        return {"chats": chats, "names": names, "total": total, "at": page, "pages": _pages(total)}

    async def _conversation(self, request: web.Request) -> Found | None:
        """Return the newest messages of a chat, or with `before` the messages up to that time (ms). `from`
        is the number of messages at exactly that time that were already shown.
        """
        try:
            key = ChatKey.parse(request.match_info["chat"])
        except errors.IdentityInvalid:
            return None
        before, shown = _number(request, "before", 0), _number(request, "from", 0)
        query = HistoryQuery(
            limit=ROWS + 1, before=before + 1 if before else None, offset=shown, counted=False
        )
        lines = (await self._of.archive.search(key, query)).lines
        if not lines and not before:
            return None
        older, lines = len(lines) > ROWS, lines[-ROWS:]
        oldest = lines[0].ts if lines else 0
        again = sum(line.ts == oldest for line in lines) + (shown if oldest == before else 0)
        return {
            "key": str(key),
            "lines": lines,
            "names": await people_of(self._of.archive, [str(key)]),
            "older": f"?before={oldest}&from={again}" if older else "",
            "newest": not before,
            "usage": await asyncio.to_thread(self._of.usage.total, chat=str(key)),
        }

    async def _turn(self, request: web.Request) -> Found | None:
        return await asyncio.to_thread(self._traced, request.match_info["request"])

    def _traced(self, request_id: str) -> Found | None:
        reader = LogReader(self._of.logs, self._of.disk, LineFilter(request=request_id))
        lines = [line for _, line in reader.of_request(request_id, everywhere=False)]
        if not lines:
            return None
        steps = steps_of(lines)
        chat = next((str(line["chatKey"]) for line in lines if line.get("chatKey")), "")
        return {
            "request": request_id,
            "chat": chat,
            "began": str(lines[0].get("timestamp", "")),
            "steps": steps[:STEPS],
            "more": max(0, len(steps) - STEPS),
            "usage": total_of(lines),
        }

    async def _costs(self, request: web.Request) -> Found:
        by = _GROUPS.get(request.query.get("by", ""), "day")
        period = _period(request)
        since, page = self._since(period), _number(request, "page", 1)
        total, groups = await asyncio.to_thread(
            lambda: (self._of.usage.total(since=since), self._of.usage.by(by, since=since))
        )
        if by == "day":
            groups.reverse()
        shown = groups[(page - 1) * ROWS : page * ROWS]
        ids = [name for name, _ in shown]
        names: dict[str, str] = {}
        if by == "chat":
            names = await people_of(self._of.archive, ids)
        elif by == "person":
            names = await names_of(self._of.archive, await asyncio.to_thread(self._of.usage.last_chats, ids))
        return {
            "by": by,
            "groups": shown,
            "names": names,
            "highest": max((one.cost for _, one in groups), default=0.0),
            "total": total,
            "at": page,
            "pages": _pages(len(groups)),
            "period": period,
        }

    async def _errors(self, request: web.Request) -> Found:
        level: Level = "warn" if request.query.get("level") == "warn" else "error"
        period, page = _period(request), _number(request, "page", 1)
        ask = asyncio.to_thread(
            self._causes.newest, level, self._since(period), offset=(page - 1) * ROWS, limit=ROWS
        )
        self._counting = asyncio.create_task(ask)
        # The first count reads the whole log, and other pages must not wait for it.
        done, _ = await asyncio.wait([self._counting], timeout=COUNT_SECONDS)
        counted = self._counting.result() if done else None
        causes, total = counted or ([], 0)
        return {
            "counted": counted is not None,
            "level": level,
            "causes": causes,
            "at": page,
            "pages": _pages(total),
            "period": period,
        }

    async def _waiting(self, request: web.Request) -> Found:
        page = _number(request, "page", 1)
        pending = self._of.pending()
        shown = pending[(page - 1) * ROWS : page * ROWS]
        return {"pending": shown, "total": len(pending), "at": page, "pages": _pages(len(pending))}

    async def _configuration(self, _: web.Request) -> Found:
        sections: dict[str, dict[str, str]] = {}
        for key, value in self._of.settings().items():
            sections.setdefault(key.partition(".")[0], {})[key] = value
        return {"sections": sections}

    def _since(self, period: str) -> float:
        return 0.0 if period == "all" else self._of.clock.now() - int(period) * _DAY


def _number(request: web.Request, name: str, least: int) -> int:
    """Return a number from the URL query. The number is at least `least`, which is also the default."""
    given = request.query.get(name, "")
    return max(least, int(given)) if given.isascii() and given.isdecimal() and len(given) < 10 else least


def _period(request: web.Request) -> str:
    given = request.query.get("days", "")
    return given if given in _PERIODS else "7"


def _pages(rows: int) -> int:
    return max(1, math.ceil(rows / ROWS))


async def _file(request: web.Request) -> web.FileResponse:
    return web.FileResponse(PAGES / request.path.removeprefix("/"), headers=_HEADERS)


# ------------------------------------------------------------ formatting


def _environment(clock: Clock) -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finished,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["say"] = say
    made.filters |= {
        "time": _time,
        "iso": _iso,
        "milliseconds": _milliseconds,
        "ago": lambda milliseconds: say("dashboard.ago", span=_span(clock.now() - milliseconds / 1000)),
        "span": _span,
        "ms": lambda duration: say("dashboard.milliseconds", number=_number_of(duration)),
        "number": _number_of,
        "size": _size,
        "dollars": _dollars,
        "share": _share,
        "short": _short,
    }
    return made


def _finished(value: Any) -> Any:
    """Return a text without control and direction characters. Markup that Jinja made is returned unchanged."""
    return text.for_terminal(value) if type(value) is str else value


def _time(milliseconds: float | None) -> str:
    """Return a moment in UTC, with the seconds."""
    try:
        shown = datetime.fromtimestamp((milliseconds or 0) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return say("dashboard.unknown")
    month = say("time.months").split()[shown.month - 1]
    return say("dashboard.moment", day=shown.day, month=month, year=shown.year, clock=f"{shown:%H:%M:%S}")


def _iso(milliseconds: float) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""


def _milliseconds(stamp: object) -> float | None:
    """Return the time (ms) of a log line's timestamp; None if the timestamp is unreadable."""
    try:
        return datetime.fromisoformat(str(stamp)).timestamp() * 1000
    except (ValueError, OverflowError):
        return None


def _span(seconds: float) -> str:
    """Return a duration in the largest unit that fits."""
    for unit, size in (("days", _DAY), ("hours", 3_600), ("minutes", 60)):
        if seconds >= size:
            return say(f"dashboard.{unit}", count=int(seconds // size))
    return say("dashboard.seconds", seconds=f"{max(0.0, seconds):.0f}")


def _number_of(value: float) -> str:
    return f"{value:,.0f}"


def _size(value: float | None) -> str:
    return say("dashboard.unknown") if value is None else in_words(value)


def _dollars(usage: UsageTotals) -> str:
    return f"${usage.cost:,.2f}" if usage.cost >= 1 or not usage.cost else f"${usage.cost:.4f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _short(value: str, most: int = LONGEST) -> str:
    left = len(value) - most
    return value if left <= 0 else say("dashboard.longer", text=text.head(value, most), count=left)
