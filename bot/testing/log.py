"""A log that keeps its entries in memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from bot.contracts.base import Level
from bot.contracts.identity import ChatKey


@dataclass(frozen=True, slots=True)
class Entry:
    """One log entry, with the arguments of the call that wrote it."""

    kind: str
    message: str
    level: Level = "info"
    duration: float | None = None
    chat_key: ChatKey | None = None
    request_id: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


class MemoryLog:
    """A `contracts.environment.Log` for tests. `entries` lists every log entry, oldest first."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._lock = threading.Lock()

    def write(
        self,
        kind: str,
        message: str,
        *,
        level: Level = "info",
        duration: float | None = None,
        chat_key: ChatKey | None = None,
        request_id: str | None = None,
        **details: Any,
    ) -> None:
        with self._lock:
            self.entries.append(Entry(kind, message, level, duration, chat_key, request_id, details))

    def of(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == kind]

    def at(self, level: Level) -> list[Entry]:
        return [entry for entry in self.entries if entry.level == level]

    @property
    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.entries]

    @property
    def text(self) -> str:
        """Text of all entries. Tests check that secrets are not in it."""
        return "\n".join(repr(entry) for entry in self.entries)
