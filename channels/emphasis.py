"""Relaxes the rules of Markdown emphasis for scripts without spaces between words.

CommonMark lets `**` close behind punctuation only where a space or more punctuation follows, so that in Chinese
and Japanese, which have neither, `**重要：**请看` would show its marks.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, emphasis, strikethrough

Rule = Callable[[StateInline, bool], bool]


def relaxed(parser: MarkdownIt) -> MarkdownIt:
    """The parser, with marks that also open and close between punctuation and a wide letter."""
    parser.inline.ruler.at("emphasis", _relaxed(emphasis.tokenize))
    parser.inline.ruler.at("strikethrough", _relaxed(strikethrough.tokenize))
    return parser


def _relaxed(rule: Rule) -> Rule:
    def relaxed_rule(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the library calls it so
        start, known = state.pos, len(state.delimiters)
        found = rule(state, silent)
        fresh = state.delimiters[known:]
        if fresh and state.src[start] != "_":
            before = state.src[start - 1] if start else " "
            after = state.src[state.pos] if state.pos < state.posMax else " "
            for delimiter in fresh:
                delimiter.open = delimiter.open or (_is_wide(before) and _is_punctuation(after))
                delimiter.close = delimiter.close or (_is_punctuation(before) and _is_wide(after))
        return found

    return relaxed_rule


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in {"W", "F"}


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] in {"P", "S"}
