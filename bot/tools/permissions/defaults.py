"""Default permissions of calls that no rule matches, and protections that no rule can override."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from bot.contracts.approvals import Reason
from bot.contracts.provenance import Taint
from bot.contracts.tools import MCP, READS, Effect
from bot.file_access import is_hidden
from bot.tools.permissions.grammar import Call, Decision, PolicyContext, Source
from bot.tools.permissions.patterns import ARGUMENTS, JudgedCall
from bot.tools.permissions.protected_code import CLOSED, OURS, ProtectedCode

SCHEDULING = frozenset({"schedule_cancel", "schedule_create", "schedule_list"})
_OPEN = "chat_load_history chat_send memory skills_list skills_load task tool_search web_search"
_OTHERS = "edit_file list_dir read_artifact read_file run_shell search_files web_fetch write_file"
OPEN = SCHEDULING.union(_OPEN.split())
"""Tools that have effects but need no approval. Their effects are limited to the tool's own folder or chat."""
CORE = tuple(sorted(OPEN.union(_OTHERS.split())))
"""All tools that a rule may name, in addition to `mcp__<server>__<tool>`."""
HISTORY = "chat_load_history"
UNTAINTED = frozenset({HISTORY, "chat_send", "task"})
"""Tools that need no approval because of untrusted text. They answer the current chat, change only the model's context,
or make calls that are judged individually.
"""
OWN = frozenset({"memory", "schedule_cancel", "schedule_create", "web_search"})
"""Tools that concern only the person who asks. If untrusted text is in the model's context, this person confirms the
call.
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
"""Texts of the reasons for asking, for the log and for the model."""
_HARMFUL: frozenset[Effect] = frozenset({"run", "write", "network"})
_CHANGES: frozenset[Effect] = frozenset({"run", "write"})
_OF_THE_PROJECT = frozenset({"path", "tree", "command"})
_INSTRUCTIONS = frozenset({"agent.md", "skill.md"})
_SKILLS = (".claude", "skills")
_FOLLOWED = """
    .circleci .cursor .cursorrules .devcontainer .envrc .gitlab-ci.yml .husky .mcp.json .pre-commit-config.yaml agents.md claude.md
    conftest.py copilot-instructions.md gemini.md sitecustomize.py .claude/agents .claude/commands .claude/hooks
    .claude/settings.json .claude/settings.local.json .github/actions .github/workflows .vscode/tasks.json
"""
"""Files and folders that instruct other AI agents, or that other programs run automatically."""


def decided(call: Call, now: PolicyContext) -> Decision:
    """Return the default decision: reads and the tools in `OPEN` are allowed, and every other call needs an approval."""
    reads = call.effects == READS and not call.tool.startswith(MCP)
    if not reads and call.tool not in OPEN:
        return asks("default", "default")
    # A web search reveals little of the project's files, and only to the search engine.
    if taints(call, now, Taint.FOREIGN if call.tool == "web_search" else Taint.WORKSPACE):
        own = call.tool in OWN
        why: Reason = "tainted" if now.taint == Taint.FOREIGN else "read"
        # People may decide alone whether messages of their own chats are loaded.
        return asks("taint", why, granted=own or call.tool == HISTORY, own=own)
    return Decision("allow", "default", "it needs no approval")


def asks(
    source: Source, why: Reason, rule: str = "", *, granted: bool = False, own: bool = False
) -> Decision:
    """Return a decision to ask for approval for this reason."""
    return Decision("ask", source, ASKED_BECAUSE[why], rule, granted=granted, own=own, why=why)


def taints(call: Call, now: PolicyContext, least: Taint = Taint.FOREIGN) -> bool:
    """Return True if untrusted text in the model's context makes this call need an approval. Only text of at least the
    untrusted-text level `least` counts. For text from the project's files, this changes only defaults, not the rules
    that operators wrote.
    """
    # The author of the untrusted text may read this chat, into which messages of other chats would be loaded.
    carries = call.tool == HISTORY and call.arguments.get("scope") == "mine" and not now.private
    if now.taint < least or (call.tool in UNTAINTED and not carries):
        return False
    if call.tool == "memory" and call.arguments.get("command") == "view":
        return False
    return call.tool.startswith(MCP) or not _HARMFUL.isdisjoint(call.effects)


def instructs(call: Call, asked: JudgedCall) -> Reason:
    """Return the reason why writing a file needs approval even if an allow rule matches: the model, or another agent,
    will read the file's text as instructions. A rule marked `@trusted:` needs no approval. Return "" for any other
    file.
    """
    path = asked.words("path") if call.tool in {"write_file", "edit_file"} else None
    forms = [form for form in (asked.forms(path) if path is not None else ()) if form]
    if any(form[-1] in _INSTRUCTIONS or _SKILLS in pairwise(form) for form in forms):
        return "instructs"
    names = {name for form in forms for name in (*form, *map("/".join, pairwise(form)))}
    return "" if names.isdisjoint(_FOLLOWED.split()) else "elsewhere"


def protected(call: Call, asked: JudgedCall, code: ProtectedCode | None) -> str | None:
    """Return the reason why tools may not use a path, whatever the rules say; None if they may use it. Paths outside
    the project, secrets, settings, and changes to Shipmate's own code are refused.
    """
    kind, name = ARGUMENTS.get(call.tool, ("", ""))
    changes = kind in _OF_THE_PROJECT and not call.effects.isdisjoint(_CHANGES)
    if code is not None and code.closed and changes:
        return CLOSED
    path = asked.words(name) if kind in {"path", "tree"} else None
    if path is None:
        return None
    place = asked.place(path)
    root = asked.paths.root
    if place.real is None or place.real[: len(root)] != root:
        return "it is outside of the project"
    inside = (form[len(root) :] if form[: len(root)] == root else form for form in place.forms)
    if any(is_hidden(part) for form in inside for part in form):
        return "secrets and settings are closed to tools"
    if code is not None and changes and any(code.seals(Path("/", *form)) for form in place.forms):
        return OURS
    return None
