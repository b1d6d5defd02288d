"""Renders tables as monospaced text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from bot import text

WIDEST = 100
"""Columns in cells; a wider table is not padded, since its lines would wrap anyway."""


def aligned(rows: list[list[str]], sides: Sequence[str] = ()) -> str:
    """Rows of cells (the first is the head) with their columns under each other, each at its side: `right`, `center`, or left."""
    columns = max(map(len, rows))
    rows = [row + [""] * (columns - len(row)) for row in rows]
    widths = [max(width(row[at]) for row in rows) for at in range(columns)]
    if sum(widths) + 3 * (columns - 1) > WIDEST:
        widths = [0] * columns
        rule: list[str] = []
    else:
        rule = ["-+-".join("-" * size for size in widths)]
    at_sides = [*sides, *("" for _ in range(columns - len(sides)))][:columns]
    lines = [" | ".join(map(_padded, row, widths, at_sides)) for row in rows]
    return "\n".join(line.rstrip() for line in [lines[0], *rule, *lines[1:]])


def width(cell: str) -> int:
    """Cells of a terminal that a text takes."""
    if cell.isascii():
        return len(cell)
    return sum(2 if _wide(shown) else 1 for shown in text.graphemes(cell))


def _wide(shown: str) -> bool:
    return unicodedata.east_asian_width(shown[0]) in {"W", "F"} or "\ufe0f" in shown


def _padded(cell: str, size: int, side: str) -> str:
    room = max(0, size - width(cell))
    before = {"right": room, "center": room // 2}.get(side, 0)
    return " " * before + cell + " " * (room - before)
