"""What the model has said of an answer that is not complete yet: what stays of it where the turn is stopped."""

from __future__ import annotations

import json
import re

from bot import text
from bot.contracts import ModelReply, TextDelta, ToolInputDelta
from bot.tools.builtin.chat_send import ChatSend

# The value of `text` as far as it has come, without an escape that is not complete.
_TEXT = re.compile(r'\s*\{\s*"text"\s*:\s*"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)')


class Partial:
    """Collects the deltas of one answer."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: dict[str, list[str]] = {}

    def take(self, event: TextDelta | ToolInputDelta | ModelReply) -> None:
        """One event of the stream."""
        if isinstance(event, TextDelta):
            self._text.append(event.text)
        elif isinstance(event, ToolInputDelta) and event.name == ChatSend.name:
            self._calls.setdefault(event.tool_use_id, []).append(event.partial_json)

    def words(self) -> str:
        """The words meant for people: those of `chat_send` where it has come to that, else the plain text."""
        sent = [words for pieces in self._calls.values() if (words := _decoded("".join(pieces)).strip())]
        return "\n\n".join(sent) if sent else text.clean("".join(self._text)).strip()


def _decoded(arguments: str) -> str:
    found = _TEXT.match(arguments)
    if found is None:
        return ""
    try:
        words = str(json.loads(f'"{found[1]}"', strict=False))
    except ValueError:
        return ""
    # The first half of a character whose second half had not come yet.
    return words.encode("utf-8", "ignore").decode("utf-8")
