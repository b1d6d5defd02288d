"""The door of features: what one may hook into, and what it is given. The core imports none of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Protocol

from bot import config, errors
from bot.access_list import AccessList
from bot.contracts.agent import CompactResult, Reply
from bot.contracts.approvals import Approvals, OpenQuestion, QuestionButtons, Verdict
from bot.contracts.artifacts import Artifacts
from bot.contracts.channel import Channel, ChannelSettings, HomeSection, Manifest
from bot.contracts.environment import Clock, Disk, Ids, Log, OperatorNotices, Redact
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound, Quoted
from bot.contracts.memory_files import MemoryFiles
from bot.contracts.model import Model
from bot.contracts.questions import Answer, Questions
from bot.contracts.questions import Question as ToolQuestion
from bot.contracts.tasks import TaskEvents
from bot.contracts.tools import ToolWatch
from bot.core.access import Access, Memberships
from bot.core.chat import Chat, Turn
from bot.core.chats import Chats, Fact
from bot.core.event_log import EventLog
from bot.core.events import Decided, TurnEndState
from bot.core.exports import Exporter
from bot.core.live_messages import LiveMessages
from bot.core.locales import Locales
from bot.core.models import ModelDeps
from bot.core.operator_chats import OperatorChats
from bot.core.outgoing_files import OutgoingFiles
from bot.core.question import Question
from bot.core.rate_limit import RateLimiter
from bot.core.saying import Saying
from bot.periodic_jobs import PeriodicJob
from bot.tools.dispatch import CallWrapper
from bot.tools.registry import Registry

PACKAGE = "bot.features"
GROUP = "shipmate.features"
"""The entry points of features that others ship."""

UNKNOWN = ""
"""The name of the command that answers those which nobody knows."""
Settle = Callable[[Question, Verdict], Awaitable[Sequence[Fact] | None]]
"""Carries out a verdict; the facts of it, None where it does not hold any more."""

WrapReply = Callable[[Chat, Reply, Registry], Reply]
"""Stands around what the turn of a chat says. Called in the task of each turn."""

WrapCall = Callable[[CallWrapper, Registry], CallWrapper]
"""Stands around each tool call, and what decides whether it runs."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """Services of the core for features. `operators` are those of now; `suspended` frees the turn's place among those that run, for a
    block in which it waits for a person; `settle` carries out what is decided about a question, whatever its subject.
    `models` gives those of a chat, with what was chosen for it. `settled` gives the part of words that go on which cannot become a secret. `compact` makes the history of a chat smaller, as a command
    asks for it.
    """

    configuration: config.Settings
    name: str
    models: Callable[[ChatKey], ModelDeps]
    servers: Callable[[], Mapping[str, str]]
    """The MCP servers with their states, for operators."""
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
    files: OutgoingFiles
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
    disk: Disk
    ids: Ids
    log: Log


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a command or a turn: words for its person, "" for none, and facts. These and its end are one transaction, so that
    a command is never carried out twice.
    """

    say: str = ""
    facts: Sequence[Fact] = ()
    buttons: QuestionButtons | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command of people. One that is `queued` changes the conversation: it waits for what runs, but for one that `tells` something
    where it has no arguments.
    """

    run: Callable[[Inbound], Awaitable[Done]]
    queued: bool = False
    tells: bool = False

    @classmethod
    def saying(cls, words: Callable[[Inbound], Awaitable[str]]) -> Command:
        """A command that answers, and changes no conversation."""

        async def run(inbound: Inbound) -> Done:
            return Done(await words(inbound))

        return cls(run)


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
    """The additions of a feature. `signals` are commands for kinds of inbounds that are no messages."""

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
    ports: Mapping[str, Any] = field(default_factory=dict)
    """Services for tools, by the name of its field in the agent's services."""
    periodic: Sequence[PeriodicJob] = ()
    """Jobs that run at intervals, while the channels do."""
    turn_ends: Callable[[Turn, TurnEndState], Done] | None = None
    """Facts and words that go with the end of a turn; buttons stand below the notice that ends it, if there is one."""
    before_intake: Callable[[Inbound], Awaitable[Sequence[Inbound]]] | None = None
    """Inbounds to take in for one that somebody may send: itself as it is meant, with more; () where it is not for the bot."""
    before_turn: Callable[[Chat, Inbound], Awaitable[Sequence[Quoted]]] | None = None
    """Messages that the model sees beside the first one of a turn."""
    hears_all: Callable[[ChatKey], Awaitable[bool]] | None = None
    """True where every message of a chat is for the bot."""
    home: Mapping[int, Callable[[Inbound], Awaitable[HomeSection]]] = field(default_factory=dict)
    """Parts of the page that a person opens to see what the bot does for them, by their position; those of one title are one."""
    wrap_reply: WrapReply | None = None
    wrap_call: WrapCall | None = None
    wrap_model: Callable[[Model], Model] | None = None
    """Stands around each model of the provider, below all that chooses between them."""
    close: Callable[[], Awaitable[None]] | None = None
    """Called when nothing of the core runs any more."""
    exports: Sequence[Exporter] = ()
    """Exports of the log, which are kept up to date while the gateway runs."""
    asks: Questions | None = None
    """Asks the person of a turn what a tool wants to know; without one nobody is asked."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A folder of `bot.features`, or a package with an entry point, exports one as `FEATURE`."""

    name: str
    build: Callable[[Runtime], Hooks]


