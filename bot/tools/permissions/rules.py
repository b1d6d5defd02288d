"""Permission rules: who may call which tool with which arguments, and defaults for calls that no rule matches.

A rule is `Tool`, `Tool(pattern)` or `Tool(pattern, condition)`, with an optional prefix `@tag:`. Conditions are joined
by `and`:

    user in slack:U1 telegram:2     channel in slack telegram:-100123     role operator
    arg.url~=https://*.example.org/*      arg~=*.py      time 08:00-18:00      time mon-fri 22:00-06:00

Rules are compiled to closures. Judging a call has no side effects, and reads symlinks but no files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from bot import errors, text
from bot.contracts.approvals import Reason
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Taint
from bot.contracts.tools import MCP, READS, Effect
from bot.file_access import is_hidden
from bot.text import folded
from bot.tools.permissions.patterns import (
    ARGUMENTS,
    Answer,
    Paths,
    Pattern,
    RuleMalformed,
    Target,
    compile_pattern,
    glob,
    target_of,
)
from bot.tools.permissions.protected_code import CLOSED, OURS, ProtectedCode, named_below

Role = Literal["operator", "member", "nobody"]
Outcome = Literal["allow", "ask", "deny"]
Source = Literal["rule", "default", "taint", "protected", "skill"]
STRICT: dict[Outcome, int] = {"deny": 0, "ask": 1, "allow": 2}


@dataclass(frozen=True, slots=True)
class Subject:
    """A person in a chat. If no chat caused the turn, `user_id` and `channel` are None, and the role is `nobody`."""

    channel: str | None
    user_id: str | None
    role: Role
    chat_key: ChatKey


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: its validated arguments, and the effects of its tool."""

    tool: str
    arguments: Mapping[str, Any]
    effects: frozenset[Effect]


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """The state that decisions depend on. `taint` is the untrusted-text level of the model's context. `private` means
    that only one person reads the chat.
    """

    time: datetime
    taint: Taint = Taint.NONE
    private: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a call. `rule` is the text of the deciding rule; "" if no rule decided. `granted` means that a rule
    allows the call to the person who asks, who may therefore approve it alone. `lasting` means that an earlier lasting approval
    is accepted. `own` means that the call concerns only this person. `why` is the reason for asking. `trusted` means that the
    rule is marked `@trusted:`.
    """

    outcome: Outcome
    source: Source
    reason: str
    rule: str = ""
    granted: bool = False
    lasting: bool = True
    own: bool = False
    why: Reason = ""
    trusted: bool = False


# ------------------------------------------------------------ grammar

LONGEST = 1_000
TRUSTED = "trusted"
"""Tag that keeps an allow rule valid while untrusted text is in the model's context."""
_RULE = re.compile(r"((?:@\w{1,40}:)*)([A-Za-z0-9_*-]{1,128})(?:\((.*)\))?", re.DOTALL)
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ARG = re.compile(r"arg(?:\.(\w{1,64}))?\s*~=\s*(\S.*)", re.DOTALL)
_TIME = re.compile(
    rf"(?:({'|'.join(_DAYS)})(?:-({'|'.join(_DAYS)}))?\s+)?"
    r"((?:[01]\d|2[0-3]):[0-5]\d)\s*-\s*((?:[01]\d|2[0-3]):[0-5]\d)"
)
_AND = re.compile(r"\s+and\s+(?=(?:user|channel|role|time)\b|arg[.~\s])")
"""Pattern of the word `and` between two conditions."""
_WHO = re.compile(r"[a-z][a-z0-9_-]*:[^\s@,:]+")
_PLACE = re.compile(r"[a-z][a-z0-9_-]*(?::\S+)?")
Condition = Callable[[Call, Subject, PolicyContext], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    text: str
    tool: str
    trusted: bool = False
    pattern: str | None = None
    conditions: Sequence[Condition] = ()

    def compiled(self, name: str, outcome: Outcome, paths: Paths) -> Pattern:
        """Return the pattern for the tool `name`. Raises `RuleMalformed` if the tool cannot have this pattern."""
        if self.pattern is None:
            return lambda _: True
        return compile_pattern(name, self.pattern, paths, wide=outcome != "allow")


def parse(rule: str) -> Rule:
    """Parse the text of a rule. Raises `RuleMalformed`."""
    if len(rule) > LONGEST or not rule.isprintable():
        raise RuleMalformed(f"one line of at most {LONGEST} characters", "shorten it")
    match = _RULE.fullmatch(rule.strip())
    if match is None and "(" in rule and not rule.rstrip().endswith(")"):
        raise RuleMalformed("a ) at the end", "the bracket is not closed")
    if match is None:
        forms = "Tool, Tool(pattern), Tool(pattern, condition) or @tag:Tool"
        raise RuleMalformed(forms, "write it as in run_shell(git status)")
    tags, tool, inside = match.groups()
    named = frozenset(tags.replace(":", "").split("@")[1:])
    if wrong := text.nearest(TRUSTED, named - {TRUSTED}):
        raise RuleMalformed(f"@{TRUSTED}:, or a label unlike it, not @{wrong}:", f"did you mean @{TRUSTED}:")
    if inside is None:
        return Rule(rule.strip(), tool, TRUSTED in named)
    pattern, comma, condition = inside.partition(",")
    if not pattern.strip() or (not comma and ")" in pattern):
        raise RuleMalformed("a pattern between the brackets", f"write {tool} alone, or {tool}(*)")
    if comma and not condition.strip():
        raise RuleMalformed("a condition after the comma", "write it, or remove the comma")
    conditions = [_condition(part.strip()) for part in _AND.split(condition.strip())] if comma else []
    return Rule(rule.strip(), tool, TRUSTED in named, pattern.strip(), conditions)


def _condition(words: str) -> Condition:
    head, _, rest = words.partition(" ")
    if head == "user":
        names = _listed(rest, _WHO, "ids such as slack:U012 or telegram:123; names count for nothing")
        return lambda _, subject, __: f"{subject.channel}:{subject.user_id}" in names
    if head == "channel":
        places = _listed(rest, _PLACE, "channels such as slack, or chats such as slack:C012")
        chats = [key for place in places if ":" in place and (key := _chat(place)) is not None]
        return lambda _, subject, __: (
            subject.channel in places or any(chat.contains(subject.chat_key) for chat in chats)
        )
    if head == "role" and rest in {"operator", "member"}:
        return lambda _, subject, __: subject.role == rest
    if head == "role":
        raise RuleMalformed("role operator, or role member", "write one of these")
    if head == "time":
        return _time(rest.strip())
    if (match := _ARG.fullmatch(words)) is not None:
        name, matches = match[1], glob(match[2].strip().strip('"'))
        return lambda call, _, __: any(
            map(matches, _scalars(call.arguments if name is None else call.arguments.get(name)))
        )
    raise RuleMalformed(
        "a condition with user in, channel in, role, arg~=, arg.NAME~= or time",
        "write it as in role operator and time 08:00-18:00",
    )


def _listed(words: str, form: re.Pattern[str], expected: str) -> frozenset[str]:
    keyword, _, rest = words.strip().partition(" ")
    items = rest.replace(",", " ").strip("()[] ").split()
    if keyword != "in" or not items or not all(map(form.fullmatch, items)):
        raise RuleMalformed(f"in and {expected}", "write it as in user in slack:U012 telegram:123")
    return frozenset(items)


def _chat(place: str) -> ChatKey | None:
    """Return the chat that a text names by its chatKey or by a short form such as `slack:C012`; None for other text."""
    for key in (place, place.replace(":", ":chat:", 1)):
        with contextlib.suppress(errors.IdentityInvalid):
            return ChatKey.parse(key)
    return None


def _time(words: str) -> Condition:
    match = _TIME.fullmatch(words)
    if match is None:
        raise RuleMalformed("hours such as 08:00-18:00, or mon-fri 08:00-18:00", "write them in 24 hours")
    first, last = match[1] or "mon", match[2] or match[1] or "sun"
    length = (_DAYS.index(last) - _DAYS.index(first)) % 7
    days = {(_DAYS.index(first) + step) % 7 for step in range(length + 1)}
    begin, end = time.fromisoformat(match[3]), time.fromisoformat(match[4])

    def holds(_: Call, __: Subject, now: PolicyContext) -> bool:
        at, day = now.time.time(), now.time.weekday()
        if begin < end:
            return day in days and begin <= at < end
        # If a range includes midnight, the hours after midnight count as part of the previous day.
        return (day in days and at >= begin) or ((day - 1) % 7 in days and at < end)

    return holds


def _scalars(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
        elif isinstance(one, str | int | float):
            yield str(one).lower() if isinstance(one, bool) else str(one)


# ------------------------------------------------------------ rules


def check(rule: Rule, outcome: Outcome, paths: Paths) -> None:
    """Raise `RuleMalformed` if none of the tools that a rule names can have its pattern."""
    names = [name for name in CORE if "*" in rule.tool and glob(rule.tool)(name)]
    problems = list[RuleMalformed]()
    for name in names or [rule.tool]:
        try:
            rule.compiled(name, outcome, paths)
        except RuleMalformed as error:
            problems.append(error)
        else:
            return
    raise problems[0]


class Rules:
    """The rules of an installation, compiled and indexed by tool. Deny rules precede ask rules, and ask rules precede
    allow rules. Raises `RuleMalformed` for an invalid rule.
    """

    def __init__(
        self,
        paths: Paths,
        code: ProtectedCode | None = None,
        /,
        *,
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
    ) -> None:
        self._paths = paths
        self._code = code
        given: dict[Outcome, Iterable[str]] = {"deny": deny, "ask": ask, "allow": allow}
        self._rules = [(outcome, parse(text)) for outcome, texts in given.items() for text in texts]
        for outcome, rule in self._rules:
            check(rule, outcome, paths)
        self._tools: dict[str, dict[Outcome, list[tuple[Rule, Pattern]]]] = {}

    def judge(self, call: Call, subjects: Sequence[Subject], now: PolicyContext) -> Decision:
        """Return the decision on a call. If several people caused the call, each is judged and the strictest decision counts."""
        target = target_of(call.tool, call.arguments, self._paths)
        decisions = [self._judge(call, target, subject, now) for subject in subjects]
        if not decisions:
            return Decision("deny", "default", "no person asked for this")
        return replace(
            min(decisions, key=lambda decision: STRICT[decision.outcome]),
            granted=all(decision.granted for decision in decisions),
            lasting=not taints(call, now),
            own=all(decision.own for decision in decisions),
        )

    def permits(self, call: Call, subject: Subject, now: PolicyContext) -> bool:
        """Return True if an allow rule matches. All other rules and the defaults are ignored."""
        target = target_of(call.tool, call.arguments, self._paths)
        return any(answer for _, answer in self._answers("allow", call, target, subject, now))

    def _answers(
        self, outcome: Outcome, call: Call, target: Target, subject: Subject, now: PolicyContext
    ) -> Iterator[tuple[Rule, Answer]]:
        for rule, pattern in self._of(call.tool)[outcome]:
            if all(holds(call, subject, now) for holds in rule.conditions):
                yield rule, pattern(target)

    def _judge(self, call: Call, target: Target, subject: Subject, now: PolicyContext) -> Decision:
        about = call, target, subject, now
        denials = [(rule.text, answer) for rule, answer in self._answers("deny", *about)]
        if rule := next((text for text, answer in denials if answer), None):
            return Decision("deny", "rule", "a rule of this installation forbids it", f"deny {rule}")
        if (closed := self._protected(call, target)) is not None:
            return Decision("deny", "protected", closed)
        if rule := next((text for text, answer in denials if answer is None), None):
            return asks("rule", "doubt", f"deny {rule}")
        given = [rule for rule, answer in self._answers("allow", *about) if answer]
        # If one of the rules is marked `@trusted:`, it decides.
        best = next((rule for rule in given if rule.trusted), given[0] if given else None)
        if best is not None and not best.trusted and call.tool in {"write_file", "edit_file"}:
            names = {name for form in target.forms for name in (*form, *map("/".join, pairwise(form)))}
            if not names.isdisjoint(_FOLLOWED.split()):
                # The person cannot approve this alone, because the file will instruct everybody's agents and programs.
                return asks("default", "elsewhere", f"allow {best.text}")
        if one := next(
            (rule.text for rule, answer in self._answers("ask", *about) if answer is not False), None
        ):
            return asks("rule", "rule", f"ask {one}", granted=bool(given))
        return _default(call, now) if best is None else _allowed(call, best, now)

    def _protected(self, call: Call, target: Target) -> str | None:
        """Return the reason why tools must not use a path, whatever the rules say; None if there is none. Paths outside the
        project, secrets, settings, and changes to Shipmate's own code are refused.
        """
        kind, code, root = ARGUMENTS.get(call.tool, ("", ""))[0], self._code, self._paths.root
        changes = kind in {"path", "tree", "command"} and not call.effects.isdisjoint(_CHANGES)
        if code is not None and code.closed and changes:
            return CLOSED
        if (place := target.place) is None:
            return None
        if place.real is None or place.real[: len(root)] != root:
            return "it is outside of the project"
        inside = (form[len(root) :] if form[: len(root)] == root else form for form in place.forms)
        if any(is_hidden(part) for form in inside for part in form):
            return "secrets and settings are closed to tools"
        if (
            code is not None
            and changes
            and any(named_below(one, Path("/", *form)) for one in code.sealed for form in place.forms)
        ):
            return OURS
        return None

    def _of(self, name: str) -> dict[Outcome, list[tuple[Rule, Pattern]]]:
        if name not in self._tools:
            tool = self._tools[name] = {"deny": [], "ask": [], "allow": []}
            for outcome, rule in self._rules:
                # Ignore case, because MCP servers choose the case of tool names and may change it.
                if glob(folded(rule.tool))(folded(name)):
                    # If a rule names tools by a wildcard, the rule's pattern may be valid for only some of these tools.
                    with contextlib.suppress(RuleMalformed):
                        tool[outcome].append((rule, rule.compiled(name, outcome, self._paths)))
        return self._tools[name]


def _allowed(call: Call, rule: Rule, now: PolicyContext) -> Decision:
    if not rule.trusted and taints(call, now):
        return asks("taint", "tainted", f"allow {rule.text}", granted=True, own=call.tool in OWN)
    reason = "a rule of this installation allows it"
    return Decision("allow", "rule", reason, f"allow {rule.text}", granted=True, trusted=rule.trusted)


# ------------------------------------------------------------ defaults

SCHEDULING = frozenset({"schedule_cancel", "schedule_create", "schedule_list"})
_OPEN = "chat_load_history chat_send memory skills_list skills_load task tool_search web_search"
_OTHERS = "edit_file list_dir read_artifact read_file run_shell search_files web_fetch write_file"
OPEN = SCHEDULING.union(_OPEN.split())
"""Tools that have effects but need no approval, because the effects are limited to the tool's own folder or chat."""
CORE = tuple(sorted(OPEN.union(_OTHERS.split())))
"""All tools that a rule may name, in addition to `mcp__<server>__<tool>`."""
HISTORY = "chat_load_history"
UNTAINTED = frozenset({HISTORY, "chat_send", "task"})
"""Tools that need no approval even if untrusted text is in the model's context. These tools answer the current chat, change
only the model's context, or make calls that are judged individually.
"""
OWN = frozenset({"memory", "schedule_cancel", "schedule_create", "web_search"})
"""Tools that affect only the person who asks. If untrusted text is in the model's context, this person confirms the call."""
ASKED_BECAUSE: Mapping[Reason, str] = {
    "tainted": "text from the web, a server, a file or people without rights is in view",
    "instructs": "it changes what I am told to do",
    "elsewhere": "other agents or programs follow that file",
    "read": "text of the project's files is in view",
    "default": "it needs an approval",
    "rule": "a rule of this installation wants it approved",
    "doubt": "a rule that forbids something cannot judge it",
}
"""Texts that tell the log and the model why a person was asked."""
_HARMFUL: frozenset[Effect] = frozenset({"run", "write", "network"})
_CHANGES: frozenset[Effect] = frozenset({"run", "write"})
_FOLLOWED = """
    .circleci .cursor .cursorrules .devcontainer .envrc .gitlab-ci.yml .husky .mcp.json .pre-commit-config.yaml agents.md claude.md
    conftest.py copilot-instructions.md gemini.md sitecustomize.py .claude/agents .claude/commands .claude/hooks
    .claude/settings.json .claude/settings.local.json .github/actions .github/workflows .vscode/tasks.json
"""
"""Files and folders that instruct other AI agents, or that other programs run automatically."""


def _default(call: Call, now: PolicyContext) -> Decision:
    reads = call.effects == READS and not call.tool.startswith(MCP)
    if not reads and call.tool not in OPEN:
        return asks("default", "default")
    # A web search reveals little of the project's files, and only to the search engine.
    if taints(call, now, Taint.FOREIGN if call.tool == "web_search" else Taint.WORKSPACE):
        own = call.tool in OWN
        # People may decide without an operator whether messages of their own chats are loaded.
        granted = own or call.tool == HISTORY
        return asks("taint", "tainted" if now.taint == Taint.FOREIGN else "read", granted=granted, own=own)
    return Decision("allow", "default", "it needs no approval")


def asks(
    source: Source, why: Reason, rule: str = "", *, granted: bool = False, own: bool = False
) -> Decision:
    """Return the decision that a person is asked for approval, for the reason `why`."""
    return Decision("ask", source, ASKED_BECAUSE[why], rule, granted=granted, own=own, why=why)


def taints(call: Call, now: PolicyContext, least: Taint = Taint.FOREIGN) -> bool:
    """Return True if untrusted text in the model's context makes this call need an approval. Only text of at least the
    untrusted-text level `least` counts. Text from the project's files changes only the defaults, not the rules that operators
    wrote.
    """
    # This call would load messages of other chats into this chat. The author of the untrusted text may read this chat.
    carries = call.tool == HISTORY and call.arguments.get("scope") == "mine" and not now.private
    if now.taint < least or (call.tool in UNTAINTED and not carries):
        return False
    if call.tool == "memory" and call.arguments.get("command") == "view":
        return False
    return call.tool.startswith(MCP) or not _HARMFUL.isdisjoint(call.effects)
