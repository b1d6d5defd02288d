"""The page of one turn. It shows the message, the answer, and a waterfall chart of the steps in the operator's log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.contracts.environment import Disk
from bot.core.usage import UsageSums
from bot.telemetry.log_reader import LineFilter, LogReader
from bot.telemetry.usage import Line, UsageTotals, details_of, epoch_ms, total_of

PARTS = ("queue", "approval", "model", "tools", "delivery")
STEPS = 500
"""Max steps that are shown of a turn."""
_PAIRED = {
    "llm_request": ("model", "callId"),
    "llm_response": ("model", "callId"),
    "tool_call": ("tool", "toolUseId"),
    "tool_result": ("tool", "toolUseId"),
    "approval": ("approval", "approval"),
}
"""For each kind of log line that begins or ends a step: the step's kind, and the name of the detail with the step's id."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a turn. `begin` is in milliseconds since the person's message. `ms` is the duration; it is None while
    the step runs. `key` is the id of a call or question, `task` the id of the subagent's task.
    """

    kind: str
    begin: float
    ms: float | None
    name: str = ""
    words: str = ""
    level: str = "info"
    key: str = ""
    task: str = ""
    depth: int = 0
    usage: UsageTotals = field(default_factory=UsageTotals)


def turn_page(request: str, logs: Path, disk: Disk, sums: UsageSums) -> dict[str, Any] | None:
    """Return the values that the page of a turn shows; None if the log has no lines of this turn."""
    reader = LogReader(logs, disk, LineFilter(request=request))
    lines = [line for _, line in reader.of_request(request)]
    if not lines:
        return None
    steps, total = _waterfall(lines)
    said, answer = sums.words_of(request)
    waited = next((details_of(line) for line in lines if line.get("kind") == "answer_shown"), {})
    ended: Line = next((line for line in lines if line.get("kind") == "turn_end"), {})
    failed = ended.get("level") == "error"
    return {
        "request": request,
        "chat": next((str(line["chatKey"]) for line in lines if line.get("chatKey")), ""),
        "began": epoch_ms(lines[0]),
        "failed": failed,
        "cause": str(details_of(ended).get("cause") or "") if failed else "",
        "said": said,
        "answer": answer,
        "waited": waited.get("waitedMs"),
        "parts": {part: ms for part in PARTS if (ms := waited.get(f"{part}Ms"))},
        "steps": steps[:STEPS],
        "total_ms": total,
        "more": max(0, len(steps) - STEPS),
        "usage": total_of(lines),
    }


def _waterfall(lines: Sequence[Line]) -> tuple[list[Step], float]:
    """Return the steps of a turn, sorted by begin, and the turn's duration in ms. The steps of a subagent follow the tool call
    that started it.
    """
    waits = (details_of(line).get("queueMs") for line in lines if line.get("kind") == "answer_shown")
    queued = float(next((wait for wait in waits if wait), 0))
    first = min(map(epoch_ms, lines))
    for line in lines:
        if line.get("kind") == "turn_start" and queued:
            # The wait in the queue begins when the person's message arrives. That may be before the turn's first log
            # line.
            first = min(first, epoch_ms(line) - queued)
    steps, calls = _steps(lines, first)
    ends = [one.begin + (one.ms or 0) for one in steps]
    total = max([*ends, max(map(epoch_ms, lines)) - first, 1.0])
    of_task = defaultdict[str, list[Step]](list)
    for one in sorted(steps, key=lambda one: one.begin):
        of_task[one.task if one.task in calls else ""].append(one)
    shown = list[Step]()

    def add(some: Sequence[Step], depth: int) -> None:
        for one in some:
            shown.append(replace(one, depth=min(depth, 3)))
            for task in [task for task, call in calls.items() if call == one.key]:
                del calls[task]
                add(of_task[task], depth + 1)

    add(of_task[""], 0)
    return shown, total


def _steps(lines: Sequence[Line], first: float) -> tuple[list[Step], dict[str, str]]:
    """Return the steps, and a table that has the id of the tool call that started a subagent, by the subagent's task id."""
    ended, running, calls = list[Step](), dict[str, Step](), dict[str, str]()
    for line in lines:
        details, at = details_of(line), epoch_ms(line) - first
        match line.get("kind"):
            case str(kind) if kind in _PAIRED:
                step = _paired(line, at, running)
                ended += [step] if step is not None else []
            case "task" if details.get("toolUseId"):
                calls[str(details.get("task"))] = str(details["toolUseId"])
            case "turn_start":
                ended.append(Step("queue", 0, at))
            case "answer_shown":
                ended.append(Step("shown", at, 0))
            case "llm_retry":
                ended.append(_step(line, "retry", at, details.get("waitMs") or 0, details.get("error")))
            case "delivery" if details.get("state") == "sent":
                took = line.get("duration") or 0
                ended.append(_step(line, "delivery", at - took, took))
            case "delivery":
                wait = 1000 * (details.get("retryAfter") or details.get("wait") or 0)
                ended.append(_step(line, "delivery", at, wait, details.get("cause") or line.get("message")))
    return [*ended, *running.values()], calls


def _paired(line: Line, at: float, running: dict[str, Step]) -> Step | None:
    """If the line begins a step, add the step to `running` and return None. If it ends a step, return that step. The keys of
    `running` are the ids of model calls, tool calls and questions. If the line at which the step began is missing, its begin is
    computed from `duration`.
    """
    details, (kind, id_of) = details_of(line), _PAIRED[line["kind"]]
    key = str(details.get(id_of) or "")
    if line["kind"] in {"llm_request", "tool_call"} or (kind == "approval" and "decision" not in details):
        words = details.get("input")
        running.setdefault(key, replace(_step(line, kind, at, None, "" if words == "{}" else words), key=key))
        return None
    took, purpose = line.get("duration"), details.get("purpose")
    begun = running.pop(key, None) or Step(kind, at - (took or 0), None)
    words = details.get("failure") or details.get("error") or details.get("by")
    words = words or ("" if purpose in {"turn", "subagent"} else purpose)
    end = _step(line, kind, begun.begin, at - begun.begin if took is None else took, words)
    return replace(
        end,
        words=" · ".join(filter(None, (begun.words, end.words))),
        name=end.name or begun.name,
        key=key,
        task=begun.task or end.task,
    )


def _step(line: Line, kind: str, begin: float, ms: float | None, words: object = "") -> Step:
    details, usage = details_of(line), UsageTotals()
    usage.take(line)
    name, task = str(details.get("model") or details.get("tool") or ""), str(details.get("task") or "")
    return Step(kind, begin, ms, name, str(words or ""), str(line.get("level")), task=task, usage=usage)
