"""Renders Markdown as Telegram's text and entities (formatted spans). Telegram itself parses no markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache

import regex
from markdown_it.token import Token

from bot import text
from bot.markdown import parse

STYLES = {"em": "italic", "strong": "bold", "s": "strikethrough"}
SPOILER = "spoiler"
_SPOILER = regex.compile(rf"(?<!\|)\|\|(?!\|)(?:(?<!{text.OF_WORD}\|\|)|(?!{text.OF_WORD}))")
_BOXES = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
BULLETS = ("• ", "◦ ", "▪ ")
RULE = "———"
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")
_LINK = re.compile(r"(?:https?|tg)://[^\s/?#]", re.IGNORECASE)
WIDEST = 100
"""Max width of a table in terminal cells. A wider table is not aligned, because its lines wrap anyway."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A formatted span of a text. Offset and length are in UTF-16 code units."""

    type: str
    offset: int
    length: int
    url: str | None = None
    language: str | None = None

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Rendered:
    text: str
    entities: tuple[Entity, ...] = ()


def sendable(said: str) -> str:
    """Return a text in which U+FFFD replaces the characters that Telegram rejects."""
    return text.clean(said).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def without_markup(said: str) -> Rendered:
    return Rendered(sendable(said).strip("\n"))


@lru_cache(maxsize=128)
def render(markdown: str, *, goes_on: bool = False) -> Rendered:
    """Render Markdown. Return the Markdown as plain text if parsing takes too long or would lose text. If `goes_on` is True, more
    text follows, so an unclosed spoiler hides the rest.
    """
    bare = without_markup(markdown)
    if (tokens := parse(bare.text)) is None:
        return bare
    rendered = _Writer(goes_on=goes_on).write(tokens)
    return rendered if text.visible(rendered.text) else bare


