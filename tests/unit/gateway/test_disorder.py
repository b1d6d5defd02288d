"""Events several times, in any order, late, with kills in between: one answer each, in order, to the last words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from bot.contracts import Command, Inbound, InboxRecord, Outbound, Sent, TurnOutcome, TurnRequest
from bot.gateway.queueing import MODES, person
from tests.unit.gateway.conftest import Bench

T = TypeVar("T")
PEOPLE = ("77", "78", "79")
EXAMPLES = int(os.environ.get("EXAMPLES", "30"))


class Scripted:
    """`contracts.Agent` that says which messages it answers, takes up what it may, and knows what it has answered."""

    def __init__(self, ended: set[str], cut: dict[str, list[str]]) -> None:
        self.ended = ended
        self.cut = cut
        self.gate = asyncio.Event()
        self.gate.set()
        self.running: dict[str, asyncio.Task[TurnOutcome]] = {}
        self.stopping: set[str] = set()

    async def run(self, request: TurnRequest) -> TurnOutcome:
        assert request.chat_key not in self.running
        if request.request_id in self.ended:
            return TurnOutcome("done")
        task = self.running[request.chat_key] = asyncio.ensure_future(self._run(request))
        try:
            return await task
        except asyncio.CancelledError:
            if request.chat_key in self.stopping:
                self._end(request)
                return TurnOutcome("stopped")
            raise
        finally:
            self.stopping.discard(request.chat_key)
            del self.running[request.chat_key]

    async def _run(self, request: TurnRequest) -> TurnOutcome:
        assert request.inbound is not None
        assert request.reply is not None
        first = [request.inbound, *request.also]
        sources = self.cut[request.chat_key] = [one.request_id for one in first]
        await self.gate.wait()
        more = request.take_more() if request.take_more is not None else []
        sources += [one.request_id for one in more]
        # What was delivered before a kill is not said again; what joined since then wants an answer.
        answered = more if request.delivered else [*first, *more]
        if answered:
            await request.reply.send(" ".join(f"{one.kind}:{one.message_id}={one.text}" for one in answered))
        self._end(request)
        return TurnOutcome("done", delivered=1)

    def _end(self, request: TurnRequest) -> None:
        self.ended.add(request.request_id)
        del self.cut[request.chat_key]

    async def cut_off(self, chat_key: str) -> tuple[str, ...]:
        return tuple(self.cut.get(chat_key, ()))

    async def stop(self, chat_key: str) -> bool:
        if chat_key not in self.running:
            return False
        self.stopping.add(chat_key)
        return self.running[chat_key].cancel()

    async def reset(self, chat_key: str) -> int:
        return 0

    async def stats(self, chat_key: str) -> dict[str, Any]:
        return {}

    async def history(self, chat_key: str) -> str:
        return ""

    async def undo(self, chat_key: str) -> str | None:
        return None

    async def forget(self, chat_key: str) -> None: ...

    async def sessions(self, chat_key: str) -> list[dict[str, Any]]:
        return []

    async def resume(self, chat_key: str, session: str) -> dict[str, Any]:
        return {"how": "unknown"}

    async def fork(self, chat_key: str, *, request_id: str | None = None, back: int = 0) -> dict[str, Any]:
        return {"how": "unknown", "turns": 0}

    async def compact(self, chat_key: str, focus: str = "") -> dict[str, Any]:
        return {"how": "nothing"}

    async def describe(self, chat_key: str) -> dict[str, Any]:
        return {"model": "scripted", "messages": 1, "maxMessages": 60}


class Disorder(RuleBasedStateMachine):
    """Two chats, a direct one and a group; three people; every event may come up to five times."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.ended: set[str] = set()
        self.cut: dict[str, list[str]] = {}
        self.sent: list[Outbound] = []
        self.number = 0
        self.events: list[Inbound] = []
        self.said: dict[str, list[str]] = {}
        self.stopped: set[str] = set()
        self.withdrawn: set[str] = set()
        self.arrived: dict[tuple[str, str], list[str]] = {}
        self.queued: set[str] = set()
        self.firm: dict[str, int] = {}
        self.gone: set[str] = set()
        self.options: dict[str, Any] = {}
        self.bench: Bench

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    @initialize(
        mode=st.sampled_from(sorted(MODES)), places=st.integers(1, 3), waiting=st.sampled_from([4, 10_000])
    )
    def begin(self, mode: str, places: int, waiting: int) -> None:
        self.options = {"mode": mode, "max_concurrent": places, "most_waiting": waiting}
        self.do(self._start())

    async def _start(self) -> None:
        self.bench = Bench(Path(self.folder.name), **self.options)
        self.bench.lists.allowed = lambda _: frozenset(PEOPLE)  # type: ignore[method-assign, assignment]
        self.bench.intake._queue = self.queue
        # As on Slack, where a send without a known outcome can be looked up: nothing has to be said again.
        self.bench.tele.find = self.find  # type: ignore[method-assign]
        self.agent = Scripted(self.ended, self.cut)
        bench = self.bench
        bench.turns._agent = bench.turns.opening._agent = bench.turns.stops._agent = self.agent
        await bench.open()

    async def find(self, message: Outbound) -> Sent | None:
        shown = [*self.sent, *self.bench.tele.sent]
        return next((Sent(f"found:{one.id}") for one in shown if one.id == message.id), None)

    async def _kill(self) -> None:
        bench = self.bench
        await bench.turns.lanes.drain(0)
        self.sent += bench.tele.sent
        await bench.archive.close()
        await bench.journal.close()

    def event(self, who: str, chat: str, **more: Any) -> Inbound:
        self.number += 1
        key = f"tele:chat:{chat}"
        fields: dict[str, Any] = {
            "channel": "tele", "chat_id": chat, "chat_key": key, "user_id": who, "target": {"chat": chat},
            "chat_type": "direct" if chat == "77" else "group", "ts": 1_000_000 + self.number,
            "keys": (f"event:{self.number}", f"place:{self.number}"),
        }  # fmt: skip
        made = Inbound.model_validate(fields | more)
        self.events.append(made)
        return made

    @rule(who=st.sampled_from(PEOPLE), group=st.booleans(), later=st.booleans())
    def write(self, who: str, group: bool, later: bool) -> None:
        chat = "-100" if group else "77"
        event = self.event(who, chat, text="0", message_id=f"m{self.number}")
        if not later:
            self.bring(event)

    @precondition(lambda self: any(event.kind == "message" and event.message_id for event in self.events))
    @rule(data=st.data(), delete=st.booleans(), later=st.booleans())
    def change(self, data: st.DataObject, delete: bool, later: bool) -> None:
        written = [event for event in self.events if event.kind == "message" and event.message_id]
        message = data.draw(st.sampled_from(written))
        words = "" if delete else str(self.number)
        kind = "delete" if delete else "edit"
        event = self.event(
            message.user_id, message.chat_id, kind=kind, text=words, message_id=message.message_id
        )
        if not later:
            self.bring(event)

    @rule(who=st.sampled_from(PEOPLE), group=st.booleans())
    def stop(self, who: str, group: bool) -> None:
        chat = "-100" if group else "77"
        self.bring(self.event(who, chat, text="/stop", command=Command(name="stop"), addressed="command"))
        self.stopped |= {
            event.message_id or "" for event in self.events if event.chat_id == chat and event.message_id
        }

    @precondition(lambda self: self.events)
    @rule(data=st.data(), times=st.integers(1, 5), envelope=st.booleans(), late=st.booleans())
    def again(self, data: st.DataObject, times: int, envelope: bool, late: bool) -> None:
        """Deliver an event again, or at last: in a new envelope, six minutes later."""
        event = data.draw(st.sampled_from(self.events))
        if late:
            self.do(self.bench.clock.advance(360))
        for turn in range(times):
            fresh = (f"envelope:{self.number}:{turn}:{len(self.arrived)}", event.keys[1])
            self.bring(event.model_copy(update={"keys": fresh}) if envelope else event)

    def bring(self, event: Inbound) -> None:
        if self.do(self.bench.intake.accept(event)):
            self.took(event)

    def queue(self, inbound: Inbound, records: Sequence[InboxRecord]) -> None:
        """What the intake hands on: at this moment it is clear whether a change comes before its message's turn."""
        name, lanes = inbound.message_id, self.bench.turns.lanes
        waits = lanes.find(
            inbound.chat_key,
            person(inbound),
            lambda other: other.message_id == name and other.kind == "message",
        )
        if name is not None and (waits is not None or name not in self.queued):
            if inbound.kind == "edit":
                self.firm[name] = max(self.firm.get(name, 0), int(inbound.text))
            elif inbound.kind == "delete":
                self.gone.add(name)
        if inbound.kind == "message" and name is not None:
            self.queued.add(name)
        self.bench.turns.queue(inbound, records)

    @precondition(lambda self: len(self.events) > 1)
    @rule(data=st.data())
    def burst(self, data: st.DataObject) -> None:
        """Several events at once."""
        chosen = data.draw(st.lists(st.sampled_from(self.events), min_size=2, max_size=6))

        async def bring() -> list[bool]:
            return await asyncio.gather(*(self.bench.intake.accept(event) for event in chosen))

        for event, fresh in zip(chosen, self.do(bring()), strict=True):
            if fresh:
                self.took(event)

    def took(self, event: Inbound) -> None:
        if event.kind == "message" and event.message_id is not None:
            self.arrived.setdefault((event.chat_key, event.user_id), []).append(event.message_id)
        if event.kind == "delete" and event.message_id is not None:
            self.withdrawn.add(event.message_id)

    @rule()
    def hold(self) -> None:
        """Turns that begin from now on take their time."""
        self.agent.gate.clear()

    @rule()
    def let_go(self) -> None:
        async def rest() -> None:
            self.agent.gate.set()
            lanes = self.bench.turns.lanes
            while lanes.busy:
                await asyncio.wait(lanes._tasks, timeout=0.01)
                # A send that was cut off by a kill is looked up after a while.
                await self.bench.clock.advance(30)

        self.do(rest())

    @rule(ticks=st.integers(0, 12))
    def pass_time(self, ticks: int) -> None:
        async def rest() -> None:
            for _ in range(ticks):
                await asyncio.sleep(0)

        self.do(rest())

    @rule()
    def kill(self) -> None:
        """The process dies and comes back."""
        self.do(self._kill())
        self.do(self._start())

    def teardown(self) -> None:
        try:
            if hasattr(self, "bench"):
                self.let_go()
                left = self.do(self.bench.journal.unfinished())
                self.do(self._kill())
                assert left == []
                self.verify()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.folder.cleanup()

    def verify(self) -> None:
        parts = [
            part.split("=")
            for one in self.sent
            for part in one.text.split()
            if "=" in part and part[0] == "m"
        ]
        answers = [(name.removeprefix("message:"), int(words)) for name, words in parts]
        messages = [name for name, _ in answers]
        interrupted = self.options["mode"] == "interrupt"
        for name in {name for names in self.arrived.values() for name in names}:
            count = messages.count(name)
            assert count <= 1, f"{name} was answered {count} times"
            if name not in self.withdrawn and name not in self.stopped and not interrupted:
                assert count == 1, f"{name} was not answered"
        assert not self.gone & set(messages), "a message was answered that was withdrawn before its turn"
        for name, version in answers:
            assert version >= self.firm.get(name, 0), f"{name} was answered as it was before its last edit"
        for names in self.arrived.values():
            order = [name for name in messages if name in names]
            assert order == [name for name in names if name in order]


TestDisorder = Disorder.TestCase
TestDisorder.settings = settings(
    derandomize=True, deadline=None, max_examples=EXAMPLES, stateful_step_count=25, database=None
)
