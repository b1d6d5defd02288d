"""Claim check: compares the actions that a reply claims to have done with the tool calls of its turn.

Quotes, drafts, code, past events, conditions, plans, denials and questions are no claims. In doubt, a sentence is no claim.
Each language has a file of phrases in this folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import regex

from bot import errors, text
from bot.contracts.base import Message
from bot.contracts.outbound import OutgoingFile, Sent
from bot.contracts.tools import MCP, Effect, ToolCall, ToolResult
from bot.core import memory, phrases
from bot.core.chat import Chat
from bot.core.feature import Feature, Hooks, Runtime
from bot.core.phrases import LATIN, Pattern, compiled
from bot.tools import context
from bot.tools.builtin.chat_send import ChatSend
from bot.tools.context import Reply
from bot.tools.dispatch import CallWrapper
from bot.tools.permissions.rules import SCHEDULING
from bot.tools.registry import Registry

Kind = Literal["sent", "mailed", "saved", "deleted", "ran", "scheduled", "acted"]
"""Kind of the claimed action. `mailed`: sent to another recipient. `acted`: any other effect (installed, booked, paid …)."""
SHOWN = 120  # max characters of the sentence that a note below the reply quotes

# ------------------------------------------------------------ claims


@dataclass(frozen=True, slots=True)
class ClaimPattern:
    """Regular expression for one kind of claim. `own`: the phrase says that the author of the reply acted."""

    kind: Kind
    pattern: Pattern
    own: bool = True


@dataclass(frozen=True, slots=True)
class Language:
    """Phrases of one language. A sentence is no claim if `before` matches between its start and the end of the claim, or if
    `around` matches in the claim's clause. `earlier` matches mentions of actions in earlier turns, and `admits` matches
    reports of a failure.
    """

    name: str
    deed: re.Pattern[str]
    """Pattern of lower-case verbs. Every claim contains at least one of these verbs."""
    sayings: tuple[ClaimPattern, ...]
    before: Pattern
    around: Pattern
    earlier: Pattern
    admits: Pattern
    requests: Pattern  # pattern of requests in the form of a question ("can you …?")
    reviewing: Pattern  # pattern of questions that ask if something was done
    orders: dict[Kind, Pattern]  # patterns of a person's requests, by the kind of action that is requested
    done: dict[Kind, Pattern]  # patterns of statements that somebody else has acted, by the kind of action
    note: str  # note below a reply; `{claim}` stands for the sentence with the claim


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim in a reply. `earlier`: an earlier turn did the action. `own`: see `ClaimPattern`."""

    kind: Kind
    sentence: str
    language: Language
    own: bool
    earlier: bool


_UNMARKED = str.maketrans({"*": None, "_": None, "~": None, "`": " "})
_ASKS_FACTS = regex.compile(
    r"^\W*(?:what|when|where|who|why|how|which|wann|was|wer|wo|warum|wie|welche\w*|什么|何|いつ|誰|どこ|なぜ|谁|哪|怎么)\b|[?？]\s*$",
    regex.IGNORECASE,
)


@functools.cache
def _language(name: str) -> Language:
    """Load a language file. The result is cached, because compiling the patterns takes a tenth of a second."""
    raw: dict[str, Any] = phrases.load(Path(__file__).parent, name)
    sayings = tuple(
        ClaimPattern(one["kind"], compiled(one["pattern"]), one.get("own", True))
        for one in raw.pop("sayings")
    )
    # Every reply is searched for this pattern. It is compiled without IGNORECASE, which makes the search four times faster.
    deed, name, note = re.compile(raw.pop("deed")), raw.pop("name"), raw.pop("note")
    rest: dict[str, Any] = {
        key: {of: compiled(one) for of, one in value.items()} if isinstance(value, dict) else compiled(value)
        for key, value in raw.items()
    }
    return Language(name=name, note=note, sayings=sayings, deed=deed, **rest)


def languages(words: str) -> tuple[Language, ...]:
    """Return the languages in which a text may be written. Each language is loaded on first use."""
    return tuple(map(_language, phrases.languages(words)))


def claims(words: str, person: str = "") -> list[Claim]:
    """Return the claims in a reply, at most one per kind. `person` is the text that the reply answers."""
    found: dict[Kind, Claim] = {}
    words, person = phrases.ends(words), phrases.ends(person)
    # First search the whole text once, because a search of each sentence takes much longer.
    bare = words.translate(_UNMARKED).lower()
    if phrases.languages(words) == LATIN and not any(one.deed.search(bare) for one in languages(words)):
        return []
    for sentence, shown in phrases.sentences(words):
        for language in languages(sentence) if not phrases.asks(sentence) else ():
            for claim in _claimed(sentence, shown, language, person):
                found.setdefault(claim.kind, claim)
    return list(found.values())


