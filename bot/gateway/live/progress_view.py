"""The progress message as text: pure, from events and the time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from bot import text
from bot.contracts.outbound import Card, CardState
from bot.contracts.tasks import TaskEvent
from bot.contracts.tools import MCP
from bot.words import say

State = Literal["waiting", "running", "done", "failed", "stopped"]

ALONE_SECONDS = 8.0
"""One thing at work is shown after so long, several at once after `TOGETHER_SECONDS`."""
TOGETHER_SECONDS = 2.0
MOST = 12
"""Things that are named; of more, those that run and those that failed before the others."""
LABEL = 60
"""Characters of a label, and of an error twice as many."""
TOOLS = 5
BAR = 20

_MARKS: dict[State, str] = {"waiting": "○", "running": "▸", "done": "✓", "failed": "✗", "stopped": "■"}
_CARDS: dict[State, CardState] = {
    "waiting": "pending",
    "running": "in_progress",
    "done": "complete",
    "failed": "error",
    "stopped": "error",
}
_plain = text.literal


@dataclass(slots=True)
class WorkItem:
    """One thing: a task, or a tool call. Times are epoch seconds. `note` says what it is about, or what went wrong."""

    id: str
    label: str
    since: float
    state: State = "waiting"
    began: float | None = None
    over: float | None = None
    note: str = ""
    call: bool = False
    """A tool call of the turn itself."""

    @property
    def open(self) -> bool:
        return self.state in {"waiting", "running"}

    def seconds(self, now: float) -> float:
        """The seconds for which it has run."""
        return 0.0 if self.began is None else max(0.0, (now if self.over is None else self.over) - self.began)


@dataclass(slots=True)
class ToolTotals:
    calls: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ProgressTotals:
    """The sums of the work of a turn. `average` is seconds of what has ended, `rate` how much that is in a minute,
    `left` the seconds that the rest may take; None where nothing has ended yet.
    """

    total: int
    done: int
    failed: int
    stopped: int
    running: int
    waiting: int
    elapsed: float
    average: float | None
    rate: float | None
    left: float | None


@dataclass(frozen=True, slots=True)
class RenderedProgress:
    """A board as it goes out."""

    words: str
    title: str
    cards: tuple[Card, ...]


@dataclass(slots=True)
class ProgressState:
    """Takes events in any number; what it shows is always the newest of each thing, and the figures count all."""

    _works: dict[str, WorkItem] = field(default_factory=dict)
    _tools: dict[str, ToolTotals] = field(default_factory=dict)

    # ------------------------------------------------------------ what happens

    def record(self, event: TaskEvent) -> None:
        """Something happened to a task."""
        work = self._works.setdefault(event.task_id, WorkItem(event.task_id, event.label, event.at))
        if not work.open:
            return
        if event.kind == "started":
            work.state, work.began = "running", event.at
        elif event.kind == "tool":
            self._count(event.tool, event.seconds)
            work.note = event.tool
        elif event.kind == "model":
            step, most = event.totals.model_calls, event.most_calls
            work.note = (
                say("progress.step_of", step=step, most=most) if most else say("progress.step", step=step)
            )
        elif event.kind in {"ended", "failed"}:
            self._end(work, event.at, "done" if event.kind == "ended" else "failed", event.error)

    def began(self, call_id: str, tool: str, at: float) -> None:
        """A tool call of the turn itself runs."""
        server, _, name = tool.removeprefix(MCP).partition("__")
        label = say("progress.server", tool=name, server=server) if name else tool
        self._works[call_id] = WorkItem(call_id, label, at, "running", at, call=True)

    def noted(self, call_id: str, words: str | None, at: float) -> None:
        """It says how far it has come, or waits for a person (None)."""
        if (work := self._works.get(call_id)) is not None and work.open:
            work.since = work.since if work.state == "running" else at
            work.state, work.note = ("waiting", "") if words is None else ("running", words)

    def ended(self, call_id: str, at: float, *, failed: bool) -> None:
        """It has ended."""
        work = self._works.get(call_id)
        if work is not None and work.open:
            self._count(work.label, work.seconds(at))
            self._end(work, at, "failed" if failed else "done", "")

    def close(self, at: float) -> None:
        """The turn is over: what still runs does so no more."""
        for work in self._works.values():
            if work.open:
                self._end(work, at, "stopped", "")

    @staticmethod
    def _end(work: WorkItem, at: float, state: State, note: str) -> None:
        work.state, work.over, work.note = state, at, note

    def _count(self, tool: str, seconds: float) -> None:
        tally = self._tools.setdefault(tool, ToolTotals())
        tally.calls += 1
        tally.seconds += seconds

    # ------------------------------------------------------------ what there is to see

    @property
    def empty(self) -> bool:
        return not self._works

    @property
    def busy(self) -> bool:
        """True where anything is still to come."""
        return any(work.open for work in self._works.values())

    def is_visible(self, now: float) -> bool:
        """True where people should see it: several things at work, or one for long."""
        works = [
            work for work in self._works.values() if work.open and (work.state != "waiting" or not work.call)
        ]
        waited = now - min((work.since for work in works), default=now)
        return waited >= (TOGETHER_SECONDS if len(works) > 1 else ALONE_SECONDS)

    def figures(self, now: float) -> ProgressTotals:
        works = self._works.values()
        count = {state: sum(work.state == state for work in works) for state in _MARKS}
        over = [work for work in works if work.state in {"done", "failed"}]
        ends = [work.over for work in works if work.over is not None]
        until = now if self.busy else max(ends, default=now)
        elapsed = max(0.0, until - min((work.since for work in works), default=until))
        average = sum(work.seconds(now) for work in over) / len(over) if over else None
        left = count["running"] + count["waiting"]
        return ProgressTotals(
            total=len(self._works),
            done=count["done"],
            failed=count["failed"],
            stopped=count["stopped"],
            running=count["running"],
            waiting=count["waiting"],
            elapsed=elapsed,
            average=average,
            rate=len(over) * 60 / elapsed if over and elapsed else None,
            left=average * left / max(1, count["running"]) if average is not None and left else None,
        )

    def shown(self, now: float) -> RenderedProgress:
        """The board as people see it now; once nothing is open any more, its summary. One tool alone is a line."""
        figures = self.figures(now)
        works = self._named()
        if len(works) == 1 and works[0].call:
            work = works[0]
            title = f"{text.preview(work.label, LABEL)} · {_clock(work.seconds(now))}"
            return RenderedProgress(_line(work, now), title, (_card(work, now),))
        title = _title(figures)
        hidden = len(self._works) - len(works)
        lines = [
            f"**{title}** · {_clock(figures.elapsed)}",
            f"{_bar(figures)} {_percent(figures)} %",
            *(_line(work, now) for work in works),
            *([say("progress.more", count=hidden)] if hidden else []),
            *filter(None, [_rates(figures), self._by_tool()]),
        ]
        cards = tuple(_card(work, now) for work in works)
        return RenderedProgress("\n".join(lines), f"{title} · {_clock(figures.elapsed)}", cards)

    def _named(self) -> list[WorkItem]:
        """The things that are named, in the order in which they came."""
        order: tuple[State, ...] = ("running", "failed", "stopped", "waiting", "done")
        works = list(self._works.values())
        ranked = sorted(works, key=lambda work: (order.index(work.state), -work.since))
        kept = {work.id for work in ranked[:MOST]}
        return [work for work in works if work.id in kept]

    def _by_tool(self) -> str:
        most = sorted(self._tools.items(), key=lambda item: (-item[1].calls, item[0]))[:TOOLS]
        named = [f"{_plain(tool)} {one.calls} × {one.seconds / one.calls:.1f} s" for tool, one in most]
        return say("progress.tools", tools=", ".join(named)) if named else ""


def _title(figures: ProgressTotals) -> str:
    over = figures.done + figures.failed + figures.stopped
    key = "progress.done" if over == figures.total else "progress.working"
    words = [say(key, done=figures.done, total=figures.total)]
    words += [
        say(f"progress.{name}", count=number)
        for number, name in ((figures.failed, "failed"), (figures.stopped, "stopped"))
        if number
    ]
    return ", ".join(words)


def _share(figures: ProgressTotals) -> float:
    return (figures.done + figures.failed + figures.stopped) / figures.total if figures.total else 0.0


def _percent(figures: ProgressTotals) -> int:
    return int(_share(figures) * 100)


def _bar(figures: ProgressTotals) -> str:
    full = int(_share(figures) * BAR)
    return "█" * full + "░" * (BAR - full)


def _line(work: WorkItem, now: float) -> str:
    detail = _detail(work, now)
    return f"{_MARKS[work.state]} {_plain(text.preview(work.label, LABEL))}" + (
        f" · {_plain(detail)}" if detail else ""
    )


def _card(work: WorkItem, now: float) -> Card:
    return Card(work.id, text.preview(work.label, LABEL), _CARDS[work.state], _detail(work, now))


def _detail(work: WorkItem, now: float) -> str:
    words: list[str] = [_clock(work.seconds(now))] if work.began is not None else []
    if work.state == "waiting":
        words.append(say("progress.waits"))
    if work.note:
        words.append(text.preview(work.note, 2 * LABEL))
    return " · ".join(words)


def _rates(figures: ProgressTotals) -> str:
    words: Iterable[str | None] = (
        say("progress.each", time=_clock(figures.average)) if figures.average is not None else None,
        say("progress.rate", rate=figures.rate) if figures.rate is not None else None,
        say("progress.left", time=_clock(figures.left)) if figures.left is not None else None,
    )
    return ", ".join(filter(None, words))


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
