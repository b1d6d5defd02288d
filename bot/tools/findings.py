"""Checks the parts of ship.json that need the tools, such as permission rules, and the project's folder."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import get_args

from bot.config.document import finding, shown
from bot.config.ship_file import ShipFile, Skills
from bot.contracts.tools import MCP
from bot.invocation import command
from bot.text import folded
from bot.tools.permissions.defaults import CORE
from bot.tools.permissions.grammar import Outcome, ParsedRule, RuleMalformed, parse
from bot.tools.permissions.matching import Paths, glob
from bot.tools.permissions.protected_code import protected_code
from bot.tools.permissions.rules import check

MCP_LIBRARY = "mcp"


def warnings(root: Path, skills: Skills) -> Iterator[str]:
    """Yield warnings about settings that are valid but may surprise the operator."""
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
    """Yield one line for each invalid setting."""
    # Only the form of the rules is checked, so no links are read.
    paths = Paths("/", lambda _: None)
    for outcome in get_args(Outcome):
        for index, text in enumerate(getattr(file.permissions, outcome)):
            try:
                parsed = parse(text)
                _check_tool_name(parsed, file.mcp.servers)
                check(parsed, outcome, paths)
            except RuleMalformed as error:
                yield finding(f"permissions.{outcome}[{index}]", shown(text), error.expected, error.mend)
    names = [name for name, server in file.mcp.servers.items() if server.enabled]
    if names and importlib.util.find_spec(MCP_LIBRARY) is None:
        yield finding(
            "mcp.servers",
            f"{len(names)} that are on, and no library for them",
            f"the Python package {MCP_LIBRARY}",
            "run `pip install 'mcp>=2.3,<3' 'jsonschema>=4.25,<5'`, or set enabled to false",
        )


def _check_tool_name(parsed: ParsedRule, servers: Collection[str]) -> None:
    """Raise `RuleMalformed` if a rule names no existing tool, because such a rule would never match."""
    name = folded(parsed.tool)
    if name.startswith(MCP):
        _check_server(name.removeprefix(MCP), servers)
        return
    if any(map(glob(parsed.tool), CORE)) or ("*" in name and glob(name)(MCP)):
        return
    near = difflib.get_close_matches(name, CORE, n=1, cutoff=0.5)
    mend = f'did you mean "{near[0]}"?' if near else f"the tools are {', '.join(CORE)}"
    raise RuleMalformed("the name of a tool, or of one of an MCP server as in mcp__server__tool", mend)


def _check_server(name: str, servers: Collection[str]) -> None:
    """Raise `RuleMalformed` if a rule names a tool of an unknown MCP server; `name` is given without `mcp__`."""
    server, _, tool = name.partition("__")
    known = {folded(one): one for one in servers}
    if server.strip("*") and not any(map(glob(server), known)):
        near = difflib.get_close_matches(server, known, n=1, cutoff=0.5) or known
        mend = " or ".join(f"{MCP}{known[one]}__" for one in near)
        raise RuleMalformed("a tool of a server in mcp.servers", f"did you mean {mend or 'to add it there'}?")
    if not tool and "*" not in server:
        raise RuleMalformed("mcp__server__tool", f"for all tools write {MCP}{server and f'{server}__'}*")
