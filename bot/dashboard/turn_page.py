"""The page of one turn. It shows the message, the answer, and a waterfall chart of the steps in the operator's log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from bot.contracts.environment import Disk
from bot.core.turn_lookup import TurnRecords
from bot.telemetry.log_reader import LineFilter, LogReader
from bot.telemetry.usage import Line, UsageTotals, details_of, steps_of, total_of

PARTS = ("queue", "approval", "model", "tools", "delivery")
STEPS = 500
"""Max steps of a turn that are shown."""
LEAST = 0.4
"""Width in percent of the shortest bar."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a turn. `begin` is in milliseconds since the person's message. `ms` is the duration; it is None while
    the step runs. `key` is the id of a call or question, `task` the id of the subagent's task.
    """

    kind: str
    name: str
    begin: float
    ms: float | None
    words: str = ""
    level: str = "info"
    key: str = ""
    task: str = ""
    depth: int = 0
    usage: UsageTotals = field(default_factory=UsageTotals)
    x: float = 0.0
    width: float = 0.0


def turn_page(request: str, logs: Path, disk: Disk, records: TurnRecords) -> dict[str, Any] | None:
    """Return the values that the page of a turn shows; None if the log has no lines of this turn."""
    reader = LogReader(logs, disk, LineFilter(request=request))
    lines = [line for _, line in reader.of_request(request)]
    if not lines:
        return None
    waterfall, trace = _waterfall(lines), steps_of(lines)
    said, answer = records.said(request)
    waited = next((details_of(line) for line in lines if line.get("kind") == "answer_shown"), {})
    ended: Line = next((line for line in lines if line.get("kind") == "turn_end"), {})
    failed = ended.get("level") == "error"
    return {
        "request": request,
        "chat": next((str(line["chatKey"]) for line in lines if line.get("chatKey")), ""),
        "began": str(lines[0].get("timestamp", "")),
        "failed": failed,
        "cause": str(details_of(ended).get("cause") or "") if failed else "",
        "said": said,
        "answer": answer,
        "waited": waited.get("waitedMs"),
        "parts": {part: ms for part in PARTS if (ms := waited.get(f"{part}Ms"))},
        "waterfall": waterfall[:STEPS],
        "steps": trace[:STEPS],
        "more": max(0, max(len(trace), len(waterfall)) - STEPS),
        "usage": total_of(lines),
    }


def _waterfall(lines: Sequence[Line]) -> list[Step]:
    """Return the steps of a turn, sorted by begin. A subagent's steps follow the tool call that started it."""
    found = _Steps()
    for line in lines:
        found.take(line)
    steps = [replace(one, begin=one.begin - found.first) for one in (*found.ended, *found.open.values())]
    total = max((one.begin + (one.ms or 0) for one in steps), default=0.0)
    total = max(total, found.last - found.first, 1.0)
    of_task = defaultdict[str, list[Step]](list)
    for one in sorted(steps, key=lambda one: one.begin):
        of_task[one.task if one.task in found.calls else ""].append(one)
    shown = list[Step]()

    def add(some: Sequence[Step], depth: int) -> None:
        for one in some:
            x = 100 * max(0.0, one.begin) / total
            width = 100 * (one.ms if one.ms is not None else max(0.0, total - one.begin)) / total
            shown.append(replace(one, depth=min(depth, 3), x=min(x, 100 - LEAST), width=max(width, LEAST)))
            for task in [task for task, call in found.calls.items() if call == one.key]:
                del found.calls[task]
                add(of_task[task], depth + 1)

    add(of_task[""], 0)
    return shown


class _Steps:
    """Makes steps from log lines. Most steps have one line for their begin and one for their end."""

    def __init__(self) -> None:
        self.first = self.last = 0.0
        self.calls: dict[str, str] = {}
        """Ids of tool calls that started a subagent, by the subagent's task id."""
        self.ended: list[Step] = []
        self.open: dict[str, Step] = {}
        """Running steps; the key is the id of the model call, tool call or question."""

    def take(self, line: Line) -> None:
        """Begin or end the step that a log line is about."""
        details, kind, at = details_of(line), str(line.get("kind")), _milliseconds(line)
        self.first, self.last = self.first or at, max(self.last, at)
        if kind in _PAIRED:
            self._pair(line, *_PAIRED[kind])
        elif kind == "task" and details.get("toolUseId"):
            self.calls[str(details.get("task"))] = str(details["toolUseId"])
        elif kind == "turn_start":
            self.ended.append(Step("queue", "", self.first, at - self.first))
        elif kind == "answer_shown":
            self.ended.append(Step("shown", "", at, 0))
            wait = _number(details.get("queueMs"))
            # The wait in the queue begins when the person's message arrives. That may be before the turn's first log line.
            for place, one in enumerate(self.ended):
                if one.kind == "queue" and wait:
                    begin = one.begin + (one.ms or 0) - wait
                    self.first = min(self.first, begin)
                    self.ended[place] = replace(one, begin=begin, ms=wait)
        elif kind == "llm_retry":
            wait = _number(details.get("waitMs"))
            self.ended.append(_step(line, "retry", at, wait, details.get("error")))
        elif kind == "delivery" and details.get("state") == "sent":
            took = _number(line.get("duration"))
            self.ended.append(_step(line, "delivery", at - took, took))
        elif kind == "delivery":
            wait = 1000 * _number(details.get("retryAfter") or details.get("wait"))
            self.ended.append(_step(line, "delivery", at, wait, details.get("cause") or line.get("message")))

    def _pair(self, line: Line, kind: str, id_of: str) -> None:
        """Begin or end a step. If the line of its begin is missing, the begin is computed from the `duration`."""
        details, at = details_of(line), _milliseconds(line)
        key = str(details.get(id_of) or "")
        asked = kind == "approval" and "decision" not in details
        if line.get("kind") in {"llm_request", "tool_call"} or asked:
            words = details.get("input")
            self.open.setdefault(key, _step(line, kind, at, None, "" if words == "{}" else words, key=key))
        elif key:
            took, purpose = line.get("duration"), details.get("purpose")
            begun = self.open.pop(key, None) or _step(line, kind, at - _number(took), None)
            words = details.get("failure") or details.get("error") or details.get("by")
            words = words or ("" if purpose in {"turn", "subagent"} else purpose)
            ms = at - begun.begin if took is None else _number(took)
            ended = _step(line, kind, begun.begin, ms, words, key=key)
            words = " · ".join(filter(None, (begun.words, ended.words)))
            self.ended.append(
                replace(ended, words=words, name=ended.name or begun.name, task=begun.task or ended.task)
            )


_PAIRED = {
    "llm_request": ("model", "callId"),
    "llm_response": ("model", "callId"),
    "tool_call": ("tool", "toolUseId"),
    "tool_result": ("tool", "toolUseId"),
    "approval": ("approval", "approval"),
}
"""Kinds of log lines that begin or end a step. Each has the kind of the step, and the name of the detail that
contains the step's id.
"""


def _step(
    line: Line, kind: str, begin: float, ms: float | None, words: object = "", *, key: str = ""
) -> Step:
    details, usage = details_of(line), UsageTotals()
    usage.take(line)
    name = str(details.get("model") or details.get("tool") or "")
    task = str(details.get("task") or "")
    return Step(kind, name, begin, ms, str(words or ""), str(line.get("level")), key, task, usage=usage)


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0.0


def _milliseconds(line: Line) -> float:
    try:
        return datetime.fromisoformat(str(line.get("timestamp"))).timestamp() * 1000
    except (ValueError, OverflowError):
        return 0.0
