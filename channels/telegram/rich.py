"""Writes Markdown as the blocks of a rich message of Telegram: tables, headings, nested lists and quotes as such. Nothing is sent
as markup, so the server has nothing to parse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from markdown_it.token import Token

from bot.contracts.base import Json
from channels.markdown import parse
from channels.telegram import render

BLOCKS = 500
COLUMNS = 20
LEVELS = 16
"""Limits of the service: of blocks, rows and items of a message together, of columns of a table, of nesting."""
WORTH = frozenset({"table_open", "heading_open"})
"""What an ordinary message cannot show. Others stay ordinary: older apps show a note in the place of a rich message."""
NOTHING = "\u00a0"
"""Stands in a cell that is empty, which the service would not show."""
_TYPES = {"text_link": "url"}


@lru_cache(maxsize=64)
def blocks(markdown: str) -> tuple[Json, ...] | None:
    """The blocks of a text; None where an ordinary message shows it as well, or a rich one cannot."""
    tokens = parse(render.sendable(markdown).strip("\n"))
    if tokens is None or not any(token.type in WORTH for token in tokens):
        return None
    writer = _BlockWriter(tokens)
    found = tuple(writer.until(None))
    return found if writer.fits and found else None


class _BlockWriter:
    """Goes through the parser's tokens once."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._count = 0
        self.fits = True
        self._level = 0
        self._writes: dict[str, Callable[[Token], Iterator[Json]]] = {
            "paragraph_open": self._paragraph,
            "heading_open": self._heading,
            "fence": self._code,
            "code_block": self._code,
            "hr": lambda _: iter([{"type": "divider"}]),
            "blockquote_open": self._quote,
            "bullet_list_open": self._list,
            "ordered_list_open": self._list,
            "table_open": self._table,
        }

    def until(self, closing: str | None) -> Iterator[Json]:
        """The blocks up to the token that closes what they are in."""
        self._level += 1
        while (token := self._next()) is not None and token.type != closing:
            for block in self._writes[token.type](token):
                self._count_in()
                yield block
        self._level -= 1

    def _next(self) -> Token | None:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        self._at += 1
        return token

    def _count_in(self) -> None:
        self._count += 1
        self.fits = self.fits and self._count <= BLOCKS and self._level <= LEVELS

    def _words(self, token: Token | None, *, task: bool = False) -> Any:
        words = rich_text(render.inline(token, task=task)) if token is not None else ""
        self.fits = self.fits and self._level + _depth(words) <= LEVELS
        return words

    # -- blocks ----------------------------------------------------------------------------------------------

    def _paragraph(self, _: Token, *, task: bool = False) -> Iterator[Json]:
        words = self._words(self._next(), task=task)
        self._next()
        if words:
            yield {"type": "paragraph", "text": words}

    def _heading(self, token: Token) -> Iterator[Json]:
        words = self._words(self._next())
        self._next()
        if words:
            yield {"type": "heading", "text": words, "size": int(token.tag[1:])}

    def _code(self, token: Token) -> Iterator[Json]:
        code, language = token.content.rstrip("\n"), render.language(token)
        if code.strip():
            yield {"type": "pre", "text": code} | ({"language": language} if language else {})

    def _quote(self, _: Token) -> Iterator[Json]:
        if inside := list(self.until("blockquote_close")):
            yield {"type": "blockquote", "blocks": inside}

    def _list(self, opening: Token) -> Iterator[Json]:
        items: list[Json] = []
        while (token := self._next()) is not None and token.type == "list_item_open":
            items.append(self._item(token))
            self._count_in()
        if opening.type == "ordered_list_open":
            first = int(opening.attrGet("start") or 1)
            items = [item | {"value": number, "type": "1"} for number, item in enumerate(items, first)]
        yield {"type": "list", "items": items}

    def _item(self, _: Token) -> Json:
        box = render.task_box(self._tokens[self._at - 1 : self._at + 2])
        state: Json = {"has_checkbox": True} if box else {}
        state |= {"is_checked": True} if box == render.CHECKED else {}
        inside: list[Json] = []
        if box:
            self._level += 1
            opening = self._next()
            assert opening is not None  # noqa: S101 - the box stands in it
            inside += self._paragraph(opening, task=True)
            self._level -= 1
        inside += self.until("list_item_close")
        self.fits = self.fits and bool(inside)  # Telegram takes no block without words
        return {"blocks": inside} | state

    def _table(self, _: Token) -> Iterator[Json]:
        rows: list[list[Json]] = []
        while (token := self._next()) is not None and token.type != "table_close":
            if token.type == "tr_open":
                rows.append([])
                self._count_in()
            elif token.type in {"th_open", "td_open"}:
                side = str(token.attrGet("style") or "").removeprefix("text-align:") or "left"
                cell: Json = {"align": side, "valign": "top"}
                if token.type == "th_open":
                    cell["is_header"] = True
                rows[-1].append(cell | {"text": self._words(self._next()) or NOTHING})
        self.fits = self.fits and all(len(row) <= COLUMNS for row in rows)
        yield {"type": "table", "cells": rows, "is_bordered": True}


def rich_text(shown: render.Rendered) -> Any:
    """A text with entities as the tree that rich messages have of it."""
    units = shown.text.encode("utf-16-le")

    def part(begin: int, end: int, inside: Sequence[render.Entity]) -> Any:
        pieces: list[Any] = []
        at, left = begin, list(inside)
        while left:
            outer = left.pop(0)
            within = [one for one in left if one.offset < outer.end]
            left = left[len(within) :]
            if outer.offset > at:
                pieces.append(units[2 * at : 2 * outer.offset].decode("utf-16-le"))
            piece: Json = {
                "type": _TYPES.get(outer.type, outer.type),
                "text": part(outer.offset, outer.end, within),
            }
            pieces.append(piece | ({"url": outer.url} if outer.url is not None else {}))
            at = outer.end
        if end > at:
            pieces.append(units[2 * at : 2 * end].decode("utf-16-le"))
        return pieces[0] if len(pieces) == 1 else pieces or ""

    return part(0, len(units) // 2, shown.entities)


def _depth(words: Any) -> int:
    if isinstance(words, list):
        return max(map(_depth, words), default=0)
    return 1 + _depth(words["text"]) if isinstance(words, dict) else 0
