"""A person writes while a gateway dies again and again: the real gateway, agent, transcript and archive, whose lines go to disk
with the journal, life after life.

What a life reaches is made of the same parts as a service, on a journal in memory, or on PostgreSQL with all that is in files too,
which, as the people and the platform, outlives it. Every write and every send takes a few turns of the loop, as many as the seed says, and is counted; a life
ends before the nth of them. What was never confirmed is brought again, as platforms do.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.unit.agent import conftest as agents
from tests.unit.agent.test_turn import Press
from tests.unit.gateway import conftest as gateways

from bot import errors
from bot.batch import LINGER
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal, Unfinished
from bot.contracts.model import ModelReply, ModelRequest, TextDelta
from bot.contracts.outbound import Outbound, Sent
from bot.history.archive.store import ChatStore
from bot.history.transcript.store import Transcript
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.torture import scene
from tests.torture.answering import NAME, Script
from tests.torture.engines import Memory

REPEATED = scene.REPEATS

WRITES = frozenset(
    {
        "receive",
        "begin_turn",
        "join_turn",
        "suspend_turn",
        "resume_turn",
        "stop_turn",
        "end_turn",
        "finish",
        "amend",
        "keep_dead_letter",
        "begin_step",
        "end_step",
        "put_outbox",
        "update_outbox",
        "close_target",
        "open_target",
        "once",
        "put_job",
        "remove_job",
        "put_lines",
        "drop_lines",
    }
)
FATES = ("shown", "throttled", "throttled for long", "lost", "shown, its answer lost")
PATIENCE = 60.0
"""After so many real seconds a life hangs; it takes some hundredths of one."""

Seam = Literal["journal", "archive", "transcript"]


@dataclass(frozen=True, slots=True)
class Options:
    """What happens besides deaths. `channel` weighs `FATES`; `edits` and `refusing` are probabilities."""

    mode: str = "steer"
    edits: float = 0.0
    channel: tuple[int, ...] = (1, 0, 0, 0, 0)
    refusing: float = 0.0
    """How often a life is one whose journal refuses its writes for a while, rather than one that is killed."""
    down: float = 0.0
    """For how many seconds nothing runs after a life."""
    messages: int = 6
    lives: tuple[int, int] = (1, 4)
    most: int = 120
    """The last operation before which a life is killed."""


class World:
    """What outlives a process: the journal, the files, the platform with what it shows, and what the person said."""

    def __init__(self, root: Path, seed: int, options: Options) -> None:
        self.root = root
        self.options = options
        self.rng = random.Random(seed)
        self.clock = FakeClock()
        self.lasting = Memory(self.clock)
        self.seen: list[Outbound] = []
        self.said: list[str] = []
        self.edits: dict[str, str] = {}
        """The message that each edit changed."""
        self.unconfirmed: list[Inbound] = []
        self.log: list[str] = []

    @property
    def journal(self) -> Journal:
        return self.lasting.journal

    async def ticks(self, most: int) -> None:
        for _ in range(self.rng.randint(0, most)):
            await asyncio.sleep(0)

    def fields(self) -> dict[str, Any]:
        """The next thing the person does: a message, or new words for one of the last two."""
        name = f"m{len(self.said) + 1}"
        of = name
        if self.said and self.rng.random() < self.options.edits:
            of = self.rng.choice([one for one in self.said if one not in self.edits][-2:])
            self.edits[name] = of
        self.said.append(name)
        number = len(self.said)
        return {
            "words": name,
            "kind": "message" if of == name else "edit",
            "message_id": of,
            "keys": (f"k{number}",),
            "ts": 1_700_000_000_000 + number,
        }

    async def wrong(self) -> list[str]:
        """What is not as it must be, once nothing is left to do."""
        left = await self.journal.unfinished()
        bad = [f"{row.inbound.text} is still {row.record.state}" for row in left]
        bad += [f"a notice: {one.text}" for one in self.seen if one.kind == "notice"]
        replies = [one.text for one in self.seen if one.kind == "reply"]
        for name in self.said:
            answers = [words for words in replies if name in NAME.findall(words)]
            if len(answers) > 1:
                bad.append(f"{name} is answered {len(answers)} times: {answers}")
            if any(words.startswith(REPEATED) for words in answers):
                bad.append(f"{name} is said to be repeated, though the platform can tell")
            of = self.edits.get(name, name)
            # Words that were edited need no answer of their own where the words before or after them have one.
            group = {of, *(edit for edit, one in self.edits.items() if one == of)}
            if not any(group.intersection(NAME.findall(words)) for words in replies):
                bad.append(f"{name} is lost")
        return bad


@dataclass(slots=True)
class Call:
    """A call that waits for its turn."""

    name: str
    act: functools.partial[Any]
    future: asyncio.Future[Any]
    told: str
    posted: bool = False

    @property
    def writes(self) -> bool:
        """Whether it is an operation; reading is none, and neither is a post that only brings what is kept."""
        return self.name in WRITES or self.name == "append"

    @property
    def closes(self) -> Collection[str]:
        """The inbounds that it ends: where it waits for the disk, a journal does not give them as unfinished."""
        if self.name == "finish":
            return self.act.args[:1]
        return tuple(self.act.args[2]) if self.name == "end_turn" else ()

    def answer(self, result: Any) -> None:
        if not self.future.done():
            self.future.set_result(result)


class SlowPostedWrites:
    """What a life posts goes the same way; what is refused it keeps."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def __getattr__(self, name: str) -> Any:
        journal = self._life.world.journal
        act = getattr(journal, name, None) or getattr(journal.post, name)
        return functools.partial(self._life.call, "journal", name, act, posted=True)


