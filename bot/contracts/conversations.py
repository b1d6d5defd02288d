"""An entry of a person's list of conversations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.contracts.identity import ChatKey


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation in which something was said. `at` is the time of its newest message in epoch seconds.
    `waiting`: its turn waits for a person's decision.
    """

    chat_key: ChatKey
    title: str
    at: float
    state: Literal["", "working", "waiting"] = ""
