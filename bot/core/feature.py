"""Interface of features: hooks that a feature may implement, and services that it gets. The core imports no feature."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

from bot import discovery, errors
from bot.contracts.approvals import (
    KINDS,
    Approvals,
    OpenLoop,
    QuestionButtons,
    ShownQuestion,
    Unattended,
    Viewer,
)
from bot.contracts.channel import HomeSection
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import Inbound, Quoted
from bot.contracts.model import Model
from bot.core.access import Access
from bot.core.attachments import OutgoingFiles
from bot.core.chat import Chat, Turn
from bot.core.chats import Chats, Fact
from bot.core.event_log import EventLog
from bot.core.events import TurnEndState
from bot.core.exports import Exporter
from bot.core.locales import Locales
from bot.core.operators import OperatorAlerts
from bot.core.outbox import Outbox, RateLimiter
from bot.core.outgoing import Question
from bot.core.services import Services
from bot.core.summaries import CompactResult
from bot.core.tasks import TaskEvent
from bot.llm.models import ModelDeps
from bot.periodic_jobs import PeriodicJob
from bot.tools.context import Ask, Reply
from bot.tools.dispatch import CallWrapper, Registry

PACKAGE = "bot.features"
GROUP = "shipmate.features"  # Name of the entry point group in which other packages register features

TurnKind = Literal["every", "job", "failed"]  # every turn; a turn that a job started; a turn that fails
UNKNOWN = ""  # Key in `commands` for the command that handles unknown command names


@dataclass(frozen=True, kw_only=True)
class Runtime(Services):
    """The services of the process, and the parts of the core that features use."""

    chats: Chats
    event_log: EventLog
    access: Access
    alerts: OperatorAlerts
    locales: Locales
    files: OutgoingFiles
    live: Outbox
    limits: RateLimiter
    models: Callable[[ChatKey], ModelDeps]
    servers: Callable[[], Mapping[str, str]]  # returns each MCP server's state as text for operators
    compact: Callable[[Inbound], Awaitable[CompactResult]]
    suspended: Callable[[], AbstractAsyncContextManager[None]]
    """Opens a `with` block in which the turn waits for a person and uses no slot."""
    waiting: Callable[[Viewer], Awaitable[list[OpenLoop]]]


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a command, or of a hook at a turn's end: text for the person and events to append. All of it is stored in
    the transaction that ends the command or turn, so that no command runs twice.
    """

    say: str = ""
    facts: Sequence[Fact] = ()
    buttons: QuestionButtons | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A chat command. A `queued` command waits for the running turn, because the command changes the conversation. A queued
    command with `tells` runs at once if it has no arguments, because such a call only shows something.
    """

    run: Callable[[Inbound], Awaitable[Done]]
    queued: bool = False
    tells: bool = False

    @classmethod
    def saying(cls, words: Callable[[Inbound], Awaitable[str]]) -> Command:
        async def run(inbound: Inbound) -> Done:
            return Done(await words(inbound))

        return cls(run)


@dataclass(frozen=True, slots=True)
class Display:
    """Shows running turns to people. `begin` is called in each turn's task."""

    begin: Callable[[Turn], object]
    preview: Callable[[Chat, Inbound, Callable[[], str]], object]  # shows an answer while the model writes it
    calls: Callable[
        [CallWrapper, Registry], CallWrapper
    ]  # returns a wrapper of calls that also shows running calls
    tasks: Callable[[TaskEvent], object]  # receives the events of subagent tasks
    close: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Hooks that a feature implements. `signals` maps kinds of events, such as reactions, to their handlers."""

    commands: Mapping[str, Command] = field(default_factory=dict)
    signals: Mapping[str, Command] = field(default_factory=dict)
    approvals: Approvals | None = None
    """Asks people for approval of calls. Without this hook, calls that need an approval are denied."""
    asks: Ask | None = None  # Asks a person the questions of tools. Without this hook, nobody is asked.
    serves: Sequence[
        Callable[[], Coroutine[Any, Any, None]]
    ] = ()  # functions whose coroutines run as long as the gateway runs
    questions: Callable[[ChatKey, UserRef], list[ShownQuestion]] | None = None
    """Returns a chat's open questions that this person may see."""
    waiting: Callable[[Viewer], Awaitable[Sequence[OpenLoop]]] | None = None
    """Returns this feature's open loops (matters that wait for somebody) for a viewer, in the language set by `words.speaking`."""
    display: Display | None = None
    outcome: Callable[[Question], str] | None = None  # returns the text shown below a decided question
    ports: Mapping[str, Any] = field(default_factory=dict)  # services for tools, keyed by name
    periodic: Sequence[PeriodicJob] = ()  # jobs that run while the channels are connected
    turn_ends: Mapping[TurnKind, Callable[[Turn, TurnEndState], Done]] = field(default_factory=dict)
    """Functions that return events and text for a turn's end. Buttons in the result appear below the last notice."""
    before_intake: Callable[[Inbound], Awaitable[Sequence[Inbound]]] | None = None
    """Returns the messages to accept in place of an admitted person's message; () if the message is not for the bot."""
    before_turn: Callable[[Chat, Inbound], Awaitable[Sequence[Quoted]]] | None = None
    """Returns messages to show the model together with the first message of a turn."""
    only_new: bool = False
    """True if `before_turn` is not called in a direct chat once the model's context has messages of the conversation."""
    kinds: frozenset[str] | None = None
    """Kinds of messages for which `before_intake` is called; None for all. A command has the kind `command`, a message that
    may begin a new conversation has `opening`, and any other message has its `Inbound.kind`. Each message also has its
    `Inbound.chat_type`.
    """
    hears_all: Callable[[ChatKey], Awaitable[bool]] | None = None
    """Returns True if the bot answers every message of this chat."""
    home: Mapping[int, Callable[[Inbound], Awaitable[HomeSection]]] = field(default_factory=dict)
    """Functions that return sections of the home page, keyed by position. Sections with the same title are merged."""
    wrap_reply: Callable[[Chat, Reply, Registry], Reply] | None = None
    """Wraps the object with which a turn sends messages. Called in the turn's task."""
    wrap_model: Callable[[Model], Model] | None = None
    """Wraps each provider's model. The fallback logic is outside of the wrapper."""
    close: Callable[[], Awaitable[None]] | None = None  # called after the core has stopped
    exports: Sequence[Exporter] = ()  # exports to keep up to date while the gateway runs


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature. A module in `bot.features`, or an entry point of another package, provides it as `FEATURE`."""

    name: str
    build: Callable[[Runtime], Hooks]


@dataclass(eq=False)
class Door:
    """The hooks of all features, combined."""

    commands: dict[str, Command] = field(default_factory=dict)
    signals: dict[str, Command] = field(default_factory=dict)
    ports: dict[str, Any] = field(default_factory=dict)
    approvals: Approvals = field(default_factory=Unattended)
    asks: Ask | None = None
    display: Display | None = None
    _hooks: list[Hooks] = field(default_factory=list)
    outcome: Callable[[Question], str] = lambda _: ""

    def open(self, features: Iterable[Feature], runtime: Runtime) -> None:
        """Register these features. Raises `errors.ConfigError` if two features use one name."""
        for feature in features:
            hooks = feature.build(runtime)
            for name in ("commands", "signals", "ports"):
                mine, theirs = getattr(self, name), getattr(hooks, name)
                if twice := mine.keys() & theirs.keys():
                    raise errors.ConfigError(
                        f"features: {feature.name} adds {min(twice)}, which another one has"
                    )
                mine.update(theirs)
            self.approvals = hooks.approvals or self.approvals
            self.asks = hooks.asks or self.asks
            self.display = hooks.display or self.display
            self.outcome = hooks.outcome or self.outcome
            self._hooks.append(hooks)

    def all(self, name: str) -> list[Any]:
        """Return the features' hooks of this name. If a hook is a sequence, return its items instead of the hook."""
        found = [hook for hooks in self._hooks if (hook := getattr(hooks, name)) is not None]
        return [one for hook in found for one in (hook if isinstance(hook, Sequence) else (hook,))]

    def wrapped(self, chat: Chat, reply: Reply, registry: Registry) -> Reply:
        return reduce(lambda inner, wrap: wrap(chat, inner, registry), self.all("wrap_reply"), reply)

    def model(self, model: Model) -> Model:
        return reduce(lambda inner, wrap: wrap(inner), self.all("wrap_model"), model)

    async def close(self) -> None:
        for close in self.all("close"):
            await close()

    def command(self, inbound: Inbound) -> Command | None:
        """Return the command that handles an incoming message; None for a plain message or an unknown signal."""
        if inbound.command is not None:
            return self.commands.get(inbound.command.name) or self.commands.get(UNKNOWN)
        return self.signals.get(inbound.kind)

    def needs_turn(self, inbound: Inbound) -> bool:
        """Return True for a message to the model, and for a command that waits for the running turn."""
        if inbound.command is None:
            return inbound.kind == "message"
        command = self.command(inbound)
        return command is not None and command.queued and bool(inbound.args or not command.tells)

    def turn_ends(self, turn: Turn, state: TurnEndState) -> list[Done]:
        kinds = {"every": True, "job": turn.first.due is not None, "failed": state in {"failed", "withdrawn"}}
        hooks = [ends for one in self._hooks for kind, ends in one.turn_ends.items() if kinds[kind]]
        return [ends(turn, state) for ends in hooks]

    async def before_intake(self, inbound: Inbound) -> Sequence[Inbound]:
        found: Sequence[Inbound] = (inbound,)
        kind = "command" if inbound.command is not None else "opening" if inbound.opens else inbound.kind
        for hooks in self._hooks:
            wanted = hooks.kinds is None or not hooks.kinds.isdisjoint((kind, inbound.chat_type))
            if (before := hooks.before_intake) is not None and wanted:
                found = [more for one in found for more in await before(one)]
        return found

    async def before_turn(self, chat: Chat, inbound: Inbound) -> list[Quoted]:
        known = inbound.chat_type == "direct" and (chat.context.head is not None or len(chat.context) > 0)
        hooks = [one.before_turn for one in self._hooks if one.before_turn and not (known and one.only_new)]
        return [quoted for before in hooks for quoted in await before(chat, inbound)]

    async def waiting(self, viewer: Viewer) -> list[OpenLoop]:
        """Return all open loops that a viewer may see, ordered by kind and time."""
        found = [loop for waiting in self.all("waiting") for loop in await waiting(viewer)]
        return sorted(found, key=lambda one: (KINDS.index(one.kind), one.due or one.since, one.id))


def found() -> list[Feature]:
    """Return all features: first the features in `bot.features`, by module name, then the features of other packages."""
    package = importlib.import_module(PACKAGE)
    modules = sorted(one.name for one in pkgutil.iter_modules(package.__path__))
    own = [getattr(importlib.import_module(f"{PACKAGE}.{name}"), "FEATURE", None) for name in modules]
    others = [one.load() for one in discovery.entry_points(GROUP)]
    return [one for one in (*own, *others) if isinstance(one, Feature)]
