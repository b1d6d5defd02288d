"""Default permissions for calls that no rule matches, and protections that no rule can override."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from bot.contracts.approvals import Reason
from bot.contracts.provenance import Taint
from bot.contracts.tools import MCP, READS, Effect
from bot.text import folded
from bot.tools.permissions.patterns import ARGUMENTS, JudgedCall
from bot.tools.permissions.protected_code import CLOSED, OURS, ProtectedCode
from bot.tools.permissions.subject import Call, Decision, PolicyContext, Source

CORE = (
    "chat_load_history",
    "chat_send",
    "edit_file",
    "list_dir",
    "memory",
    "read_artifact",
    "read_file",
    "run_shell",
    "schedule_cancel",
    "schedule_create",
    "schedule_list",
    "search_files",
    "skills_list",
    "skills_load",
    "task",
    "tool_search",
    "web_fetch",
    "web_search",
    "write_file",
)
"""All tools that a rule may name, in addition to `mcp__<server>__<tool>`."""
SCHEDULING = frozenset({"schedule_cancel", "schedule_create", "schedule_list"})
OPEN = frozenset(
    {
        "chat_load_history",
        "chat_send",
        "memory",
        "skills_list",
        "skills_load",
        "task",
        "tool_search",
        "web_search",
        *SCHEDULING,
    }
)
"""Tools that have effects but need no approval, because the effects are confined to the tool's own folder or chat."""
HISTORY = "chat_load_history"
UNTAINTED = frozenset({HISTORY, "chat_send", "task"})
"""Tools that untrusted text does not affect: those that answer the asking chat, change only the model's
context, or have their calls judged individually.
"""
OWN = frozenset({"memory", "schedule_cancel", "schedule_create", "web_search"})
"""Tools that concern only the asking person. If untrusted text is in the model's context, this person
confirms the call.
"""
ASKED_BECAUSE: Mapping[Reason, str] = {
    "tainted": "text from the web, a server, a file or people without rights is in view",
    "instructs": "it changes what I am told to do",
    "elsewhere": "other agents or programs follow that file",
    "read": "text of the project's files is in view",
    "default": "it needs an approval",
    "rule": "a rule of this installation wants it approved",
    "doubt": "a rule that forbids something cannot judge it",
}
"""Reasons for asking, as shown in the log and to the model."""
_HARMFUL: frozenset[Effect] = frozenset({"run", "write", "network"})
_CHANGES: frozenset[Effect] = frozenset({"run", "write"})
_OF_THE_PROJECT = frozenset({"path", "tree", "command"})
_FOLDERS = frozenset({".ship", ".git"})
_INSTRUCTIONS = frozenset({"agent.md", "skill.md"})
_SKILLS = (".claude", "skills")
_FOLLOWED = """
    .circleci .cursor .cursorrules .devcontainer .envrc .gitlab-ci.yml .husky .mcp.json .pre-commit-config.yaml agents.md claude.md
    conftest.py copilot-instructions.md gemini.md sitecustomize.py .claude/agents .claude/commands .claude/hooks
    .claude/settings.json .claude/settings.local.json .github/actions .github/workflows .vscode/tasks.json
"""
"""Files and folders that instruct other AI agents, or that other programs run automatically."""


def decided(call: Call, now: PolicyContext) -> Decision:
    """Return the default decision: reads and the tools in `OPEN` are allowed; every other call needs an approval."""
    reads = call.effects == READS and not call.tool.startswith(MCP)
    if not reads and call.tool not in OPEN:
        return asks("default", "default")
    # A web search query reveals little of the project's files, and only to the search engine.
    if taints(call, now, Taint.FOREIGN if call.tool == "web_search" else Taint.WORKSPACE):
        own = call.tool in OWN
        # People may decide themselves about bringing in messages of their own chats.
        return asks(
            "taint",
            "tainted" if now.taint == Taint.FOREIGN else "read",
            granted=own or call.tool == HISTORY,
            own=own,
        )
    return Decision("allow", "default", "it needs no approval")


def asks(
    source: Source, why: Reason, rule: str = "", *, granted: bool = False, own: bool = False
) -> Decision:
    """Return a decision to ask for approval for this reason."""
    return Decision("ask", source, ASKED_BECAUSE[why], rule, granted=granted, own=own, why=why)


def taints(call: Call, now: PolicyContext, least: Taint = Taint.FOREIGN) -> bool:
    """Return True if untrusted text in the model's context revokes the permission of this call. Only text of
    at least the untrusted-text level `least` counts. Rules written by operators stay valid if the text
    comes from the project's files; defaults do not.
    """
    if now.taint < least or (call.tool in UNTAINTED and not _carries(call, now)):
        return False
    if call.tool == "memory" and call.arguments.get("command") == "view":
        return False
    return call.tool.startswith(MCP) or not _HARMFUL.isdisjoint(call.effects)


def _carries(call: Call, now: PolicyContext) -> bool:
    """Return True if the call brings messages of other chats into a chat that several people read. The
    author of untrusted text in the model's context may be one of these people.
    """
    return call.tool == HISTORY and call.arguments.get("scope") == "mine" and not now.private


def instructs(call: Call, asked: JudgedCall) -> Reason:
    """Return the reason why writing a file needs approval even if an allow rule matches, unless the rule is
    marked `@trusted:`. The reason is that the text of the file will be read as instructions. "" for any
    other file.
    """
    path = asked.words("path") if call.tool in {"write_file", "edit_file"} else None
    forms = [form for form in (asked.forms(path) if path is not None else ()) if form]
    if any(form[-1] in _INSTRUCTIONS or _SKILLS in pairwise(form) for form in forms):
        return "instructs"
    names = {name for form in forms for name in (*form, *map("/".join, pairwise(form)))}
    return "" if names.isdisjoint(_FOLLOWED.split()) else "elsewhere"


def protected(call: Call, asked: JudgedCall, code: ProtectedCode | None) -> str | None:
    """Return the reason why tools may not use a path, whatever the rules say; None if they may. Paths
    outside the project, secrets and settings, and changes to Shipmate's own code are refused.
    """
    kind, name = ARGUMENTS.get(call.tool, ("", ""))
    changes = kind in _OF_THE_PROJECT and not call.effects.isdisjoint(_CHANGES)
    if code is not None and code.closed and changes:
        return CLOSED
    path = asked.words(name) if kind in {"path", "tree"} else None
    if path is None:
        return None
    place = asked.place(path)
    if not asked.paths.inside(place):
        return "it is outside of the project"
    root = asked.paths.root
    for form in place.forms:
        parts = [folded(part) for part in (form[len(root) :] if form[: len(root)] == root else form)]
        if any(part in _FOLDERS or part.startswith(".env") for part in parts) or parts == ["ship.json"]:
            return "secrets and settings are closed to tools"
    if code is not None and changes and any(code.seals(Path("/", *form)) for form in place.forms):
        return OURS
    return None
