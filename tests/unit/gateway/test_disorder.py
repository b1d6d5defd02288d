"""Events several times, in any order, late, with kills in between: one answer each, in order, to the last words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from bot import errors
from bot.contracts.archive import HistoryQuery
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Command, Inbound
from bot.contracts.journal import InboxRecord
from bot.contracts.outbound import Outbound, Sent
from bot.core.chat import MODES
from bot.words import say
from tests.shares import examples
from tests.unit.gateway import scripted
from tests.unit.gateway.conftest import Bench

REPEATED = f"{say('delivery.repeated')}\n\n"

T = TypeVar("T")
PEOPLE = ("77", "78", "79")
EXAMPLES = int(os.environ.get("EXAMPLES", examples(30)))


class Disorder(RuleBasedStateMachine):
    """Two chats, a direct one with threads in one lane and a group; three people; every event may come up to five times."""

    repeats = False
    """Whether a send that a kill has cut off is repeated, with a word that says so. Else the platform can tell what it has."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.ended: set[str] = set()
        self.cut: dict[ChatKey, list[str]] = {}
        self.asked: dict[str, list[tuple[set[str], set[str]]]] = {}
        self.sent: list[Outbound] = []
        self.number = 0
        self.events: list[Inbound] = []
        self.said: dict[str, list[str]] = {}
        self.stopped: set[str] = set()
        self.withdrawn: set[str] = set()
        self.items: dict[str, tuple[str, ...]] = {}
        self.arrived: dict[tuple[ChatKey, str], list[str]] = {}
        self.queued: set[str] = set()
        self.firm: dict[str, int] = {}
        self.gone: set[str] = set()
        self.last: dict[str, int] = {}
        self.options: dict[str, Any] = {}
        self.wrap: Callable[[Any], Any] = lambda journal: journal
        self.bench: Bench

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 90))

    @initialize(
        mode=st.sampled_from(sorted(MODES)),
        places=st.integers(1, 3),
        waiting=st.sampled_from([4, 10_000]),
        debounce=st.sampled_from([0.0, 2.0]),
    )
    def begin(self, mode: str, places: int, waiting: int, debounce: float) -> None:
        self.options = {"mode": mode, "max_concurrent": places, "most_waiting": waiting, "debounce": debounce}
        self.do(self._start())

    async def _start(self) -> None:
        self.agent = scripted.Scripted(self.ended, self.cut, self.asked)
        self.bench = Bench(Path(self.folder.name), agent=self.agent, wrap=self.wrap, **self.options)
        self.route = self.bench.router.route
        self.bench.lists.allowed = lambda _: frozenset(PEOPLE)  # type: ignore[method-assign, assignment]
        self.bench.router.route = self.queue  # type: ignore[method-assign]
        self.bench.tele.find = self.find  # type: ignore[method-assign]
        self.bench.tele.prefix = "r"
        bench = self.bench
        await self._opened(bench)
        await bench.delivery.open()

    async def _opened(self, bench: Bench) -> None:
        await bench.open()

    async def find(self, message: Outbound) -> Sent | None:
        shown = [*self.sent, *self.bench.tele.sent]
        if self.repeats:
            raise errors.DeliveryUncertain("cannot tell")
        return next((Sent(f"found:{one.id}") for one in shown if one.id == message.id), None)

    async def _kill(self) -> None:
        bench = self.bench
        await bench.gateway.turns.drain(0)
        await bench.delivery.close()
        self.sent += bench.tele.sent
        await bench.archive.close()
        await bench.journal.close()

    def event(self, who: str, chat: str, **more: Any) -> Inbound:
        self.number += 1
        key = f"tele:chat:{chat}"
        fields: dict[str, Any] = {
            "channel": "tele",
            "chat_id": chat,
            "chat_key": key,
            "user_id": who,
            "target": {"chat": chat},
            "chat_type": "direct" if chat == "77" else "group",
            "ts": 1_000_000 + self.number,
            "keys": (f"event:{self.number}", f"place:{self.number}"),
        }
        made = Inbound.model_validate(fields | more)
        self.events.append(made)
        return made

    @rule(
        who=st.sampled_from(PEOPLE),
        group=st.booleans(),
        later=st.booleans(),
        album=st.booleans(),
        thread=st.sampled_from(["", "1", "2"]),
    )
    def write(self, who: str, group: bool, later: bool, album: bool, thread: str) -> None:
        chat, name = "-100" if group else "77", f"m{self.number}"
        more: dict[str, Any] = {"text": "0", "message_id": name, "target": self.place(chat, thread)}
        self.items[name] = (name, f"{name}b") if album else (name,)
        if album:
            keys = (f"event:{self.number}", *(f"place:{item}" for item in self.items[name]))
            more |= {"text": "0\n0", "keys": keys, "items": dict.fromkeys(self.items[name], "0")}
        event = self.event(who, chat, **more)
        if not later:
            self.bring(event)

    @precondition(lambda self: any(event.kind == "message" and event.message_id for event in self.events))
    @rule(data=st.data(), delete=st.booleans(), later=st.booleans())
    def change(self, data: st.DataObject, delete: bool, later: bool) -> None:
        written = [event for event in self.events if event.kind == "message" and event.message_id]
        message = data.draw(st.sampled_from(written))
        if message.items and message.message_id not in self.queued:
            return  # a platform that has albums brings what it has in its order
        delete = delete and not message.items  # a platform that has albums says nothing of deletions
        more: dict[str, Any] = {
            "kind": "delete" if delete else "edit",
            "text": "" if delete else str(self.number),
        }
        name = more["message_id"] = data.draw(st.sampled_from(scripted.names(message)))
        more |= {"changes": f"place:{name}"} if message.items else {}
        event = self.event(message.user_id, message.chat_id, target=message.target, **more)
        if not later:
            self.bring(event)

    @rule(who=st.sampled_from(PEOPLE), group=st.booleans(), thread=st.sampled_from(["", "1", "2"]))
    def stop(self, who: str, group: bool, thread: str) -> None:
        chat = "-100" if group else "77"
        command: dict[str, Any] = {"text": "/stop", "command": Command(name="stop"), "addressed": "command"}
        place = self.place(chat, thread)
        if "thread" in place:
            command = {"kind": "stop", "chat_key": f"tele:chat:{chat}:thread:{thread}", "target": place}
        self.bring(self.event(who, chat, **command))
        self.stopped |= {
            event.message_id or "" for event in self.events if event.chat_id == chat and event.message_id
        }

    @staticmethod
    def place(chat: str, thread: str) -> dict[str, str]:
        """Each message of a direct chat may open a thread; the group has none."""
        return {"chat": chat} | ({"thread": thread} if thread and chat == "77" else {})

    @precondition(lambda self: self.items)
    @rule(data=st.data(), who=st.sampled_from(PEOPLE), group=st.booleans())
    def forget(self, data: st.DataObject, who: str, group: bool) -> None:
        name = data.draw(st.sampled_from([item for items in self.items.values() for item in items]))
        command: dict[str, Any] = {
            "text": "/forget",
            "command": Command(name="forget"),
            "addressed": "command",
        }
        self.bring(self.event(who, "-100" if group else "77", answers=name, **command))

    @precondition(lambda self: self.events)
    @rule(data=st.data(), times=st.integers(1, 5), envelope=st.booleans(), late=st.booleans())
    def again(self, data: st.DataObject, times: int, envelope: bool, late: bool) -> None:
        """Deliver an event again, or at last: in a new envelope, six minutes later."""
        event = data.draw(st.sampled_from(self.events))
        if late:
            self.do(self.bench.clock.advance(360))
        for turn in range(times):
            fresh = (f"envelope:{self.number}:{turn}:{len(self.arrived)}", *event.keys[1:])
            self.bring(event.model_copy(update={"keys": fresh}) if envelope else event)

    def bring(self, event: Inbound) -> None:
        if self.do(self.bench.intake.accept(event)):
            self.took(event)

    def queue(self, inbound: Inbound, records: Sequence[InboxRecord]) -> None:
        """What the intake hands on: at this moment it is clear whether a change comes before its message's turn."""
        name, chat = inbound.message_id, dict(self.bench.turn_queue.chats()).get(inbound.chat_key)
        waits = chat.queued(inbound) if chat is not None else None
        still = waits is not None and waits.kind == "message"
        if name is not None and (still or name not in self.queued):
            if inbound.kind == "edit":
                self.firm[name] = max(self.firm.get(name, 0), int(inbound.text))
            elif inbound.kind == "delete":
                self.gone.add(name)
        if inbound.kind == "message" and name is not None:
            self.queued.update(scripted.names(inbound))
        self.route(inbound, records)

    @precondition(lambda self: len(self.events) > 1)
    @rule(data=st.data())
    def burst(self, data: st.DataObject) -> None:
        """Several events at once."""
        self.offer(data.draw(st.lists(st.sampled_from(self.events), min_size=2, max_size=6)))

    def offer(self, events: list[Inbound]) -> None:
        async def bring() -> list[bool]:
            return await asyncio.gather(*(self.bench.intake.accept(event) for event in events))

        for event, fresh in zip(events, self.do(bring()), strict=True):
            if fresh:
                self.took(event)

    def took(self, event: Inbound) -> None:
        if event.kind == "message" and event.message_id is not None:
            self.arrived.setdefault((event.chat_key, event.user_id), []).append(event.message_id)
        if event.kind == "delete" and event.message_id is not None:
            self.withdrawn.add(event.message_id)
        if event.kind == "edit" and event.message_id is not None:
            self.last[event.message_id] = max(self.last.get(event.message_id, 0), int(event.text))

    @rule()
    def hold(self) -> None:
        """Turns that begin from now on take their time."""
        self.agent.gate.clear()

    @rule()
    def let_go(self) -> None:
        async def rest() -> None:
            self.agent.gate.set()
            tasks, backlog = self.bench.tasks, self.bench.backlog
            while tasks.busy or backlog.total:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(tasks.idle(), 0.01)
                # A send that was cut off by a kill is looked up after a while.
                await self.bench.clock.advance(30)

        self.do(rest())

    @rule(ticks=st.integers(0, 12))
    def pass_time(self, ticks: int) -> None:
        async def rest() -> None:
            for _ in range(ticks):
                await asyncio.sleep(0)
            await self.bench.clock.advance(ticks / 4)

        self.do(rest())

    @rule()
    def kill(self) -> None:
        """The process dies and comes back."""
        self.do(self._kill())
        self.do(self._start())

    async def _sent(self) -> None:
        """Wait for what had to wait for its platform, or for what a kill has left behind of an earlier answer."""
        while await self.bench.journal.undelivered():
            await self.bench.clock.advance(30)

    def teardown(self) -> None:
        try:
            if hasattr(self, "bench"):
                self.let_go()
                self.do(self._sent())
                left = self.do(self.bench.journal.unfinished())
                self.do(self.verify_archive())
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

    async def verify_archive(self) -> None:
        """What was said is there once, as it was said last; what was deleted or forgotten is not."""
        archive, journal = self.bench.archive, self.bench.journal
        lines = [
            line
            for chat in ("77", "-100")
            for line in (
                await archive.search(
                    ChatKey.parse(f"tele:chat:{chat}"), HistoryQuery(limit=1_000, role="user")
                )
            ).lines
        ]
        shown = Counter(line.message_id or "" for line in lines)
        forgotten: set[tuple[ChatKey, str]] = set()
        for one in [*self.sent, *self.bench.tele.sent]:
            record = await journal.inbound(one.request_id) if one.text == say("forget.done") else None
            if record is not None and record.inbound.answers is not None:
                forgotten.add((one.chat_key, record.inbound.answers))
        for chat_key, name in {(key, name) for (key, _), names in self.arrived.items() for name in names}:
            hidden = name in self.withdrawn or any((chat_key, one) in forgotten for one in self.items[name])
            assert shown[name] == (0 if hidden else 1), f"{name} is {shown[name]} times in the archive"
        assert not self.withdrawn & set(shown)
        for line in lines:
            (*words,) = line.text.split() if line.message_id in self.items else ()
            for item, version in zip(self.items.get(line.message_id or "", ()), words, strict=False):
                assert int(version) == self.last.get(item, 0), f"{item} is in the archive as it was"

    def verify(self) -> None:
        texts = [one.text for one in self.sent if not one.text.startswith(REPEATED)]
        repeats = dict.fromkeys(one.text.replace(REPEATED, "") for one in self.sent)
        texts += [repeat for repeat in repeats if repeat not in texts]
        parts = [part.split("=") for text in texts for part in text.split() if "=" in part and part[0] == "m"]
        answers = [(name.removeprefix("message:"), words.split("+")) for name, words in parts]
        messages = [name for name, _ in answers]
        interrupted = self.options["mode"] == "interrupt"
        for name in {name for names in self.arrived.values() for name in names}:
            count = messages.count(name)
            assert count <= 1, f"{name} was answered {count} times"
            if name not in self.withdrawn and name not in self.stopped and not interrupted:
                assert count == 1, f"{name} was not answered"
        assert not self.gone & set(messages), "a message was answered that was withdrawn before its turn"
        for name, words in answers:
            for item, version in zip(self.items.get(name, ()), words, strict=name in self.items):
                assert int(version) >= self.firm.get(item, 0), f"{item} was answered as before its last edit"
        for names in self.arrived.values():
            order = [name for name in messages if name in names]
            assert order == [name for name in names if name in order]


class DisorderWithRepeats(Disorder):
    """As on Telegram, which tells nobody what became of a send."""

    repeats = True


TestDisorder = Disorder.TestCase
TestDisorderWithRepeats = DisorderWithRepeats.TestCase
TestDisorder.settings = TestDisorderWithRepeats.settings = settings(
    derandomize=True, deadline=None, max_examples=EXAMPLES, stateful_step_count=25, database=None
)
