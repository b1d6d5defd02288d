"""Builds the text of a progress message, without side effects."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from bot import text
from bot.contracts.messages import Card, CardState
from bot.contracts.tools import MCP, ToolCall
from bot.core.outbox import LiveText
from bot.core.tasks import TaskEvent
from bot.tools.permissions.display import named
from bot.tools.permissions.patterns import ARGUMENTS
from bot.words import names, say

State = Literal["running", "failed", "stopped", "waiting", "done"]

ALONE_SECONDS = 8.0
"""Seconds after which a single running item is shown. Two or more items are shown after `TOGETHER_SECONDS`."""
TOGETHER_SECONDS = 2.0
BUSY_SECONDS = 5.0  # seconds without an answer after which people are told that the model does not answer
MOST = 12  # max items listed; running and failed items are listed first
LABEL = 60
"""Max characters of a task's label. The note after the label may have twice as many."""
_SHOWN: dict[State, tuple[str, CardState]] = {
    "running": ("▸", "in_progress"),
    "failed": ("✗", "error"),
    "stopped": ("■", "error"),
    "waiting": ("○", "pending"),
    "done": ("✓", "complete"),
}
"""Symbol and card status for each state of an item. Of more than `MOST` items, those with the first states here are shown."""
_ORDER = list(_SHOWN)
_ENDS: dict[str, State] = {"ended": "done", "failed": "failed", "stopped": "stopped"}


@dataclass(slots=True)
class WorkItem:
    """A subagent's task or a tool call. Times are in epoch seconds. `note` is the item's current step, or its error."""

    id: str
    label: str
    since: float
    state: State = "waiting"
    began: float | None = None
    over: float | None = None
    note: str = ""
    call: bool = False
    """True for a tool call of the turn, whose label is Markdown. False for a subagent's task."""

    @property
    def open(self) -> bool:
        return self.state in {"waiting", "running"}

    def end(self, at: float, state: State, note: str = "") -> None:
        if self.open:
            self.state, self.over, self.note = state, at, note

    @property
    def title(self) -> str:
        return self.label.replace("`", "") if self.call else text.preview(self.label, LABEL)

    def line(self, now: float, *, alone: bool) -> str:
        label = self.label if self.call else text.literal(self.title)
        mark = "" if alone and self.state == "running" else f"{_SHOWN[self.state][0]} "
        return f"{mark}{label}{''.join(f' · {text.literal(one)}' for one in self.details(now))}"

    def details(self, now: float) -> list[str]:
        took = (now if self.over is None else self.over) - (self.began or 0.0)
        words = [_duration(took)] if self.began is not None else []
        words += [say(f"progress.state_{self.state}")] if self.state in {"waiting", "stopped"} else []
        return words + ([text.preview(self.note, 2 * LABEL)] if self.note else [])


@dataclass(slots=True)
class ProgressState:
    """Collects the events of a turn's work: the newest state of every task and tool call."""

    items: dict[str, WorkItem] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    """Start times (epoch seconds) of model requests that have had no answer for some seconds."""

    def record(self, event: TaskEvent) -> None:
        item = self.items.setdefault(event.task_id, WorkItem(event.task_id, event.label, event.at))
        if not item.open:
            return
        if event.kind == "started":
            item.state, item.began = "running", event.at
        elif event.kind == "model":
            step, most = event.calls, event.most_calls
            item.note = (
                say("progress.step_of", step=step, most=most) if most else say("progress.step", step=step)
            )
        elif event.kind in _ENDS:
            item.end(event.at, _ENDS[event.kind], event.error)

    def began(self, call: ToolCall, at: float) -> None:
        self.items[call.id] = WorkItem(call.id, _action(call), at, "running", at, call=True)

    def noted(self, call_id: str, words: str | None, at: float) -> None:
        """Update a tool call with the progress that it reports. If `words` is None, the call waits for a person."""
        if (item := self.items.get(call_id)) is not None and item.open:
            item.since = item.since if item.state == "running" else at
            item.state, item.note = ("waiting", "") if words is None else ("running", words)

    def ended(self, call_id: str, at: float, *, failed: bool) -> None:
        if (item := self.items.get(call_id)) is not None:
            item.end(at, "failed" if failed else "done")

    def close(self, at: float) -> None:
        """Mark all running items as stopped, because the turn has ended."""
        for item in self.items.values():
            item.end(at, "stopped")

    @property
    def counts(self) -> Counter[State]:
        return Counter(item.state for item in self.items.values())

    @property
    def busy(self) -> bool:
        """Return True while an item runs or waits, or a model request has no answer."""
        return bool(self.waits) or any(item.open for item in self.items.values())

    def without_model(self, now: float) -> bool:
        return bool(self.waits) and now - min(self.waits) >= BUSY_SECONDS

    def is_visible(self, now: float) -> bool:
        works = [one for one in self.items.values() if one.open and (one.state != "waiting" or not one.call)]
        waited = now - min((one.since for one in works), default=now)
        return waited >= (TOGETHER_SECONDS if len(works) > 1 else ALONE_SECONDS) or self.without_model(now)

    def shown(self, now: float) -> LiveText:
        """Return the progress message at the time `now`. If no item runs, it is a summary. A single item takes one line."""
        items = list(self.items.values())
        ranked = sorted(items, key=lambda one: (_ORDER.index(one.state), -one.since))
        listed = [one for one in items if one in ranked[:MOST]]
        busy = [say("progress.model_busy")] if self.without_model(now) or not items else []
        counts, several = self.counts, len(items) > 1
        over = counts["done"] + counts["failed"] + counts["stopped"]
        key = "working" if over < len(items) else "stopped" if counts["stopped"] else "done"
        title = say(f"progress.{key}", done=counts["done"], total=len(items))
        title += f", {say('progress.failed', count=counts['failed'])}" if counts["failed"] else ""
        until = now if self.busy else max((one.over for one in items if one.over is not None), default=now)
        elapsed = until - min((one.since for one in items), default=until)
        lines = [f"**{title}** · {_duration(elapsed)}"] if several else []
        lines += [one.line(now, alone=not several) for one in listed]
        lines += [say("progress.more", count=len(items) - MOST)] if len(items) > MOST else []
        title = busy[0] if busy else title if several else items[0].title
        told = [(one, _SHOWN[one.state][1], " · ".join(one.details(now))) for one in listed]
        cards = tuple(Card(one.id, one.title, status, words) for one, status, words in told)
        return LiveText("\n".join([*lines, *busy]), title=title, cards=cards)


def _action(call: ToolCall) -> str:
    server, _, tool = call.name.removeprefix(MCP).partition("__")
    if tool:
        return say("progress.server", tool=f"`{named(tool)}`", server=f"`{named(server)}`")
    key = f"call_{call.name}"
    value = call.input.get(ARGUMENTS[call.name][1] if call.name in ARGUMENTS else "query")
    if key not in names("progress") or not isinstance(value, str):
        return say("progress.call", what=f"`{named(call.name)}`")
    return say(f"progress.{key}", what=f"`{named(value)}`")


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(max(0, int(seconds)), 60)
    if minutes:
        return say("receipt.minutes", minutes=minutes, seconds=seconds)
    return say("receipt.seconds", seconds=seconds)
