"""The port at which the progress of subagents is watched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from bot.contracts.model import Usage

TaskMode = Literal["fresh", "fork"]
TaskEventKind = Literal["queued", "started", "model", "tool", "ended", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class TaskTotals:
    """Totals of a task so far. `cost_usd` is without the `unpriced` calls; `charged_usd`, which its limits count, has them by the
    dearest known price. `seconds` count from its start, not from when it was queued.
    """

    model_calls: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float = 0.0
    unpriced: int = 0
    charged_usd: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """Something that happened to one task. Each begins with `queued` and comes to exactly one `ended`, `failed` or
    `stopped`; in between come `started`, and a `model` or `tool` for each call that has ended.
    """

    kind: TaskEventKind
    task_id: str
    """A ULID, which names its transcript too."""
    request_id: str
    at: float
    """Epoch seconds."""
    label: str
    """A few words for people, redacted."""
    totals: TaskTotals = field(default_factory=TaskTotals)
    most_calls: int = 0
    """Most model calls of the task: the limit for `totals.model_calls`."""
    tool: str = ""
    """Of a `tool`: its name."""
    seconds: float = 0.0
    """Of a `model` or a `tool`: how long it took."""
    error: str = ""
    """Of a `tool` that failed, or a `failed`: a plain sentence for people; "" otherwise. A task that ran into one of its
    limits has `ended` with one.
    """


class TaskEvents(Protocol):
    """Is told of every task of every chat, in order of time."""

    def record(self, event: TaskEvent) -> None:
        """Takes note; never blocks and never raises."""
        ...


class NullTaskEvents:
    """Drops all events."""

    def record(self, event: TaskEvent) -> None:
        """Drop an event."""
