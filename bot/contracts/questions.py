"""The port at which a tool that runs asks the person something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from bot.contracts.identity import ChatKey


@dataclass(frozen=True, slots=True)
class Question:
    """`words` are for the person whose turn it is; it stands in the chat of that turn."""

    request_id: str
    chat_key: ChatKey
    words: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the person wrote next; `nobody` is there to ask, or did not answer in time (`expired`)."""

    ended: Literal["answered", "expired", "nobody"]
    words: str = ""


class Questions(Protocol):
    """Asks the person of a turn while one of its tools waits (`bot.gateway.questions`)."""

    async def ask(self, question: Question) -> Answer:
        """Ask, and wait for the next thing that this person writes in that chat, which is also a message as any other.

        Cancelled, nobody is waited for any more.
        """
        ...
