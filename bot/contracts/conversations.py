"""An entry of a person's list of conversations."""

from __future__ import annotations

from dataclasses import dataclass

from bot.contracts.identity import ChatKey


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation in which something was said. `at` is the time of its newest message in epoch seconds."""

    chat_key: ChatKey
    title: str
    at: float
