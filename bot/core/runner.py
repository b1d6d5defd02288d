"""Runs the effects that are due in each chat, such as turns, commands and sends. Each effect runs as an asyncio task.

`Turns` builds the agent loop of a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot import errors
from bot.contracts.approvals import Verdict
from bot.contracts.environment import OperatorNotices
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound, SeenFile
from bot.core import chat as life
from bot.core import events, quotes
from bot.core.access import Access
from bot.core.attachments import FileReader
from bot.core.chat import Chat
from bot.core.chats import NO_CHAT, Chats, Fact
from bot.core.event_log import RESTORED, EventLog
from bot.core.feature import Done, Door
from bot.core.fit import COLD_AFTER, AgentDeps, Fit, Frame, Withdrawn
from bot.core.locales import Locales
from bot.core.loop import Loop, OlderMessages
from bot.core.outbox import Outbox
from bot.core.outgoing import Address, OutboxRow, Question, rows
from bot.core.prompt import LEAST_BUDGET, MOST_BUDGET, SHARE, Frozen
from bot.core.reply import ChatReply
from bot.core.services import Services
from bot.core.sqlite_log import LOST
from bot.core.summaries import CompactResult, Summaries
from bot.core.tasks import TurnTasks
from bot.core.view import user_message
from bot.llm.models import EFFORT, MODEL, ModelDeps, effort_of
from bot.telemetry import log as telemetry
from bot.tools.context import ToolExecutionContext
from bot.words import say, sentence, speaking

UNANSWERED = "a message before this one got no whole answer; the person was told"
READ_AT_ONCE = 100  # Max chats that are loaded concurrently when the process starts
CANCEL_SECONDS = 0.5  # Max seconds to wait until a cancelled task ends
MOST_CANCELS = 2
"""Max number of times that a task is cancelled. The first cancellation may have no effect, because a library may swallow it."""
LATEST = 86_400.0
"""Max age in seconds of an unanswered message whose author is asked to send it again after the log was restored."""
Key = tuple[Chat, str, str]
"""Key of a running effect: the chat, the kind of effect, and the id of the row or command ("" for a turn)."""


class Slots(asyncio.Semaphore):
    """Limits the number of concurrent turns."""

    @contextlib.asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Release the turn's slot inside the `with` block, while the turn waits for a person. Then take a slot again."""
        self.release()
        try:
            yield
        finally:
            # If this wait were cancelled, the turn would later release a slot that it does not have.
            await asyncio.shield(asyncio.ensure_future(self.acquire()))


