"""Performance aims of Shipmate. Each aim is printed with the measured value; a missed aim is marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.bench import figures


@dataclass(frozen=True, slots=True)
class Aim:
    """An upper limit for one figure of the report. `path` names the figure."""

    point: int
    what: str
    path: str
    most: float
    unit: str = "× the script"


AIMS = (
    Aim(1, "200 chats, time a message", "rush.messageMs.ratio", 1 / 1.8),
    Aim(1, "200 chats, CPU a message", "rush.cpuMs.ratio", 0.7),
    Aim(2, "one chat, p50", "oneChat.overheadMs.ratio", 0.9),
    Aim(2, "one chat, p99 over p50", "oneChat.overheadMs.tail", 3, "×"),
    Aim(3, "200 chats at once, one second of thinking", "crowd.wholeMs.ratio", 0.35),
    Aim(4, "log a message, lines", "log.lines", 12, "lines"),
    Aim(4, "log a message, bytes", "log.bytes", 6_000, "bytes"),
    Aim(5, "streaming, CPU a delta", "streaming.cpuUs", 40, "µs"),
    Aim(6, "memory, idle", "memory.idleMb", 100, "MB"),
    Aim(6, "memory after many chats", "memory.manyMb", 160, "MB"),
    Aim(6, "memory of an idle chat", "memory.kbPerChat", 30, "kB"),
    Aim(6, "an evicted chat is back", "memory.backMs", 5, "ms"),
    Aim(7, "shipmate --version", "starts.shipmate --version.shipmate", 150, "ms"),
    Aim(7, "shipmate --help", "starts.shipmate --help.shipmate", 250, "ms"),
    Aim(7, "first reply after a start", "firstReply.wholeMs.ratio", 1.1),
    Aim(8, "ready after a kill", "restart.readyS", 2, "s"),
    Aim(8, "all unfinished answered after that", "restart.answeredS", 5, "s"),
    Aim(9, "CPU a message, long chat over short one", "growth.turns.cpuMs.ratio", 1.1, "×"),
    Aim(9, "CPU a message, many chats on disk over ten", "growth.chats.cpuMs.ratio", 1.1, "×"),
    Aim(10, "longest piece of computing on the event loop", "loop.cpuMs", 50, "ms"),
)


def told(found: Mapping[str, Any], *, measured_alone: bool = False) -> Iterator[str]:
    """Yield a line for each aim: reached, missed, or not measured."""
    for aim in AIMS:
        value = at(found, aim.path)
        if value is None:
            if not measured_alone:
                yield f"  {aim.point:>2}  not measured  {aim.what}"
            continue
        word = "reached" if value <= aim.most else "MISSED"
        measured = f"{figures.number(value)} {aim.unit}, aim {figures.number(aim.most)}"
        yield f"  {aim.point:>2}  {word:<12}  {aim.what}: {measured}"


def at(found: Any, path: str) -> float | None:
    """Return the figure at a dotted path of the report; None if there is none."""
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return float(found) if found is not None else None