@dataclass(eq=False)
class _Writer:
    _: KW_ONLY
    goes_on: bool
    _pieces: list[str] = field(default_factory=list)
    _at: int = 0
    _entities: list[Entity] = field(default_factory=list)
    _open: list[tuple[str, int]] = field(default_factory=list)  # Type and offset of each open style
    _link: tuple[str, int, int] | None = None  # Address, offset and first entity of the open link
    _depth: int = 0  # Nesting depth of lists
    _prefix: str = ""  # Bullets to write before the next text
    _box: str = ""
    _line: int = -1
    _quotes: int = 0

    def write(self, tokens: Sequence[Token]) -> Rendered:
        at = 0
        while at < len(tokens):
            if tokens[at].type == "table_open":
                end = next(i for i in range(at, len(tokens)) if tokens[i].type == "table_close")
                self._start_line(tokens[at], indent=False)
                self._pre(_table(tokens[at:end]))
                at = end
            else:
                self._block(tokens[at], tokens[at : at + 3])
            at += 1
        shown = "".join(self._pieces).rstrip()
        end = text.utf16_len(shown)
        verbatim = [entity for entity in self._entities if entity.type in {"code", "pre"}]
        found: list[Entity] = []
        for entity in self._entities:
            kept = replace(entity, length=min(entity.end, end) - entity.offset)
            styled = kept.type in STYLES.values() or kept.type == SPOILER
            found += _around(kept, verbatim) if styled else [kept]
        found = [entity for entity in found if entity.length > 0]
        return Rendered(shown, tuple(sorted(found, key=lambda entity: (entity.offset, -entity.length))))

    # -- writing ---------------------------------------------------------------------------------------------

    def _put(self, said: str) -> None:
        self._pieces.append(said)
        self._at += text.utf16_len(said)

    def _mark(self, kind: str, start: int, *, url: str | None = None, language: str | None = None) -> None:
        self._entities.append(Entity(kind, start, self._at - start, url, language))

    def _begin(self, kind: str) -> None:
        self._open.append((kind, self._at))

    def _end(self, kind: str) -> None:
        _, start = self._open.pop()
        if all(other != kind for other, _ in self._open):
            self._mark(kind, start)

    def _pre(self, content: str, language: str | None = None) -> None:
        start = self._at
        self._put(content)
        if content.strip():
            self._mark("pre", start, language=language)

    def _code(self, content: str) -> None:
        start = self._at
        self._put(content)
        if content.strip() and self._link is None:
            self._mark("code", start)

    def _start_line(self, token: Token, *, indent: bool = True) -> None:
        """Write the source's line breaks, but at most one blank line. Then write the bullet or the indentation."""
        first, last = token.map or (self._line, self._line)
        if self._pieces and self._line >= 0:
            self._put("\n\n" if first > self._line else "\n")
        self._line = last
        if self._prefix:
            self._put(self._prefix)
            self._prefix = ""
        elif indent:
            self._put("  " * self._depth)

    # -- tokens ----------------------------------------------------------------------------------------------

    def _block(self, token: Token, following: Sequence[Token]) -> None:  # noqa: C901, PLR0912 - one case a token
        """Render one token of a block. `following` are this token and the next two."""
        match token.type:
            case "inline":
                self._inlines(token.children or [])
            case "fence" | "code_block":
                begun, self._prefix = bool(self._prefix), self._prefix.rstrip()
                self._start_line(token, indent=False)
                if begun:
                    self._put("\n")
                language = _LANGUAGE.match(token.info.strip())
                self._pre(token.content.rstrip("\n"), language and language.group())
            case "hr":
                self._start_line(token)
                self._put(RULE)
            case "paragraph_open" | "heading_open":
                self._start_line(token)
                if token.type == "heading_open":
                    self._begin("bold")
            case "heading_close":
                self._end("bold")
            case "blockquote_open":
                self._quotes += 1
                if self._quotes == 1:
                    self._start_line(token, indent=False)
                    self._line = -1  # the quote's text begins on this line
                    self._begin("blockquote")
            case "blockquote_close":
                self._quotes -= 1
                if self._quotes == 0:
                    self._end("blockquote")
            case "list_item_open":
                inline = (
                    following[2].children if len(following) > 2 and following[2].type == "inline" else None
                )
                first = inline[0].content if inline and inline[0].type == "text" else ""
                is_task = inline and (len(first) > 4 or len(inline) > 1)
                self._box = _BOXES.get(first[:4], "") if is_task else ""
                mark = f"{token.info}{token.markup} " if token.info else BULLETS[min(self._depth, 2)]
                if self._box:
                    mark = f"{mark}{self._box}" if token.info else self._box
                self._prefix += mark if self._prefix else "  " * self._depth + mark
                self._depth += 1
            case "list_item_close":
                if self._prefix:
                    self._put(("\n" if self._pieces else "") + self._prefix)
                    self._prefix = ""
                    self._line = max(self._line, 0)
                self._depth -= 1

    def _inlines(self, children: Sequence[Token]) -> None:
        hidden = _spoilers(children, goes_on=self.goes_on)
        for at, child in enumerate(children):
            if at not in hidden:
                self._inline(child)
                continue
            done, self._box = 4 if self._box else 0, ""
            for mark in hidden[at]:  # the beginning or end of a spoiler
                self._put(child.content[done:mark])
                done = mark + 2
                inside = any(kind == SPOILER for kind, _ in self._open)
                self._end(SPOILER) if inside else self._begin(SPOILER)
            self._put(child.content[done:])
        if any(kind == SPOILER for kind, _ in self._open):
            self._end(SPOILER)

    def _inline(self, token: Token) -> None:
        kind, _, edge = token.type.partition("_")
        if kind in STYLES and edge:
            (self._begin if edge == "open" else self._end)(STYLES[kind])
            return
        match token.type:
            case "code_inline":
                self._code(token.content)
            case "softbreak" | "hardbreak":
                self._put("\n" + "  " * self._depth)
            case "link_open":
                self._link = (str(token.attrGet("href") or ""), self._at, len(self._pieces))
            case "link_close":
                self._link_close()
            case "image":
                label, url = _words(token.children or ()), str(token.attrGet("src") or "")
                self._put(label)
                if self._link is None or not label:
                    self._put(" " if label and url else "")
                    self._code(url)
            case _:
                content = token.content[4:] if self._box else token.content
                self._box = ""
                self._put(content if self._link is None else text.without_direction(content))

    def _link_close(self) -> None:
        url, start, piece = self._link or ("", self._at, len(self._pieces))
        self._link = None
        label = "".join(self._pieces[piece:])
        if _LINK.match(url):
            if not label.strip():
                self._put(url)
            self._mark("text_link", start, url=url)
            if (host := text.real_host(label, url)) is not None:
                self._put(f" ({host})")
        elif url and label != url.removeprefix("mailto:"):
            # Telegram accepts only web addresses as links, so other addresses are written as text.
            self._put(" " if label else "")
            self._code(url)


