"""Checks the parts of ship.json that only the tools can judge: rules, MCP servers, and the folder itself."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from bot.config.findings import finding, shown
from bot.config.ship_file import ShipFile, Skills
from bot.contracts.tools import MCP
from bot.invocation import command
from bot.tools.permissions.defaults import CORE
from bot.tools.permissions.globs import glob
from bot.tools.permissions.grammar import ParsedRule, RuleMalformed, parse
from bot.tools.permissions.paths import Paths
from bot.tools.permissions.protected_code import protected_code
from bot.tools.permissions.rules import check
from bot.tools.permissions.subject import Outcome

MCP_LIBRARY = "mcp"


def warnings(root: Path, skills: Skills) -> Iterator[str]:
    """Yield warnings about settings that work, but not as one might expect."""
    for index, path in enumerate(skills.paths):
        if not (root / path).is_dir():
            yield finding(
                f"skills.paths[{index}]", shown(path), "a folder that is there", "make it, or take it out"
            )
    if protected_code(root).closed:
        yield (
            "this folder is part of Shipmate's own code or holds it, so tools that write and commands are refused here; "
            f"{command('run --dir DIR', Path())} takes another one"
        )


def mistakes(file: ShipFile) -> Iterator[str]:
    """One line for each fault."""
    rules = file.permissions
    yield from _of_rules("allow", rules.allow)
    yield from _of_rules("ask", rules.ask)
    yield from _of_rules("deny", rules.deny)
    names = [name for name, server in file.mcp.servers.items() if server.enabled]
    if names and importlib.util.find_spec(MCP_LIBRARY) is None:
        yield finding(
            "mcp.servers",
            f"{len(names)} that are on, and no library for them",
            f"the Python package {MCP_LIBRARY}",
            "run `pip install 'shipmate[mcp]'`, or set enabled to false",
        )


def _of_rules(outcome: Outcome, rules: Sequence[str]) -> Iterator[str]:
    """Yield the mistakes in one of the three lists."""
    # Their form is judged alone: where a path leads is no matter of the configuration.
    paths = Paths("/", lambda _: None)
    for index, text in enumerate(rules):
        try:
            parsed = parse(text)
            _check_tool_name(parsed)
            check(parsed, outcome, paths)
        except RuleMalformed as error:
            yield finding(f"permissions.{outcome}[{index}]", shown(text), error.expected, error.mend)


def _check_tool_name(parsed: ParsedRule) -> None:
    """Raises `RuleMalformed` where a rule names no tool: misspelt, it would never hold."""
    name = parsed.tool
    if name.startswith(MCP) or any(map(glob(name), CORE)) or ("*" in name and glob(name)(MCP)):
        return
    near = difflib.get_close_matches(name.lower(), CORE, n=1, cutoff=0.5)
    mend = f'did you mean "{near[0]}"?' if near else f"the tools are {', '.join(CORE)}"
    raise RuleMalformed("the name of a tool, or of one of an MCP server as in mcp__server__tool", mend)
