"""Checks the project's folder, and the settings in ship.json that concern tools, such as permission rules."""

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
from bot.tools.permissions.patterns import Paths, RuleMalformed, glob
from bot.tools.permissions.protected_code import protected_code
from bot.tools.permissions.rules import CORE, Outcome, check, parse


def warnings(root: Path, skills: Skills) -> Iterator[str]:
    """Yield warnings about settings that are valid but may surprise the operator."""
    for index, path in enumerate(skills.paths):
        if not (root / path).is_dir():
            key = f"skills.paths[{index}]"
            yield finding(key, shown(path), "a folder that is there", "make it, or take it out")
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
                _check_tool_name(parsed.tool, file.mcp.servers)
                check(parsed, outcome, paths)
            except RuleMalformed as error:
                yield finding(f"permissions.{outcome}[{index}]", shown(text), error.expected, error.mend)
    names = [name for name, server in file.mcp.servers.items() if server.enabled]
    if names and importlib.util.find_spec("mcp") is None:
        yield finding(
            "mcp.servers",
            f"{len(names)} that are on, and no library for them",
            "the Python package mcp",
            "run `pip install 'mcp>=2.3,<3' 'jsonschema>=4.25,<5'`, or set enabled to false",
        )


def _check_tool_name(written: str, servers: Collection[str]) -> None:
    name = folded(written)
    if not name.startswith(MCP):
        if any(map(glob(written), CORE)) or ("*" in name and glob(name)(MCP)):
            return
        near = difflib.get_close_matches(name, CORE, n=1, cutoff=0.5)
        mend = f'did you mean "{near[0]}"?' if near else f"the tools are {', '.join(CORE)}"
        raise RuleMalformed("the name of a tool, or of one of an MCP server as in mcp__server__tool", mend)
    server, _, tool = name.removeprefix(MCP).partition("__")
    if server.strip("*") and not any(map(glob(server), map(folded, servers))):
        mend = " or ".join(f"{MCP}{one}__" for one in servers) or "to add it there"
        raise RuleMalformed("a tool of a server in mcp.servers", f"did you mean {mend}?")
    if not tool and "*" not in server:
        raise RuleMalformed("mcp__server__tool", f"for all tools write {MCP}{server and f'{server}__'}*")
