"""The permission rules of an installation, compiled and indexed by tool. Deny rules precede ask rules, and ask rules
precede allow rules. If no rule matches, the defaults apply.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bot.text import folded
from bot.tools.permissions import defaults
from bot.tools.permissions.grammar import (
    AND,
    TRUSTED,
    Call,
    Condition,
    Decision,
    Outcome,
    ParsedRule,
    PolicyContext,
    RuleMalformed,
    Subject,
    compile_condition,
    parse,
)
from bot.tools.permissions.matching import Paths, glob
from bot.tools.permissions.patterns import Answer, JudgedCall, Pattern, compile_pattern
from bot.tools.permissions.protected_code import ProtectedCode

STRICT: dict[Outcome, int] = {"deny": 0, "ask": 1, "allow": 2}


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule compiled for one tool."""

    text: str
    trusted: bool
    pattern: Pattern | None
    conditions: Sequence[Condition]

    def answer(self, call: Call, asked: JudgedCall, subject: Subject, now: PolicyContext) -> Answer:
        if not all(holds(call, subject, now) for holds in self.conditions):
            return "no"
        return "yes" if self.pattern is None else self.pattern(asked)


class Rules:
    """Judges calls by the rules. It reads only symlinks, through `paths`. Raises `RuleMalformed` for an invalid rule."""

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
        for outcome, parsed in self._rules:
            check(parsed, outcome, paths)
        self._tools: dict[str, dict[Outcome, list[_Rule]]] = {}

    def judge(self, call: Call, subjects: Sequence[Subject], now: PolicyContext) -> Decision:
        """Return the decision on a call. If several people caused the call, each is judged and the strictest decision
        counts.
        """
        asked = JudgedCall(self._paths, call.arguments)
        decisions = [self._judge(call, asked, subject, now) for subject in subjects]
        if not decisions:
            return Decision("deny", "default", "no person asked for this")
        strictest = min(decisions, key=lambda decision: STRICT[decision.outcome])
        return replace(
            strictest,
            granted=all(decision.granted for decision in decisions),
            lasting=not defaults.taints(call, now),
            own=all(decision.own for decision in decisions),
        )

    def permits(self, call: Call, subject: Subject, now: PolicyContext) -> bool:
        """Return True if an allow rule matches. All other rules and the defaults are ignored."""
        asked = JudgedCall(self._paths, call.arguments)
        return any(rule.answer(call, asked, subject, now) == "yes" for rule in self._of(call.tool)["allow"])

    def _judge(self, call: Call, asked: JudgedCall, subject: Subject, now: PolicyContext) -> Decision:
        tool = self._of(call.tool)
        doubt: _Rule | None = None
        for rule in tool["deny"]:
            answer = rule.answer(call, asked, subject, now)
            if answer == "yes":
                return Decision("deny", "rule", "a rule of this installation forbids it", f"deny {rule.text}")
            if answer == "unclear":
                doubt = doubt or rule
        if (closed := defaults.protected(call, asked, self._code)) is not None:
            return Decision("deny", "protected", closed)
        given = [rule for rule in tool["allow"] if rule.answer(call, asked, subject, now) == "yes"]
        if doubt is not None:
            return defaults.asks("rule", "doubt", f"deny {doubt.text}")
        if given and (why := defaults.instructs(call, asked)) and not any(rule.trusted for rule in given):
            # The person cannot approve this alone. The file instructs everybody's turns, including those of operators.
            return defaults.asks("default", why, f"allow {given[0].text}")
        for rule in tool["ask"]:
            if rule.answer(call, asked, subject, now) != "no":
                return defaults.asks("rule", "rule", f"ask {rule.text}", granted=bool(given))
        return _given(call, given, now) if given else defaults.decided(call, now)

    def _of(self, name: str) -> dict[Outcome, list[_Rule]]:
        if name not in self._tools:
            tool = self._tools[name] = {"deny": [], "ask": [], "allow": []}
            for outcome, parsed in self._rules:
                # Case is ignored, because servers choose and change the case of names.
                if glob(folded(parsed.tool))(folded(name)):
                    # After a wildcard name, a pattern may be invalid for this tool and valid for another one.
                    with contextlib.suppress(RuleMalformed):
                        tool[outcome].append(_compile(name, parsed, outcome, self._paths))
        return self._tools[name]


def _given(call: Call, given: Sequence[_Rule], now: PolicyContext) -> Decision:
    """Return the decision of the allow rules that match. If foreign text is in the model's context and no matching rule
    is marked `@trusted:`, the decision is to ask.
    """
    rule = next((one for one in given if one.trusted), given[0])
    if not rule.trusted and defaults.taints(call, now):
        own = call.tool in defaults.OWN
        return defaults.asks("taint", "tainted", f"allow {rule.text}", granted=True, own=own)
    reason = "a rule of this installation allows it"
    return Decision("allow", "rule", reason, f"allow {rule.text}", granted=True, trusted=rule.trusted)


def _compile(name: str, parsed: ParsedRule, outcome: Outcome, paths: Paths) -> _Rule:
    pattern = None
    if parsed.pattern is not None:
        pattern = compile_pattern(name, parsed.pattern, paths, wide=outcome != "allow")
    parts = AND.split(parsed.condition) if parsed.condition is not None else []
    conditions = [compile_condition(part.strip()) for part in parts]
    return _Rule(parsed.text, TRUSTED in parsed.tags, pattern, conditions)


def check(parsed: ParsedRule, outcome: Outcome, paths: Paths) -> None:
    """Raise `RuleMalformed` if a rule cannot be compiled for any tool that it names."""
    names = [name for name in defaults.CORE if "*" in parsed.tool and glob(parsed.tool)(name)]
    problems = list[RuleMalformed]()
    for name in names or [parsed.tool]:
        try:
            _compile(name, parsed, outcome, paths)
        except RuleMalformed as error:
            problems.append(error)
        else:
            return
    raise problems[0]
