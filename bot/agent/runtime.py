"""`AgentRuntime`: the agent of one chatKey."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from bot import errors
from bot.agent import view_changes
from bot.agent.active_turn import ActiveTurn
from bot.agent.compactor import Compactor
from bot.agent.deletion_runner import DeletionRunner
from bot.agent.deps import AgentDeps
from bot.agent.ledger import Ledger
from bot.agent.memory_writer import MemoryWriter
from bot.agent.steps import StepLog
from bot.agent.turn import take_turn
from bot.agent.user_message import fresh_nonce
from bot.agent.view_changes import ViewChanges
from bot.context import replay
from bot.context.store import AgentContextStore, RunningTurn, summed_up
from bot.contracts.agent import (
    ChatStats,
    CompactResult,
    LastTurn,
    ModelInfo,
    Reply,
    TurnOutcome,
    TurnRequest,
)
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.base import Json
from bot.contracts.environment import ends_within, storage_errors_logged
from bot.contracts.identity import ChatKey
from bot.contracts.journal import FinalTurnState
from bot.contracts.manner import Effort
from bot.contracts.transcript import Boundary, Meta, TurnEnd, TurnStart
from bot.core import blocks, prompt, rendering
from bot.core.assembly import Frozen
from bot.core.fit import HistoryCleared, TurnTooLarge
from bot.core.loop import Refused
from bot.telemetry import context
from bot.tools.permissions import taint
from bot.words import say, sentence

WITHDRAWN = (Refused, TurnTooLarge, HistoryCleared, errors.RequestInvalid)
"""Errors caused by the turn itself: kept in the history, it would fail every later turn too."""
STOP_SECONDS = 0.4
"""Seconds that a tool or the model gets to end when its turn is stopped."""
LAST_WORDS_SECONDS = 3.0
"""Seconds that a stop waits for the delivery of the last words, which goes on after that."""
UNANSWERED = "a message before this one got no whole answer; the person was told"


class _Phase(Enum):
    """The phase of a chat's turn that decides what a stop does."""

    RUNNING = auto()
    STOPPED_BEFORE = auto()
    """It was stopped before a restart, and is only brought to its end."""
    STOPPING = auto()
    ENDING = auto()
    """It is over: a stop comes too late."""


