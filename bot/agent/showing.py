"""What is kept of a conversation, for people to read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from bot import text
from bot.context import files_read
from bot.contracts import Json, Message

SHOWN = 2_000
"""Characters."""
_GATHERED = 5 * SHOWN
"""Characters that are looked at: a secret must not slip through because it crosses the border."""
CONTEXT = "<turn_context"
FILES = files_read.OPEN
QUOTED = 80


def history(messages: Sequence[Message], redact: Callable[[str], str]) -> str:
    """The beginning of it, oldest first, without our secrets; "" where there is nothing."""
    gathered, left = "", 0
    for at, message in enumerate(messages):
        gathered += "".join(f"{line}\n" for line in _lines(message))
        if len(gathered) > _GATHERED:
            left = len(messages) - at - 1
            break
    words = redact(gathered).strip()
    if len(words) <= SHOWN and not left:
        return words
    return f"{text.head(words, SHOWN - 1)}…"


def said(message: Message) -> str:
    """The beginning of what the person said in a message."""
    own = (block for block in message["content"] if _is_words(block) and not block["text"].startswith(FILES))
    words = " ".join(block["text"] for block in own)
    return text.preview(words, QUOTED)


def _lines(message: Message) -> Iterator[str]:
    who = "I" if message["role"] == "assistant" else "Person"
    for block in message["content"]:
        if _is_words(block):
            yield f"{who}: {block['text']}"
        elif block["type"] == "tool_use":
            yield f"I use {block['name']}: {json.dumps(block['input'], ensure_ascii=False)}"
        elif block["type"] == "tool_result":
            yield f"Result: {_plain(block.get('content'))}"
        elif block["type"] == "image":
            yield f"{who}: [image]"


def _is_words(block: Json) -> bool:
    return bool(block["type"] == "text" and not block["text"].startswith(CONTEXT))


def _plain(content: object) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)
    return str(content or "")
