"""Collects an answer while it streams: `PartialReply` has the text to show so far, and the text to keep if the turn is stopped."""

from __future__ import annotations

import re
from typing import Any

import jiter

from bot import text
from bot.contracts.agent import SILENT, is_silent
from bot.contracts.model import ModelReply, TextDelta, ToolInputDelta
from bot.core import blocks
from bot.tools.builtin.chat_send import ChatSend

# Any escape; in the group, half of a surrogate pair whose other half does not come any more.
_ESCAPE = re.compile(
    r"""\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
      | u([dD][89a-fA-F][0-9a-fA-F]{2})(?!(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z)
      | .)""",
    re.VERBOSE | re.DOTALL,
)


class PartialJSON:
    """Takes pieces as they come, which costs nothing; reads them when it is asked what they are."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._read = 0
        self._last: Any = None

    def feed(self, piece: str) -> None:
        """One piece more."""
        self._pieces.append(piece)

    def value(self) -> Any:
        """The value of the pieces so far; what could be read before where nothing can be read of what came last. Strings, lists and
        objects that have not ended are closed, so it is for display only. A string goes as far as its last whole escape.
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
    for words in (raw, _ESCAPE.sub(_whole, raw)):
        try:
            return _repaired(words)
        except ValueError:
            continue
    return last


def _repaired(raw: str) -> Any:
    return jiter.from_json(
        raw.encode("utf-8", "replace"),
        partial_mode="trailing-strings",
        allow_inf_nan=False,
        catch_duplicate_keys=True,
        cache_mode="none",
    )


def _whole(escape: re.Match[str]) -> str:
    """Replace half a surrogate pair: `jiter` refuses it, and we do not."""
    return "\\ufffd" if escape[1] else escape[0]


class PartialReply:
    """Collects the deltas of one answer. Without `plain` plain text is not shown: nobody waits for it, and it may come to nothing."""

    def __init__(self, *, plain: bool = True) -> None:
        self._shows_plain = plain
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
        elif self._first is None:  # a call without input sends no pieces of it
            calls = blocks.tool_calls(event.content)
            self._first = (calls[0].id, calls[0].name) if calls else None

    @property
    def speaks(self) -> bool:
        """True if the answer begins to say something before it does anything: what a message says of an act that a
        person has not approved yet must not be shown.
        """
        return (
            self._first[1] == ChatSend.name
            if self._first is not None
            else self._shows_plain and any(self._text)
        )

    def shown(self) -> str:
        """The words of the first message, as far as they have come; of plain text, as long as no call follows it."""
        if self._first is None:
            return self._plain()
        call = self._calls.get(self._first[0])
        return _said(call) if call is not None and self.speaks else ""

    def words(self) -> str:
        """The words meant for people: those of `chat_send` where it has come to that, else the plain text."""
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
    """The words, but for what may become the sign that nothing is said."""
    return "" if SILENT.startswith(words.strip()) or is_silent(words) else words