@dataclass(eq=False)
class Turns:
    """Builds the agent loop of each turn from the agent's prompt, model and tools."""

    agent: AgentDeps  # Settings and services of the agent. A reload replaces them for later turns.
    chats: Chats
    event_log: EventLog
    reply: Callable[[Chat, str, Inbound], ChatReply]
    files: FileReader
    door: Door
    access: Access

    def __post_init__(self) -> None:
        self.summaries = Summaries(self.agent, lambda chat, data: self.chats.append(Fact(chat.key, data)))

    def loop(self, chat: Chat, turn: str) -> Loop:
        """Return the agent loop of a turn that has started."""
        agent, running = self.agent, chat.turn
        if running is None:
            raise errors.ShipmateError(f"turn {turn} is over")
        first = running.first
        if self.door.display is not None:
            self.door.display.begin(running)

        async def tell(inbound: Inbound) -> events.Told | None:
            files = await self._seen(chat, turn, inbound)
            if files is None or not (inbound.has_text or any(one.read for one in files)):
                return None
            seen = [*chat.context.view(), *chat.context.current()]
            opens = not chat.context.current()
            wrong = chat.context.wrong if opens else ()
            edits = chat.untold_edits if opens else []
            quoted = [quotes.edited(one) for one in edits]
            quoted += await self.door.before_turn(chat, inbound) if opens else []
            admitted = self.access.admitted(inbound, quoted)
            begins = opens and not seen
            said = await user_message(inbound, admitted, files, agent, seen, wrong=wrong, begins=begins)
            return events.Told(said, (inbound.request_id,), tuple(one.request_id for one in edits))

        quiet = all(one.overheard for one in running.members)
        fit = self._fit(chat, turn, "overheard" if quiet else "turn")
        reply = self.reply(chat, turn, first)
        wrapped = self.door.wrapped(chat, reply, agent.registry)
        tasks = TurnTasks(fit, self.chats, self.event_log)
        older = OlderMessages(turn, fit)

        def seen_by_tools() -> ToolExecutionContext:
            return ToolExecutionContext(
                chat_key=chat.key,
                request_id=turn,
                user_id=first.user_id,
                reply=wrapped,
                injection=older,
                channel=first.channel,
                private=first.chat_type == "direct",
                people=tuple(dict.fromkeys(one.user_id for one in running.members)),
                view=chat.context.shown,
                flush=self.event_log.committed,
                undeclared=lambda: agent.registry.behind(fit.tools),
                task=tasks.run,
                inbound=first,
            )

        return Loop(
            turn=turn,
            fit=fit,
            chats=self.chats,
            event_log=self.event_log,
            model=fit.models.model,
            frame=lambda: self._frame(chat, first, fit.models),
            tell=tell,
            before_turn=self.summaries.before_turn,
            before_asking=self.summaries.before_asking,
            reply=reply,
            wrapped=wrapped,
            dispatcher=agent.dispatcher,
            context=seen_by_tools,
            tasks=tasks,
        )

    async def _seen(self, chat: Chat, turn: str, inbound: Inbound) -> Sequence[SeenFile] | None:
        """Read the files of a message once, and return one result per file; None if the message was deleted."""
        running, name = chat.turn, inbound.request_id
        if running is None or not inbound.attachments:
            return ()
        if name not in running.seen:
            try:
                files = await self.files.read(inbound)
            finally:
                if name in running.withdrawn:
                    await self.files.forget(inbound)  # the message was deleted while its files were read
            self.chats.append(Fact(chat.key, events.FilesRead(name, files), turn))
        return None if name in running.withdrawn else running.seen.get(name)

    async def compact(self, inbound: Inbound) -> CompactResult:
        """Compact the history of the chat in which the command `inbound` was written (see `Runtime.compact`)."""
        chat = await self.chats.get(inbound.chat_key)
        fit = self._fit(chat, inbound.request_id, "turn")
        fit.take(await self._frame(chat, inbound, fit.models))
        return await self.summaries.compact(fit, inbound.args)

    def models(self, chat: ChatKey, purpose: str = "turn") -> ModelDeps:
        """Return the agent's models, with the model and the effort that were chosen for this chat (see `Runtime.models`)."""
        model, effort = (self.chats.facts[kind].get(str(chat)) or {} for kind in (MODEL, EFFORT))
        chosen, how = model.get("name"), effort_of(effort.get("name"))
        return replace(self.agent.models, chosen=chosen, chosen_effort=how, purpose=purpose)

    def _fit(self, chat: Chat, turn: str, purpose: str) -> Fit:
        models = self.models(chat.key, purpose)
        return Fit(chat, models, self.agent, lambda data: self.chats.append(Fact(chat.key, data, turn)))

    async def _frame(self, chat: Chat, first: Inbound, models: ModelDeps) -> Frame:
        """Return the system prompt and tools of a chat's requests."""
        if models.chosen is not None:
            # Another process may have stored the choice of this model. So this process must ask once for the model's limits.
            with contextlib.suppress(errors.ModelError):
                await models.windows.ask(models.model, models.chosen)
        agent = self.agent
        frozen = await self._frozen(chat, first, models)
        rules, hour = agent.manifests[first.channel].rules, models.prices.hour_pays(models.name)
        return Frame(
            frozen, frozen.system(agent.settings.root, first, rules, hour=hour), agent.registry.forms
        )

    async def _frozen(self, chat: Chat, first: Inbound, models: ModelDeps) -> Frozen:
        """Return the chat's prompt. A prompt that is still cached stays the same."""
        context, agent = chat.context, self.agent
        before = context.frame
        known = before.frozen if before is not None and before.model == models.name else None
        shows, asked_at = len(context) > 0 or bool(context.current()), context.asked_at
        warm = shows and asked_at is not None and agent.clock.now() - asked_at <= COLD_AFTER
        if known is not None and warm:
            return known
        tools = models.estimator.tokens(models.name, models.declared(agent.registry.forms))
        room = models.budget(agent.settings.context.compaction.soft_tokens).share(SHARE, MOST_BUDGET) - tools
        fresh = await agent.prompts.freeze(
            chat.key,
            first.channel,
            models.name,
            budget=max(LEAST_BUDGET, room),
            size=functools.partial(models.estimator.text, models.name),
            system_role=models.windows.takes_system(models.name),
        )
        if fresh.cut:
            told = sentence("operators.instructions", names=", ".join(fresh.cut))
            agent.alerts.tell(f"instructions {fresh.cut}", told, every=86_400.0)
        if before is not None and len(context) and known != fresh:
            agent.log.write("prompt", "the instructions or the skills have changed")
        return fresh