class SlowJournal:
    """A journal whose calls go through a life, one after the other."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.post = SlowPostedWrites(life)

    @property
    def pending_writes(self) -> int:
        return len(self._life.kept)

    async def flush(self) -> bool:
        await self._life.call("journal", "flush", self._life.world.journal.flush, posted=True)
        return not self._life.kept

    async def unfinished(self, limit: int | None = None, after: str = "") -> list[Unfinished]:
        closing = {name for call in self._life.kept for name in call.closes}
        rows = await self._life.call(
            "journal", "unfinished", self._life.world.journal.unfinished, limit, after
        )
        return [row for row in rows if row.inbound.request_id not in closing]

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._life.world.journal, name)
        return inner if name == "health" else functools.partial(self._life.call, "journal", name, inner)


class Life:
    """One process. It dies before its operation `kill_at`; its journal refuses the operations of `refused`.

    Dead, nothing of it reaches journal, files or people any more.
    """

    def __init__(
        self, world: World, *, kill_at: int | None = None, refused: range = range(0), calm: bool = False
    ) -> None:
        self.world = world
        self.kill_at = kill_at
        self.refused = refused
        self.calm = calm
        """The channel does what it is told."""
        self.operations = 0
        self.dead = asyncio.Event()
        self.queues: dict[Seam, deque[Call]] = {"journal": deque(), "archive": deque(), "transcript": deque()}
        self.kept: deque[Call] = deque()
        """What was posted and refused, and what was posted after it."""
        self.workers: set[asyncio.Task[None]] = set()
        self.script = Script(world.rng)
        journal = SlowJournal(self)
        with pytest.MonkeyPatch.context() as patch:
            for bench in (gateways, agents):
                patch.setattr(bench, "FakeClock", lambda: world.clock)
            patch.setattr(gateways, "SqliteJournal", lambda *_, **__: journal)
            self.rooms = rooms = agents.Bench(
                world.root / "agent", disk=world.lasting.disk, journal=journal, streams=True
            )
            rooms.add_tools(Press())
            self.bench = gateways.Bench(
                world.root, mode=world.options.mode, agent=rooms.pool, archive=rooms.archive
            )
        self._join()

    def _join(self) -> None:
        """The agent on the gateway's archive and journal, and a life between them and what they write."""
        bench, rooms = self.bench, self.rooms
        bench.tele.send = self.send  # type: ignore[method-assign]
        bench.tele.find = self.find  # type: ignore[method-assign]
        self._between("archive", bench.archive)
        self._between("transcript", rooms.transcript)
        rooms.model.stream = self.stream  # type: ignore[method-assign]

    def _between(self, seam: Seam, store: ChatStore | Transcript) -> None:
        setattr(store, "append", functools.partial(self.call, seam, "append", store.append))  # noqa: B010

    def step(self, what: str) -> bool:
        """Count an operation; false where the process is dead by then."""
        if self.dead.is_set():
            return False
        self.operations += 1
        self.world.log.append(f"{self.operations} {what}")
        if self.operations == self.kill_at:
            self.world.log.append("killed before it")
            self.dead.set()
        return not self.dead.is_set()

    def call(
        self, seam: Seam, name: str, act: Callable[..., Any], *args: Any, posted: bool = False, **more: Any
    ) -> asyncio.Future[Any]:
        """Put a call behind those of its seam."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        told = f"{seam} {name} {' '.join(str(one)[:90] for one in args)[:260]} {more or ''}"
        queue = self.queues[seam]
        queue.append(Call(name, functools.partial(act, *args, **more), future, told, posted))
        if len(queue) == 1:
            self.workers.add(asyncio.ensure_future(self._work(seam)))
        return future

    async def _work(self, seam: Seam) -> None:
        queue = self.queues[seam]
        while queue:
            await self.world.ticks(8 if seam == "transcript" else 4)
            call = queue[0]
            if call.posted and self.kept:
                self.kept.append(call)
                while self.kept and await self._carried_out(self.kept[0]):
                    self.kept.popleft()
                if self.dead.is_set():
                    return
                for one in self.kept:
                    one.answer(None)
            else:
                done = await self._carried_out(call)
                if self.dead.is_set():
                    return
                if not done:
                    self.kept.append(call)
                    call.answer(None)
            queue.popleft()

    async def _carried_out(self, call: Call) -> bool:
        """Carry out a call; false where it was posted and is refused, and in a dead process."""
        if call.writes and not self.step(call.told):
            return False
        in_journal = call.name in WRITES
        refuses = call.writes and in_journal and self.operations in self.refused
        acting: asyncio.Task[Any] = asyncio.ensure_future(self._act(call, refuses=refuses))
        await asyncio.wait({acting})
        await self.world.ticks(4)
        if self.dead.is_set():
            return False
        failure = acting.exception()
        if failure is not None and call.posted:
            return False
        if failure is not None and not call.future.done():
            call.future.set_exception(failure)
        if failure is None:
            call.answer(acting.result())
        return True

    async def _act(self, call: Call, *, refuses: bool) -> Any:
        if refuses:
            self.world.log.append("refused")
            raise errors.StorageError("ENOSPC")
        result = call.act()
        return await result if inspect.isawaitable(result) else result

    async def alive(self) -> None:
        """Return while the process lives; nothing goes on behind it in a dead one."""
        if self.dead.is_set():
            await asyncio.Event().wait()

    async def send(self, message: Outbound) -> Sent:
        world = self.world
        await world.ticks(6)
        self.step(f"send {message.kind} {message.id} {message.text!r}")
        await self.alive()
        fate = FATES[0] if self.calm else world.rng.choices(FATES, world.options.channel)[0]
        world.log.append(fate)
        if fate.startswith("throttled"):
            raise errors.DeliveryThrottled("429", retry_after=600.0 if fate.endswith("long") else 2.0)
        if fate.startswith("shown"):
            world.seen.append(message)
        if fate.endswith("lost"):
            raise errors.DeliveryUncertain("the connection was cut")
        shown = Sent(f"x{len(world.seen)}")
        await world.ticks(6)
        self.step(f"sent {message.id}")
        await self.alive()
        return shown

    async def find(self, message: Outbound) -> Sent | None:
        await self.world.ticks(3)
        await self.alive()
        ids = [one.id for one in self.world.seen]
        return Sent(f"x{ids.index(message.id) + 1}") if message.id in ids else None

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        await self.world.ticks(10)
        await self.alive()
        said = self.script.answer(request)
        self.world.log.append(f"model: {[b.get('text') or (b['name'], b['input']) for b in said.content]}")
        for block in said.content:
            if block["type"] == "text":
                yield TextDelta(block["text"])
        await self.world.ticks(4)
        yield said

    async def _person(self) -> None:
        """Bring again what was not confirmed, then go on writing."""
        for one in list(self.world.unconfirmed):
            await self._offer(one)
        while len(self.world.said) < self.world.options.messages:
            await self.world.ticks(60)
            fields = self.world.fields()
            one = self.bench.inbound(fields.pop("words"), **fields)
            self.world.unconfirmed.append(one)
            await self._offer(one)

    async def _offer(self, one: Inbound) -> None:
        try:
            await self.bench.intake.accept(one)
        except errors.StorageError:
            return  # it comes again
        if not self.dead.is_set():
            self.world.unconfirmed.remove(one)

    async def _run(self) -> None:
        """From the start until nothing is left to do."""
        bench, world = self.bench, self.world
        await self.rooms.start()
        await bench.delivery.open()
        await bench.open()
        person = asyncio.ensure_future(self._person())
        quiet = 0
        while quiet < 4:
            for _ in range(20):
                await asyncio.sleep(0)
            idle = person.done() and not bench.tasks.busy and not bench.backlog.total
            if idle and world.unconfirmed:
                person.result()
                person = asyncio.ensure_future(self._person())
                idle = False
            owed = bench.delivery.outbox.deferred or self.kept or any(self.queues.values())
            quiet = quiet + 1 if idle and not owed else 0
            if self.kept and world.rng.random() < 0.05:
                await bench.journal.flush()
            if world.clock.sleeping and world.rng.random() < 0.05:
                await world.clock.advance(world.rng.choice([0.5, 5, 60]))
        person.result()

    async def live(self) -> str | None:
        """Live until death or until all is done; what went wrong by itself is returned."""
        self.world.log.append(f"a life: kill_at={self.kill_at} refused={self.refused}")
        running = asyncio.ensure_future(self._run())
        dying = asyncio.ensure_future(self.dead.wait())
        ended, _ = await asyncio.wait({running, dying}, timeout=PATIENCE, return_when="FIRST_COMPLETED")
        failure = running.exception() if running in ended else None
        self.dead.set()
        self.world.lasting.kill()
        await self._end()
        for log in (self.bench.log, self.rooms.log):
            self._tell(log)
        if not ended:
            return "it hangs"
        return None if failure is None else f"it failed: {failure!r}"

    async def _end(self) -> None:
        """Cancel whatever still runs, also what begins while it is cancelled, and let go of the files."""
        for _ in range(6):
            for _ in range(2):
                await asyncio.sleep(
                    0
                )  # who was given a coroutine begins it, or it would be told as never awaited
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
        await asyncio.sleep(0)
        stores = (self.bench.archive, self.rooms.transcript)
        closing = asyncio.gather(*(store.close() for store in stores), return_exceptions=True)
        await asyncio.wait({closing}, timeout=2)
        # What was put without hurry is begun a moment later, and would be begun in a loop that ends.
        await asyncio.sleep(2 * LINGER)

    def _tell(self, log: MemoryLog) -> None:
        serious = [entry for entry in log.entries if entry.level in {"warn", "error"}]
        self.world.log += [f"log: {entry.message} {entry.details}"[:300] for entry in serious]


def at_once(_: object, act: Callable[..., Any], *args: Any) -> asyncio.Task[Any]:
    """In place of `run_in_executor`: no thread has a say in what comes after what, so that a seed makes a run again."""

    async def acted() -> Any:
        return act(*args)

    return asyncio.ensure_future(acted())


async def example(world: World) -> list[str]:
    """Some lives that end badly and one that does not; what is wrong after it."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)  # the dead leave futures behind
    loop.run_in_executor = at_once  # type: ignore[method-assign, assignment]
    async with contextlib.aclosing(world.lasting):
        return await _lives(world)


async def _lives(world: World) -> list[str]:
    rng, options = world.rng, world.options
    for _ in range(rng.randint(*options.lives)):
        kill_at: int | None = rng.randint(3, options.most)
        refused = range(0)
        if rng.random() < options.refusing:
            first = rng.randint(1, 60)
            kill_at, refused = None, range(first, first + rng.randint(1, 25))
        await world.lasting.restart()
        trouble = await Life(world, kill_at=kill_at, refused=refused).live()
        if trouble:
            return [trouble]
        await world.clock.advance(options.down)
    await world.lasting.restart()
    trouble = await Life(world, calm=True).live()
    return [trouble] if trouble else await world.wrong()
