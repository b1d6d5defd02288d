"""What is true of a process that does not run, for its pages."""

from __future__ import annotations

from typing import Any

from bot import ports
from bot.connections import Connections, HttpServer
from bot.dashboard.metrics import Figures, LogMetrics, MetricsPage
from bot.dashboard.server import Dashboard, PartHealth
from bot.system import SystemClock
from bot.testing.log import MemoryLog

PARTS = {"journal": PartHealth(ok=True), "slack": PartHealth(ok=True, heard=1.5)}
NOW: Figures = {
    "shipmate_turns_running": 1,
    "shipmate_queue_messages": 5,
    "shipmate_conversations": 7,
    "shipmate_memory_bytes": 2.0**28,
    "shipmate_memory_limit_bytes": 2.0**30,
    "shipmate_disk_free_bytes": None,
    "shipmate_disk_bytes": 2.0**40,
    "shipmate_part_ok": {"slack": 1, "journal": 0},
    "shipmate_log_dropped_lines_total": 3,
}


def server() -> HttpServer:
    return Connections(100, clock=SystemClock(), log=MemoryLog()).server()


def dashboard(host: str = "127.0.0.1", port: int = 0, token: str | None = None, **more: Any) -> Dashboard:
    """A dashboard that shows `PARTS` and `NOW`."""
    page = MetricsPage(LogMetrics(), lambda: NOW)
    how: dict[str, Any] = {"server": server(), "user_of": ports.user_of} | more
    return Dashboard(host, port, token, lambda: PARTS, metrics=page, clock=SystemClock(), **how)
