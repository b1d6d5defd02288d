"""Checks the rules in ship.json; one line for each mistake."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from bot.config.findings import finding, shown
from bot.config.ship_file import ShipFile
from bot.tools.permissions.defaults import CORE, MCP
from bot.tools.permissions.globs import glob
from bot.tools.permissions.grammar import ParsedRule, RuleMalformed, parse
from bot.tools.permissions.paths import Paths
from bot.tools.permissions.rules import check
from bot.tools.permissions.subject import Outcome


def mistakes(file: ShipFile) -> Iterator[str]:
    """Yield the mistakes in `permissions`."""
    lists: tuple[tuple[Outcome, Sequence[str]], ...] = (
        ("allow", file.permissions.allow),
        ("ask", file.permissions.ask),
        ("deny", file.permissions.deny),
    )
    for outcome, rules in lists:
        yield from _findings(outcome, rules)


def _findings(outcome: Outcome, rules: Sequence[str]) -> Iterator[str]:
    """Yield the mistakes in one of the three lists."""
    # Their form is judged alone: where a path leads is no matter of the configuration.
    paths = Paths("/", lambda _: None)
    for index, text in enumerate(rules):
        try:
            parsed = parse(text)
            _known(parsed)
            check(parsed, outcome, paths)
        except RuleMalformed as error:
            yield finding(f"permissions.{outcome}[{index}]", shown(text), error.expected, error.mend)


def _known(parsed: ParsedRule) -> None:
    """Raises `RuleMalformed` where a rule names no tool: misspelt, it would never hold."""
    name = parsed.tool
    if name.startswith(MCP) or any(map(glob(name), CORE)) or ("*" in name and glob(name)(MCP)):
        return
    near = difflib.get_close_matches(name.lower(), CORE, n=1, cutoff=0.5)
    mend = f'did you mean "{near[0]}"?' if near else f"the tools are {', '.join(CORE)}"
    raise RuleMalformed("the name of a tool, or of one of an MCP server as in mcp__server__tool", mend)
