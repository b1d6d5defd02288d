"""Effort and thinking: as settings say, and as a model takes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bot.contracts.base import Json

Effort = Literal["low", "medium", "high"]
Thinking = Literal["adaptive", "between_tools", "off"]
Purpose = Literal["memory", "compaction", "title", "task", "overheard"]
EFFORTS: tuple[Effort, ...] = ("low", "medium", "high")

ROOM = {"low": 4_096, "medium": 8_192, "high": 16_384}
"""Tokens of an answer's limit that thinking may take at each effort."""
NOTES = 1_024
"""Those of what is said between calls where the model does not think."""
_FORMS: dict[Thinking | None, tuple[str, ...]] = {
    None: (),
    "adaptive": ("adaptive",),
    "between_tools": ("between_tools", "adaptive"),
    "off": ("disabled", "between_tools", "adaptive"),
}
"""Forms of each setting; the first that the model takes is sent."""

TAKES = (
    *(f"effort.{one}" for one in EFFORTS),
    "thinking.adaptive",
    "thinking.between_tools",
    "thinking.disabled",
)
"""Settings that a model may take, or not."""
SYSTEM_ROLE = re.compile(r"claude-(?:opus-(?:4-8|5)|(?:sonnet|haiku)-5-5|(?:fable|mythos)-5)(?:-.*)?")
"""The models that take messages of the system in a conversation: no list of a provider tells it."""


@dataclass(frozen=True, slots=True)
class SentManner:
    """Effort and thinking of a request, and the tokens that thinking may take of its limit; None is not sent."""

    effort: str | None = None
    thinking: Json | None = None
    room: int = 0

    def __str__(self) -> str:
        return " ".join(filter(None, (self.effort, (self.thinking or {}).get("type"))))


@dataclass(frozen=True, slots=True)
class Manner:
    """Effort, thinking and model of an answer; None: the model's own, or the chat's."""

    effort: Effort | None = None
    thinking: Thinking | None = None
    model: str | None = None

    def sent(self, takes: Callable[[str], bool]) -> SentManner:
        """The settings sent to a model that `takes` them (`contracts.model.ModelFacts.takes`)."""
        effort = self.effort if takes(f"effort.{self.effort}") else None
        form = next((one for one in _FORMS[self.thinking] if takes(f"thinking.{one}")), None)
        if form == "adaptive":
            # Else what it says between calls would come empty.
            return SentManner(effort, {"type": form, "display": "summarized"}, ROOM[self.effort or "high"])
        return SentManner(effort, {"type": form} if form else None, NOTES if form == "between_tools" else 0)


def effort_of(name: str | None) -> Effort | None:
    """Return the effort of this name; None where it is none."""
    return next((one for one in EFFORTS if one == name), None)
