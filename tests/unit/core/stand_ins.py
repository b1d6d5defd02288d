"""Stand-ins for the agent's services."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from bot.config.ship_file import Context
from bot.core.agent import AgentDeps
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog


def agent(limits: Context | None = None, clock: FakeClock | None = None) -> AgentDeps:
    """Return the services that a `Fit` uses. The results of every tool age."""
    tool = SimpleNamespace(ages=True)
    return cast(
        "AgentDeps",
        SimpleNamespace(
            settings=SimpleNamespace(context=limits or Context()),
            registry=SimpleNamespace(get=lambda _: tool),
            clock=clock or FakeClock(),
            log=MemoryLog(),
            redact=str,
        ),
    )
