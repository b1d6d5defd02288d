"""Reconstructs the steps of a turn from the lines of the operator's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bot.telemetry.usage import UsageTotals, details_of

Line = Mapping[str, Any]

TOLD = (
    "purpose",
    "model",
    "name",
    "tool",
    "reason",
    "status",
    "stopReason",
    "task",
    "artifact",
    "error",
    "cause",
)
"""Names of the details of a log line that are shown."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One logged event, such as an answer of the model or the result of a tool. `offset` is in seconds since
    the first line, `duration` in milliseconds.
    """

    offset: float
    duration: float | None
    usage: UsageTotals
    step: int | None
    kind: str
    words: str
    level: str

    @property
    def cost(self) -> str:
        if not self.usage.prompt:
            return ""
        return "unknown" if self.usage.unpriced else f"${self.usage.cost:.4f}"


def steps_of(lines: Sequence[Line]) -> list[TraceStep]:
    """Return the steps in the order of the log lines. A request or tool call has no step of its own; only
    its result has one.
    """
    began = min((str(line.get("timestamp")) for line in lines), default="")
    found = []
    for line in lines:
        if line.get("kind") in {"llm_request", "tool_call"} or line.get("level") == "debug":
            continue
        usage = UsageTotals()
        usage.take(line)
        words = " ".join([str(line.get("message")), *detail_words(details_of(line))])
        found.append(
            TraceStep(
                offset=_seconds(began, line),
                duration=line.get("duration"),
                usage=usage,
                step=line.get("step"),
                kind=str(line.get("kind")),
                words=words,
                level=str(line.get("level")),
            )
        )
    return found


def total_of(lines: Sequence[Line]) -> UsageTotals:
    """Return the usage totals of a turn, without requests that `shipmate replay` sent later."""
    sums = UsageTotals()
    for line in lines:
        if details_of(line).get("purpose") != "replay":
            sums.take(line)
    return sums


def detail_words(details: Mapping[str, Any]) -> list[str]:
    return [f"{key}={details[key]}" for key in TOLD if details.get(key) not in {None, ""}]


def _seconds(began: str, line: Line) -> float:
    try:
        at = datetime.fromisoformat(str(line.get("timestamp")))
        return (at - datetime.fromisoformat(began)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
