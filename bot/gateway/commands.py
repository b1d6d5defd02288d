"""Commands in chat, signals such as 👍, and the page that a person opens. Their answers are notices: people see them, the model
never does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from bot import errors, text
from bot.access_list import AccessList
from bot.contracts.agent import Agent
from bot.contracts.channel import Channel, HomeSection, Manifest
from bot.contracts.environment import Clock, Log, OperatorNotices
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import LISTENING, Inbound
from bot.contracts.journal import Journal
from bot.contracts.manner import effort_of
from bot.core.access import ALIASES, Access
from bot.core.feature import Done
from bot.core.locales import Locales
from bot.core.saying import examples
from bot.features.admissions.commands import AccessCommands
from bot.features.approvals.wording import act
from bot.features.basics.commands import Basics
from bot.features.conversation.models import DEFAULT_MODEL, MODEL_NAME
from bot.features.conversation.wording import answering, session_line, stats_text, way_back, working
from bot.features.conversations.direct import OF_CONVERSATION
from bot.features.jobs.service import JobService
from bot.gateway.admissions import AdmissionService
from bot.gateway.approvals import ApprovalService
from bot.gateway.conversation import HANDLED, Turn
from bot.gateway.deletions import DeletionService
from bot.gateway.effects import InboundOutcome
from bot.gateway.participation import Participation
from bot.gateway.receipt import Receipts
from bot.gateway.retries import Retries
from bot.gateway.stops import Stops
from bot.gateway.turn_queue import TurnQueue
from bot.words import (
    paragraph,
    say,
    speaking,
    times,
    zone,
)

_MOST_BACK = 6
"""Digits of the number of turns; what is longer is an id."""


QUEUED = frozenset({"compact", "effort", "forget", "fork", "model", "new", "resume", "undo"})
"""Commands that change the conversation: they wait for what runs, which waits for its person no longer. All others, those that do
not exist among them, are answered at once.
"""


MOST_JOBS = 10
"""Jobs that a person's page shows; `/jobs` shows the others in their chats."""
MOST_QUESTIONS = 5
"""Questions that it shows by themselves."""
LOOKED_AT = 50
"""Inbounds of a direct chat that are looked at for its last message, at first: where there is none among them, ever more."""


class Servers(Protocol):
    """MCP servers (`bot.tools.mcp.servers.McpServers`)."""

    def sources(self) -> Mapping[str, str]:
        """The state of each, in words."""
        ...


