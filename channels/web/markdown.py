"""Converts Markdown to nodes, from which the page creates elements. A node is a text or `[tag, attributes, *children]`. The
page never gets HTML. Pygments divides code into tokens, and the page's stylesheet colours them.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from markdown_it.tree import SyntaxTreeNode
from pygments.lexers import find_lexer_class, get_all_lexers
from pygments.token import Comment, Generic, Keyword, Literal, Name, Operator, _TokenType
from pygments.token import Token as AnyToken

from bot import text
from bot.markdown import parse

MOST_COLOURED = 20_000  # Max characters of a code block that get colours. The rest of the block stays plain.
LONGEST_LINE = 1_000
"""Max characters of a line. A block with a longer line stays plain, because some lexers take quadratic time."""
SECONDS = 0.05  # Max seconds to find the tokens of a block. The rest of the block stays plain.
_NAMES = (
    "Awk;Bash;Bash Session;Batchfile;C;C#;C++;CMake;CSS;Clojure;Common Lisp;Dart;Diff;Docker;Elixir;Erlang;F#;Fish;Go;"
    "GraphQL;Groovy;HTML;HTTP;Haskell;INI;JSON;JSX;Java;JavaScript;Julia;Kotlin;Lua;Makefile;Nginx configuration file;"
    "Nix;OCaml;Objective-C;PHP;Perl;PowerShell;Properties;Protocol Buffer;Python;Python console session;Ruby;Rust;S;"
    "SCSS;SQL;Scala;Swift;TOML;TSX;TeX;Terraform;TypeScript;VimL;XML;YAML;Zig"
)
NAMES = frozenset(_NAMES.split(";"))  # Languages that get colours, by their names in Pygments
_LABELS = {"Protocol Buffer": "Protobuf", "S": "R", "VimL": "Vim script"}
_FAILURES = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Exceptions that Pygments may raise because of faulty rules of a language. The rest of the block then stays plain."""
_Text = Literal.String
CLASSES = {
    kind: name
    for name, kinds in {
        "c": (Comment, Generic.Output, _Text.Doc),
        "d": (Generic.Deleted, Generic.Error, Generic.Traceback),
        "f": (Generic.Heading, Generic.Subheading, Name.Class, Name.Decorator, Name.Function),
        "i": (Generic.Inserted,),
        "k": (Comment.Preproc, Generic.Prompt, Keyword, Name.Tag, Operator.Word),
        "n": (Keyword.Constant, Literal, _Text.Interpol, Name.Builtin.Pseudo, Name.Constant, Name.Entity),
        "s": (_Text,),
        "t": (Keyword.Type, Name.Attribute, Name.Builtin, Name.Exception, Name.Variable),
        "": (AnyToken,),
    }.items()
    for kind in kinds
}
"""CSS class of each type of token. A type that is not in the table has the class of its parent type."""


@lru_cache(maxsize=1)
def names() -> dict[str, str]:
    """Return a table from each alias of a language to its name in Pygments."""
    known = [(name, aliases) for name, aliases, _, _ in get_all_lexers(plugins=False) if name in NAMES]
    return {alias: name for name, aliases in known for alias in aliases}


def label(language: str) -> str:
    name = names().get(language.lower(), language)
    return _LABELS.get(name, name)


def divided(code: str, language: str, seconds: float = SECONDS) -> list[tuple[str, str]]:
    """Divide code into pieces. Return (class, text) of each piece; plain text has the class ""."""
    found: list[tuple[str, str]] = []
    for kind, words in _tokens(code, language, seconds):
        if found and (found[-1][0] == kind or not words.strip()):
            kind, words = found[-1][0], found.pop()[1] + words  # noqa: PLW2901 - join neighbours of the same class
        found.append((kind, words))
    return found


def _tokens(code: str, language: str, seconds: float) -> Iterator[tuple[str, str]]:
    name, at, end = names().get(language.lower()), 0, min(MOST_COLOURED, len(code))
    if name is not None and max(map(len, code.split("\n"))) <= LONGEST_LINE:
        with contextlib.suppress(*_FAILURES):
            # Append a line break, because the rules of some languages find the end of a line only by its line break.
            tokens = find_lexer_class(name)().get_tokens_unprocessed(code[:end] + "\n")
            until = time.thread_time() + seconds
            for start, kind, words in tokens:
                if start != at or start >= end or time.thread_time() > until:
                    break
                yield _class(kind), words[: end - start]
                at = min(start + len(words), end)
    if at < len(code):
        yield "", code[at:]


