"""`PartialReply` collects a streaming answer: the text to show so far, and the text to store if the turn is stopped."""

from __future__ import annotations

from typing import Any

import jiter

from bot import text
from bot.contracts.model import ModelReply, TextDelta, ToolInputDelta
from bot.core import blocks
from bot.tags import SILENT
from bot.tools.builtin.chat_send import ChatSend


class PartialJSON:
    """Collects pieces of JSON, which are parsed only when the value is read."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._read = 0
        self._last: Any = None

    def feed(self, piece: str) -> None:
        """Add a piece of JSON."""
        self._pieces.append(piece)

    def value(self) -> Any:
        """Return the value so far, for display only. Open strings, lists and objects are closed, and a
        string ends before an incomplete escape. If the newest pieces cannot be parsed, returns the
        previous value.
        """
        if self._read < len(self._pieces):
            self._pieces = ["".join(self._pieces)]
            self._read = 1
            self._last = _parsed(self._pieces[0], self._last)
        return self._last


def _parsed(raw: str, last: Any) -> Any:
    try:
        return text.strict_json(raw)
    except (ValueError, RecursionError):
        pass
    try:
        return jiter.from_json(
            raw.encode("utf-8", "replace"),
            partial_mode="trailing-strings",
            allow_inf_nan=False,
            catch_duplicate_keys=True,
            cache_mode="none",
        )
    except ValueError:
        return last


class PartialReply:
    """Collects the events of one answer. If `plain`, plain text is shown as well; otherwise plain text is
    not shown, because it may be discarded.
    """

    def __init__(self, *, plain: bool = True) -> None:
        self._shows_plain = plain
        self._text: list[str] = []
        self._calls: dict[str, PartialJSON] = {}
        self._first: tuple[str, str] | None = None

    def take(self, event: TextDelta | ToolInputDelta | ModelReply) -> None:
        """Add an event of the model's stream."""
        if isinstance(event, TextDelta):
            self._text.append(event.text)
        elif isinstance(event, ToolInputDelta):
            self._first = self._first or (event.tool_use_id, event.name)
            if event.name == ChatSend.name:
                self._calls.setdefault(event.tool_use_id, PartialJSON()).feed(event.partial_json)
        elif self._first is None:  # a call without input sends no input events
            calls = blocks.tool_calls(event.content)
            self._first = (calls[0].id, calls[0].name) if calls else None

    @property
    def speaks(self) -> bool:
        """Return True if the answer starts with text for people. Text about an action that was not approved
        yet must not be shown.
        """
        return (
            self._first[1] == ChatSend.name
            if self._first is not None
            else self._shows_plain and any(self._text)
        )

    def shown(self) -> str:
        """Return the text of the first message so far; plain text only while no tool call follows."""
        if self._first is None:
            return self._plain()
        call = self._calls.get(self._first[0])
        return _said(call) if call is not None and self.speaks else ""

    def words(self) -> str:
        """Return the text for people: the text of a `chat_send` call if there is one, else the plain text."""
        sent = [words for call in self._calls.values() if (words := _said(call).strip())]
        return "\n\n".join(sent) if sent else self._plain()

    def _plain(self) -> str:
        self._text = ["".join(self._text)]
        return _aloud(text.clean(self._text[0]).strip())


def _said(call: PartialJSON) -> str:
    value = call.value()
    words = value.get("text") if isinstance(value, dict) else None
    return _aloud(text.clean(words)) if isinstance(words, str) else ""


def _aloud(words: str) -> str:
    """Return the text without an ending that may become the marker for silence."""
    return "" if SILENT.startswith(words.strip()) or words.lstrip().startswith(SILENT) else words
