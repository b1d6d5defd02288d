"""Grammar of permission rules: `Tool`, `Tool(pattern)` or `Tool(pattern, condition)`. Each form may have the
prefix `@tag:`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bot import text

LONGEST = 1_000
TRUSTED = "trusted"
"""Tag of an allow rule that also applies while untrusted text is in the model's context."""
_RULE = re.compile(r"((?:@\w{1,40}:)*)([A-Za-z0-9_*-]{1,128})(?:\((.*)\))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedRule:
    """A parsed permission rule."""

    text: str
    tags: frozenset[str]
    tool: str
    pattern: str | None = None
    condition: str | None = None


class RuleMalformed(ValueError):
    """Raised for an invalid rule. `expected` describes the valid form; `mend` says how to correct the rule."""

    def __init__(self, expected: str, mend: str) -> None:
        super().__init__(f"expected {expected}; {mend}")
        self.expected = expected
        self.mend = mend


def parse(rule: str) -> ParsedRule:
    """Return a parsed rule. Raises `RuleMalformed`."""
    if len(rule) > LONGEST or not rule.isprintable():
        raise RuleMalformed(f"one line of at most {LONGEST} characters", "shorten it")
    match = _RULE.fullmatch(rule.strip())
    if match is None and "(" in rule and not rule.rstrip().endswith(")"):
        raise RuleMalformed("a ) at the end", "the bracket is not closed")
    if match is None:
        raise RuleMalformed(
            "Tool, Tool(pattern), Tool(pattern, condition) or @tag:Tool",
            "write it as in run_shell(git status)",
        )
    tags, tool, inside = match.groups()
    named = frozenset(tags.replace(":", "").split("@")[1:])
    if wrong := text.nearest(TRUSTED, named - {TRUSTED}):
        raise RuleMalformed(f"@{TRUSTED}:, or a label unlike it, not @{wrong}:", f"did you mean @{TRUSTED}:")
    if inside is None:
        return ParsedRule(rule.strip(), named, tool)
    pattern, comma, condition = inside.partition(",")
    if not pattern.strip() or (not comma and ")" in pattern):
        raise RuleMalformed("a pattern between the brackets", f"write {tool} alone, or {tool}(*)")
    if comma and not condition.strip():
        raise RuleMalformed("a condition after the comma", "write it, or remove the comma")
    return ParsedRule(rule.strip(), named, tool, pattern.strip(), condition.strip() if comma else None)
