"""The door of features: what one may hook into, and what it is given. The core imports none of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Protocol

from bot import errors
from bot.access_list import AccessList
from bot.contracts.agent import CompactResult
from bot.contracts.approvals import Approvals, OpenQuestion, QuestionButtons, Verdict
from bot.contracts.artifacts import Artifacts
from bot.contracts.channel import Channel, ChannelSettings, Manifest
from bot.contracts.environment import Clock, Ids, Log, OperatorNotices, Redact
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.memory_files import MemoryFiles
from bot.contracts.tasks import TaskEvents
from bot.contracts.tools import ToolWatch
from bot.core.access import Access, Memberships
from bot.core.chat import Chat, Turn
from bot.core.chats import Chats, Fact
from bot.core.event_log import EventLog
from bot.core.events import Decided
from bot.core.live_messages import LiveMessages
from bot.core.locales import Locales
from bot.core.models import ModelDeps
from bot.core.operator_chats import OperatorChats
from bot.core.question import Question
from bot.core.rate_limit import RateLimiter
from bot.core.saying import Saying

PACKAGE = "bot.features"
GROUP = "shipmate.features"
"""The entry points of features that others ship."""

UNKNOWN = ""
"""The name of the command that answers those which nobody knows."""
Settle = Callable[[Question, Verdict], Awaitable[Sequence[Fact] | None]]
"""Carries out a verdict; the facts of it, None where it does not hold any more."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the core gives to features. `operators` are those of now; `suspended` frees the turn's place among those that run, for a
    block in which it waits for a person; `settle` carries out what is decided about a question, whatever its subject.
    `models` gives those of a chat, with what was chosen for it. `settled` gives the part of words that go on which cannot become a secret. `compact` makes the history of a chat smaller, as a command
    asks for it.
    """

    name: str
    models: Callable[[ChatKey], ModelDeps]
    chats: Chats
    event_log: EventLog
    channels: Mapping[str, Channel]
    manifests: Mapping[str, Manifest]
    access: Access
    lists: AccessList
    notes: MemoryFiles
    artifacts: Artifacts
    memberships: Memberships
    operators: Collection[UserRef]
    operator_chats: OperatorChats
    alerts: OperatorNotices
    locales: Locales
    saying: Saying
    live: LiveMessages
    limits: RateLimiter
    settings: Mapping[str, ChannelSettings]
    """Those of the channels."""
    slots: int
    """Limit of turns that run at once."""
    redact: Redact
    settled: Redact
    boot: str
    compact: Callable[[Inbound], Awaitable[CompactResult]]
    suspended: Callable[[], AbstractAsyncContextManager[None]]
    settle: Settle
    clock: Clock
    ids: Ids
    log: Log


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a command: words for its person, "" for none, and facts. These and the end of the command are one transaction, so that
    a command is never carried out twice.
    """

    say: str = ""
    facts: Sequence[Fact] = ()
    buttons: QuestionButtons | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command of people. One that is `queued` changes the conversation: it waits for what runs, but for one that `tells` something
    where it has no arguments. These and those that are `about` a conversation are carried out in the one that is meant.
    """

    run: Callable[[Inbound], Awaitable[Done]]
    queued: bool = False
    tells: bool = False
    about: bool = False

    @classmethod
    def saying(cls, words: Callable[[Inbound], Awaitable[str]], *, about: bool = False) -> Command:
        """A command that answers, and changes no conversation."""

        async def run(inbound: Inbound) -> Done:
            return Done(await words(inbound))

        return cls(run, about=about)


class WorkWatch(ToolWatch, TaskEvents, Protocol):
    """Is told what turns have at work."""


@dataclass(frozen=True, slots=True)
class Display:
    """Shows turns while they run. `begin` is called in the task of each; `preview` shows an answer that is being written."""

    begin: Callable[[Turn], object]
    preview: Callable[[Chat, Inbound, Callable[[], str]], object]
    work: WorkWatch
    close: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a feature adds. `signals` are commands for kinds of inbounds that are no messages."""

    commands: Mapping[str, Command] = field(default_factory=dict)
    signals: Mapping[str, Command] = field(default_factory=dict)
    approvals: Approvals | None = None
    """Asks people before a call that a rule wants asked; without one such calls are denied."""
    settles: Mapping[str, Settle] = field(default_factory=dict)
    """Carry out what somebody has decided about a question of a subject."""
    serves: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Loops that run while the gateway serves."""
    questions: Callable[[ChatKey, UserRef], list[OpenQuestion]] | None = None
    """The open questions of a chat, as a person sees them who opens it."""
    display: Display | None = None
    outcomes: Mapping[str, Callable[[Question], str]] = field(default_factory=dict)
    """The words below a question of a subject once it is decided."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A folder of `bot.features`, or a package with an entry point, exports one as `FEATURE`."""

    name: str
    build: Callable[[Runtime], Hooks]


