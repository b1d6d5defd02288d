"""Builds a console and a dashboard without a gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bot.config import ship_file
from bot.contracts.approvals import Act, OpenLoop
from bot.contracts.environment import Clock
from bot.core.usage import UsageSums
from bot.dashboard.console import ActiveChat, Console, PartHealth
from bot.dashboard.metrics import Figures, Metrics
from bot.dashboard.server import Dashboard
from bot.http_server import Connections, HttpServer
from bot.system import SystemClock, SystemDisk
from bot.testing.log import MemoryLog
from bot.tools.context import Recalls
from tests.archives import WrittenArchive

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


def archive(home: Path) -> WrittenArchive:
    return WrittenArchive(home / "chats", disk=SystemDisk(), log=MemoryLog())


def console(
    home: Path,
    *,
    active: Sequence[ActiveChat] = (),
    waiting: Sequence[OpenLoop] = (),
    settings: dict[str, str] | None = None,
    recalls: Recalls | None = None,
    titles: dict[str, str] | None = None,
    said: WrittenArchive | None = None,
    clock: Clock | None = None,
) -> Console:
    """Return a console that shows the files below `home`."""

    async def board() -> list[OpenLoop]:
        return list(waiting)

    async def decide(loop: OpenLoop, act: Act) -> str:
        return f"{act} {loop.id}"

    return Console(
        parts=lambda: PARTS,
        figures=lambda: NOW,
        active=lambda: active,
        settings=lambda: settings or {},
        channels=lambda: ["slack", "telegram"],
        titles=lambda: titles or {},
        recalls=recalls,
        waiting=board,
        decide=decide,
        archive=said or archive(home),
        usage=UsageSums(home),
        logs=home / "logs",
        disk=SystemDisk(),
        clock=clock or SystemClock(),
    )


def dashboard(
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    pages: Console | None = None,
    parts: Mapping[str, PartHealth] = PARTS,
) -> Dashboard:
    """Return a dashboard that shows these parts and the figures `NOW`."""
    page = Metrics()
    page.figures = lambda: NOW
    where = ship_file.Dashboard(host=host, port=port, token=token)
    clock = SystemClock()
    return Dashboard(where, lambda: parts, page, pages or console(Path("none")), clock=clock, server=server())
