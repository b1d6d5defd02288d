"""Builds the text of a progress message, without side effects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bot import text
from bot.contracts.outbound import Card, CardState
from bot.contracts.tools import MCP, ToolCall
from bot.core.tasks.report import TaskEvent
from bot.tools.permissions.display import named
from bot.tools.permissions.patterns import ARGUMENTS
from bot.words import names, say

State = Literal["waiting", "running", "done", "failed", "stopped"]

ALONE_SECONDS = 8.0
"""Seconds until a single running item is shown. Several items are shown after `TOGETHER_SECONDS`."""
TOGETHER_SECONDS = 2.0
BUSY_SECONDS = 5.0
"""Seconds without an answer after which people are told that the model does not answer."""
MOST = 12
"""Max items listed; running and failed items are listed first."""
LABEL = 60
"""Max characters of a label. An error text may have half of that."""

_MARKS: dict[State, str] = {"waiting": "○", "running": "▸", "done": "✓", "failed": "✗", "stopped": "■"}
_CARDS: dict[State, CardState] = {
    "waiting": "pending",
    "running": "in_progress",
    "done": "complete",
    "failed": "error",
    "stopped": "error",
}
_ENDS: dict[str, State] = {"ended": "done", "failed": "failed", "stopped": "stopped"}
_plain = text.literal


@dataclass(slots=True)
class WorkItem:
    """A task or tool call. Times are in epoch seconds. `note` says what the item is about, or what went wrong."""

    id: str
    label: str
    since: float
    state: State = "waiting"
    began: float | None = None
    over: float | None = None
    note: str = ""
    call: bool = False
    """True for a tool call of the turn itself. The label of such a call is Markdown."""

    @property
    def open(self) -> bool:
        return self.state in {"waiting", "running"}

    def seconds(self, now: float) -> float:
        """Return the running time in seconds."""
        return 0.0 if self.began is None else max(0.0, (now if self.over is None else self.over) - self.began)


@dataclass(frozen=True, slots=True)
class ProgressTotals:
    """Totals of the work of a turn; `elapsed` is in seconds."""

    total: int
    done: int
    failed: int
    stopped: int
    running: int
    waiting: int
    elapsed: float


@dataclass(frozen=True, slots=True)
class RenderedProgress:
    """The progress message to send."""

    words: str
    title: str
    cards: tuple[Card, ...]


@dataclass(slots=True)
class ProgressState:
    """Collects the events of a turn's work. The latest state of each item is shown; the totals count all items."""

    _works: dict[str, WorkItem] = field(default_factory=dict)
    _waits: list[float] = field(default_factory=list)
    """Start times of the current waits for a model."""

    # ------------------------------------------------------------ events

    def record(self, event: TaskEvent) -> None:
        """Record an event of a task."""
        work = self._works.setdefault(event.task_id, WorkItem(event.task_id, event.label, event.at))
        if not work.open:
            return
        if event.kind == "started":
            work.state, work.began = "running", event.at
        elif event.kind == "model":
            step, most = event.totals.model_calls, event.most_calls
            work.note = (
                say("progress.step_of", step=step, most=most) if most else say("progress.step", step=step)
            )
        elif event.kind in _ENDS:
            self._end(work, event.at, _ENDS[event.kind], event.error)

    def began(self, call: ToolCall, at: float) -> None:
        """Record that a tool call of the turn has started."""
        self._works[call.id] = WorkItem(call.id, _doing(call), at, "running", at, call=True)

    def noted(self, call_id: str, words: str | None, at: float) -> None:
        """Record the progress that a call reports; None means that the call waits for a person."""
        if (work := self._works.get(call_id)) is not None and work.open:
            work.since = work.since if work.state == "running" else at
            work.state, work.note = ("waiting", "") if words is None else ("running", words)

    def waits(self, since: float) -> None:
        """Record that a model has not answered since this time and that the request is retried."""
        self._waits.append(since)

    def goes_on(self, since: float) -> None:
        """Record that the wait which began at this time has ended."""
        self._waits.remove(since)

    def ended(self, call_id: str, at: float, *, failed: bool) -> None:
        """Record that a call has ended."""
        work = self._works.get(call_id)
        if work is not None and work.open:
            self._end(work, at, "failed" if failed else "done", "")

    def close(self, at: float) -> None:
        """Record that the turn has ended, so that no item is running."""
        for work in self._works.values():
            if work.open:
                self._end(work, at, "stopped", "")

    @staticmethod
    def _end(work: WorkItem, at: float, state: State, note: str) -> None:
        work.state, work.over, work.note = state, at, note

    # ------------------------------------------------------------ display

    @property
    def empty(self) -> bool:
        return not (self._works or self._waits)

    @property
    def waiting(self) -> bool:
        """Return True while a model does not answer."""
        return bool(self._waits)

    @property
    def stopped(self) -> bool:
        """Return True if an item was stopped, which must be reported to people."""
        return any(work.state == "stopped" for work in self._works.values())

    @property
    def busy(self) -> bool:
        """Return True while any item is running."""
        return bool(self._waits) or any(work.open for work in self._works.values())

    def without_model(self, now: float) -> bool:
        """Return True if a model has been silent long enough to report it."""
        return bool(self._waits) and now - min(self._waits) >= BUSY_SECONDS

    def is_visible(self, now: float) -> bool:
        """Return True if people should see the progress: there are several items, or one item that takes long."""
        works = [
            work for work in self._works.values() if work.open and (work.state != "waiting" or not work.call)
        ]
        waited = now - min((work.since for work in works), default=now)
        long = waited >= (TOGETHER_SECONDS if len(works) > 1 else ALONE_SECONDS)
        return long or self.without_model(now)

    def figures(self, now: float) -> ProgressTotals:
        works = self._works.values()
        count = {state: sum(work.state == state for work in works) for state in _MARKS}
        ends = [work.over for work in works if work.over is not None]
        until = now if self.busy else max(ends, default=now)
        elapsed = max(0.0, until - min((work.since for work in works), default=until))
        return ProgressTotals(
            total=len(self._works),
            done=count["done"],
            failed=count["failed"],
            stopped=count["stopped"],
            running=count["running"],
            waiting=count["waiting"],
            elapsed=elapsed,
        )

    def shown(self, now: float) -> RenderedProgress:
        """Return the message to show now, or the summary if no item is running. A single item takes one line."""
        figures = self.figures(now)
        works = self._named()
        busy = [say("progress.model_busy")] if self.without_model(now) or not works else []
        hidden = len(self._works) - len(works)
        lines = [
            *([f"**{_title(figures)}** · {_clock(figures.elapsed)}"] if len(works) > 1 else []),
            *(_line(work, now, alone=len(works) == 1) for work in works),
            *([say("progress.more", count=hidden)] if hidden else []),
            *busy,
        ]
        title = busy[0] if busy else _title(figures) if len(works) > 1 else _label(works[0])
        return RenderedProgress("\n".join(lines), title, tuple(_card(work, now) for work in works))

    def _named(self) -> list[WorkItem]:
        """Return the listed items in order of appearance."""
        order: tuple[State, ...] = ("running", "failed", "stopped", "waiting", "done")
        works = list(self._works.values())
        ranked = sorted(works, key=lambda work: (order.index(work.state), -work.since))
        kept = {work.id for work in ranked[:MOST]}
        return [work for work in works if work.id in kept]