class Commands:
    """The work of each command, by name."""

    def __init__(
        self,
        *,
        name: str,
        agent: Agent,
        turn_queue: TurnQueue,
        access: Access,
        admissions: AdmissionService,
        participation: Participation,
        lists: AccessList,
        channels: Mapping[str, Channel],
        manifests: Mapping[str, Manifest],
        alerts: OperatorNotices,
        stops: Stops,
        approvals: ApprovalService,
        receipts: Receipts,
        deletions: DeletionService,
        retries: Retries,
        jobs: JobService,
        servers: Servers,
        locales: Locales,
        journal: Journal,
        clock: Clock,
        log: Log,
    ) -> None:
        self._basics = basics = Basics(
            name,
            access=access,
            channels=channels,
            manifests=manifests,
            alerts=alerts,
            locales=locales,
            clock=clock,
        )
        self._jobs = jobs
        self._receipts = receipts
        self._journal = journal
        self._log = log
        self._servers = servers
        self._locales = locales
        self._clock = clock
        self._stops = stops
        self._name = name
        self._agent = agent
        self._turn_queue = turn_queue
        self._access = access
        self._admissions = admissions
        self._participation = participation
        listed = AccessCommands(lists=lists, access=access, manifests=manifests, decide=admissions.decide)
        self._channels = channels
        self._manifests = manifests
        self._alerts = alerts
        self._runs: dict[str, Callable[[Inbound], Awaitable[str]]] = {
            "afresh": lambda press: self._afresh(press, approvals, retries),
            "allow": lambda inbound: _said(listed.allow(inbound)),
            "approvals": approvals.listed,
            "approve": approvals.approve,
            "block": lambda inbound: _said(listed.block(inbound)),
            "compact": self._compact,
            "deny": approvals.deny,
            "effort": self._effort,
            "forget": deletions.command,
            "fork": self._fork,
            "help": basics.help,
            "history": self._history,
            "jobs": self._jobs_here,
            "language": basics.language,
            "listen": self._listen,
            "model": self._model,
            "new": self._new,
            "receipt": receipts.run,
            "resume": self._resume,
            "renew": retries.renew,
            "retry": retries.run,
            "stats": self._stats,
            "status": self._status,
            "stop": stops.stop,
            "timezone": basics.timezone,
            "undo": self._undo,
            "whoami": basics.whoami,
        }

    async def of_conversation(self, inbound: Inbound) -> Inbound:
        """An inbound as it is; a command about one conversation with the key of the one that it means."""
        command = inbound.command
        about = command is not None and command.name in OF_CONVERSATION
        return (
            inbound.model_copy(update={"chat_key": await self._conversation(inbound)}) if about else inbound
        )

    async def _conversation(self, inbound: Inbound) -> ChatKey:
        """The conversation that a command means: that in which it was sent; from a direct chat outside of its threads, that in which
        something was said last.
        """
        chat = inbound.chat_key
        if inbound.chat_type != "direct" or chat.thread is not None:
            return chat
        last = await self._last_said(chat) or chat
        return last if last.kind == chat.kind else chat

    async def _last_said(self, chat: ChatKey) -> ChatKey | None:
        limit = LOOKED_AT
        while True:
            records = await self._journal.said_in(chat, limit=limit)
            said = (one.inbound for one in records)
            words = (one.chat_key for one in said if one.command is None and one.kind == "message")
            if (last := next(words, None)) is not None or len(records) < limit:
                return last
            limit *= 10

    async def carry_out(self, inbound: Inbound) -> InboundOutcome:
        """Do what a command, or a signal such as the stop button of a platform, says; returns what to tell its person."""
        if inbound.kind == "stop":
            # The platform shows by itself what became of its button.
            await self._stops.stop(inbound)
            return InboundOutcome(HANDLED, self._stops.goes_on(inbound))
        if inbound.kind == "admission":
            return InboundOutcome(HANDLED, await self._admissions.ask(inbound))
        if inbound.kind == "rating":
            await self._rate(inbound)
            return InboundOutcome(HANDLED)
        if inbound.kind == "added":
            return InboundOutcome(HANDLED, await self._basics.introduce(inbound))
        if inbound.command is not None and inbound.command.name == "start":
            return InboundOutcome(HANDLED, self._basics.hello(inbound), examples(inbound, self._manifests))
        return InboundOutcome(HANDLED, await self.run(inbound))

    async def run(self, inbound: Inbound) -> str:
        """Carry out a command; returns the answer for the person."""
        assert inbound.command is not None  # noqa: S101 - the caller asks for commands only
        name = inbound.command.name
        run = self._runs.get(name)
        if run is None:
            return self._basics.unknown(inbound, inbound.command.name)
        return await run(inbound)

    @property
    def names(self) -> frozenset[str]:
        """The names of all commands that are carried out, those behind buttons too."""
        return frozenset({"start", *self._runs, *ALIASES})

    async def _rate(self, rating: Inbound) -> None:
        """Keep 👍 or 👎 in the operator's log with the turn of the answer; one of a message that is no answer is none. Nobody is
        told anything: the platform shows it by itself.
        """
        try:
            request_id = await self._journal.delivered_as(rating.chat_key, rating.answers)
        except errors.StorageError as error:
            self._log.write("error", "a rating cannot be kept", level="error", cause=str(error))
            return
        if request_id is not None and rating.answers is not None:
            self._log.write(
                "feedback",
                "an answer was rated",
                chat_key=rating.chat_key,
                request_id=request_id,
                rating=rating.rating,
                person=str(rating.person),
                message_id=rating.answers,
            )

    async def _jobs_here(self, inbound: Inbound) -> str:
        return await self._jobs.command(inbound, self._manifests[inbound.channel].command_prefix)

    async def _new(self, inbound: Inbound) -> str:
        count = await self._agent.reset(inbound.chat_key)
        if not count:
            return say("commands.new_empty")
        return say("commands.new", prefix=self._manifests[inbound.channel].command_prefix)

    async def _afresh(self, press: Inbound, approvals: ApprovalService, retries: Retries) -> str:
        """[Start over without it]: the turn that asks ends, and what its person said is asked again in a new conversation."""
        turn = approvals.afresh(press)
        if isinstance(turn, str):
            return turn
        ends = {"kind": "stop", "request_id": press.request_id, "keys": press.keys, "command": None}
        await self._stops.stop(turn.first.model_copy(update=ends))
        await retries.anew(turn, press)
        return say("retry.trying")

    async def _compact(self, inbound: Inbound) -> str:
        done = await self._agent.compact(inbound.chat_key, inbound.args)
        if done.outcome == "nothing":
            return say("commands.compact_nothing")
        if done.outcome == "failed":
            return say("commands.compact_failed")
        words, count = say("commands.compacted"), done.messages
        if not self._access.is_operator(inbound.person):
            return words
        before, after = done.tokens_before, done.tokens_after
        figures = say("commands.compacted_figures", count=count, before=before, after=after)
        return paragraph(words, figures)

    async def _stats(self, inbound: Inbound) -> str:
        details = self._access.is_operator(inbound.person)
        return stats_text(await self._agent.stats(inbound.chat_key), details=details)

    async def _history(self, inbound: Inbound) -> str:
        kept = await self._agent.history(inbound.chat_key)
        return kept or say("commands.history_empty")

    async def _undo(self, inbound: Inbound) -> str:
        try:
            said = await self._agent.undo(inbound.chat_key)
        except errors.TurnSummarized as error:
            return error.person
        if said is None:
            return say("commands.undo_nothing")
        return say("commands.undone", said=said)

    async def _status(self, inbound: Inbound) -> str:
        # What runs, in all that is before the person; the memory, of the conversation that they mean.
        info = await self._agent.describe(await self._conversation(inbound))
        chats = [chat for key, chat in self._turn_queue.chats() if inbound.chat_key.shows(key)]
        waiting = sum(chat.waiting for chat in chats)
        if running := [chat.running for chat in chats if chat.running is not None]:
            doing = _doing(running)
            doing += say("status.waiting", count=waiting) if waiting else ""
        else:
            # Others have all the places, or a burst is waited for.
            doing = say("status.not_begun", count=waiting) if waiting else say("status.ready")
        words = [say("status.line", doing=doing, model=info.answered or info.model)]
        if self._access.is_operator(inbound.person):
            words.append(say("status.memory", messages=info.messages, most=info.max_messages))
            servers = ", ".join(
                f"{name} ({state})" for name, state in sorted(self._servers.sources().items())
            )
            words += [say("status.servers", servers=servers)] if servers else []
        return paragraph(*words)

    async def _model(self, inbound: Inbound) -> str:
        asked = inbound.args
        if not asked:
            return answering(await self._agent.describe(inbound.chat_key))
        if not self._access.is_operator(inbound.person):
            return say("commands.operators_model")
        name = None if asked.casefold() == DEFAULT_MODEL else asked
        shown = text.preview(asked, 60)
        if name is not None and MODEL_NAME.fullmatch(name) is None:
            return say("commands.model_name", name=shown)
        try:
            info = await self._agent.choose_model(inbound.chat_key, name, inbound.request_id)
        except errors.OneModel as error:
            return error.person
        except errors.ModelUnknown:
            return say("commands.model_missing", name=shown)
        unsure = [] if info.confirmed else [say("commands.model_unsure")]
        return paragraph(answering(info), *unsure)

    async def _effort(self, inbound: Inbound) -> str:
        asked = inbound.args.casefold()
        if not asked:
            return working(await self._agent.describe(inbound.chat_key))
        if not self._access.is_operator(inbound.person):
            return say("commands.operators_effort")
        effort = effort_of(asked)
        if effort is None and asked != DEFAULT_MODEL:
            return say("commands.effort_name", name=text.preview(inbound.args, 60))
        return working(await self._agent.choose_effort(inbound.chat_key, effort, inbound.request_id))

    async def _listen(self, inbound: Inbound) -> str:
        """Say what is listened to in a group; operators change it."""
        asked = inbound.args.casefold()
        if inbound.chat_type == "direct":
            return say("listen.direct")
        if not asked:
            said = say(f"listen.{await self._participation.listening(inbound.chat_key)}")
            if not self._access.is_operator(inbound.person):
                return said
            how = say(
                "listen.change",
                choices=", ".join(LISTENING),
                prefix=self._manifests[inbound.channel].command_prefix,
            )
            return paragraph(said, how)
        if not self._access.is_operator(inbound.person):
            return say("commands.operators_listen")
        chosen = next((one for one in LISTENING if one == asked), None)
        if chosen is None:
            return say("listen.unknown", choices=", ".join(LISTENING))
        await self._participation.listen(inbound.chat_key, chosen)
        return say(f"listen.{chosen}")

    # ------------------------------------------------------------ sessions

    async def _resume(self, inbound: Inbound) -> str:
        """Go on with an earlier session, or show which there are; for a person. Raises `errors.StorageError`."""
        asked = next(iter(inbound.args.split()), "")
        if not asked:
            return await self._sessions(inbound)
        change = await self._agent.resume(inbound.chat_key, asked)
        prefix, shown = self._manifests[inbound.channel].command_prefix, text.preview(asked, 40)
        if change.outcome == "done":
            return paragraph(say("sessions.back", id=change.id, prefix=prefix), *way_back(change, prefix))
        if change.outcome == "here":
            return say("sessions.here", id=shown)
        if change.outcome == "ambiguous":
            return say("sessions.ambiguous", id=shown)
        return say("sessions.unknown", id=shown, prefix=prefix)

    async def _fork(self, inbound: Inbound) -> str:
        """Go on from a turn of the past in a new session, for a person. Raises `errors.StorageError`."""
        asked, prefix = next(iter(inbound.args.split()), ""), self._manifests[inbound.channel].command_prefix
        back, request_id = 0, None
        if asked.isdecimal() and len(asked) <= _MOST_BACK:
            back = int(asked)
        elif (wanted := asked or inbound.answers) is not None:
            request_id = await self._receipts.found(inbound, wanted)
            if request_id is None:
                return say("sessions.fork_unknown", asked=text.preview(wanted, 40))
        change = await self._agent.fork(inbound.chat_key, request_id=request_id, back=back)
        if change.outcome == "done":
            left = change.turns
            done = say("sessions.forked_without", count=left) if left else say("sessions.forked")
            return paragraph(done, *way_back(change, prefix))
        if request_id is not None:
            return say("sessions.fork_elsewhere", prefix=prefix)
        if not change.turns:
            return say("sessions.fork_nothing")
        return say("sessions.fork_short", count=change.turns, back=back)

    async def _sessions(self, inbound: Inbound) -> str:
        found = await self._agent.sessions(inbound.chat_key)
        if not found:
            return say("sessions.none")
        now = self._clock.now()
        lines = [session_line(one, now) for one in found]
        end = say("sessions.list_end", prefix=self._manifests[inbound.channel].command_prefix)
        return "\n".join([say("sessions.list"), *lines, end])

    async def model(self, chat_key: ChatKey) -> str:
        """As `contracts.channel.Intake.model`."""
        return (await self._agent.describe(chat_key)).model

    # ------------------------------------------------------------ the page of a person

    async def home(self, opened: Inbound) -> tuple[HomeSection, ...]:
        """As `contracts.channel.Intake.home`: the page that a person opens to see what the bot does for them."""
        standing = self._access.standing(opened.person, opened.chat_id, "direct")
        if not standing.allowed:
            # Nothing of a stranger is remembered.
            with speaking(*self._locales.of(opened.model_copy(update={"kind": "admission"}))):
                return (HomeSection(self._name, (say("strangers.hello"),)),)
        with speaking(*self._locales.of(opened)):
            return (
                HomeSection(self._name, await self._state(opened)),
                HomeSection(say("home.jobs"), await self._planned(opened.person)),
                HomeSection(say("home.settings"), self._settings()),
            )

    async def _state(self, opened: Inbound) -> tuple[str, ...]:
        person = opened.person
        turns = [chat.running for _, chat in self._turn_queue.chats()]
        own = [turn for turn in turns if turn is not None and turn.first.person == person]
        asked = [record.asked for record in await self._journal.open_approvals()]
        waits = [one for one in asked if one.person == person and not one.admits]
        doing = [_doing(own)] if own else []
        doing += [say("home.waits", act=act(one, names_tool=False)) for one in waits[:MOST_QUESTIONS]]
        more = len(waits) - MOST_QUESTIONS
        doing += [say("home.more_jobs", count=more)] if more > 0 else []
        info = await self._agent.describe(opened.chat_key)
        return (*(doing or [say("status.ready")]), say("home.model", model=info.model))

    async def _planned(self, person: UserRef) -> tuple[str, ...]:
        lines = await self._jobs.of_person(person)
        more = len(lines) - MOST_JOBS
        shown = lines[:MOST_JOBS] or [say("home.no_jobs")]
        return (*shown, *([say("home.more_jobs", count=more)] if more > 0 else []))

    def _settings(self) -> tuple[str, ...]:
        return (
            say("home.language", language=say("language.name")),
            say("home.zone", zone=zone(), time=times.clock(self._clock.now())),
            say("home.listen"),
        )


async def _said(done: Awaitable[Done]) -> str:
    return (await done).say


def _doing(turns: Sequence[Turn]) -> str:
    """Tell of turns how many work, and how many wait for a person."""
    waits = Counter[str | None](turn.waits_for for turn in turns)
    keys = {None: "status.working", "approval": "status.waits_approval", "question": "status.waits_question"}
    first, *others = [say(key, count=waits[one]) for one, key in keys.items() if waits[one]]
    for other in others:
        first = say("status.beside", before=first, after=other)
    return first


def runs_at_once(inbound: Inbound) -> bool:
    """True where a command does not touch the conversation, or there is none of that name: it is answered at once, whatever runs,
    and calls off nothing that waits for its person.
    """
    command = inbound.command
    if command is None:
        return False
    return command.name not in QUEUED or (command.name in {"effort", "model"} and not inbound.args)
