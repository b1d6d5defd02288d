"""Permissions: rules that say who may call which tool with what, compiled to closures, and defaults without them. Pure but for links."""

from __future__ import annotations

from bot.tools.permissions.findings import wrong
from bot.tools.permissions.grammar import Malformed, parse
from bot.tools.permissions.narrowing import Narrowing
from bot.tools.permissions.paths import Paths, ReadLink
from bot.tools.permissions.rules import Rules
from bot.tools.permissions.subject import Call, Decision, Now, Role, Subject, fingerprint

__all__ = [
    "Call",
    "Decision",
    "Malformed",
    "Narrowing",
    "Now",
    "Paths",
    "ReadLink",
    "Role",
    "Rules",
    "Subject",
    "fingerprint",
    "parse",
    "wrong",
]