class Door:
    """All that features have added."""

    def __init__(self) -> None:
        self.commands: dict[str, Command] = {}
        self.signals: dict[str, Command] = {}
        self.approvals: Approvals | None = None
        self.display: Display | None = None
        self._outcomes: dict[str, Callable[[Question], str]] = {}
        self._settles: dict[str, Settle] = {}
        self.serves: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._questions: list[Callable[[ChatKey, UserRef], list[OpenQuestion]]] = []

    def open(self, features: Iterable[Feature], runtime: Runtime) -> None:
        """Let these in. Raises `errors.ConfigError` where two claim one name."""
        for feature in features:
            hooks = feature.build(runtime)
            for mine, theirs in ((self.commands, hooks.commands), (self.signals, hooks.signals)):
                if twice := mine.keys() & theirs.keys():
                    raise errors.ConfigError(
                        f"features: {feature.name} adds {min(twice)}, which another one has"
                    )
                mine.update(theirs)
            self.approvals = hooks.approvals or self.approvals
            self.display = hooks.display or self.display
            self._outcomes |= hooks.outcomes
            self._settles |= hooks.settles
            self.serves += hooks.serves
            self._questions += [hooks.questions] if hooks.questions is not None else []

    def command(self, inbound: Inbound) -> Command | None:
        """The command that an inbound is; None where it is a message, or one that nobody knows."""
        if inbound.command is not None:
            return self.commands.get(inbound.command.name) or self.commands.get(UNKNOWN)
        return self.signals.get(inbound.kind)

    def needs_turn(self, inbound: Inbound) -> bool:
        """True for a message, and for a command that waits for what runs."""
        if inbound.command is None:
            return inbound.kind == "message"
        command = self.command(inbound)
        return command is not None and command.queued and bool(inbound.args or not command.tells)

    def is_about_conversation(self, inbound: Inbound) -> bool:
        """True for a command about one conversation of a chat."""
        command = self.command(inbound) if inbound.command is not None else None
        return command is not None and (command.queued or command.about)

    def questions(self, chat: ChatKey, person: UserRef) -> list[OpenQuestion]:
        """The open questions of a chat, as a person sees them who opens it."""
        return [one for asked in self._questions for one in asked(chat, person)]

    async def settle(self, question: Question, verdict: Verdict) -> Sequence[Fact] | None:
        """Carry out what is decided about a question (`Settle`)."""
        settle = self._settles.get(question.record.asked.subject)
        if settle is not None:
            return await settle(question, verdict)
        return (Fact(question.record.asked.chat_key, Decided(question.id, verdict), question.turn),)

    def outcome(self, question: Question) -> str:
        """The words below a question that is decided."""
        words = self._outcomes.get(question.record.asked.subject)
        return "" if words is None else words(question)


def found() -> list[Feature]:
    """Every feature, those of this package first, by name."""
    package = importlib.import_module(PACKAGE)
    modules = sorted(one.name for one in pkgutil.iter_modules(package.__path__) if one.ispkg)
    own = [getattr(importlib.import_module(f"{PACKAGE}.{name}"), "FEATURE", None) for name in modules]
    others = [one.load() for one in entry_points(group=GROUP)]
    return [one for one in (*own, *others) if isinstance(one, Feature)]