@lru_cache(maxsize=512)
def _class(kind: _TokenType) -> str:
    while kind not in CLASSES:
        kind = kind.parent
    return CLASSES[kind]


MOST = 32_768  # Max characters that are parsed. Every message is shorter.
Node = Any

_SAME = ("blockquote", "table", "thead", "tbody", "tr", "th", "td", "em", "strong", "s")
TAGS = dict(paragraph="p", bullet_list="ul", ordered_list="ol", list_item="li", **{tag: tag for tag in _SAME})
"""HTML tag of each type of Markdown token."""
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
        lines = said.strip("\n").split("\n")
        found = [node for line in lines for node in (["br", {}], *_with_links(line))]
        return [["p", {}, *found[1:]]]
    return _made(SyntaxTreeNode(tokens))


def _made(tree: SyntaxTreeNode, *, in_link: bool = False) -> list[Node]:
    kind = tree.type
    if not tree.is_nested and kind not in {"root", "inline"}:
        return _leaf(tree, in_link=in_link)
    children = [node for child in tree.children for node in _made(child, in_link=in_link or kind == "link")]
    if not tree.is_nested or (kind == "paragraph" and tree.hidden):
        return children
    if kind == "link":
        return _link(str(tree.attrGet("href") or ""), children)
    if kind == "heading":
        # The page itself has h1 and h2, so a message's headings begin at h3.
        return [[f"h{min(6, int(tree.tag[1]) + 2)}", {}, *children]]
    if kind == "list_item":
        return [["li", *_item(children)]]
    facts: dict[str, Any] = {}
    if kind == "ordered_list" and (start := tree.attrGet("start")) is not None:
        facts["start"] = int(start)
    if (style := str(tree.attrGet("style") or "")) in _SIDES:
        facts["side"] = _SIDES[style]
    return [[TAGS[kind], facts, *children]]


def _leaf(tree: SyntaxTreeNode, *, in_link: bool) -> list[Node]:
    match tree.type:
        case "fence" | "code_block":
            language = "".join(tree.info.split()[:1])[:40]
            pieces = divided(tree.content.rstrip("\n"), language)
            code = [["span", {"token": kind}, words] if kind else words for kind, words in pieces]
            return [["pre", {"language": label(language)} if language else {}, ["code", {}, *code]]]
        case "hr":
            return [["hr", {}]]
        case "softbreak" | "hardbreak":
            return [["br", {}]]
        case "code_inline":
            return [["code", {}, tree.content]]
        case "image":
            address = str(tree.attrGet("src") or "")
            words = "".join(child.content for child in tree.to_tokens()[0].children or ()) or address
            return [words] if in_link else _link(address, [words])
    return [text.without_direction(tree.content)] if in_link else _with_links(tree.content)


def _item(children: list[Node]) -> list[Node]:
    """Return the attributes and children of a list item. `[ ]` or `[x]` at the beginning becomes a check box."""
    if children and not isinstance(first := children[0], str) and first[0] == "p":
        facts, *words = _item(first[2:])
        return [facts, ["p", {}, *words], *children[1:]]
    if children and isinstance(first, str) and (task := _TASK.match(first)):
        rest = first[task.end() :]
        return [{"task": task[1] != " "}, *([rest] if rest else []), *children[1:]]
    return [{}, *children]


def _link(address: str, children: list[Node]) -> list[Node]:
    """Return a web link, with its host appended if the label looks like another host. Return any other address as code."""
    label = _words(children)
    if not _WEB.match(address):
        return [*children, " ", ["code", {}, address]] if address and label != address else children
    host = text.real_host(label, address)
    made: Node = ["a", {"href": address}, *(children if label.strip() else [address])]
    return [made] if host is None else [made, f" ({host})"]


def _with_links(said: str) -> list[Node]:
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


def _words(children: Sequence[Node]) -> str:
    return "".join(one if isinstance(one, str) else _words(one[2:]) for one in children)
