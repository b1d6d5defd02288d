"""Divides code into tokens with Pygments. Each token has one of a few classes, which the page's stylesheet colours."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import lru_cache

from pygments.lexers import find_lexer_class, get_all_lexers
from pygments.token import Comment, Generic, Keyword, Literal, Name, Operator, Token, _TokenType

MOST = 20_000  # Max characters of a block that get colours. The rest stays plain.
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
"""Exceptions that faulty rules of a language raise. The rest of the block then stays plain."""
_CLASSES = {
    Comment: "c",
    Comment.Preproc: "k",
    Generic.Deleted: "d",
    Generic.Error: "d",
    Generic.Heading: "f",
    Generic.Inserted: "i",
    Generic.Output: "c",
    Generic.Prompt: "c",
    Generic.Subheading: "f",
    Generic.Traceback: "d",
    Keyword: "k",
    Keyword.Constant: "n",
    Keyword.Type: "t",
    Literal: "n",
    Literal.String: "s",
    Literal.String.Doc: "c",
    Literal.String.Interpol: "n",
    Name.Attribute: "t",
    Name.Builtin: "t",
    Name.Builtin.Pseudo: "n",
    Name.Class: "f",
    Name.Constant: "n",
    Name.Decorator: "f",
    Name.Entity: "n",
    Name.Exception: "t",
    Name.Function: "f",
    Name.Tag: "k",
    Name.Variable: "t",
    Operator.Word: "k",
    Token: "",
}
"""Class of each type of token. A type that is not in the table has the class of its parent type."""
CLASSES = frozenset(_CLASSES.values()) - {""}


@lru_cache(maxsize=1)
def names() -> dict[str, str]:
    """Return a table from each alias of a language to its name in Pygments."""
    known = [(name, aliases) for name, aliases, _, _ in get_all_lexers(plugins=False) if name in NAMES]
    return {alias: name for name, aliases in known for alias in aliases}


def label(language: str) -> str:
    name = names().get(language.lower(), language)
    return _LABELS.get(name, name)


def divided(code: str, language: str, seconds: float = SECONDS) -> list[tuple[str, str]]:
    """Return the code in pieces, as pairs of class and text. Plain text has the class ""."""
    found: list[tuple[str, str]] = []
    for kind, words in _tokens(code, language, seconds):
        if found and (found[-1][0] == kind or not words.strip()):
            kind, words = found[-1][0], found.pop()[1] + words  # noqa: PLW2901 - one text of one class
        found.append((kind, words))
    return found


def _tokens(code: str, language: str, seconds: float) -> Iterator[tuple[str, str]]:
    name, at, end = names().get(language.lower()), 0, min(MOST, len(code))
    if name is not None and max(map(len, code.split("\n"))) <= LONGEST_LINE:
        with contextlib.suppress(*_FAILURES):
            # Some languages find the end of a line only by its line break, so one is appended.
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
    while kind not in _CLASSES:
        kind = kind.parent
    return _CLASSES[kind]