def _doing(call: ToolCall) -> str:
    """Return a description of a call for people, in Markdown."""
    server, _, tool = call.name.removeprefix(MCP).partition("__")
    if tool:
        return say("progress.server", tool=f"`{named(tool)}`", server=f"`{named(server)}`")
    key = f"call_{call.name}"
    value = call.input.get(ARGUMENTS[call.name][1] if call.name in ARGUMENTS else "query")
    if key not in names("progress") or not isinstance(value, str):
        return say("progress.call", what=f"`{named(call.name)}`")
    return say(f"progress.{key}", what=f"`{named(value)}`")


def _title(figures: ProgressTotals) -> str:
    over = figures.done + figures.failed + figures.stopped
    key = "working" if over < figures.total else "stopped" if figures.stopped else "done"
    words = say(f"progress.{key}", done=figures.done, total=figures.total)
    return f"{words}, {say('progress.failed', count=figures.failed)}" if figures.failed else words


def _line(work: WorkItem, now: float, *, alone: bool) -> str:
    label = work.label if work.call else _plain(text.preview(work.label, LABEL))
    mark = "" if alone and work.state == "running" else f"{_MARKS[work.state]} "
    return f"{mark}{label}{''.join(f' · {_plain(one)}' for one in _details(work, now))}"


def _card(work: WorkItem, now: float) -> Card:
    return Card(work.id, _label(work), _CARDS[work.state], " · ".join(_details(work, now)))


def _label(work: WorkItem) -> str:
    return work.label.replace("`", "") if work.call else text.preview(work.label, LABEL)


def _details(work: WorkItem, now: float) -> list[str]:
    words = [_clock(work.seconds(now))] if work.began is not None else []
    if work.state in {"waiting", "stopped"}:
        words.append(say(f"progress.state_{work.state}"))
    return words + ([text.preview(work.note, 2 * LABEL)] if work.note else [])


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    if minutes:
        return say("receipt.minutes", minutes=minutes, seconds=seconds)
    return say("receipt.seconds", seconds=seconds)
