"""Parses Markdown, within limits of time and depth. The parser is used for long code and tables in answers, and by channels that
render Markdown themselves.

Three things differ from CommonMark. If a table row has more cells than the table has columns, the last cell contains
the surplus text, since models forget to escape `|`. Emphasis follows `bot.text.emphasis`: `2*3*4` and `__init__.py`
keep their characters, and `**重要：**请看` is bold. Slack's syntax `<https://…|label>` is a link.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import escapedSplit, getLine, table
from markdown_it.rules_inline import StateInline, emphasis, strikethrough
from markdown_it.token import Token

from bot import text

Rule = Callable[[StateInline, bool], bool]


def _relaxed(rule: Rule) -> Rule:
    """Return the parser's rule, changed so that `bot.text.emphasis` decides where emphasis begins and ends."""

    def relaxed_rule(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the library's signature
        start, known = state.pos, len(state.delimiters)
        found = rule(state, silent)
        for delimiter in state.delimiters[known:]:
            delimiter.open, delimiter.close = text.emphasis(state.src, start, state.pos)
        return found

    return relaxed_rule


_SLACK_LINK = re.compile(r"<(https?://[^<>|\s]{1,2000})\|([^<>\n]{1,500})>", re.IGNORECASE)


def _slack_link(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the library's signature
    found = _SLACK_LINK.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("link_open", "a", 1).attrs = {"href": found[1]}
        state.tokens.append(Token("text", "", 0, content=found[2], level=state.level))
        state.push("link_close", "a", -1)
    state.pos = found.end()
    return True


def _whole_table(state: StateBlock, first: int, last: int, silent: bool) -> bool:  # noqa: FBT001 - the library's signature
    known = len(state.tokens)
    found = table(state, first, last, silent)
    row: list[int] = []
    for at, token in enumerate(state.tokens[known:], known):
        if token.type == "tr_open":
            row = []
        elif token.type == "inline":
            row.append(at)
        elif token.type == "tr_close":
            cell = state.tokens[row[-1]]
            assert cell.map is not None  # noqa: S101 - the parser sets it
            # Split the row in the same way as the parser splits it.
            cells = escapedSplit(getLine(state, cell.map[0]).strip(" \t\n"))
            begins, ends = cells[0] == "", len(cells) > 1 and cells[-1] == ""
            cells = [one.strip() for one in cells[begins : len(cells) - ends]]
            if len(cells) > len(row):
                state.tokens[row[-1]] = cell.copy(content=" | ".join(cells[len(row) - 1 :]))
    return found


PARSED = 16_384
"""Max characters of a text that is parsed. Channels show a longer text without formatting."""
BRACKETS = 800
"""Max number of `[` in a text that is parsed, since the parser's time is quadratic in that number."""
CELLS = 20_000
"""Max table cells in a text that is parsed, since the parser fills up each row to the width of its table."""
DEEPEST = 60
"""Max levels of nesting. The parser drops deeper text, so a text with this many levels is shown unformatted."""
DEEPEST_SPAN = 100  # Max levels of nested emphasis, since the page's nodes are built recursively


def parser() -> MarkdownIt:
    """Return a parser of the Markdown that models write. Link definitions are plain text, since the parser would drop
    definitions that no link uses.
    """
    made = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST}).enable(["table", "strikethrough"])
    made.inline.ruler.before("autolink", "slack_link", _slack_link)
    made.inline.ruler.at("emphasis", _relaxed(emphasis.tokenize))
    made.inline.ruler.at("strikethrough", _relaxed(strikethrough.tokenize))
    made.block.ruler.at("table", _whole_table, {"alt": ["paragraph", "reference"]})
    # The renderer, not the parser, decides which addresses become links.
    made.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005
    return made.disable("reference")


_PARSER = parser()


def parse(said: str, *, most: int = PARSED) -> list[Token] | None:
    """Return the tokens of a text. Return None if parsing would take too long or lose text. The text must then be shown
    without formatting.
    """
    if len(said) > most or said.count("[") > BRACKETS:
        return None
    widths = (line.count("|") + 1 for line in said.split("\n") if "-" in line and not line.strip(" \t\r>|:-"))
    # Upper bound on the number of cells: treat each line as a row of the widest table.
    if max(widths, default=0) * (said.count("\n") + 1) > CELLS:
        return None
    tokens = _PARSER.parse(said)
    spans = (span.level for token in tokens for span in token.children or ())
    deep = (
        max((token.level for token in tokens), default=0) > DEEPEST - 4
        or max(spans, default=0) > DEEPEST_SPAN
    )
    return None if deep else tokens
