"""Grammar of permission rules: `Tool`, `Tool(pattern)` or `Tool(pattern, condition)`. Each form may have the
prefix `@tag:`. Several conditions are joined by `and`:

    user in slack:U1 telegram:2     channel in slack telegram:-100123     role operator
    arg.url~=https://*.example.org/*      arg~=*.py      time 08:00-18:00      time mon-fri 22:00-06:00
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any, Literal

from bot import errors, text
from bot.contracts.approvals import Reason
from bot.contracts.identity import ChatKey
from bot.contracts.provenance import Taint
from bot.contracts.tools import Effect
from bot.tools.permissions.matching import glob

LONGEST = 1_000
TRUSTED = "trusted"
"""Tag of an allow rule that stays valid while untrusted text is in the model's context."""
_RULE = re.compile(r"((?:@\w{1,40}:)*)([A-Za-z0-9_*-]{1,128})(?:\((.*)\))?", re.DOTALL)
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ARG = re.compile(r"arg(?:\.(\w{1,64}))?\s*~=\s*(\S.*)", re.DOTALL)
_TIME = re.compile(
    rf"(?:({'|'.join(_DAYS)})(?:-({'|'.join(_DAYS)}))?\s+)?"
    r"((?:[01]\d|2[0-3]):[0-5]\d)\s*-\s*((?:[01]\d|2[0-3]):[0-5]\d)"
)
AND = re.compile(r"\s+and\s+(?=(?:user|channel|role|time)\b|arg[.~\s])")
"""Pattern of the word `and` between two conditions."""
_WHO = re.compile(r"[a-z][a-z0-9_-]*:[^\s@,:]+")
_PLACE = re.compile(r"[a-z][a-z0-9_-]*(?::\S+)?")

Role = Literal["operator", "member", "nobody"]
Outcome = Literal["allow", "ask", "deny"]
Source = Literal["rule", "default", "taint", "protected", "skill"]


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
    """The decision on a call. `rule` is the text of the deciding rule; "" if no rule decided. `granted` means that a
    rule allows the call to the person who asks, who may therefore approve it alone. `lasting` means that an earlier
    lasting approval counts. `own` means that the call concerns only this person. `why` is the reason for asking.
    `trusted` means that the rule is marked `@trusted:`.
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


Condition = Callable[[Call, Subject, PolicyContext], bool]


@dataclass(frozen=True, slots=True)
class ParsedRule:
    text: str
    tags: frozenset[str]
    tool: str
    pattern: str | None = None
    condition: str | None = None


class RuleMalformed(ValueError):
    """Raised for an invalid rule. `expected` describes a valid rule; `mend` says how to correct this rule."""

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


def compile_condition(words: str) -> Condition:
    """Compile one condition. Raises `RuleMalformed`."""
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
    if head == "role":
        if rest not in {"operator", "member"}:
            raise RuleMalformed("role operator, or role member", "write one of these")
        return lambda _, subject, __: subject.role == rest
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
    """Return the chat that a chatKey, or its short form such as `slack:C012`, names; None for other text."""
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
    """Yield all single values in arguments as text, at any depth. Numbers and booleans are written as in JSON."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
        elif isinstance(one, str | int | float):
            yield str(one).lower() if isinstance(one, bool) else str(one)
