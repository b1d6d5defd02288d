"""The console: web pages for operators. Only the page “Waiting” can change anything."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import math
import secrets
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlencode

import jinja2
from aiohttp import web

from bot import errors, text
from bot.contracts.approvals import KINDS, Act, OpenLoop
from bot.contracts.environment import Clock, Disk
from bot.contracts.identity import ChatKey
from bot.contracts.messages import HistoryQuery
from bot.core.archive_files import ChatStore, names_of, people_of
from bot.core.usage import By, UsageSums, names_of_groups
from bot.dashboard.metrics import Figures
from bot.telemetry.log_reader import CauseCounts, LineFilter, LogReader, steps_of
from bot.telemetry.usage import Line, UsageTotals, details_of, epoch_ms, total_of
from bot.tools.context import ChatQuery, RecallQuery, Recalls
from bot.words import DEFAULT, best_language, say, speaking


@dataclass(frozen=True, slots=True)
class PartHealth:
    """Health of one part of the gateway. Only operators see `detail`. `heard` is the number of seconds since
    the part last showed activity. If `needed` is False, the part does not affect readiness.
    """

    ok: bool
    detail: str = ""
    heard: float | None = None
    needed: bool = True


PAGES = Path(__file__).with_name("pages")
ROWS = 50
"""Max rows of a table on a page."""
MOST_ASKED = 200
"""Max characters that are read from a form field."""
MOST_SAID = 50
"""Max sentences about decisions that are kept until a page shows them."""
COUNT_SECONDS = 0.3
"""Max seconds for which the errors page waits for the count of errors. Counting may take longer, because the first count reads the
whole log.
"""
SPANS = {"day": (1, 24), "month": (24, 30)}
"""Spans of time that a chart can show: for each name, the hours of a period and the number of periods."""
STEPS = 500
"""Max steps of a turn that the page shows."""
_WAITS = ("queue", "approval", "model", "tools", "delivery")
LONGEST = 4_000
"""Max characters that are shown of a message."""
POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    # With `no-referrer`, browsers would send forms without the header Origin, which the server checks.
    "Referrer-Policy": "same-origin",
}
_DAY = 86_400
_PERIODS = ("1", "7", "30", "all")
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


@dataclass
class Console:
    """Renders the pages. A separate thread renders one page at a time, so that requests do not slow down turns."""

    parts: Callable[[], Mapping[str, PartHealth]]
    figures: Callable[[], Figures]
    active: Callable[[], Sequence[ActiveChat]]
    settings: Callable[[], Mapping[str, str]]
    """Function that returns the value and the description of each setting, by key."""
    channels: Callable[[], Sequence[str]]
    """Function that returns the names of the channels."""
    titles: Callable[[], Mapping[str, str]]
    """Function that returns the titles that people gave their conversations, by chatKey."""
    recalls: Recalls | None
    """Search in the archive; None if it is off."""
    waiting: Callable[[], Awaitable[list[OpenLoop]]]
    decide: Callable[[OpenLoop, Act], Awaitable[str]]
    archive: ChatStore
    usage: UsageSums
    logs: Path
    """Folder of the operator's log."""
    disk: Disk
    clock: Clock

    def __post_init__(self) -> None:
        self._one = asyncio.Lock()
        self._causes = CauseCounts(self.logs, self.disk)
        self._counting: asyncio.Task[None] | None = None
        self._form_key = secrets.token_urlsafe(32)
        """Secret in each form of this process. Other sites cannot read the secret, so they cannot send a valid form."""
        self._said: OrderedDict[str, str] = OrderedDict()
        """Sentences about the results of decisions, kept until a page shows them. The keys are random names."""
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(PAGES),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            # Remove control and text-direction characters from texts. Jinja's own markup stays.
            finalize=lambda value: text.for_terminal(value) if type(value) is str else value,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals["say"] = say
        self._templates.filters |= {
            "time": _time,
            "iso": lambda ms: datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds"),
            "link": lambda asked, name, value: _query({**asked, name: value}),
            "kept": lambda asked, names: _query({name: asked[name] for name in names}),
            "narrowed": lambda asked, kept: any(given for name, given in asked.items() if name not in kept),
            "milliseconds": lambda stamp: datetime.fromisoformat(stamp).timestamp() * 1000,
            "ago": lambda milliseconds: say(
                "dashboard.ago", span=_span(self.clock.now() - milliseconds / 1000)
            ),
            "span": _span,
            "ms": _duration,
            "number": "{:,.0f}".format,
            "size": lambda value: say("dashboard.unknown") if value is None else text.byte_count(value),
            "cost": _cost,
            "first_words": lambda words: text.preview(words, 80),
            "dollars": lambda usage: _cost(usage.cost),
            "share": lambda value: "" if value is None else f"{value:.0%}",
            "short": _short,
        }

    def add_to(self, app: web.Application) -> None:
        for path, name, find in (
            ("/", "now", self._now),
            ("/conversations", "conversations", self._conversations),
            ("/conversations/{chat}", "conversation", self._conversation),
            ("/turns/{request}", "turn", self._turn),
            ("/costs", "costs", self._costs),
            ("/charts", "charts", self._charts),
            ("/slow", "slow", self._slow),
            ("/errors", "errors", self._errors),
            ("/waiting", "waiting", self._waiting),
            ("/configuration", "configuration", self._configuration),
        ):
            app.router.add_get(path, functools.partial(self._page, name, find))
        app.router.add_post("/waiting", self._decided)
        app.router.add_get("/style.css", _file)
        app.router.add_get("/icon.svg", _file)

    async def _page(
        self, name: str, find: Callable[[web.Request], Any], request: web.Request
    ) -> web.Response:
        """Render the page `name` with the values that `find` returns, in the browser's language. The value `rows` is the
        number of rows on all pages. The status is 404 if `find` returns None, and 503 if data is unreadable.
        """
        status, waits, code = 200, Counter[str](), _language(request)
        async with self._one:
            with speaking(code):
                try:
                    found = await find(request)
                except errors.StorageError as error:
                    name, found, status = "problem", {"words": str(error)}, 503
                if found is None:
                    name, found, status = "problem", {"words": say("dashboard.nothing")}, 404
                # If open items cannot be read, the page is shown without their number.
                with contextlib.suppress(errors.StorageError):
                    waits = Counter(one.kind for one in await self.waiting())
                found |= {
                    "at": _number(request, "page", 1),
                    "pages": max(1, math.ceil((found.get("rows") or 0) / ROWS)),
                }
                template = self._templates.get_template(f"{name}.html")
                body = await asyncio.to_thread(
                    template.render, page=name, language=code, waits=waits, **found
                )
        return web.Response(text=body, content_type="text/html", status=status, headers=_HEADERS)

    # ------------------------------------------------------------ pages

    async def _now(self, request: web.Request) -> Found:
        active = self.active()
        today = self._since("1")
        return {
            "live": "still" not in request.query,
            "parts": self.parts(),
            "figures": self.figures(),
            "active": active[:ROWS],
            "more": max(0, len(active) - ROWS),
            "names": await people_of(self.archive, [one.chat_key for one in active[:ROWS]]),
            "usage": await asyncio.to_thread(self.usage.total, since=today),
        }

    async def _conversations(self, request: web.Request) -> Found:
        asked = _asked(request, "q", "channel", "state", "live")
        among: frozenset[str] | None = None
        if asked["state"] == "working":
            among = frozenset(one.chat_key for one in self.active())
        elif asked["state"] == "failed":
            among = await asyncio.to_thread(self.usage.failed, self._since("1"))
        query = ChatQuery(asked["q"], asked["channel"], among, _offset(request), ROWS, names=self.titles())
        found = None if self.recalls is None else await self.recalls.listed(query)
        return {"found": found, "asked": asked, "rows": 0 if found is None else found.total}

    async def _conversation(self, request: web.Request) -> Found | None:
        """Return the newest messages of a chat. With the parameter `before` (epoch ms), return messages up to that time.
        With `q`, return the messages that match these words best.
        """
        try:
            key = ChatKey.parse(request.match_info["chat"])
        except errors.IdentityInvalid:
            return None
        asked, page, before = _asked(request, "q"), _number(request, "page", 1), _number(request, "before", 0)
        older, total, offset = "", None, _offset(request)
        if asked["q"] and self.recalls is not None:
            now = int(self.clock.now() * 1000)
            recall = RecallQuery((asked["q"],), now, limit=ROWS, offset=offset)
            found = await self.recalls.recall([key], recall)
            lines, total = [hit.line for hit in found.hits], found.total
        else:
            until = before + 1 if before else None
            query = HistoryQuery(limit=ROWS + 1, before=until, offset=offset)
            lines = (await self.archive.search(key, query)).lines
            if not lines and not before:
                return None
            older = _query({"before": before, "page": page + 1}) if len(lines) > ROWS else ""
        return {
            "key": str(key),
            "names": {**await people_of(self.archive, [str(key)]), **self.titles()},
            "usage": await asyncio.to_thread(self.usage.total, chat=str(key)),
            "asked": asked,
            "searched": self.recalls is not None,
            "lines": lines[-ROWS:],
            "older": older,
            "newest": total is None and (before or page > 1),
            "rows": total,
        }

    async def _turn(self, request: web.Request) -> Found | None:
        """Return what was said in a turn, how long the person waited, and the steps that `shipmate trace` shows."""
        turn = request.match_info["request"]
        reader = LogReader(self.logs, self.disk, LineFilter(request=turn))
        lines = await asyncio.to_thread(lambda: [line for _, line in reader.of_request(turn)])
        if not lines:
            return None
        said, answer = await asyncio.to_thread(self.usage.words_of, turn)
        waited = next((details_of(line) for line in lines if line.get("kind") == "answer_shown"), {})
        ended: Line = next((line for line in lines if line.get("kind") == "turn_end"), {})
        chat = next((str(line["chatKey"]) for line in lines if line.get("chatKey")), "")
        people = await people_of(self.archive, [chat]) if chat else {}
        steps, failed = steps_of(lines), ended.get("level") == "error"
        return {
            "request": turn,
            "chat": chat,
            "names": {**people, **self.titles()},
            "began": epoch_ms(lines[0]),
            "failed": failed,
            "cause": str(details_of(ended).get("cause") or "") if failed else "",
            "said": said,
            "answer": answer,
            "waited": waited.get("waitedMs"),
            "parts": {part: ms for part in _WAITS if (ms := waited.get(f"{part}Ms"))},
            "steps": steps[:STEPS],
            "total": max([1.0, *(one.end for one in steps)]),
            "more": max(0, len(steps) - STEPS),
            "usage": total_of(lines),
        }

    async def _charts(self, request: web.Request) -> Found:
        """Return the values of each period (UTC) in a span that ends now. The oldest period comes first."""
        span = "month" if request.query.get("span") == "month" else "day"
        hours, count = SPANS[span]
        last = int(self.clock.now() // (3_600 * hours))
        numbers = range(last - count + 1, last + 1)
        sums = await asyncio.to_thread(self.usage.series, hours, since=numbers[0] * 3_600 * hours)
        periods = [
            (
                f"{datetime.fromtimestamp(number * 3_600 * hours, UTC):%Y-%m-%d %H:%M}"[
                    : -6 if hours > 1 else None
                ],
                one,
            )
            for number in numbers
            for one in [sums.get(number, UsageTotals())]
        ]
        series = {
            "turns": [one.turns for _, one in periods],
            "failed_turns": [one.failed for _, one in periods],
            "cost": [one.cost for _, one in periods],
            "p50": [one.wait(0.5) for _, one in periods],
            "p99": [one.wait(0.99) for _, one in periods],
            "failed_calls": [one.errors.total() for _, one in periods],
        }
        return {"span": span, "labels": [label for label, _ in periods], "series": series}

    async def _slow(self, request: web.Request) -> Found:
        days = _period(request)
        turns, total = await asyncio.to_thread(self.usage.slowest, self._since(days), _offset(request), ROWS)
        names = await names_of(self.archive, {one.person: one.chat for one in turns})
        return {"turns": turns, "names": names, "rows": total, "asked": {"days": days}}

    async def _costs(self, request: web.Request) -> Found:
        by: By = next((one for one in get_args(By) if one == request.query.get("by")), "day")
        try:
            days = date.fromisoformat(request.query.get("day") or request.query.get("days", "")).isoformat()
        except ValueError:
            days = _period(request)
        asked = {**_asked(request, "channel"), "days": days, "by": by}
        channel, offset = asked["channel"], _offset(request)
        since, until = self._since(days), math.inf if days in _PERIODS else self._since(days) + _DAY
        total, found = await asyncio.to_thread(
            lambda: (
                self.usage.total(since=since, until=until, channel=channel),
                self.usage.by(by, since=since, until=until, channel=channel),
            )
        )
        if by == "day":
            found.reverse()
        groups = found[offset : offset + ROWS]
        return {
            "by": by,
            "asked": asked,
            "day": "" if days in _PERIODS else days,
            "channels": self.channels(),
            "groups": groups,
            "highest": max((usage.cost for _, usage in found), default=0.0),
            "names": await names_of_groups(self.archive, self.usage, by, [name for name, _ in groups]),
            "total": total,
            "rows": len(found),
        }

    async def _errors(self, request: web.Request) -> Found:
        level = "warn" if request.query.get("level") == "warn" else "error"
        asked = {**_asked(request, "live"), "days": _period(request), "level": level}
        if self._counting is None or self._counting.done():
            self._counting = asyncio.create_task(asyncio.to_thread(self._causes.update))
        # The first count reads the whole log. Do not wait long for it, because only one page is rendered at a time.
        done, _ = await asyncio.wait([self._counting], timeout=COUNT_SECONDS)
        causes, total = None, 0
        for counted in done:
            counted.result()
            causes, total = await asyncio.to_thread(
                self._causes.newest, level, self._since(asked["days"]), offset=_offset(request), limit=ROWS
            )
        return {"causes": causes, "asked": asked, "rows": total}

    async def _waiting(self, request: web.Request) -> Found:
        loops, offset, kind = await self.waiting(), _offset(request), request.query.get("kind", "")
        kind, counts = kind if kind in KINDS else "", Counter(one.kind for one in loops)
        wanted = [one for one in loops if kind in {"", one.kind}]
        shown = wanted[offset : offset + ROWS]
        return {
            "kind": kind,
            "kinds": [(one, counts[one]) for one in KINDS if counts[one] or one == kind],
            "all": len(loops),
            "loops": shown,
            "said": self._said.pop(request.query.get("said", ""), ""),
            "token": self._form_key,
            "names": await people_of(self.archive, [str(one.chat_key) for one in shown if one.chat_key]),
            "rows": len(wanted),
        }

    async def _decided(self, request: web.Request) -> web.Response:
        """Carry out a decision and redirect to the page. Raises `HTTPForbidden` if the form lacks this process's key."""
        form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        with speaking(_language(request)):
            if not hmac.compare_digest(form.get("token", "").encode(), self._form_key.encode()):
                raise web.HTTPForbidden(reason=say("dashboard.stale_form"))
            said = await self._decide(form)
        name = secrets.token_urlsafe(9)
        self._said[name] = said
        if len(self._said) > MOST_SAID:
            self._said.popitem(last=False)
        # Without the redirect, a reload of the page would repeat the decision.
        query = urlencode({"kind": form.get("only", ""), "page": form.get("page", ""), "said": name})
        return web.Response(status=303, headers={"Location": f"/waiting?{query}"})

    async def _decide(self, form: Mapping[str, str]) -> str:
        """Carry out a decision, and return a sentence about it."""
        wanted = (form.get("kind"), form.get("id"))
        loop = next((one for one in await self.waiting() if (one.kind, one.id) == wanted), None)
        act = next((one for one in loop.acts if one == form.get("act")), None) if loop is not None else None
        if loop is None or act is None:
            return say("waiting.unknown")
        try:
            answer = await self.decide(loop, act)
            # If the item still waits, the decision failed; the command's answer says why. Otherwise show what was done.
            if loop in await self.waiting():
                return answer
        except errors.StorageError as failure:
            return failure.person
        what = loop.name or str(loop.person) if loop.kind == "person" else loop.what.replace("`", "")
        return say(f"dashboard.did_{act}", what=text.preview(what, 120))

    async def _configuration(self, _: web.Request) -> Found:
        sections = dict[str, dict[str, str]]()
        for key, shown in (await asyncio.to_thread(self.settings)).items():
            sections.setdefault(key.partition(".")[0], {})[key] = shown
        return {"sections": sections}

    def _since(self, period: str) -> float:
        """Return the time (epoch seconds) at which a period, or a day in UTC, begins."""
        if period not in _PERIODS:
            return datetime.fromisoformat(period).replace(tzinfo=UTC).timestamp()
        return 0.0 if period == "all" else self.clock.now() - int(period) * _DAY


def _number(request: web.Request, name: str, least: int) -> int:
    """Return a number from the URL query. The number is at least `least`, which is also the default."""
    given = request.query.get(name, "")
    return max(least, int(given)) if given.isascii() and given.isdecimal() and len(given) < 10 else least


def _offset(request: web.Request) -> int:
    """Return the number of rows before the requested page."""
    return (_number(request, "page", 1) - 1) * ROWS


def _asked(request: web.Request, *names: str) -> dict[str, str]:
    """Return form fields from the URL query. A missing field is ""."""
    return {name: request.query.get(name, "").strip()[:MOST_ASKED] for name in names}


def _language(request: web.Request) -> str:
    return best_language(request.headers.get("Accept-Language", "")) or DEFAULT


def _period(request: web.Request) -> str:
    given = request.query.get("days", "")
    return given if given in _PERIODS else "7"


async def _file(request: web.Request) -> web.FileResponse:
    return web.FileResponse(PAGES / request.path.removeprefix("/"), headers=_HEADERS)


# ------------------------------------------------------------ formatting


def _query(fields: Mapping[str, object]) -> str:
    """Return a URL query with these form fields. Empty fields are left out."""
    return f"?{urlencode({name: given for name, given in fields.items() if given})}"


def _time(milliseconds: float | None) -> str:
    """Return a time (epoch milliseconds) as text in UTC, with seconds."""
    shown = datetime.fromtimestamp((milliseconds or 0) / 1000, UTC)
    month = say("time.months").split()[shown.month - 1]
    return say("dashboard.moment", day=shown.day, month=month, year=shown.year, clock=f"{shown:%H:%M:%S}")


def _span(seconds: float) -> str:
    """Return a duration as text. The unit is the largest one that is not longer than the duration."""
    for unit, size in (("days", _DAY), ("hours", 3_600), ("minutes", 60)):
        if seconds >= size:
            return say(f"dashboard.{unit}", count=int(seconds // size))
    return say("dashboard.seconds", seconds=f"{max(0.0, seconds):.0f}")


def _duration(milliseconds: float) -> str:
    """Return a duration as text, in milliseconds below 10 s and otherwise in seconds."""
    if milliseconds < 10_000:
        return say("dashboard.milliseconds", number=f"{milliseconds:,.0f}")
    return say("dashboard.seconds", seconds=f"{milliseconds / 1000:,.1f}")


def _cost(dollars: float) -> str:
    return f"${dollars:,.2f}" if dollars >= 1 or not dollars else f"${dollars:.4f}"


def _short(value: str, most: int = LONGEST) -> str:
    left = len(value) - most
    return value if left <= 0 else say("dashboard.longer", text=text.head(value, most), count=left)
