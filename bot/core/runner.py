"""Runs the effects that are due in each chat, such as turns, commands and sends. Each effect runs as an asyncio task."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from bot import errors
from bot.contracts.approvals import Verdict
from bot.contracts.environment import OperatorNotices
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core import chat as life
from bot.core import events
from bot.core.chat import Chat
from bot.core.chats import NO_CHAT, Chats, Fact
from bot.core.event_log import RESTORED, EventLog
from bot.core.feature import Done, Door
from bot.core.fit import Withdrawn
from bot.core.locales import Locales
from bot.core.loop import Loop
from bot.core.outbox import Outbox
from bot.core.outgoing import Address, OutboxRow, Question, Saying
from bot.core.services import Services
from bot.core.sqlite_log import LOST
from bot.telemetry import context
from bot.words import say, sentence, speaking

UNANSWERED = "a message before this one got no whole answer; the person was told"
READ_AT_ONCE = 100
"""Max chats that are loaded concurrently when the process starts."""
CANCEL_SECONDS = 0.5
"""Max seconds to wait until a cancelled task ends."""
MOST_CANCELS = 2
"""Max number of times that a task is cancelled. One time is not always enough, since a library may swallow the cancellation."""
LATEST = 86_400.0
"""After the log was restored, authors of unanswered messages up to this many seconds old are asked to send them again."""
Key = tuple[ChatKey, str, str]
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
class Runner:
    """Runs the effects that are due in a chat. After each change of a chat, it checks which effects are due."""

    services: Services
    chats: Chats
    event_log: EventLog
    _: KW_ONLY
    outbox: Outbox
    door: Door
    saying: Saying
    locales: Locales
    loop: Callable[[Chat, str], Loop]
    turn_ended: Callable[[Chat], None]
    slots: Slots
    alerts: OperatorNotices

    def __post_init__(self) -> None:
        self._committed: dict[ChatKey, int] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._loops: dict[str, Loop] = {}
        self._alarms: dict[ChatKey, asyncio.Task[None]] = {}
        self._due: dict[ChatKey, Chat] = {}
        self._open = self._closing = False
        self._channels = set[str]()
        """Names of connected channels. Effects of other channels wait."""
        self.chats.watch(self._look_at)
        self.event_log.watch(self._on_disk)

    async def start(self) -> None:
        """Load every chat that has unfinished work. Then run the effects that are due. All chats are loaded first, because a
        command may concern a question in another chat.
        """
        keys = await self.event_log.open_chats()
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
        if (lost := self.chats.facts.get(LOST, "log")) is not None:
            # The log remembers this alert, so operators read it once. A later loss has another time, and thus another alert.
            words = sentence(f"operators.chat_log_{lost['what']}")
            self.alerts.tell(f"log lost {lost['at']}", words, every=float("inf"))
        if self.chats.facts.get(RESTORED, RESTORED) is None:
            return
        facts = list[Fact]()
        for key in await self.event_log.open_chats():
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
                name, to = f"{said[-1].request_id}/{RESTORED}", Address.of(said[-1])
                yield from (
                    Fact(chat.key, row) for row in self.saying.rows(name, to, say("delivery.lost_records"))
                )

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
        decision. Then cancel the remaining effects. The next process continues the cancelled turns. Returns True if nothing
        was cancelled.
        """
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while busy := [task for key, task in self._tasks.items() if not self._suspended(*key[:2])]:
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
        for key, what, _ in left:
            chat = self.chats.loaded(key)
            if what == "turn" and chat is not None and chat.turn is not None:
                self._append(chat, events.TurnLeft(), chat.turn.id)
        return not left

    def _suspended(self, key: ChatKey, what: str) -> bool:
        chat = self.chats.loaded(key)
        turn = None if chat is None or what != "turn" else chat.turn
        return turn is not None and turn.phase is life.Phase.SUSPENDED

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
            for effect in effects:
                self._perform(chat, effect)
            if times := [one.at for one in effects if isinstance(one, life.WakeAt)]:
                self._wake(chat, min(times))

    def _perform(self, chat: Chat, effect: life.Effect) -> None:
        new = not self._closing and chat.key.channel in self._channels
        match effect:
            case life.StartTurn(members, attempts) if new:
                self._begin((chat.key, "turn", ""), chat, self._run, chat, members, attempts)
            case life.Handle(inbound) if new:
                self._begin((chat.key, "command", inbound.request_id), chat, self._handle, chat, inbound)
            case life.AskAnew(turn, call) if (loop := self._loops.get(turn)) is not None:
                loop.ask_anew(call)
            case life.StopTurn(turn):
                self._stop(chat, turn)
            case life.Expire(question):
                self._append(chat, events.Decided(question.id, Verdict("expired")), question.turn)
            case life.Deliver(do, row, question) if row.channel in self._channels:
                self._begin((chat.key, "row", row.id), chat, self._deliver, do, row, question)
            case _:
                pass

    async def _deliver(self, do: str, row: OutboxRow, question: Question | None) -> None:
        if do == "end":
            await self.outbox.end(row)
        elif question is not None:
            await self.outbox.revise(row, functools.partial(self.door.outcome, question))
        else:
            await (self.outbox.send if do == "send" else self.outbox.find)(row)

    def _begin(
        self, key: Key, chat: Chat, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any
    ) -> None:
        if key in self._tasks:
            return

        def over(task: asyncio.Task[None]) -> None:
            del self._tasks[key]
            if not task.cancelled() and (error := task.exception()) is not None:
                self._failed(chat, key, error)
            self._look_at(chat)

        task = self._tasks[key] = asyncio.create_task(work(*arguments))
        task.add_done_callback(over)

    def _failed(self, chat: Chat, key: Key, error: BaseException) -> None:
        """Log an effect's unexpected exception. Record that the effect has ended, so that it does not become due again."""
        _, what, name = key
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
            context.turn_scope(chat_key=chat.key, request_id=inbound.request_id, person=inbound.person),
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
        if done.say:
            to, name = Address.of(inbound), f"{inbound.request_id}/answer"
            for row in self.saying.rows(name, to, done.say, buttons=done.buttons):
                yield Fact(chat.key, row)
        yield Fact(chat.key, events.Closed(inbound.request_id))

    # ------------------------------------------------------------ turns

    async def _run(self, chat: Chat, members: Sequence[Inbound], attempts: int) -> None:
        async with self.slots:
            if chat.turn is None:
                # Leave out messages that were deleted while the turn waited for a slot.
                waiting = {one.request_id for one in chat.waiting}
                members = [one for one in members if one.request_id in waiting]
                if not members:
                    return
            turn = chat.turn.id if chat.turn is not None else members[0].request_id
            with context.turn_scope(chat_key=chat.key, request_id=turn, person=members[0].person):
                if attempts >= life.MOST_ATTEMPTS:
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
            loop = self._loops[turn] = self.loop(chat, turn)
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
        task = self._tasks.get((chat.key, "turn", ""))
        if task is not None and turn in self._loops:
            # A second cancellation would interrupt the storing of the partial answer.
            if not task.cancelling():
                task.cancel()
            return
        person = chat.turn.first.person if chat.turn is not None else None
        with context.turn_scope(chat_key=chat.key, request_id=turn, person=person):
            self._end(chat, turn, _End("stopped"))

    def _end(self, chat: Chat, turn: str, end: _End, took: float | None = None) -> None:
        """Append the events that end a turn and its subagent tasks, and the events and messages that features add."""
        facts, running = list(end.facts), chat.turn
        if running is None:
            return
        dones, to = self.door.turn_ends(running, end.state), Address.of(running.first)
        wrong = ""
        if end.notice:
            buttons = next((one.buttons for one in dones if one.buttons is not None), None)
            rows = self.saying.rows(f"{turn}/end", to, end.notice, ends=True, buttons=buttons)
            facts += [Fact(chat.key, row, turn) for row in rows]
            if end.state != "handled":
                wrong = UNANSWERED + (f" ({end.cause.partition(':')[0]})" if end.cause else "")
        for task in running.tasks.values():
            if self.chats.loaded(key := life.chat_of_task(chat.key, task)) is not None:
                facts.append(Fact(key, events.TurnEnded("stopped"), task))
        for number, done in enumerate(dones):
            facts += done.facts
            rows = self.saying.rows(f"{turn}/over/{number}", to, done.say) if done.say else []
            facts += [Fact(chat.key, row, turn) for row in rows]
        delivered = sum(one is not None and one.state == "sent" for one in running.rows.values())
        self.chats.append(*facts, Fact(chat.key, events.TurnEnded(end.state, wrong, running.model), turn))
        self.turn_ended(chat)
        if end.state == "handled":
            return  # commands are not logged as turns
        status = {"answered": "done", "withdrawn": "failed"}.get(end.state, str(end.state))
        self.services.log.write(
            "turn_end",
            "the turn failed" if status == "failed" else f"the turn is {status}",
            level="error" if status == "failed" else "info",
            duration=took,
            status=status,
            person=context.person(),
            delivered=delivered,
            messages=len(chat.context),
            cause=end.cause or None,
        )

    def _append(self, chat: Chat, data: events.EventData, turn: str | None = None) -> None:
        self.chats.append(Fact(chat.key, data, turn))


@dataclass(frozen=True, slots=True)
class _End:
    """Result of a turn. `notice` is a text for the person, and `cause` a text for operators."""

    state: events.TurnEndState
    notice: str = ""
    cause: str = ""
    facts: Sequence[Fact] = ()
