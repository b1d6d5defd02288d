"""Writes and reads the tags by which Shipmate speaks to the model.

A message that Shipmate writes begins with a tag. Its nonce stands in all tags of that message and is drawn after all
words in it were said, so no author of those words knew it. Text that looks like a tag and has another nonce, or none,
is a person's text. Messages of earlier versions have no nonces.
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
    """A tag with what stands in it. Two are equal that say the same, whatever their nonces are."""

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
        """The JSON in it; None where it is none."""
        try:
            return json.loads(self.words)
        except (ValueError, RecursionError):
            return None

    @property
    def rows(self) -> list[Json]:
        """The objects in it, one a line; [] where not every line is one."""
        try:
            found = [
                json.loads(line) for line in self.words.removeprefix("\n").removesuffix("\n").split("\n")
            ]
        except (ValueError, RecursionError):
            return []
        return found if all(isinstance(row, dict) for row in found) else []


def nonce(unique: str) -> str:
    """The nonce made of an id that no author has seen."""
    return hashlib.sha256(unique.encode()).hexdigest()[:8]


def dumped(value: object) -> str:
    """JSON of other people's words, in which no tag can stand."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def lines(rows: list[Json]) -> str:
    """The words of a tag of which `Tag.rows` are these."""
    return "\n" + "\n".join(map(dumped, rows)) + "\n"


def harmless(words: str) -> str:
    """Words in which no tag can stand."""
    return _OURS.sub("‹", words)


def read(text: object) -> Tag | None:
    """The tag that a text is, by whatever author; None where it is none."""
    if not isinstance(text, str) or not text.startswith("<"):
        return None
    found = _SHAPE.fullmatch(text)
    return Tag(found["name"], found["words"], found["note"] or "", found["nonce"] or "") if found else None


def of(message: Message) -> Sequence[Tag | None]:
    """The tag that each block of a message is, where Shipmate wrote it; None for all else."""
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
    """The tag with which a message begins, where it is one of this name without a note of its own."""
    first = next(iter(of(message)), None)
    return first if first is not None and first.name == name and not first.note else None


def facts(message: Message) -> Json:
    """The gateway's facts of a person's message; {} for any other. Not to be changed."""
    return _FACTS(message)


def _facts(message: Message) -> Json:
    first = begins(message, CONTEXT)
    found = first.json if first is not None else None
    return found if isinstance(found, dict) else {}


_FACTS = MessageFact[Message, Json](_facts)


SILENT = "[silent]"
"""The whole answer to words that were not said to the bot, where these need none. People never see it."""


def is_silent(words: str) -> bool:
    """True of an answer that says so, whatever it adds."""
    return words.lstrip().startswith(SILENT)