def _words(tokens: Sequence[Token]) -> str:
    """Return inline tokens as plain text, with each link's address after its label."""
    words: list[str] = []
    href = ""
    for token in tokens:
        if token.type == "image":
            words.append(f"{_words(token.children or ())} {token.attrGet('src') or ''}".strip())
        elif token.type == "link_open":
            href = str(token.attrGet("href") or "")
        elif token.type == "link_close":
            if href and words[-1:] != [href]:
                words.append(f" ({href})")
        else:
            words.append(" " if token.type in {"softbreak", "hardbreak"} else token.content)
    return "".join(words)


def _spoilers(children: Sequence[Token], *, goes_on: bool) -> dict[int, list[int]]:
    """Return the offsets of the `||` around spoilers, by the index of their token. Both marks of a pair have the same depth
    of nesting. The first stands before a word, the second after a word. Pairs inside a spoiler are ignored.
    """
    pairs: list[tuple[tuple[int, int], ...]] = []
    begun: list[tuple[int, int] | None] = [None]
    for at, child in enumerate(children):
        if child.nesting:
            begun = [*begun, None] if child.nesting > 0 else begun[:-1]
        for mark in _SPOILER.finditer(child.content if child.type == "text" else ""):
            before, after = child.content[: mark.start()], child.content[mark.end() :]
            if (first := begun[-1]) is None:
                if after[:1].strip() or (not after and at + 1 < len(children)):
                    begun[-1] = (at, mark.start())
            elif before[-1:].strip() or (not before and at):
                pairs.append((first, (at, mark.start())))
                begun[-1] = None
    if goes_on and (first := begun[0]) is not None:
        pairs.append((first,))
    return _outermost(pairs)


def _outermost(pairs: Sequence[tuple[tuple[int, int], ...]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    end = (-1, 0)
    for pair in sorted(pairs):
        if pair[0] > end:
            end = pair[-1]
            for piece, place in pair:
                found.setdefault(piece, []).append(place)
    return found


def _around(entity: Entity, holes: Sequence[Entity]) -> list[Entity]:
    """Return the parts of the span `entity` outside the code spans `holes`, because Telegram does not allow styles in code."""
    pieces: list[Entity] = []
    start = entity.offset
    for hole in holes:
        if hole.offset < entity.end and hole.end > start:
            pieces.append(replace(entity, offset=start, length=hole.offset - start))
            start = hole.end
    pieces.append(replace(entity, offset=start, length=entity.end - start))
    return pieces


def _table(tokens: Sequence[Token]) -> str:
    rows: list[list[str]] = []
    sides: list[str] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "th_open":
            sides.append(str(token.attrGet("style") or "").removeprefix("text-align:"))
        elif token.type == "inline":
            rows[-1].append(_words(token.children or ()))
    columns = max(map(len, rows))
    rows = [row + [""] * (columns - len(row)) for row in rows]
    sides += [""] * (columns - len(sides))
    widths = [max(text.width(row[at]) for row in rows) for at in range(columns)]
    rule = ["-+-".join("-" * size for size in widths)]
    if len(rule[0]) > WIDEST:
        widths, rule = [0] * columns, []
    lines = [" | ".join(map(_padded, row, widths, sides)).rstrip() for row in rows]
    return "\n".join([lines[0], *rule, *lines[1:]])


def _padded(cell: str, size: int, side: str) -> str:
    room = max(0, size - text.width(cell))
    before = {"right": room, "center": room // 2}.get(side, 0)
    return " " * before + cell + " " * (room - before)
