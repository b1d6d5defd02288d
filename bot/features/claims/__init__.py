"""Claim check: compares the actions that a reply claims with the tool calls of its turn.

`detection` finds claims in a text, using one file of phrases per language. `performed_actions` records the
tool calls. `checked` wraps the reply.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import regex

from bot import errors, text
from bot.contracts.base import Json, Message
from bot.contracts.environment import Log
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
from bot.tools.permissions.defaults import SCHEDULING
from bot.tools.registry import Registry

Kind = Literal["sent", "mailed", "saved", "deleted", "ran", "scheduled", "acted"]
"""Kinds of claims. `sent` may refer to this chat, `mailed` refers to another recipient, and `acted` covers
any other effect (installed, booked, paid …).
"""
_LOADED: dict[str, Language] = {}


@dataclass(frozen=True, slots=True)
class ClaimPattern:
    """A phrase pattern for one kind of claim. `own` means that the phrase itself names the author as the one
    who acted; otherwise the phrase may report somebody else's action.
    """

    kind: Kind
    pattern: Pattern
    own: bool = True


@dataclass(frozen=True, slots=True)
class Language:
    """The phrases of one language. `before` is searched from the start of the sentence to the end of the
    claim, `around` in the clause of the claim. A match of either means that there is no claim. `earlier`
    recognises actions of earlier turns, `admits` recognises reported failures.
    """

    name: str
    deed: re.Pattern[str]
    """Pattern of verbs in lower case. Every claim contains at least one of these verbs."""
    sayings: tuple[ClaimPattern, ...]
    before: Pattern
    around: Pattern
    earlier: Pattern
    admits: Pattern
    requests: Pattern
    """Pattern of requests that are phrased as questions."""
    reviewing: Pattern
    """Pattern of questions whether something was done."""
    orders: dict[Kind, Pattern]
    """Patterns of requests, by the kind of claim that would answer each request."""
    done: dict[Kind, Pattern]
    """Patterns of statements that somebody else performed an action of this kind."""
    note: str
    """Note added below a reply; `{claim}` is replaced by the sentence with the claim."""

    def names_deed(self, words: str) -> bool:
        """Return True if the text contains a verb used in claims. Other texts are not examined further."""
        return self.deed.search(words.lower()) is not None


def _language(name: str) -> Language:
    """Load a language file; compiling its patterns takes a tenth of a second."""
    if name not in _LOADED:
        raw = phrases.load(Path(__file__).parent, name)
        rest: dict[str, Any] = {
            key: {of: compiled(one) for of, one in value.items()}
            if isinstance(value, dict)
            else compiled(value)
            for key, value in raw.items()
            if key not in {"name", "note", "sayings", "deed"}
        }
        sayings = tuple(
            ClaimPattern(one["kind"], compiled(one["pattern"]), one.get("own", True))
            for one in raw["sayings"]
        )
        # Every reply is searched. Searching only lower case is four times faster.
        deed = re.compile(raw["deed"])
        _LOADED[name] = Language(name=raw["name"], note=raw["note"], sayings=sayings, deed=deed, **rest)
    return _LOADED[name]


_UNMARKED = str.maketrans({"*": None, "_": None, "~": None, "`": " "})
_PERSONS = regex.compile(
    r"^\W*(?:what|when|where|who|why|how|which|wann|was|wer|wo|warum|wie|welche\w*|什么|何|いつ|誰|どこ|なぜ|谁|哪|怎么)\b|[?？]\s*$",
    regex.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim found in a text. `earlier` means that the action was done before, perhaps in an earlier turn.
    For `own`, see `ClaimPattern`.
    """

    kind: Kind
    sentence: str
    language: Language
    own: bool
    earlier: bool


def claims(words: str, person: str = "") -> list[Claim]:
    """Return the claims in a reply to the text of a `person`, at most one per kind."""
    found: dict[Kind, Claim] = {}
    words, person = phrases.ends(words), phrases.ends(person)
    if not _names_deed(words):
        return []
    for sentence, shown in phrases.sentences(words):
        for language in languages(sentence):
            for claim in _claimed(sentence, shown, language, person):
                found.setdefault(claim.kind, claim)
    return list(found.values())


def _names_deed(words: str) -> bool:
    """Return False if no sentence can contain a claim. One search of the whole text is much cheaper than one
    search per sentence.
    """
    if phrases.languages(words) != LATIN:
        return True
    bare = words.translate(_UNMARKED)
    return any(language.names_deed(bare) for language in languages(words))


def admits(words: str) -> bool:
    """Return True if a reply says that something failed."""
    return any(language.admits.search(words) for language in languages(words))


def loaded(*texts: str) -> bool:
    """Return True if the languages of these texts are loaded already, so that checking is fast."""
    return all(name in _LOADED for words in texts for name in phrases.languages(phrases.ends(words)))


def languages(words: str) -> tuple[Language, ...]:
    """Return the possible languages of a text. Each language is loaded on first use."""
    return tuple(map(_language, phrases.languages(words)))


