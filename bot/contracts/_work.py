"""What people are shown of work that takes long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

CardState = Literal["pending", "in_progress", "complete", "error"]


@dataclass(frozen=True, slots=True)
class Card:
    """One of the things that are being done: for channels that show such things in a form of their own."""

    id: str
    title: str
    state: CardState
    detail: str = ""


class ToolWatch(Protocol):
    """Is told of every tool call of a turn that runs, but of those that say something or give out tasks."""

    def began(self, request_id: str, call_id: str, tool: str) -> None:
        """Takes note; never blocks and never raises."""
        ...

    def ended(self, request_id: str, call_id: str, *, failed: bool) -> None:
        """As `began`."""
        ...
