"""Extracts the text of a page: headings, lists and links, without scripts and styles, in linear time."""

from __future__ import annotations

import re
from urllib.parse import urljoin

from bot.text import unescaped

_DROPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "iframe", "object", "textarea", "select"}
)
_BREAKS = frozenset(
    {
        "p",
        "div",
        "br",
        "li",
        "ul",
        "ol",
        "tr",
        "table",
        "section",
        "article",
        "header",
        "footer",
        "main",
        "nav",
        "aside",
        "blockquote",
        "pre",
        "hr",
        "dt",
        "dd",
        "dl",
        "figure",
        "figcaption",
        "form",
        "title",
        "body",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
    }
)
_BEFORE = {"li": "- ", "td": " | ", "th": " | "} | {f"h{level}": "#" * level + " " for level in range(1, 7)}
_NAME = re.compile(r"</?([A-Za-z][A-Za-z0-9-]*)")
_HREF = re.compile(r"""(?i)\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
LONGEST_TAG = 4_000
"""Characters of a tag that are looked at for a link."""
LINKS = 300
"""Links that keep their address."""


def text_of(page: str, address: str) -> str:
    """The text of a page, its links with their full addresses."""
    return _Reading(page, address).text()


class _Reading:
    def __init__(self, page: str, address: str) -> None:
        self._page = page
        # Of the same length, whatever else is in it.
        self._lower = page.translate(_LOWER)
        self._address = address
        self._out: list[str] = []
        self._link: str | None = None
        self._links = 0

    def text(self) -> str:
        at = 0
        while (begin := self._page.find("<", at)) >= 0:
            self._say(self._page[at:begin])
            at = self._tag(begin)
            if at < 0:
                break
        else:
            self._say(self._page[at:])
        lines = (" ".join(line.split()) for line in "".join(self._out).split("\n"))
        shown: list[str] = []
        for line in lines:
            if line.strip("-#| ") or (shown and shown[-1]):
                shown.append(line if line.strip("-#| ") else "")
        return "\n".join(shown).strip()

    def _say(self, words: str) -> None:
        if words:
            self._out.append(unescaped(words.replace("\n", " ").replace("\r", " ")))

    def _tag(self, begin: int) -> int:
        """Take a tag; where the page goes on behind it, -1 where it does not."""
        if self._page.startswith("<!--", begin):
            end = self._page.find("-->", begin + 4)
            return end + 3 if end >= 0 else -1
        found = _NAME.match(self._lower, begin)
        if found is None and self._page[begin + 1 : begin + 2] not in {"!", "?"}:
            self._say("<")
            return begin + 1
        end = self._page.find(">", begin)
        if end < 0:
            return -1
        if found is None:
            return end + 1
        name, closing = found[1], self._page[begin + 1] == "/"
        if name in _DROPPED and not closing:
            end = self._lower.find(f"</{name}", end)
            end = self._page.find(">", end) if end >= 0 else -1
            return end + 1 if end >= 0 else -1
        self._mark(name, self._page[begin : min(end, begin + LONGEST_TAG)], closing=closing)
        return end + 1

    def _mark(self, name: str, tag: str, *, closing: bool) -> None:
        if name in _BREAKS:
            self._out.append("\n")
        if closing:
            if name == "a" and self._link is not None:
                self._out.append(f" <{self._link}>")
                self._link = None
            return
        self._out.append(_BEFORE.get(name, ""))
        if name == "a":
            self._link = self._target(tag)

    def _target(self, tag: str) -> str | None:
        found = _HREF.search(tag)
        named = unescaped((found[1] or found[2] or found[3] or "").strip()) if found is not None else ""
        if not named or named.startswith("#") or self._links >= LINKS:
            return None
        try:
            whole = urljoin(self._address, named)
        except ValueError:
            return None
        if not whole.startswith(("http://", "https://")) or any(sign in whole for sign in " <>\n\t"):
            return None
        self._links += 1
        return whole
