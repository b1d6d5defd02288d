"""The port at which a running tool asks the person of its turn."""

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
    """The person's next message; `nobody`: there is no person to ask, or they gave a command instead; `expired`: no answer came in time."""

    ended: Literal["answered", "expired", "nobody"]
    words: str = ""


class Questions(Protocol):
    """Asks the person of a turn while one of its tools waits (`bot.features.questions`)."""

    async def ask(self, question: Question) -> Answer:
        """Ask, and wait for the next message of this person in that chat, which also counts as a message like any
        other.

        Cancelling it ends the wait.
        """
        ...
