"""Reads the text of a message that consists of blocks, in Slack's text markup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bot import text

MAX_PARTS = 2_000
"""Max parts of a message that are read. Slack allows 50 blocks."""
MAX_DEPTH = 20
_QUOTE = "> "
_PICTURES = frozenset({"image", "video", "file"})
_MARKED = {
    "user": ("@", "user_id"),
    "channel": ("#", "channel_id"),
    "usergroup": ("!subteam^", "usergroup_id"),
    "broadcast": ("!", "range"),
}
"""Block elements that are written as `<…>` in a text, with the sign that begins the markup and the field
that holds the id.
"""


def escape(typed: str) -> str:
    """Escape `&`, `<` and `>`, the three characters that Slack encodes as entities."""
    return typed.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def text_of(blocks: Any) -> str:
    """Return the text of blocks, line by line. Mentions are written as `<@U…>`; typed text that looks like a
    mention is escaped.
    """
    reading = _BlockReader()
    return "\n".join(line for block in objects(blocks) for line in reading.block(block, 0)).strip("\n")


class _BlockReader:
    """Reads the blocks of one message and counts down from `MAX_PARTS`."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def block(self, block: dict[str, Any], depth: int) -> Iterator[str]:
        self._left -= 1
        kind = str(block.get("type"))
        if self._left < 0 or depth > MAX_DEPTH:
            return
        if kind == "rich_text_quote":
            yield from (_QUOTE + line for line in self._line(block, depth).split("\n"))
        elif kind in {"rich_text_section", "rich_text_preformatted"}:
            yield self._line(block, depth)
        elif kind == "table":
            rows = block.get("rows")
            for row in rows if isinstance(rows, list) else ():
                yield " | ".join(" ".join(self.block(cell, depth + 1)) for cell in objects(row))
        elif kind in _PICTURES:
            named = _text(block.get("title")) or escape(word(block.get("alt_text")))
            yield f"[{kind}{': ' + named if named else ''}]"
        else:
            yield from self._inside(block, depth)

    def _inside(self, block: dict[str, Any], depth: int) -> Iterator[str]:
        """Yield the texts of a block, then the texts of its parts."""
        texts = (_text(block), *(_text(block.get(key)) for key in ("title", "subtitle", "body")))
        yield from filter(None, texts)
        yield from filter(None, map(_text, objects(block.get("fields"))))
        mark = "• " if block.get("type") == "rich_text_list" else ""
        for one in objects(block.get("elements") or block.get("child_blocks")):
            yield from (mark + line for line in self.block(one, depth + 1))

    def _line(self, block: dict[str, Any], depth: int) -> str:
        return "".join(self._element(one, depth) for one in objects(block.get("elements")))

    def _element(self, one: dict[str, Any], depth: int) -> str:
        self._left -= 1
        if self._left < 0:
            return ""
        named = escape(word(one.get("text")))
        match one.get("type"):
            case "text":
                return named
            case "link":
                return f"<{_safe(one.get('url'))}{'|' + named if named else ''}>"
            case "emoji":
                return f":{escape(word(one.get('name')))}:"
            case str(kind) if kind in _MARKED:
                mark, key = _MARKED[kind]
                return f"<{mark}{_safe(one.get(key))}>"
        return escape(word(one.get("fallback") or one.get("value"))) or "\n".join(self.block(one, depth + 1))


def _text(value: Any) -> str:
    """Return the text of a string or a text object. Text of type `mrkdwn` is in Slack's markup already."""
    if isinstance(value, str):
        return escape(word(value))
    if not isinstance(value, dict):
        return ""
    said = value.get("text")
    if isinstance(said, dict):
        return _text(said)
    return word(said) if value.get("type") == "mrkdwn" else escape(word(said))


def word(value: Any) -> str:
    return text.clean(value) if isinstance(value, str) else ""


def _safe(value: Any) -> str:
    """Return a value without the characters that would end `<…>` early."""
    return "".join(char for char in word(value) if char not in "<>|\n")


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; [] if the value is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
