"""Conditions of permission rules: the asking person, the chat, the role, an argument, or the time.

    user in slack:U1 telegram:2     channel in slack telegram:-100123     role operator
    arg.url~=https://*.example.org/*      arg~=*.py      time 08:00-18:00      time mon-fri 22:00-06:00

Several conditions are joined by `and`; all of them must be true.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import time
from typing import Any

from bot import errors
from bot.contracts.identity import ChatKey
from bot.tools.permissions.globs import glob
from bot.tools.permissions.grammar import RuleMalformed
from bot.tools.permissions.subject import Call, PolicyContext, Subject

Condition = Callable[[Call, Subject, PolicyContext], bool]

VOCABULARY = "user in, channel in, role, arg~=, arg.NAME~= or time"
_ROLES = frozenset({"operator", "member"})
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ARG = re.compile(r"arg(?:\.(\w{1,64}))?\s*~=\s*(\S.*)", re.DOTALL)
_TIME = re.compile(
    r"(?:in\s+)?(?:([a-z]{3})(?:-([a-z]{3}))?\s+)?([0-2]\d):([0-5]\d)\s*-\s*([0-2]\d):([0-5]\d)"
)
_CLAUSE = re.compile(r"\s+and\s+(?=(?:user|channel|role|time)\b|arg[.~\s])")
_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_WHO = re.compile(r"[a-z][a-z0-9_-]*:[^\s@,:]+")
_PLACE = re.compile(r"[a-z][a-z0-9_-]*(?::\S+)?")


def compile_condition(words: str) -> Condition:
    """Return a compiled condition. Raises `RuleMalformed`."""
    parts = [_one(part.strip()) for part in _CLAUSE.split(words)]
    if len(parts) == 1:
        return parts[0]
    return lambda call, subject, now: all(part(call, subject, now) for part in parts)


def _one(words: str) -> Condition:
    head, _, rest = words.partition(" ")
    if head == "user":
        return _user(_listed(rest, _WHO, "ids such as slack:U012 or telegram:123; names count for nothing"))
    if head == "channel":
        return _channel(_listed(rest, _PLACE, "channels such as slack, or chats such as slack:C012"))
    if head == "role" or head.startswith("role="):
        return _role(words.removeprefix("role"))
    if head == "time":
        return _time(rest.strip())
    if (match := _ARG.fullmatch(words)) is not None:
        return _argument(match[1], match[2].strip().strip('"'))
    raise RuleMalformed(f"a condition with {VOCABULARY}", "write it as in role operator and time 08:00-18:00")


def _listed(words: str, form: re.Pattern[str], expected: str) -> frozenset[str]:
    keyword, _, rest = words.strip().partition(" ")
    items = rest.replace(",", " ").strip("()[] ").split()
    if keyword != "in" or not items or not all(map(form.fullmatch, items)):
        raise RuleMalformed(f"in and {expected}", "write it as in user in slack:U012 telegram:123")
    return frozenset(items)


def _user(names: frozenset[str]) -> Condition:
    return lambda _, subject, __: subject.user_id is not None and subject.name in names


def _channel(places: frozenset[str]) -> Condition:
    chats = [key for place in places if ":" in place and (key := _chat(place)) is not None]

    def holds(_: Call, subject: Subject, __: PolicyContext) -> bool:
        return subject.channel in places or any(chat.contains(subject.chat_key) for chat in chats)

    return holds


def _chat(place: str) -> ChatKey | None:
    """Return the chat that is named by a chatKey or its short form, such as `slack:C012`; None if the text
    is neither.
    """
    for text in (place, place.replace(":", ":chat:", 1)):
        with contextlib.suppress(errors.IdentityInvalid):
            return ChatKey.parse(text)
    return None


def _role(words: str) -> Condition:
    roles = frozenset(re.sub(r"\bin\b|[=,|]", " ", words).split())
    if not roles or not roles <= _ROLES:
        raise RuleMalformed("role operator, or role member", "write one of these")
    return lambda _, subject, __: subject.role in roles


def _time(words: str) -> Condition:
    match = _TIME.fullmatch(words)
    if match is None or int(match[3]) > 23 or int(match[5]) > 23:
        raise RuleMalformed("hours such as 08:00-18:00, or mon-fri 08:00-18:00", "write them in 24 hours")
    days = _days(match[1], match[2])
    begin, end = time(int(match[3]), int(match[4])), time(int(match[5]), int(match[6]))

    def holds(_: Call, __: Subject, now: PolicyContext) -> bool:
        at, day = now.time.time(), now.time.weekday()
        if begin < end:
            return day in days and begin <= at < end
        # If a range passes midnight, the hours after midnight belong to the day before.
        return (day in days and at >= begin) or ((day - 1) % 7 in days and at < end)

    return holds


def _days(first: str | None, last: str | None) -> frozenset[int]:
    if first is None:
        return frozenset(range(7))
    if first not in _DAYS or (last is not None and last not in _DAYS):
        raise RuleMalformed(f"days out of {', '.join(_DAYS)}", "write them as in mon-fri 08:00-18:00")
    begin = _DAYS.index(first)
    length = (_DAYS.index(last or first) - begin) % 7
    return frozenset((begin + step) % 7 for step in range(length + 1))


def _argument(name: str | None, pattern: str) -> Condition:
    matches = glob(pattern)

    def holds(call: Call, _: Subject, __: PolicyContext) -> bool:
        values = list(call.arguments.values()) if name is None else [call.arguments.get(name)]
        return any(matches(words) for words in _words(values))

    return holds


def _words(values: Sequence[Any]) -> Iterator[str]:
    """Yield all scalar values in arguments as text, at any depth. Numbers and booleans are written as in JSON."""
    left = list(values)
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, bool):
            yield "true" if value else "false"
        elif isinstance(value, int | float):
            yield str(value)
        elif isinstance(value, Mapping):
            left += value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            left += value