def _claimed(sentence: str, shown: str, language: Language, person: str) -> Iterator[Claim]:
    if not language.names_deed(sentence) or phrases.asks(sentence):
        return
    for saying in language.sayings:
        match = saying.pattern.search(sentence)
        if match is None or language.before.search(sentence[: match.end()]):
            continue
        if language.around.search(phrases.clause(sentence, match.start(), match.end())) or _asked_otherwise(
            saying, person
        ):
            continue
        earlier = bool(language.earlier.search(sentence)) or _any(person, "reviewing")
        yield Claim(saying.kind, shown, language, saying.own, earlier)


def _asked_otherwise(saying: ClaimPattern, person: str) -> bool:
    """Return True if the person asked for something other than an action: an answer, a draft, or a report."""
    if not saying.own:
        if not _order(saying.kind, person):
            return True
        asks = bool(_PERSONS.search(person)) and not _any(person, "requests")
        if asks or any(language.done[saying.kind].search(person) for language in languages(person)):
            return True
    return bool(person) and phrases.composing(person) and not _order(saying.kind, person)


def _order(kind: Kind, person: str) -> bool:
    return any(language.orders[kind].search(person) for language in languages(person))


def _any(person: str, what: str) -> bool:
    return any(getattr(language, what).search(person) for language in languages(person))


TASK = "task"
_LOOKS = regex.compile(
    "check|count|describe|fetch|find|get|inspect|list|lookup|query|read|search|show|status|view|whoami",
    regex.IGNORECASE,
)
"""Verbs in names of third-party tools that only read."""
_EVERYTHING: frozenset[Kind] = frozenset({"sent", "mailed", "saved", "deleted", "ran", "scheduled", "acted"})
_BY_EFFECT: dict[Effect, frozenset[Kind]] = {
    "write": frozenset({"saved", "deleted"}),
    "run": frozenset({"saved", "deleted", "ran", "acted"}),
    "message": frozenset({"sent", "mailed", "acted"}),
}


@dataclass(frozen=True, slots=True)
class PerformedAction:
    """A tool call that was run. `worked` is True if the tool reported no failure."""

    tool: str
    effects: frozenset[Effect]
    worked: bool
    looks: bool = False

    def bears_out(self, *, inside: bool = True) -> frozenset[Kind]:
        """Return the kinds of claims that this action supports. A subagent whose calls are unknown (`inside`
        is False) supports all kinds.
        """
        if self.looks:
            return frozenset()
        if self.tool == ChatSend.name:
            return frozenset({"sent"})
        if self.tool.startswith(MCP) or (self.tool == TASK and not inside):
            return _EVERYTHING
        if self.tool in SCHEDULING:
            return frozenset({"scheduled", "acted"})
        if {"run", "network"} <= self.effects:
            return _EVERYTHING  # a command that reaches the network may do anything
        return frozenset().union(*(_BY_EFFECT.get(effect, ()) for effect in self.effects))


@dataclass(slots=True)
class PerformedActions:
    """The tool calls of a turn. `calling` counts the running tools."""

    done: list[PerformedAction] = field(default_factory=list)
    calling: int = 0


_current: ContextVar[PerformedActions | None] = ContextVar("performed_actions", default=None)


def record_here() -> PerformedActions:
    """Start recording in the current asyncio task, which belongs to one turn."""
    actions = PerformedActions()
    _current.set(actions)
    return actions


@dataclass(frozen=True, slots=True)
class ActionRecorder:
    """A `tools.dispatch.CallWrapper` that records each call that was run."""

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


def action_of(call: ToolCall, registry: Registry, *, failed: bool) -> PerformedAction:
    """Return a call as a `PerformedAction`."""
    tool = registry.get(call.name)
    effects = tool.effects if tool is not None else frozenset[Effect]()
    return PerformedAction(call.name, effects, not failed, _looks(call, effects))


def _looks(call: ToolCall, effects: frozenset[Effect]) -> bool:
    """Return True if a call can only have read something."""
    name = call.name
    if name.startswith(MCP):
        words = regex.findall(r"[A-Z]?[a-z]+", name.split("__", 2)[-1])
        return effects == {"read"} or (bool(words) and _LOOKS.fullmatch(words[0]) is not None)
    if name == "memory":
        return bool(call.input.get("command") == "view")
    return name == "schedule_list" or effects == {"read"}


def performed_in(messages: Iterable[Message], registry: Registry) -> list[PerformedAction]:
    """Return the actions of the tool calls in these messages. Whether a call worked is taken from its result."""
    calls: dict[str, ToolCall] = {}
    found: list[PerformedAction] = []
    for message in messages:
        content = message["content"]
        blocks: Sequence[Json] = content if isinstance(content, list) else ()
        for block in blocks:
            if block.get("type") == "tool_use":
                calls[block["id"]] = ToolCall.of(block)
            elif block.get("type") == "tool_result" and block["tool_use_id"] in calls:
                call, result = calls[block["tool_use_id"]], ToolResult.of(block)
                found.append(action_of(call, registry, failed=result.failed))
    return found