def _claimed(sentence: str, shown: str, language: Language, person: str) -> Iterator[Claim]:
    if language.deed.search(sentence.lower()) is None:
        return
    for saying in language.sayings:
        match = saying.pattern.search(sentence)
        if match is None or language.before.search(sentence[: match.end()]):
            continue
        around = phrases.clause(sentence, match.start(), match.end())
        if language.around.search(around) or _is_no_answer_to(person, saying):
            continue
        reviewing = any(one.reviewing.search(person) for one in languages(person))
        earlier = bool(language.earlier.search(sentence)) or reviewing
        yield Claim(saying.kind, shown, language, saying.own, earlier)


def _is_no_answer_to(person: str, saying: ClaimPattern) -> bool:
    """Return True if the person asked for an answer, a draft or a report, and not for this kind of action."""
    known = languages(person)
    ordered = any(one.orders[saying.kind].search(person) for one in known)
    if not saying.own:
        asks = _ASKS_FACTS.search(person) and not any(one.requests.search(person) for one in known)
        if not ordered or asks or any(one.done[saying.kind].search(person) for one in known):
            return True
    return bool(person) and phrases.composing(person) and not ordered


# ------------------------------------------------------------ performed actions

TASK = "task"
_LOOKS = regex.compile(
    "check|count|describe|fetch|find|get|inspect|list|lookup|query|read|search|show|status|view|whoami",
    regex.IGNORECASE,
)
"""Pattern of words with which the names of read-only third-party tools begin."""
_EVERYTHING: frozenset[Kind] = frozenset({"sent", "mailed", "saved", "deleted", "ran", "scheduled", "acted"})
_BY_EFFECT: dict[Effect, frozenset[Kind]] = {
    "write": frozenset({"saved", "deleted"}),
    "run": frozenset({"saved", "deleted", "ran", "acted"}),
    "message": frozenset({"sent", "mailed", "acted"}),
}


@dataclass(frozen=True, slots=True)
class PerformedAction:
    """A tool call that was run. `kinds` are the claims that it can support. `worked`: the tool reported no failure."""

    tool: str
    kinds: frozenset[Kind]
    worked: bool

    def supports(self, *, admits: bool) -> frozenset[Kind]:
        """Return the kinds of claims that the call supports. A failed call supports the kind `ran`. It supports
        other kinds only if the reply admits the failure.
        """
        return self.kinds if self.worked or admits else self.kinds & {"ran"}


def action_of(call: ToolCall, registry: Registry, *, failed: bool) -> PerformedAction:
    tool = registry.get(call.name)
    return PerformedAction(call.name, _kinds(call, tool.effects if tool else frozenset()), not failed)


def _kinds(call: ToolCall, effects: frozenset[Effect]) -> frozenset[Kind]:
    if call.name == ChatSend.name:
        return frozenset({"sent"})
    if call.name.startswith(MCP):
        words = regex.findall(r"[A-Z]?[a-z]+", call.name.split("__", 2)[-1])
        looks = effects == {"read"} or (words and _LOOKS.fullmatch(words[0]))
        return frozenset() if looks else _EVERYTHING
    views = call.name == "memory" and call.input.get("command") == "view"
    if views or call.name == "schedule_list" or effects == {"read"}:
        return frozenset()
    if call.name in SCHEDULING:
        return frozenset({"scheduled", "acted"})
    if {"run", "network"} <= effects:
        return _EVERYTHING  # a command with network access may do anything
    return frozenset().union(*(_BY_EFFECT.get(effect, ()) for effect in effects))


def performed_in(messages: Iterable[Message], registry: Registry) -> list[PerformedAction]:
    """Return the tool calls in these messages. The calls inside a subagent are unknown, so a call of the subagent tool
    supports every kind of claim.
    """
    calls: dict[str, ToolCall] = {}
    found: list[PerformedAction] = []
    for block in (one for message in messages for one in message["content"] if isinstance(one, dict)):
        if block.get("type") == "tool_use":
            calls[block["id"]] = ToolCall.of(block)
        elif block.get("type") == "tool_result" and (call := calls.get(block["tool_use_id"])) is not None:
            worked = not ToolResult.of(block).failed
            action = action_of(call, registry, failed=not worked)
            found.append(PerformedAction(TASK, _EVERYTHING, worked) if call.name == TASK else action)
    return found