class NobodyAnswers:
    """`contracts.questions.Questions` where no feature asks."""

    async def ask(self, question: ToolQuestion) -> Answer:
        del question
        return Answer("nobody")


class Door:
    """All that features have added."""

    def __init__(self) -> None:
        self.commands: dict[str, Command] = {}
        self.signals: dict[str, Command] = {}
        self.approvals: Approvals | None = None
        self.display: Display | None = None
        self.ports: dict[str, Any] = {}
        self.periodic: list[PeriodicJob] = []
        self.exports: list[Exporter] = []
        self._hooks: list[Hooks] = []
        self.asks: Questions = NobodyAnswers()
        self._wraps: list[WrapReply] = []
        self._call_wraps: list[WrapCall] = []
        self._outcomes: dict[str, Callable[[Question], str]] = {}
        self._settles: dict[str, Settle] = {}
        self._settling = set[str]()
        self.serves: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._questions: list[Callable[[ChatKey, UserRef], list[OpenQuestion]]] = []

    def open(self, features: Iterable[Feature], runtime: Runtime) -> None:
        """Let these in. Raises `errors.ConfigError` where two claim one name."""
        for feature in features:
            hooks = feature.build(runtime)
            mine: dict[str, Any]
            for mine, theirs in (
                (self.commands, hooks.commands),
                (self.signals, hooks.signals),
                (self.ports, hooks.ports),
            ):
                if twice := mine.keys() & theirs.keys():
                    raise errors.ConfigError(
                        f"features: {feature.name} adds {min(twice)}, which another one has"
                    )
                mine.update(theirs)
            self.approvals = hooks.approvals or self.approvals
            self.display = hooks.display or self.display
            self._wraps += [hooks.wrap_reply] if hooks.wrap_reply is not None else []
            self._call_wraps += [hooks.wrap_call] if hooks.wrap_call is not None else []
            self._outcomes |= hooks.outcomes
            self._settles |= hooks.settles
            self.serves += hooks.serves
            self.periodic += hooks.periodic
            self.exports += hooks.exports
            self._hooks.append(hooks)
            self.asks = hooks.asks or self.asks
            self._questions += [hooks.questions] if hooks.questions is not None else []

    def wrapped(self, chat: Chat, reply: Reply, registry: Registry) -> Reply:
        """A turn's way back to its chat, with what features put around it."""
        for wrap in self._wraps:
            reply = wrap(chat, reply, registry)
        return reply

    def model(self, model: Model) -> Model:
        """A model with what features put around it."""
        for wrap in [one.wrap_model for one in self._hooks if one.wrap_model is not None]:
            model = wrap(model)
        return model

    async def close(self) -> None:
        """Let features end what they do."""
        for close in [one.close for one in self._hooks if one.close is not None]:
            await close()

    def around_calls(self, call: CallWrapper, registry: Registry) -> CallWrapper:
        """Wrap each tool call: this wrapper, with those of features around it."""
        for wrap in self._call_wraps:
            call = wrap(call, registry)
        return call

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

    def turn_ends(self, turn: Turn, state: TurnEndState) -> list[Done]:
        """All that is so and said with the end of a turn."""
        return [one.turn_ends(turn, state) for one in self._hooks if one.turn_ends is not None]

    async def before_intake(self, inbound: Inbound) -> Sequence[Inbound]:
        """Inbounds to take in for one; () where it is not for the bot."""
        found: Sequence[Inbound] = (inbound,)
        for before in [one.before_intake for one in self._hooks if one.before_intake is not None]:
            found = [more for one in found for more in await before(one)]
        return found

    async def before_turn(self, chat: Chat, inbound: Inbound) -> list[Quoted]:
        """Messages that the model sees beside the first one of a turn."""
        hooks = [one.before_turn for one in self._hooks if one.before_turn is not None]
        return [quoted for before in hooks for quoted in await before(chat, inbound)]

    async def home(self, opened: Inbound) -> tuple[HomeSection, ...]:
        """The page that a person opens."""
        page = dict[str, tuple[str, ...]]()
        parts = [part for one in self._hooks for part in one.home.items()]
        for _, make in sorted(parts, key=lambda part: part[0]):
            section = await make(opened)
            page[section.title] = (*page.get(section.title, ()), *section.lines)
        return tuple(HomeSection(title, lines) for title, lines in page.items() if lines)

    async def hears_all(self, chat: ChatKey) -> bool:
        """True where every message of a chat is for the bot."""
        return any([await one.hears_all(chat) for one in self._hooks if one.hears_all is not None])

    def questions(self, chat: ChatKey, person: UserRef) -> list[OpenQuestion]:
        """The open questions of a chat, as a person sees them who opens it."""
        return [one for asked in self._questions for one in asked(chat, person)]

    async def settle(self, question: Question, verdict: Verdict) -> Sequence[Fact] | None:
        """Carry out what is decided about a question (`Settle`), by the first who has decided."""
        settle = self._settles.get(question.record.asked.subject)
        if question.verdict is not None or question.id in self._settling:
            return None
        if settle is None:
            return (Fact(question.record.asked.chat_key, Decided(question.id, verdict), question.turn),)
        self._settling.add(question.id)
        try:
            return await settle(question, verdict)
        finally:
            # Its facts are appended before anything else runs.
            self._settling.discard(question.id)

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