SHORT = 800
"""Max characters of a reply that is checked on the event loop. Checking takes milliseconds once the language
is loaded.
"""
SHOWN = 120
"""Max characters of a sentence quoted in a note."""


class CheckedReply:
    """Wraps `tools.context.Reply`. The first reply with an unfounded claim is rejected; a second one is sent
    with a note.

    On the first unfounded claim, the sending tool gets `errors.ClaimUnfounded`. `person` returns the text
    that the turn answers. `recorded` returns the turn's actions from before a restart.
    """

    def __init__(
        self,
        inner: Reply,
        done: PerformedActions,
        *,
        person: Callable[[], str],
        recorded: Callable[[], Awaitable[list[PerformedAction]]],
        registry: Registry,
        log: Log,
    ) -> None:
        self._inner = inner
        self._done = done
        self._person = person
        self._recorded = recorded
        self._registry = registry
        self._log = log
        self._corrected = False

    @property
    def written(self) -> Sequence[str]:
        return self._inner.written

    def preview(self, words: Callable[[], str]) -> None:
        self._inner.preview(words)

    async def send(
        self, words: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        """See `tools.context.Reply.send`. In addition, this method raises `errors.ClaimUnfounded`."""
        person = self._person()
        if len(words) <= SHORT and loaded(words, person) and not claims(words, person):
            return await self._inner.send(words, step_id, files)
        looking = asyncio.ensure_future(self._unfounded(words))
        try:
            found = await asyncio.shield(looking)
        except asyncio.CancelledError:
            # The turn was stopped, so the model cannot correct the reply; the reply is sent with a note if needed.
            await self._inner.send(self._marked(words, await looking), step_id, files)
            raise
        if found and self._done.calling and not self._corrected:
            self._corrected = True
            self._note(found, "corrected")
            raise errors.ClaimUnfounded(text.preview(found[0].sentence, SHOWN))
        return await self._inner.send(self._marked(words, found), step_id, files)

    def _marked(self, words: str, found: Sequence[Claim]) -> str:
        """Return the reply, with a note if unfounded claims were `found`."""
        if not found:
            return words
        self._note(found, "marked")
        first = found[0]
        return f"{words}\n\n{first.language.note.format(claim=text.preview(first.sentence, SHOWN))}"

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
        """Return the claims in a reply that no action of the turn supports."""
        left = await asyncio.to_thread(unfounded, words, self._person(), tuple(self._done.done))
        if left:
            known = any(one.tool == TASK for one in self._done.done)
            left = _without(left, await self._recorded(), admits=admits(words), inside=known)
        if any(claim.earlier for claim in left) and (before := self._before()) is not None:
            found = _without(left, before, admits=True)
            return [claim for claim in left if not claim.earlier or claim in found]
        return [claim for claim in left if not claim.earlier]

    def _before(self) -> list[PerformedAction] | None:
        """Return the actions of earlier turns that are in the model's context; None if some of these actions
        are unknown.
        """
        try:
            view: Sequence[Message] = context.current().view()
        except errors.ToolError:
            return None
        return None if _forgotten(view) else performed_in(view, self._registry)


def unfounded(words: str, person: str, done: Sequence[PerformedAction]) -> list[Claim]:
    """Return the claims of a reply to `person` that no action in `done` supports."""
    left = _without(claims(words, person), done, admits=admits(words))
    # A claim without a subject may report what a tool found.
    return [claim for claim in left if claim.own] if any(one.worked for one in done) else left


def _without(
    claims: Iterable[Claim], done: Iterable[PerformedAction], *, admits: bool, inside: bool = True
) -> list[Claim]:
    """Return the claims that no action supports. A failed command supports only the claim that it was run.
    If the reply admits a failure, a failed action counts like a successful one.
    """
    borne: set[str] = set()
    for one in done:
        if one.worked or admits:
            borne |= one.bears_out(inside=inside)
        elif "run" in one.effects:
            borne.add("ran")
    return [claim for claim in claims if claim.kind not in borne]


def _forgotten(view: Sequence[Message]) -> bool:
    """Return True if the model's context contains older turns only as a summary or as loaded archive lines."""
    return any(map(memory.stands_for, view))


def _build(runtime: Runtime) -> Hooks:
    def wrap(chat: Chat, reply: Reply, registry: Registry) -> Reply:
        def person() -> str:
            return "\n".join(one.text for one in chat.turn.members) if chat.turn is not None else ""

        async def recorded() -> list[PerformedAction]:
            return performed_in(chat.context.current(), registry)

        return CheckedReply(
            reply, record_here(), person=person, recorded=recorded, registry=registry, log=runtime.log
        )

    return Hooks(wrap_reply=wrap, wrap_call=ActionRecorder)


FEATURE = Feature("claims", _build)
