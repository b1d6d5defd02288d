"""A `contracts.tasks.TaskEvents` that remembers."""

from __future__ import annotations

import asyncio

from bot.contracts.tasks import TaskEvent


class MemoryTaskEvents:
    """`events` holds what was told, in order; `news` is set at each."""

    def __init__(self) -> None:
        self.events: list[TaskEvent] = []
        self.news = asyncio.Event()

    def record(self, event: TaskEvent) -> None:
        self.events.append(event)
        self.news.set()

    def of(self, task_id: str) -> list[TaskEvent]:
        """Events that were told of one task."""
        return [event for event in self.events if event.task_id == task_id]

    def kinds(self, task_id: str) -> list[str]:
        """The kinds of what was told of one task."""
        return [event.kind for event in self.of(task_id)]
