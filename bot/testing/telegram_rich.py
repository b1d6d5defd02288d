"""The blocks of rich messages that the Bot API accepts and refuses, as pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.contracts.base import Json
from bot.testing.telegram_rules import bad

CHARACTERS, BLOCKS, LEVELS, COLUMNS = 32_768, 500, 16, 20
STYLES = frozenset(
    {"bold", "italic", "underline", "strikethrough", "spoiler", "code", "marked", "subscript", "superscript"}
)
_FIELDS: Mapping[str, frozenset[str]] = {
    "paragraph": frozenset({"text"}),
    "heading": frozenset({"text", "size"}),
    "pre": frozenset({"text", "language"}),
    "footer": frozenset({"text"}),
    "divider": frozenset(),
    "blockquote": frozenset({"blocks", "credit"}),
    "list": frozenset({"items"}),
    "table": frozenset({"cells", "is_bordered", "is_striped", "is_compact", "caption"}),
}
_CELL = frozenset({"text", "is_header", "colspan", "rowspan", "align", "valign"})
_ITEM = frozenset({"blocks", "has_checkbox", "is_checked", "value", "type"})


def checked_rich(rich: Json) -> tuple[list[Json], str]:
    """The blocks of an `InputRichMessage` and all their words, a line a block. Raises `Refused` for each rule that it breaks."""
    forms = [form for form in ("html", "markdown", "blocks") if rich.get(form)]
    if forms != ["blocks"]:
        raise bad(
            "RICH_MESSAGE_INVALID: exactly one of the fields must be used, and this server reads blocks alone"
        )
    checking = _Checking()
    lines = checking.blocks(rich["blocks"], 1)
    words = "\n".join(lines)
    if len(words) > CHARACTERS:
        raise bad("RICH_MESSAGE_TOO_LONG")
    if not words.strip():
        raise bad("message text is empty")
    return rich["blocks"], words


class _Checking:
    def __init__(self) -> None:
        self._left = BLOCKS

    def _count(self, level: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise bad("RICH_MESSAGE_TOO_MANY_BLOCKS")
        if level > LEVELS:
            raise bad("RICH_MESSAGE_TOO_DEEP")

    def blocks(self, blocks: Any, level: int) -> list[str]:
        if not isinstance(blocks, list) or not blocks:
            raise bad("can't parse rich message: a list of blocks expected")
        return [line for block in blocks for line in self._block(block, level)]

    def _block(self, block: Any, level: int) -> list[str]:
        self._count(level)
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or kind not in _FIELDS or not block.keys() - {"type"} <= _FIELDS[kind]:
            raise bad(f"can't parse rich message block {kind}")
        if kind == "divider":
            return ["———"]
        if kind == "blockquote":
            return self.blocks(block.get("blocks"), level + 1)
        if kind == "list":
            return self._items(block.get("items"), level)
        if kind == "table":
            return self._rows(block.get("cells"), level)
        if kind == "heading" and block.get("size") not in range(1, 7):
            raise bad("can't parse rich message heading: wrong size")
        words = self.text(block.get("text"), level)
        if not words.strip():
            raise bad("can't parse rich message block: text is empty")
        return [words]

    def _items(self, items: Any, level: int) -> list[str]:
        if not isinstance(items, list) or not items:
            raise bad("can't parse rich message list")
        lines: list[str] = []
        for item in items:
            self._count(level)
            if not isinstance(item, dict) or not item.keys() <= _ITEM:
                raise bad("can't parse rich message list item")
            if item.get("is_checked") and not item.get("has_checkbox"):
                raise bad("can't parse rich message list item: checked without a checkbox")
            if type(item.get("value", 1)) is not int or item.get("type", "1") not in {
                "a",
                "A",
                "i",
                "I",
                "1",
            }:
                raise bad("can't parse rich message list item: wrong label")
            first, *rest = self.blocks(item.get("blocks"), level + 1)
            mark = f"{item['value']}. " if "value" in item else "• "
            lines += [mark + first, *rest]
        return lines

    def _rows(self, cells: Any, level: int) -> list[str]:
        if (
            not isinstance(cells, list)
            or not cells
            or not all(isinstance(row, list) and row for row in cells)
        ):
            raise bad("can't parse rich message table")
        lines: list[str] = []
        for row in cells:
            self._count(level)
            if len(row) > COLUMNS:
                raise bad("RICH_MESSAGE_TABLE_TOO_WIDE")
            for cell in row:
                if not isinstance(cell, dict) or not cell.keys() <= _CELL:
                    raise bad("can't parse rich message table cell")
                if cell.get("align") not in {"left", "center", "right"}:
                    raise bad("can't parse rich message table cell: wrong alignment")
                if cell.get("valign") not in {"top", "middle", "bottom"}:
                    raise bad("can't parse rich message table cell: wrong alignment")
            lines.append(" | ".join(self.text(cell.get("text", ""), level) for cell in row))
        return lines

    def text(self, text: Any, level: int) -> str:
        """The words of a rich text."""
        if isinstance(text, str):
            return text
        if isinstance(text, list) and text:
            return "".join(self.text(one, level) for one in text)
        if level >= LEVELS:
            raise bad("RICH_MESSAGE_TOO_DEEP")
        kind = text.get("type") if isinstance(text, dict) else None
        fields = {"type", "text"} | ({"url"} if kind == "url" else set())
        if kind not in STYLES | {"url"} or text.keys() != fields:
            raise bad(f"can't parse rich text {kind}")
        if kind == "url" and not str(text["url"]).startswith(("https://", "http://", "tg://")):
            raise bad("can't parse rich text: unsupported URL")
        return self.text(text["text"], level + 1)
