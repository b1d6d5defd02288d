"""Measures how long a permission check delays a tool call, with 1,000 rules over 20 tools."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bot.contracts.identity import ChatKey
from bot.system import read_link
from bot.tools.permissions.grammar import Call, PolicyContext, Subject
from bot.tools.permissions.matching import Paths
from bot.tools.permissions.rules import Rules

RULES, TOOLS, CALLS = 1_000, 20, 2_000
FILES = ("read_file", "write_file", "edit_file", "search_files")
NOW = PolicyContext(datetime(2026, 11, 20, 12, tzinfo=UTC))
WHO = [Subject("slack", "U1", "member", ChatKey.parse("slack:chat:C1:thread:10"))]


def judging(folder: Path) -> tuple[float, float]:
    """Return the milliseconds to check one call: with rules indexed by tool, and with a scan of the text of every rule."""
    names = [*FILES, "run_shell", "web_fetch", *(f"mcp__server__tool{number}" for number in range(TOOLS - 6))]
    lists: dict[str, list[str]] = {"allow": [], "ask": [], "deny": []}
    for number in range(RULES):
        tool = names[number % TOOLS]
        inside = {"run_shell": f"make target{number} *", "web_fetch": f"host{number}.example.org/a/*"}.get(
            tool, f"src/part{number}/" if tool in FILES else f"*, arg.name~=x{number}*"
        )
        lists[("allow", "ask", "deny")[number // TOOLS % 3]].append(f"{tool}({inside})")
    rules = Rules(Paths(str(folder), read_link), **lists)
    calls = [
        Call(
            name,
            {"path": "src/a/b.py", "command": "make all", "url": "https://a.org/", "name": "y"},
            frozenset({"write"}),
        )
        for name in names
    ]
    every = [rule for rules_of in lists.values() for rule in rules_of]
    return (
        _each(lambda at: rules.judge(calls[at % TOOLS], WHO, NOW)),
        _each(lambda at: [rule for rule in every if rule.startswith(f"{calls[at % TOOLS].tool}(")]),
    )


def _each(judge: Callable[[int], object]) -> float:
    for at in range(TOOLS):
        judge(at)
    began = time.perf_counter()
    for at in range(CALLS):
        judge(at)
    return (time.perf_counter() - began) * 1000 / CALLS
