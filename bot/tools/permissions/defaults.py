"""Default permissions, for calls that no rule matches, and protections that no rule overrides."""

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
"""All tools that a rule may name, beside `mcp__<server>__<tool>`."""
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
"""Tools with effects that need no approval: they are confined to their own folder or chat."""
HISTORY = "chat_load_history"
UNTAINTED = frozenset({HISTORY, "chat_send", "task"})
"""Not affected by untrusted text: the answer to the asking chat, what changes the view alone, and what is judged call by call."""
OWN = frozenset({"memory", "schedule_cancel", "schedule_create", "web_search"})
"""Tools that concern the asking person alone. With untrusted text in view that person confirms the call."""
ASKED_BECAUSE: Mapping[Reason, str] = {
    "tainted": "text from the web, a server, a file or people without rights is in view",
    "instructs": "it changes what I am told to do",
    "elsewhere": "other agents or programs follow that file",
    "read": "text of the project's files is in view",
    "default": "it needs an approval",
    "rule": "a rule of this installation wants it approved",
    "doubt": "a rule that forbids something cannot judge it",
}
"""The reasons for asking, as the log and the model read them."""
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
"""Files and folders that instruct other agents, or that other programs run automatically."""


def decided(call: Call, now: PolicyContext) -> Decision:
    """The default: reads and the tools in `OPEN` are allowed; everything else is asked for."""
    reads = call.effects == READS and not call.tool.startswith(MCP)
    if not reads and call.tool not in OPEN:
        return asks("default", "default")
    # A query reveals little of the project's files, and only to the search engine.
    if taints(call, now, Taint.FOREIGN if call.tool == "web_search" else Taint.WORKSPACE):
        own = call.tool in OWN
        # Their own chats are theirs to bring along.
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
    """The decision to ask, for this reason."""
    return Decision("ask", source, ASKED_BECAUSE[why], rule, granted=granted, own=own, why=why)


def taints(call: Call, now: PolicyContext, least: Taint = Taint.FOREIGN) -> bool:
    """True if untrusted text in view, of this level at least, revokes an allowance of this call. Rules that operators
    wrote hold beside text of the project; defaults do not.
    """
    if now.taint < least or (call.tool in UNTAINTED and not _carries(call, now)):
        return False
    if call.tool == "memory" and call.arguments.get("command") == "view":
        return False
    return call.tool.startswith(MCP) or not _HARMFUL.isdisjoint(call.effects)


def _carries(call: Call, now: PolicyContext) -> bool:
    """True if it brings words of other chats to where others read along: the author of untrusted text in view may be
    one of them.
    """
    return call.tool == HISTORY and call.arguments.get("scope") == "mine" and not now.private


def instructs(call: Call, asked: JudgedCall) -> Reason:
    """The reason why a write is asked for even under an allow rule, unless the rule is marked: the file's text will be taken for
    instructions. "" where there is none.
    """
    path = asked.words("path") if call.tool in {"write_file", "edit_file"} else None
    forms = [form for form in (asked.forms(path) if path is not None else ()) if form]
    if any(form[-1] in _INSTRUCTIONS or _SKILLS in pairwise(form) for form in forms):
        return "instructs"
    names = {name for form in forms for name in (*form, *map("/".join, pairwise(form)))}
    return "" if names.isdisjoint(_FOLLOWED.split()) else "elsewhere"


def protected(call: Call, asked: JudgedCall, code: ProtectedCode | None) -> str | None:
    """The reason why the project's tools are refused at a path, whatever the rules say: outside the root, in secrets
    and settings, and where they would change Shipmate's own code. None elsewhere.
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
