"""Reports the health of each part for `/readyz` and the figures for `/metrics`, and prints a line for each change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bot.contracts.channel import Channel
from bot.core.chat import Phase
from bot.core.chats import Chats
from bot.core.runner import Runner
from bot.dashboard.console import ActiveChat, PartHealth
from bot.dashboard.metrics import Figures
from bot.rss_monitor import RssMonitor
from bot.services import Services
from bot.tools.mcp.servers import McpServers

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Reports the health of each part, for `/readyz`."""

    services: Services
    channels: Mapping[str, Channel]
    memory: RssMonitor
    mcp: McpServers
    storage: Callable[[], str]
    """Function that returns the reason why the log cannot be written; "" if the log can be written."""
    silent: Callable[[str], float | None]
    """Function that returns for how many seconds a channel has been silent. It returns None unless the
    silence is too long.
    """

    def parts(self) -> dict[str, PartHealth]:
        services = self.services
        now = services.environment.clock.now()

        def ago(then: float | None) -> float | None:
            return None if then is None else max(0.0, round(now - then, 1))

        storage, reserve, model, memory = self.storage(), services.reserve, services.model, self.memory
        used = (
            "not known"
            if memory.used is None
            else f"{memory.used / 2**20:.0f} of {memory.limit / 2**20:.0f} MB"
        )
        found = {
            "journal": PartHealth(ok=not storage, detail=storage),
            "disk": PartHealth(ok=not reserve.trouble, detail=reserve.trouble or str(reserve.space or "")),
            "model": PartHealth(
                ok=model.trouble is None,
                detail=model.trouble.cause if model.trouble else "" if model.asked else "not asked yet",
                heard=ago(model.asked),
                needed=model.alone,
            ),
            "memory": PartHealth(ok=not memory.full, detail=used),
        }
        if problem := services.lists.problem:
            # The last valid list stays in force.
            found["access"] = PartHealth(ok=False, detail=problem, needed=False)
        if role := services.environment.leadership.role():
            found["cluster"] = PartHealth(ok=True, detail=role)
        for name, trouble in self.mcp.troubles().items():
            found[f"mcp {name}"] = PartHealth(ok=not trouble, detail=trouble, needed=False)
        for name, channel in self.channels.items():
            health, silence = channel.health(), self.silent(name)
            detail = (
                health.detail
                if silence is None
                else f"silent for {silence:.0f} s; {health.detail}".rstrip("; ")
            )
            ok = health.connected and silence is None
            found[name] = PartHealth(ok=ok, detail=detail, heard=ago(health.last_heard))
        return found


class PartLines:
    """Prints a line when a part fails and when the part works again. Channels print their own lines."""

    def __init__(self, readiness: Readiness, say: Say) -> None:
        self._readiness = readiness
        self._say = say
        self._told = set[str]()

    def tell(self, name: str, words: str) -> None:
        """Print the trouble of a part once."""
        if name not in self._told:
            self._told.add(name)
            self._say(f"{name}: {words}")

    async def look(self) -> None:
        parts, channels = self._readiness.parts(), self._readiness.channels
        broken = {name: part for name, part in parts.items() if not part.ok and name not in channels}
        for name, part in broken.items():
            self.tell(name, part.detail)
        for name in sorted(self._told - set(broken)):
            self._told.remove(name)
            self._say(f"{name}: works again")


@dataclass(frozen=True, slots=True)
class GatewayFigures:
    """Reads the present state of the process, for `/metrics` and the console."""

    runner: Runner
    chats: Chats
    readiness: Readiness

    def active(self) -> list[ActiveChat]:
        """Return the chats in which a turn runs or messages wait."""
        found = []
        for chat in self.chats:
            turn, key, waiting = chat.turn, str(chat.key), len(chat.waiting)
            if turn is not None:
                state = "suspended" if turn.phase is Phase.SUSPENDED else "running"
                found.append(ActiveChat(key, state, waiting, turn.id, turn.first.ts / 1000))
            elif waiting:
                found.append(ActiveChat(key, "queued", waiting, "", None))
        return found

    def read(self) -> Figures:
        services, memory = self.readiness.services, self.readiness.memory
        space = services.reserve.space
        return {
            "shipmate_turns_running": self.runner.running,
            "shipmate_queue_messages": sum(len(chat.waiting) for chat in self.chats),
            "shipmate_conversations": len(self.chats),
            "shipmate_memory_bytes": memory.used,
            "shipmate_memory_limit_bytes": memory.limit,
            "shipmate_disk_free_bytes": None if space is None else space.free,
            "shipmate_disk_bytes": None if space is None else space.total,
            "shipmate_part_ok": {name: part.ok for name, part in self.readiness.parts().items()},
            "shipmate_log_dropped_lines_total": services.log.lost,
        }
