"""Collects an answer while it streams: `Partial` has the text to show so far, and the text to keep if the turn is stopped."""

from __future__ import annotations

from bot import text
from bot.agent.partial_json import PartialJSON
from bot.contracts.agent import SILENT
from bot.contracts.model import ModelReply, TextDelta, ToolInputDelta
from bot.tools.builtin.chat_send import ChatSend


class Partial:
    """Collects the deltas of one answer."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: dict[str, PartialJSON] = {}
        self._first: tuple[str, str] | None = None

    def take(self, event: TextDelta | ToolInputDelta | ModelReply) -> None:
        """One event of the stream."""
        if isinstance(event, TextDelta):
            self._text.append(event.text)
        elif isinstance(event, ToolInputDelta):
            self._first = self._first or (event.tool_use_id, event.name)
            if event.name == ChatSend.name:
                self._calls.setdefault(event.tool_use_id, PartialJSON()).feed(event.partial_json)

    @property
    def speaks(self) -> bool:
        """True if the answer begins to say something before it does anything: what a message says of an act that a
        person has not approved yet must not be shown.
        """
        return self._first is not None and self._first[1] == ChatSend.name

    def shown(self) -> str:
        """The words of the first message, as far as they have come."""
        return _said(self._calls[self._first[0]]) if self._first is not None and self.speaks else ""

    def words(self) -> str:
        """The words meant for people: those of `chat_send` where it has come to that, else the plain text."""
        sent = [words for call in self._calls.values() if (words := _said(call).strip())]
        return "\n\n".join(sent) if sent else _aloud(text.clean("".join(self._text)).strip())


def _said(call: PartialJSON) -> str:
    value = call.snapshot().value
    words = value.get("text") if isinstance(value, dict) else None
    return _aloud(text.clean(words)) if isinstance(words, str) else ""


def _aloud(words: str) -> str:
    """The words, but for what may become the sign that nothing is said."""
    return "" if SILENT.startswith(words.strip()) else words
