"""Writes and reads the tags that mark Shipmate's own text in requests to the model.

A message that Shipmate writes begins with a tag. All tags of a message have the same nonce. The nonce is
chosen after people wrote the quoted text, so the authors of that text could not know the nonce. A tag with
another nonce, or without a nonce, is text of a person. Messages from earlier versions have no nonces.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.contracts.base import Json, Message
from bot.identity_cache import MessageFact

CONTEXT = "turn_context"
FILES = "attached_files"
HISTORY = "loaded_history"
NOTES = "memory_notes"
QUOTES = "quoted_messages"
REATTACHED = "reattached"
SERVERS = "mcp_servers"
SUMMARY = "conversation_summary"

_NAMES = f"{CONTEXT}|{FILES}|{HISTORY}|{NOTES}|{QUOTES}|{REATTACHED}|{SERVERS}|{SUMMARY}"
_SHAPE = re.compile(
    rf'<(?P<name>{_NAMES})(?:-(?P<nonce>[0-9a-f]{{8}}))?(?: note="(?P<note>[^"<>\r\n]*)")?>'
    r"(?P<words>.*)</(?P=name)(?(nonce)-(?P=nonce))>",
    re.DOTALL,
)
_OURS = re.compile(rf"<(?=/?(?:{_NAMES})\b)", re.IGNORECASE)
_IN_NOTES = str.maketrans({'"': "'", "<": "‹", ">": "›", "\r": " ", "\n": " "})


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag with its content. Comparisons ignore the nonce."""

    name: str
    words: str
    note: str = ""
    nonce: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        name = f"{self.name}-{self.nonce}" if self.nonce else self.name
        note = f' note="{self.note.translate(_IN_NOTES)}"' if self.note else ""
        return f"<{name}{note}>{self.words}</{name}>"

    @property
    def block(self) -> Json:
        return {"type": "text", "text": self.text}

    @property
    def json(self) -> Any:
        """Return the content as JSON; None if the content is invalid."""
        try:
            return json.loads(self.words)
        except (ValueError, RecursionError):
            return None

    @property
    def rows(self) -> list[Json]:
        """Return the content as JSON objects, one object per line; [] if a line is invalid."""
        try:
            found = [
                json.loads(line) for line in self.words.removeprefix("\n").removesuffix("\n").split("\n")
            ]
        except (ValueError, RecursionError):
            return []
        return found if all(isinstance(row, dict) for row in found) else []


def nonce(unique: str) -> str:
    """Return a nonce derived from an id that no author has seen."""
    return hashlib.sha256(unique.encode()).hexdigest()[:8]


def dumped(value: object) -> str:
    """Return a value as JSON that cannot contain a tag."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def lines(rows: list[Json]) -> str:
    """Return JSON objects as text, one object per line; the inverse of `Tag.rows`."""
    return "\n" + "\n".join(map(dumped, rows)) + "\n"


def harmless(words: str) -> str:
    """Return a text whose tags can no longer be mistaken for Shipmate's tags."""
    return _OURS.sub("‹", words)


def read(text: object) -> Tag | None:
    """Return the tag that a text consists of, whoever wrote the text; None if the text is not a tag."""
    if not isinstance(text, str) or not text.startswith("<"):
        return None
    found = _SHAPE.fullmatch(text)
    return Tag(found["name"], found["words"], found["note"] or "", found["nonce"] or "") if found else None


def of(message: Message) -> Sequence[Tag | None]:
    """Return, for each block of a message, the block's tag if Shipmate wrote it."""
    return _OF(message)


def _read_all(message: Message) -> Sequence[Tag | None]:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    if message.get("role") != "user":
        return [None] * len(blocks)
    texts = [block.get("text") if block.get("type") == "text" else None for block in blocks]
    found = [read(text) for text in texts]
    first = next((tag for tag, text in zip(found, texts, strict=True) if text is not None), None)
    own = first.nonce if first is not None else ""
    return [tag if tag is not None and tag.nonce == own else None for tag in found]


_OF = MessageFact[Message, Sequence[Tag | None]](_read_all)


def begins(message: Message, name: str) -> Tag | None:
    """Return the first tag of a message if the tag has this name and no note."""
    first = next(iter(of(message)), None)
    return first if first is not None and first.name == name and not first.note else None


def facts(message: Message) -> Json:
    """Return the facts in the context tag of a person's message, or {}. The result is read-only."""
    return _FACTS(message)


def _facts(message: Message) -> Json:
    first = begins(message, CONTEXT)
    found = first.json if first is not None else None
    return found if isinstance(found, dict) else {}


_FACTS = MessageFact[Message, Json](_facts)


SILENT = "[silent]"
"""Text of an answer to a message that does not address the bot and needs no answer. The text is never shown
to people.
"""


def is_silent(words: str) -> bool:
    """Return True if an answer begins with `SILENT`, whatever follows."""
    return words.lstrip().startswith(SILENT)
