"""The durable inbox and outbox: what was taken in, and what has to go out."""

from __future__ import annotations

from bot.journal.sqlite import SqliteJournal

__all__ = ["SqliteJournal"]
