"""Converts Markdown to nodes, from which the page creates elements. A node is a text or `[tag, attributes, *children]`. The
page never gets HTML.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from markdown_it.token import Token

from bot import text
from bot.markdown import parse
from channels.web.code_colours import divided, label

MOST = 32_768  # Max characters that are parsed. Every message is shorter.
Node = Any

TAGS = {
    "paragraph": "p",
    "blockquote": "blockquote",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
    "em": "em",
    "strong": "strong",
    "s": "s",
}
_URL = re.compile(r"https?://[^\s<>\"'`]+", re.IGNORECASE)
_WEB = re.compile(r"https?://[^\s/?#]", re.IGNORECASE)
_TASK = re.compile(r"\[([ xX])\](?:\s+|$)")
_TRAILING = ".,;:!?*_~。，、；：！？)"
_SIDES = {"text-align:center": "center", "text-align:right": "right"}


@lru_cache(maxsize=256)
def nodes(said: str) -> Sequence[Node]:
    """Return the nodes of a message's Markdown. Takes up to 0.1 s, or longer for text that was made to be slow."""
    said = said.replace("\r\n", "\n").replace("\r", "\n")
    if (tokens := parse(said, most=MOST)) is None:
        return [["p", {}, *_lines(said)]]
    return _Tree().made_of(tokens)


class _Tree:
    """Builds the nodes in one pass over the Markdown tokens. `_open` is the stack of open elements. `_children` is the stack
    of their lists of children.
    """

    def __init__(self) -> None:
        self._open: list[Token] = []
        self._children: list[list[Node]] = [[]]
        self._links = 0

    def made_of(self, tokens: Sequence[Token]) -> list[Node]:
        for token in tokens:
            if token.type == "inline":
                self.made_of(token.children or ())
            elif token.nesting > 0:
                self._links += token.type == "link_open"
                self._open.append(token)
                self._children.append([])
            elif token.nesting < 0:
                self._links -= token.type == "link_close"
                children = self._children.pop()
                self._put(*_closed(self._open.pop(), children))
            else:
                self._put(*self._leaf(token))
        return self._children[0]

    def _put(self, *found: Node) -> None:
        self._children[-1].extend(found)

    def _leaf(self, token: Token) -> list[Node]:
        match token.type:
            case "fence" | "code_block":
                language = "".join(token.info.split()[:1])[:40]
                facts = {"language": label(language)} if language else {}
                return [["pre", facts, ["code", {}, *_coloured(token.content.rstrip("\n"), language)]]]
            case "hr":
                return [["hr", {}]]
            case "softbreak" | "hardbreak":
                return [["br", {}]]
            case "code_inline":
                return [["code", {}, token.content]]
            case "image":
                words = "".join(child.content for child in token.children or ()) or str(token.attrGet("src"))
                return [words] if self._links else _link(str(token.attrGet("src") or ""), [words])
            case _:
                return [text.without_direction(token.content)] if self._links else _with_links(token.content)


def _closed(opening: Token, children: list[Node]) -> list[Node]:
    kind = opening.type.removesuffix("_open")
    facts: dict[str, Any] = {}
    if kind == "link":
        return _link(str(opening.attrGet("href") or ""), children)
    if kind == "paragraph" and opening.hidden:
        return children
    if kind == "heading":
        # The page itself has h1 and h2, so a message's headings begin at h3.
        return [[f"h{min(6, int(opening.tag[1]) + 2)}", {}, *children]]
    if kind == "list_item":
        return [["li", *_item(children)]]
    if kind == "ordered_list" and opening.attrGet("start") is not None:
        facts["start"] = int(str(opening.attrGet("start")))
    if (style := str(opening.attrGet("style") or "")) in _SIDES:
        facts["side"] = _SIDES[style]
    return [[TAGS[kind], facts, *children]]


def _item(children: list[Node]) -> list[Node]:
    """Return the attributes and children of a list item. `[ ]` or `[x]` at the beginning becomes a check box."""
    if children and not isinstance(first := children[0], str) and first[0] == "p":
        facts, *words = _item(first[2:])
        return [facts, ["p", {}, *words], *children[1:]]
    if children and isinstance(first, str) and (task := _TASK.match(first)):
        rest = first[task.end() :]
        return [{"task": task[1] != " "}, *([rest] if rest else []), *children[1:]]
    return [{}, *children]


def _coloured(code: str, language: str) -> list[Node]:
    return [["span", {"token": kind}, words] if kind else words for kind, words in divided(code, language)]


def _link(address: str, children: list[Node]) -> list[Node]:
    """Return a web link, with its host appended if the label looks like another host. Return any other address as code."""
    label = _words(children)
    if not _WEB.match(address):
        return [*children, " ", ["code", {}, address]] if address and label != address else children
    host = text.real_host(label, address)
    made: Node = ["a", {"href": address}, *(children if label.strip() else [address])]
    return [made] if host is None else [made, f" ({host})"]


def _with_links(said: str) -> list[Node]:
    """Return a text with its bare web addresses as links."""
    found: list[Node] = []
    at = 0
    for match in _URL.finditer(said):
        address = match[0]
        while address[-1] in _TRAILING and (address[-1] != ")" or address.count(")") > address.count("(")):
            address = address[:-1]
        if not _WEB.match(address):
            continue
        found += [said[at : match.start()], *_link(address, [address])]
        at = match.start() + len(address)
    found.append(said[at:])
    return [one for one in found if one]


def _lines(said: str) -> list[Node]:
    found: list[Node] = []
    for line in said.strip("\n").split("\n"):
        found += [["br", {}], *_with_links(line)]
    return found[1:]


def _words(children: Sequence[Node]) -> str:
    return "".join(one if isinstance(one, str) else _words(one[2:]) for one in children)
