"""Fakes of the agent's services."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from bot.config.ship_file import Context
from bot.core.fit import AgentDeps
from bot.storage.notes import NoteStore
from bot.system import UlidSource
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog


def agent(
    limits: Context | None = None, clock: FakeClock | None = None, notes: NoteStore | None = None
) -> AgentDeps:
    """Return the services that `Fit` and `Summaries` use. All tools age, and notices are discarded."""
    tool, clock = SimpleNamespace(ages=True), clock or FakeClock()
    return cast(
        "AgentDeps",
        SimpleNamespace(
            settings=SimpleNamespace(context=limits or Context()),
            registry=SimpleNamespace(get=lambda _: tool),
            clock=clock,
            ids=UlidSource(clock),
            notes=notes,
            alerts=SimpleNamespace(tell=lambda *_, **__: None),
            log=MemoryLog(),
            redact=str,
        ),
    )