@dataclass(slots=True)
class PerformedActions:
    """Tool calls of a turn and of the turn's subagents. `calling` is the number of calls that are running now."""

    done: list[PerformedAction] = field(default_factory=list)
    calling: int = 0


_current: ContextVar[PerformedActions | None] = ContextVar("performed_actions", default=None)


@dataclass(frozen=True, slots=True)
class ActionRecorder:
    """Implements `tools.dispatch.CallWrapper`: records each tool call that was run."""

    around: CallWrapper
    registry: Registry

    async def __call__(self, call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        actions = _current.get()
        if actions is None:
            return await self.around(call, run)

        async def seen() -> ToolResult:
            actions.calling += 1
            try:
                result = await run()
            finally:
                actions.calling -= 1
            actions.done.append(action_of(call, self.registry, failed=result.failed))
            return result

        return await self.around(call, seen)


# ------------------------------------------------------------ replies


class CheckedReply:
    """Wraps a `Reply` and checks its claims. The first unsupported claim raises `errors.ClaimUnfounded`, so that the model
    corrects the reply. A reply with a second unsupported claim is sent with a note.
    """

    def __init__(self, inner: Reply, chat: Chat, registry: Registry, runtime: Runtime) -> None:
        self._inner = inner
        self._chat = chat
        self._registry = registry
        self._log = runtime.log
        self._actions = PerformedActions()
        _current.set(self._actions)  # for the current asyncio task, which runs one turn
        self._corrected = False

    async def send(
        self, words: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        """Implement `tools.context.Reply.send`. Additionally raises `errors.ClaimUnfounded`."""
        looking = asyncio.ensure_future(self._unfounded(words))
        try:
            found = await asyncio.shield(looking)
        except asyncio.CancelledError:
            # The turn was stopped, so the model cannot correct the reply. Send it, with a note if a claim is unsupported.
            await self._inner.send(self._marked(words, await looking), step_id, files)
            raise
        if found and self._actions.calling and not self._corrected:
            self._corrected = True
            self._note(found, "corrected")
            raise errors.ClaimUnfounded(claim=text.preview(found[0].sentence, SHOWN))
        return await self._inner.send(self._marked(words, found), step_id, files)

    def _marked(self, words: str, found: Sequence[Claim]) -> str:
        if not found:
            return words
        self._note(found, "marked")
        claim = text.preview(found[0].sentence, SHOWN)
        return f"{words}\n\n{found[0].language.note.format(claim=claim)}"

    def _note(self, found: Sequence[Claim], action: str) -> None:
        self._log.write(
            "claim",
            "a reply says that something was done which no tool did",
            level="warn",
            claims=[claim.kind for claim in found],
            language=found[0].language.name,
            action=action,
        )

    async def _unfounded(self, words: str) -> list[Claim]:
        """Return the claims that no tool call of the turn supports. Earlier turns can support claims about earlier actions;
        if a summary hides the earlier turns, such claims count as supported.
        """
        turn, done = self._chat.turn, list(self._actions.done)
        person = "\n".join(one.text for one in turn.members) if turn is not None else ""
        left = await asyncio.to_thread(claims, words, person)
        if not left:
            return []
        # After a restart, only the context knows the calls that an earlier process made.
        inside = any(one.tool == TASK for one in done)
        recorded = performed_in(self._chat.context.current(), self._registry)
        done += [one for one in recorded if one.tool != TASK or not inside]
        admits = any(language.admits.search(words) for language in languages(words))
        left = _without(left, done, admits=admits)
        if any(one.worked for one in done):
            left = [claim for claim in left if claim.own]  # the other claims may repeat what a tool reported
        if not any(claim.earlier for claim in left):
            return left
        unfounded = list[Claim]()
        with contextlib.suppress(errors.ToolError):  # outside a tool call, the older messages are unknown
            view = context.current().view()
            if not any(map(memory.stands_for, view)):
                unfounded = _without(left, performed_in(view, self._registry), admits=True)
        return [claim for claim in left if not claim.earlier or claim in unfounded]


def _without(found: Iterable[Claim], done: Iterable[PerformedAction], *, admits: bool) -> list[Claim]:
    supported = frozenset[Kind]().union(*(one.supports(admits=admits) for one in done))
    return [claim for claim in found if claim.kind not in supported]


def _build(runtime: Runtime) -> Hooks:
    return Hooks(
        wrap_reply=lambda chat, reply, registry: CheckedReply(reply, chat, registry, runtime),
        wrap_call=ActionRecorder,
    )


FEATURE = Feature("claims", _build)