@dataclass(eq=False)
class Runner:
    """Runs the effects that are due in a chat. After each change of a chat, it checks which effects are due."""

    services: Services
    chats: Chats
    event_log: EventLog
    outbox: Outbox
    door: Door
    locales: Locales
    turns: Turns
    slots: Slots
    alerts: OperatorNotices

    def __post_init__(self) -> None:
        self._committed: dict[ChatKey, int] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._loops: dict[str, Loop] = {}
        self._alarms: dict[ChatKey, asyncio.Task[None]] = {}
        self._due: dict[ChatKey, Chat] = {}
        self._open = self._closing = False
        self._channels = set[str]()  # Names of connected channels. Effects for other channels wait.
        self.chats.watch(self._look_at)
        self.event_log.watch(self._on_disk)

    async def start(self) -> None:
        """Load every chat that has unfinished work. Then run the effects that are due. All chats are loaded first, because a
        command may concern a question in another chat.
        """
        keys = await self.event_log.chats(unfinished=True)
        for at in range(0, len(keys), READ_AT_ONCE):
            await asyncio.gather(*map(self.chats.get, keys[at : at + READ_AT_ONCE]))
        self._open = True
        for chat in self.chats:
            self._committed.setdefault(chat.key, chat.seq)
            self._look_at(chat)

    async def close_restored(self) -> None:
        """Alert operators if the log was damaged or lost. If the log was restored from a backup, close all unfinished work
        in one transaction, because the work may have been finished after the backup. Ask the authors of unanswered messages
        to send them again. Raises `errors.StorageError`.
        """
        if (lost := self.chats.facts[LOST].get("log")) is not None:
            # The log remembers this alert, so operators read it once. A later loss has another time, so it causes another alert.
            words = sentence(f"operators.chat_log_{lost['what']}")
            self.alerts.tell(f"log lost {lost['at']}", words, every=float("inf"))
        if self.chats.facts[RESTORED].get(RESTORED) is None:
            return
        facts = list[Fact]()
        for key in await self.event_log.chats(unfinished=True):
            facts += self._closing_facts(await self.chats.get(key))
        await self.chats.get(NO_CHAT)
        self.chats.append(*facts, Fact(NO_CHAT, events.FactSet(RESTORED, RESTORED, None)))
        await self.event_log.committed(patient=False)
        self.alerts.tell(RESTORED, sentence("operators.chat_log_restored"))

    def _closing_facts(self, chat: Chat) -> Iterator[Fact]:
        for question in chat.questions.values():
            if question.verdict is None:
                yield Fact(chat.key, events.Decided(question.id, Verdict("stopped")), question.turn)
        # A row may have been sent after the backup. Rows become "sending", so that the outbox asks the platform about them.
        for row in chat.outbox.values():
            if row.state == "queued" and row.question is None:
                yield Fact(chat.key, events.Sending(row.id, boot=""), row.turn)
        waiting, unanswered = chat.waiting, list[Inbound]()
        if (turn := chat.turn) is not None:
            answered = turn.phase is life.Phase.ENDING
            unanswered = [] if answered else turn.left
            yield Fact(chat.key, events.TurnEnded("answered" if answered else "stopped"), turn.id)
        for request in [*chat.beside, *(one.request_id for one in waiting)]:
            yield Fact(chat.key, events.Closed(request, RESTORED))
        since = self.services.clock.now() - LATEST
        said = [one for one in (*unanswered, *waiting) if one.due is None and one.ts / 1000 >= since]
        if said and chat.task is None:
            with speaking(*self.locales.of(said[-1])):
                words = say("delivery.lost_records")
                yield from self._messages(chat, said[-1], f"{said[-1].request_id}/{RESTORED}", words)

    async def open(self, channel: str) -> None:
        """Run the effects that wait for this channel. Call this when the channel has connected."""
        self._channels.add(channel)
        for chat in self.chats:
            self._look_at(chat)

    @property
    def running(self) -> int:
        return len(self._loops)

    async def close(self, seconds: float) -> bool:
        """Start no new turns. Wait up to `seconds` seconds for running effects, but not for turns that wait for a person's
        decision. Then cancel the remaining effects. The next process continues the cancelled turns. Returns True if it
        cancelled nothing.
        """
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while busy := [
                    task
                    for (chat, what, _), task in self._tasks.items()
                    if what != "turn" or chat.turn is None or chat.turn.phase is not life.Phase.SUSPENDED
                ]:
                    await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
        self._open = False
        left = {key: task for key, task in self._tasks.items() if not task.done()}
        for alarm in self._alarms.values():
            alarm.cancel()
        cut = set(left.values())
        for _ in range(MOST_CANCELS):
            for task in cut:
                task.cancel()
            if cut:
                _, cut = await asyncio.wait(cut, timeout=CANCEL_SECONDS)
        for chat, what, _ in left:
            if what == "turn" and chat.turn is not None:
                self._append(chat, events.TurnLeft(), chat.turn.id)
        return not left

    # ------------------------------------------------------------ checks for due effects

    def _look_at(self, chat: Chat) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._look)
        self._due[chat.key] = chat

    def _on_disk(self, newest: Mapping[ChatKey, int]) -> None:
        for key, seq in newest.items():
            self._committed[key] = seq
            if (chat := self.chats.loaded(key)) is not None:
                self._look_at(chat)

    def _look(self) -> None:
        due, self._due = self._due, {}
        for chat in due.values() if self._open else ():
            effects = chat.due(
                self.services.clock.now(), self.services.boot, self._committed.get(chat.key, 0)
            )
            new = not self._closing and chat.key.channel in self._channels
            for effect in effects:
                match effect:
                    case life.StartTurn(members) if new:
                        self._begin((chat, "turn", ""), self._run(chat, members))
                    case life.Handle(inbound) if new:
                        self._begin((chat, "command", inbound.request_id), self._handle(chat, inbound))
                    case life.AskAnew(turn, call) if (loop := self._loops.get(turn)) is not None:
                        loop.ask_anew(call)
                    case life.StopTurn(turn):
                        self._stop(chat, turn)
                    case life.Expire(question):
                        self._append(chat, events.Decided(question.id, Verdict("expired")), question.turn)
                    case life.Deliver(do, row, question) if row.channel in self._channels:
                        self._begin((chat, "row", row.id), self._deliver(do, row, question))
            if times := [one.at for one in effects if isinstance(one, life.WakeAt)]:
                self._wake(chat, min(times))

    async def _deliver(self, do: str, row: OutboxRow, question: Question | None) -> None:
        if do == "end":
            await self.outbox.end(row)
        elif question is not None:
            await self.outbox.revise(row, functools.partial(self.door.outcome, question))
        else:
            await (self.outbox.send if do == "send" else self.outbox.find)(row)

    def _begin(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        if key in self._tasks:
            work.close()
            return

        def over(task: asyncio.Task[None]) -> None:
            del self._tasks[key]
            if not task.cancelled() and (error := task.exception()) is not None:
                self._failed(*key, error)
            self._look_at(key[0])

        task = self._tasks[key] = asyncio.create_task(work)
        task.add_done_callback(over)

    def _failed(self, chat: Chat, what: str, name: str, error: BaseException) -> None:
        """Log an effect's unexpected exception. Record that the effect has ended, so that it does not become due again."""
        cause = f"{type(error).__name__}: {error}"
        self.services.log.write("error", f"a {what} failed", level="error", chat_key=chat.key, cause=cause)
        if what == "row":
            self._append(chat, events.RowEnded(name, "failed", reason="failed"))
            self._append(chat, events.Revised(name))
        elif what == "command" and (one := chat.beside.get(name)) is not None:
            with speaking(*self.locales.of(one.inbound)):
                self.chats.append(*self._handled(chat, one.inbound, Done(errors.ShipmateError().person)))
        elif chat.turn is not None:
            self._end(chat, chat.turn.id, _End("failed", errors.ShipmateError().person, cause))

    def _wake(self, chat: Chat, at: float) -> None:
        if (alarm := self._alarms.pop(chat.key, None)) is not None:
            alarm.cancel()
        wait = max(0.0, at - self.services.clock.now())
        alarm = self._alarms[chat.key] = asyncio.create_task(self.services.clock.sleep(wait))
        alarm.add_done_callback(lambda rung: None if rung.cancelled() else self._look_at(chat))

    # ------------------------------------------------------------ commands

    async def _handle(self, chat: Chat, inbound: Inbound) -> None:
        """Run a command or signal. Its results and its end are appended to the log in one transaction."""
        with (
            telemetry.turn_scope(chat_key=chat.key, request_id=inbound.request_id, person=inbound.person),
            speaking(*self.locales.of(inbound)),
        ):
            done = await self._carried_out(inbound)
            if inbound.request_id in chat.beside:
                self.chats.append(*self._handled(chat, inbound, done))

    async def _carried_out(self, inbound: Inbound) -> Done:
        command = self.door.command(inbound)
        try:
            return Done() if command is None else await command.run(inbound)
        except errors.ShipmateError as error:
            self.services.log.write("error", f"{type(error).__name__}: {error}", level="error")
            return Done(error.person)

    def _handled(self, chat: Chat, inbound: Inbound, done: Done) -> Iterator[Fact]:
        yield from done.facts
        name = f"{inbound.request_id}/answer"
        yield from self._messages(chat, inbound, name, done.say, buttons=done.buttons)
        yield Fact(chat.key, events.Closed(inbound.request_id))

    # ------------------------------------------------------------ turns

    async def _run(self, chat: Chat, members: Sequence[Inbound]) -> None:
        async with self.slots:
            if chat.turn is None:
                # Leave out messages that were deleted while the turn waited for a slot.
                waiting = {one.request_id for one in chat.waiting}
                members = [one for one in members if one.request_id in waiting]
                if not members:
                    return
            turn = chat.turn.id if chat.turn is not None else members[0].request_id
            with telemetry.turn_scope(chat_key=chat.key, request_id=turn, person=members[0].person):
                if chat.turn is not None and chat.turn.attempts >= life.MOST_ATTEMPTS:
                    self._end(chat, turn, _End("failed", errors.ShipmateError().person))
                    return
                self._append(
                    chat,
                    events.TurnStarted(tuple(one.request_id for one in members), self.services.boot),
                    turn,
                )
                if chat.turn is None or chat.turn.phase is life.Phase.STOPPING:
                    return
                if chat.turn.first.command is None:
                    self.services.log.write("turn_start", "a turn begins", messages=len(chat.context))
                began = self.services.clock.monotonic()
                with speaking(*self.locales.of(chat.turn.first)):
                    end = await self._ended(chat, turn, chat.turn.first)
                    self._end(chat, turn, end, (self.services.clock.monotonic() - began) * 1000)

    async def _ended(self, chat: Chat, turn: str, first: Inbound) -> _End:
        """Run a command or the model's loop, and return how the turn ended."""
        try:
            if first.command is not None:
                done = await self._carried_out(first)
                return _End("handled", done.say, facts=done.facts)
            if chat.turn is not None and not any(one.has_text or one.attachments for one in chat.turn.left):
                return _End("answered", say("turn.empty"))
            loop = self._loops[turn] = self.turns.loop(chat, turn)
            return _End("answered", await loop.run())
        except errors.ShipmateError as error:
            if isinstance(error, errors.RequestInvalid):
                self.alerts.tell("a model's request", sentence("operators.model_request", cause=error))
            caused = isinstance(error, Withdrawn | errors.RequestInvalid)
            state: events.TurnEndState = "withdrawn" if caused else "failed"
            return _End(state, error.person, f"{type(error).__name__}: {error}")
        finally:
            self._loops.pop(turn, None)

    def _stop(self, chat: Chat, turn: str) -> None:
        task = self._tasks.get((chat, "turn", ""))
        if task is not None and turn in self._loops:
            # A second cancellation would interrupt the storing of the partial answer.
            if not task.cancelling():
                task.cancel()
            return
        person = chat.turn.first.person if chat.turn is not None else None
        with telemetry.turn_scope(chat_key=chat.key, request_id=turn, person=person):
            self._end(chat, turn, _End("stopped"))

    def _end(self, chat: Chat, turn: str, end: _End, took: float | None = None) -> None:
        """Append the events that end a turn and its subagent tasks, and the events and messages that features add."""
        facts, running = list(end.facts), chat.turn
        if running is None:
            return
        dones, first = self.door.turn_ends(running, end.state), running.first
        buttons = next((one.buttons for one in dones if one.buttons is not None), None)
        facts += self._messages(chat, first, f"{turn}/end", end.notice, turn, ends=True, buttons=buttons)
        wrong = ""
        if end.notice and end.state != "handled":
            wrong = UNANSWERED + (f" ({end.cause.partition(':')[0]})" if end.cause else "")
        for task in running.tasks.values():
            if self.chats.loaded(key := life.chat_of_task(chat.key, task)) is not None:
                facts.append(Fact(key, events.TurnEnded("stopped"), task))
        for number, done in enumerate(dones):
            facts += [*done.facts, *self._messages(chat, first, f"{turn}/over/{number}", done.say, turn)]
        delivered = sum(one is not None and one.state == "sent" for one in running.rows.values())
        self.chats.append(*facts, Fact(chat.key, events.TurnEnded(end.state, wrong, running.model), turn))
        self.turns.summaries.turn_ended(chat)
        if end.state == "handled":
            return  # commands are not logged as turns
        status = {"answered": "done", "withdrawn": "failed"}.get(end.state, str(end.state))
        self.services.log.write(
            "turn_end",
            "the turn failed" if status == "failed" else f"the turn is {status}",
            level="error" if status == "failed" else "info",
            duration=took,
            status=status,
            person=telemetry.person(),
            delivered=delivered,
            messages=len(chat.context),
            cause=end.cause or None,
        )

    def _messages(
        self, chat: Chat, to: Inbound, name: str, words: str, turn: str | None = None, **more: Any
    ) -> list[Fact]:
        """Return the events that send the text `words` to the chat of the message `to`; [] if the text is empty."""
        parts = rows(self.services, name, Address.of(to), words, **more) if words else []
        return [Fact(chat.key, row, turn) for row in parts]

    def _append(self, chat: Chat, data: events.EventData, turn: str | None = None) -> None:
        self.chats.append(Fact(chat.key, data, turn))


@dataclass(frozen=True, slots=True)
class _End:
    """Result of a turn. `notice` is a text for the person, and `cause` a text for operators."""

    state: events.TurnEndState
    notice: str = ""
    cause: str = ""
    facts: Sequence[Fact] = ()