class AgentRuntime:
    """One conversation: its store, its transcript, the frozen bytes of its prompt. One turn at a time."""

    def __init__(self, chat_key: ChatKey, deps: AgentDeps) -> None:
        self.chat_key = chat_key
        self.store = AgentContextStore(deps.limits.max_messages)
        self.last_used = deps.clock.monotonic()
        self._deps = deps = deps.of_chat()
        self.ledger = Ledger(chat_key, deps.history.transcript, ids=deps.ids, clock=deps.clock, log=deps.log)
        self.view_changes = ViewChanges(self.store, self.ledger, deps)
        self.memory = MemoryWriter(chat_key, self.view_changes, deps)
        self.compactor = Compactor(chat_key, self.view_changes, self.memory, deps)
        self._frozen: Frozen | None = None
        self._surroundings: Mapping[str, str] = {}
        self.filled = False
        self._ended: dict[str, TurnEnd] = {}
        self._task: asyncio.Task[TurnOutcome] | None = None
        self._active: ActiveTurn | None = None
        self._phase = _Phase.RUNNING
        self._steps: set[asyncio.Task[bool]] = set()
        self._left: set[asyncio.Task[Any]] = set()
        self._filling = asyncio.Lock()
        self.deletions = DeletionRunner(chat_key, self.view_changes, self.memory, self.compactor, deps)

    @property
    def has_unwritten_lines(self) -> bool:
        """True if lines of the transcript or steps are in memory alone."""
        return self.ledger.has_unwritten_lines or bool(self._steps)

    async def flush(self) -> None:
        """Try again to write what the disk refused, and wait for what is on its way."""
        await self.ledger.flush()
        if self._steps:
            # They are the turn's: a caller that is cancelled leaves them alone.
            await asyncio.wait(set(self._steps))

    @property
    def busy(self) -> bool:
        return self.at_work or self.compactor.busy or self.memory.busy

    @property
    def at_work(self) -> bool:
        """True if a turn runs, or what it left behind."""
        return self._task is not None or bool(self._left)

    async def run(self, request: TurnRequest) -> TurnOutcome:
        """One turn, as `contracts.agent.Agent.run`."""
        self._phase = _Phase.STOPPED_BEFORE if request.stopped else _Phase.RUNNING
        person = request.inbound.person if request.inbound is not None else None
        with context.turn_scope(chat_key=self.chat_key, request_id=request.request_id, person=person):
            self._task = asyncio.create_task(self._turn(request))
            try:
                return await self._task
            except asyncio.CancelledError:
                if self._phase is _Phase.STOPPING:
                    return TurnOutcome("stopped")
                raise
            finally:
                self._task = self._active = None
                self.last_used = self._deps.clock.monotonic()

    def stop(self) -> bool:
        """Stop the running turn; False where none runs. Asked again, it lets the first stop do its work."""
        if self._task is None or self._phase is _Phase.ENDING:
            return False
        if self._phase is _Phase.RUNNING:
            self._phase = _Phase.STOPPING
            self._task.cancel()
        return True

    def restart_model_call(self) -> bool:
        """As `contracts.agent.Agent.restart_model_call`."""
        if self._active is None or self._phase is not _Phase.RUNNING:
            return False
        self._active.restart_model_call()
        return True

    async def reset(self) -> int:
        """An empty store and a new transcript."""
        await self.fill()
        await self.leave()
        await self.ledger.new_session()
        count = len(self.store)
        self.view_changes.chat_totals.anew()
        self.view_changes.apply("new", Boundary(dropped="all"))
        await self.ledger.flush()
        self._frozen = None
        self.filled = True
        return count

    async def leave(self) -> None:
        """Another session becomes the current one: what is remembered is about this one. Raises `errors.StorageError`."""
        await self.stop_background()
        await self.memory.forget()

    @contextlib.asynccontextmanager
    async def left(self) -> AsyncIterator[None]:
        """The same, in the block. Deletions come before it, and are the matter of the next runtime from then on: what this one
        writes would be in the other session. Raises `errors.StorageError`.
        """
        async with self._filling:
            await self.leave()
            yield
            self.deletions.end()

    async def stop_background(self) -> None:
        """Give up what goes on beside the turns; nothing is lost by it."""
        await self.memory.stop()
        await self.compactor.stop()

    @property
    def chosen(self) -> str | None:
        """The model that was chosen for this chat; None where ship.json says it."""
        return self._deps.models.chosen

    async def choose_effort(self, effort: Effort | None, request_id: str) -> ModelInfo:
        """As `contracts.agent.Agent.choose_effort`."""
        await self.fill(TurnRequest(request_id, self.chat_key))
        await self.stop_background()
        await self.ledger.choose(Meta(reason="effort", chosen_effort=effort or ""))
        self._deps.models.chosen_effort = effort
        return await self.describe()

    async def choose(self, model: str | None, request_id: str) -> ModelInfo:
        """As `contracts.agent.Agent.choose_model`."""
        confirmed = True
        if model is not None:
            try:
                await self._deps.models.windows.ask(self._deps.models.model, model)
            except errors.ModelUnknown:
                raise
            except errors.ModelError as error:
                confirmed = False
                self._deps.log.write(
                    "model", "the provider does not say whether it has the model", cause=str(error)
                )
        await self.fill(TurnRequest(request_id, self.chat_key))
        await self.stop_background()
        await self.ledger.choose(Meta(reason="model", chosen_model=model or ""))
        self._switch(model)
        return replace(await self.describe(), confirmed=confirmed)

    def _take_purpose(self, purpose: str) -> None:
        """A turn begins that is for this: another model may answer it."""
        before, self._deps.models.purpose = self._deps.models.name, purpose
        if self._deps.models.name != before:
            self._frozen = None
            self.view_changes.forget_prefix()

    def _switch(self, model: str | None) -> None:
        """Let a model answer from now on. There is no prompt for it yet, and no cache holds this chat."""
        deps, before = self._deps, self._deps.models.name
        deps.models.chosen = model
        deps.log.write(
            "model",
            "a model was chosen for the chat",
            level="action",
            chat_key=self.chat_key,
            model=deps.models.name,
            chosen=model is not None,
            before=before,
        )
        if deps.models.name != before:
            self._frozen = None
            self.view_changes.forget_prefix()

    async def describe(self) -> ModelInfo:
        """As `contracts.agent.Agent.describe`."""
        await self.fill()
        deps, name = self._deps, self._deps.models.name
        return ModelInfo(
            name,
            chosen=deps.models.chosen is not None,
            default=deps.models.default_model,
            window=deps.models.windows.window(name),
            price=deps.models.prices.million(name),
            messages=len(self.store),
            max_messages=deps.limits.max_messages,
            effort=deps.models.sent().effort,
            effort_chosen=deps.models.chosen_effort is not None,
            answered=self.view_changes.chat_totals.answered,
        )

    async def compact(self, focus: str) -> CompactResult:
        """As `contracts.agent.Agent.compact`."""
        await self.fill()
        stand_in: list[Json] = []
        if not self.view_changes.system:
            # Not what the next turn will have: its origin is not known yet.
            stand_in = await self._system(TurnRequest("", self.chat_key))
            self._frozen = None
        return await self.compactor.compact(focus, stand_in)

    async def stats(self) -> ChatStats:
        """As `contracts.agent.Agent.stats`."""
        await self.fill()
        deps, store = self._deps, self.store
        whole = deps.models.estimator.messages(deps.models.name, store.messages())
        kept = set(store.masked)
        results = [one for one in store.messages() if not kept.isdisjoint(blocks.maskable(one))]
        shown = [blocks.masked(one, store.masked) for one in results]
        hidden = deps.models.estimator.messages(deps.models.name, results) - deps.models.estimator.messages(
            deps.models.name, shown
        )
        return self.view_changes.chat_totals.stats(messages=len(store), tokens=whole, masked_tokens=hidden)

    async def history(self) -> str:
        """As `contracts.agent.Agent.history`."""
        await self.fill()
        return rendering.history(self.store.messages(), self._deps.redact)

    async def undo(self) -> str | None:
        """As `contracts.agent.Agent.undo`."""
        await self.fill()
        await self.stop_background()
        if not self.store.turns:
            return None
        turn = self.store.turns[-1]
        if self.store.head is not None:
            await self.ledger.settled()
            lines = await self._deps.history.transcript.load(self.chat_key)
            if summed_up(turn, lines, self.memory.covers):
                raise errors.TurnSummarized
        entries = turn.entries
        await self.memory.undo([entry.uuid for entry in entries])
        self.view_changes.apply("undo", Boundary(dropped=tuple(entry.uuid for entry in entries)))
        await self.ledger.flush()
        return self._deps.redact(rendering.said(entries[0].message))

    async def forget(self) -> None:
        """As `contracts.agent.Agent.forget`. A turn that begins meanwhile begins with what is left."""
        self.deletions.request()
        running = self._task
        await self.fill()
        if running is not None:
            await asyncio.wait([running])
            self.deletions.request()  # it has been given its messages before, and may not have written them yet
        while self._task is not None and self.deletions.due:
            await asyncio.wait([self._task])
        async with self._filling:
            await self.deletions.carry_out()

    async def fill(self, request: TurnRequest | None = None) -> None:
        """Fill the store after a restart: from the transcript, or from the archive where there is none.

        Without a turn that asks for it the archive is left alone: what it ends with may not be answered yet.
        """
        self.last_used = self._deps.clock.monotonic()
        # A question for the status may come while a turn begins: the store must not be filled twice.
        async with self._filling:
            if self.filled:
                return
            await self.ledger.flush()  # a turn that was stopped while it was filled has begun this
            if not self.ledger.has_unwritten_lines and not await self._deps.history.transcript.has(
                self.chat_key
            ):
                if request is None:
                    return
                await self._adopt_archive(request)
            await self.memory.load()
            lines = await view_changes.load_store(self.view_changes, self._deps)
            self._ended = replay.ended(lines)
            self.filled = True
            changed = await self.deletions.attempt()
            since = self._deps.history.retention.since(self.chat_key, self._deps.clock.now())
            if old := self.view_changes.older_than(since):
                await self.compactor.cut("retention", old)
            if changed or old:
                await self.ledger.flush()

    async def cut_off(self) -> tuple[str, ...]:
        """The requestIds that the turn which a crash cut off was answering; () where none was."""
        await self.fill()
        running = self.store.running if not self.view_changes.live else None
        return running.sources if running is not None and running.entries else ()

    async def last_turn(self) -> LastTurn | None:
        """As `contracts.agent.Agent.last_turn`."""
        await self.fill()
        if not self.store.turns:
            return None
        turn = self.store.turns[-1]
        return LastTurn(turn.sources, taint.seen(entry.message for entry in turn.entries))

    async def _adopt_archive(self, request: TurnRequest) -> None:
        """Write what the archive remembers as turns of a new transcript, so that the next restart has the same."""

        def not_yet(line: ArchiveLine) -> bool:
            return line.request_id >= request.request_id

        query = HistoryQuery(limit=self._deps.limits.max_messages, skip=not_yet, counted=False)
        try:
            page = await self._deps.history.archive.search(self.chat_key, query)
        except errors.StorageError as error:
            self._deps.log.write("error", "the archive cannot be read", level="error", cause=str(error))
            return
        most = self._deps.limits.max_messages
        for request_id, messages in replay.from_archive(page.lines, most, fresh_nonce(self._deps)):
            self.ledger.add(TurnStart(from_="archive"), request_id)
            for said in messages:
                self.ledger.add(said, request_id)
            self.ledger.add(TurnEnd(status="done"), request_id)
        # All at once: a crash leaves the whole of it or nothing.
        await self.ledger.flush()

    async def _turn(self, request: TurnRequest) -> TurnOutcome:
        deps = self._deps
        steps = StepLog(request.request_id, deps.history.steps, self._steps, clock=deps.clock, log=deps.log)
        turn = self._active = ActiveTurn(request, self.view_changes, self.compactor, steps, deps)
        began = deps.clock.monotonic()
        status: FinalTurnState = "done"
        unknown = False
        try:
            await self.fill(request)
            async with self._filling:
                await self.deletions.attempt()
            if (concluded := await self._concluded(turn, began)) is not None:
                return concluded
            await self.compactor.before_turn(request.request_id)
            self._take_purpose("overheard" if request.arrivals.quiet else "turn")
            system = await self._system(request)
            await self._begin(turn, system)
            outcome = await self._work(turn, system)
            wrong = UNANSWERED if outcome.notice else None
        except asyncio.CancelledError:
            if self._phase is not _Phase.STOPPING:
                raise
            outcome = await self._stopped(turn)
            self._log_end(outcome, began)
            return outcome
        except errors.ShipmateError as error:
            status = "withdrawn" if isinstance(error, WITHDRAWN) else "failed"
            wrong = f"{UNANSWERED} ({_plain(error)})"
            person = error.person
            unknown = isinstance(error, errors.ModelUnknown) and self.chosen is not None
            if isinstance(error, errors.RequestInvalid):
                deps.operators.tell("a model's request", sentence("operators.model_request", cause=error))
            if unknown:
                person = say("turn.model_gone", model=self.chosen, default=deps.models.default_model)
            outcome = _failed(turn, person, f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 - the turn is a supervision point: the chat must go on
            status, wrong = "failed", f"{UNANSWERED} (internal error)"
            outcome = _failed(turn, say("errors.any"), f"{type(error).__name__}: {error}")
        if self._phase is _Phase.RUNNING:
            self._phase = _Phase.ENDING
        await turn.end(status, outcome.notice, wrong if outcome.notice else None)
        if unknown:
            await self._back_to_default()
        else:
            self.compactor.turn_ended()
        self._log_end(outcome, began)
        return outcome

    async def _back_to_default(self) -> None:
        """The provider does not have the model that was chosen (any more)."""
        # After a restart the provider refuses it once more.
        with storage_errors_logged(self._deps.log, "the choice of a model cannot be written"):
            await self.ledger.choose(Meta(reason="model", chosen_model=""))
        self._switch(None)

    def _cut_off(self, request: TurnRequest) -> RunningTurn | None:
        """The part of a turn that is in its transcript already, because a crash cut it off."""
        running = self.store.running
        same = running is not None and running.request_id == request.request_id and bool(running.entries)
        return running if same else None

    async def _begin(self, turn: ActiveTurn, system: list[Json]) -> None:
        """Begin a turn, or go on with it where a crash cut it off."""
        message = "a turn that was cut off goes on" if self._cut_off(turn.request) else "a turn begins"
        self._deps.log.write("turn_start", message, messages=len(self.store))
        goes_on = turn.resumed or await self._resumed(turn)
        self._prepare_view(system)
        if not goes_on:
            await turn.begin(self._news())

    async def _concluded(self, turn: ActiveTurn, began: float) -> TurnOutcome | None:
        """The outcome of a turn that had ended before a restart, or was stopped before it had its answer; None where it begins, goes
        on, or has only to say its answer.
        """
        request, outcome = turn.request, TurnOutcome("stopped")
        end = self._ended.get(request.request_id) or await self.ledger.ended(request.request_id)
        if end is not None:
            return await self._ended_before(request, end)
        if not request.stopped:
            return None
        try:
            if await self._resumed(turn):
                if turn.answers():
                    return None
                outcome = await self._stopped(turn)
        except errors.ShipmateError as error:
            # Its person knows that it is stopped, and needs nothing else.
            self._deps.log.write(
                "error", "a stopped turn could not be closed", level="error", cause=f"{error}"
            )
        self._log_end(outcome, began)
        return outcome

    async def _resumed(self, turn: ActiveTurn) -> bool:
        """Take up what a crash left of a turn; False where that is nothing."""
        cut_off = self._cut_off(turn.request)
        if cut_off is None:
            return False
        recorded = await self._deps.history.steps.steps(turn.request.request_id)
        await self.deletions.redact_older(cut_off)
        await turn.resume(cut_off, recorded)
        return True

    async def _work(self, turn: ActiveTurn, system: list[Json]) -> TurnOutcome:
        """The turn itself. Stopped, it is left behind where a tool or a platform takes its time to end; closed then,
        it can do nothing more.
        """
        work = asyncio.create_task(take_turn(turn, system, self._deps))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.cancel()
            if self._phase is _Phase.RUNNING:
                await asyncio.wait([work])
            elif not await self._within(STOP_SECONDS, work):
                self._deps.log.write("stop", "what was stopped takes its time to end", level="warn")
            raise

    async def _stopped(self, turn: ActiveTurn) -> TurnOutcome:
        """Close a turn that was stopped, then deliver what it had said. A platform that takes long is not waited for."""
        await asyncio.shield(turn.end("stopped"))
        if turn.owed and turn.reply is not None:
            await self._within(LAST_WORDS_SECONDS, asyncio.create_task(self._say(turn.reply, turn.owed)))
        return TurnOutcome("stopped", delivered=turn.reply.delivered if turn.reply is not None else 0)

    async def _ended_before(self, request: TurnRequest, end: TurnEnd) -> TurnOutcome:
        """A turn that a crash kept from telling that it had ended: what it still owed is said."""
        delivered = sum(not one.failed for one in request.begun)
        if request.reply is not None and not delivered and end.owed:
            delivered = await self._say(request.reply, end.owed)
        status = "failed" if end.status == "withdrawn" else end.status
        return TurnOutcome(status, delivered=delivered, notice=end.notice)

    async def _say(self, reply: Reply, words: str) -> int:
        """Deliver the last words of a turn that is closed; how many messages that made."""
        try:
            await reply.send(words)
        except errors.DeliveryFailed as error:
            self._deps.log.write("stop", "the last words did not arrive", level="warn", cause=str(error))
            return 0
        return 1

    async def _within(self, seconds: float, task: asyncio.Task[Any]) -> bool:
        """True if a task ends within this time; after it, it goes on by itself."""
        self._left.add(task)
        task.add_done_callback(self._let_go)
        return await ends_within(seconds, task, self._deps.clock)

    def _let_go(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._deps.log.write("stop", "what was stopped failed", level="debug", cause=type(error).__name__)

    def _log_end(self, outcome: TurnOutcome, began: float) -> None:
        self._deps.log.write(
            "turn_end",
            f"the turn is {outcome.status}",
            level="error" if outcome.status == "failed" else "info",
            duration=(self._deps.clock.monotonic() - began) * 1000,
            status=outcome.status,
            person=context.person(),
            delivered=outcome.delivered,
            messages=len(self.store),
            cause=outcome.detail if outcome.status == "failed" else None,
        )

    async def _system(self, request: TurnRequest) -> list[Json]:
        """The system prompt. It is put together anew only when the prompt cache is cold or gone anyway."""
        deps, inbound = self._deps, request.inbound
        if self._frozen is None or self.view_changes.cold:
            fresh = await deps.freeze(self.chat_key, inbound.channel if inbound is not None else None)
            self._surroundings = fresh.surroundings
            # Files come and go: what stands before the messages does not change with them alone.
            same = replace(fresh, surroundings=self._shown_surroundings() or fresh.surroundings)
            if self._frozen is None or self._frozen == same:
                self._frozen = same
            else:
                deps.log.write("prompt", "the instructions or the skills have changed")
                self._frozen = fresh
        facts = prompt.ChatFacts(deps.root, self.chat_key)
        if inbound is not None:
            rules = deps.rules.get(inbound.channel, "")
            facts = prompt.ChatFacts(
                deps.root, self.chat_key, inbound.channel, inbound.chat_id, inbound.chat_type, rules
            )
        hour = deps.models.prices.hour_pays(deps.models.name)
        return prompt.system_blocks(self._frozen.static, self._frozen.chat(facts), hour=hour)

    def _prepare_view(self, system: list[Json]) -> None:
        self.view_changes.prepare(system, self._frozen.surroundings if self._frozen is not None else None)

    def _shown_surroundings(self) -> Mapping[str, str] | None:
        """The surroundings in the prompt of this conversation; None where it has none yet."""
        if self._frozen is not None:
            return self._frozen.surroundings
        frame = self.view_changes.frame if len(self.store) else None
        return frame.surroundings if frame is not None else None

    def _news(self) -> dict[str, str]:
        """The surroundings that are others than the model knows."""
        if self._frozen is None or not self._surroundings:
            return {}
        known = prompt.known_surroundings(self._frozen.surroundings, self.store.view())
        return {name: words for name, words in self._surroundings.items() if known.get(name) != words}


def _plain(error: errors.ShipmateError) -> str:
    """Name the kind of an error in words that the model can use: never the provider's own."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()


def _failed(turn: ActiveTurn, notice: str | None, detail: str) -> TurnOutcome:
    return TurnOutcome(
        "failed",
        delivered=turn.reply.delivered if turn.reply is not None else 0,
        notice=notice,
        detail=detail,
    )
