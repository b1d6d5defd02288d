"""Wherever the process dies in a turn, the turn ends as if it had not: the same store, the same view, nothing twice.

A turn is run once undisturbed, then once for every write of the transcript (not done, torn, done) and for every change
of the journal, steps and lines (not done, done), at which the process dies, and again by a new process on what is on file.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from bot.agent.steps import INTERRUPTED
from bot.contracts.agent import TurnRequest
from bot.contracts.base import Json
from bot.contracts.inbound import Inbound
from bot.contracts.model import ModelReply, ModelRequest
from bot.contracts.outbound import Sent
from bot.contracts.provenance import ORIGIN
from bot.history.archive.store import ChatStore
from bot.history.line_stream import LineStream
from bot.history.transcript.store import Transcript
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.testing.memory_journal import MemoryJournal
from bot.testing.model import ScriptedModel, reply, text
from tests.unit.agent.conftest import KEY, Added, Bench, Chat, Written, said
from tests.unit.agent.test_turn import Press

When = Literal["before", "torn", "after"]
LOAD, PRESS, SEND = "toolu_load", "toolu_press", "toolu_send"
SCRIPT: list[tuple[str, ModelReply]] = [
    (name, reply(*said, {"type": "tool_use", "id": name, "name": tool, "input": arguments}))
    for name, tool, arguments, said in (
        (LOAD, "chat_load_history", {"limit": 2}, [text("Ich sehe nach. 👀")]),
        (PRESS, "press", {}, []),
        (SEND, "chat_send", {"text": "完了"}, []),
    )
]
ASKS = len(SCRIPT)


class Names:
    """`contracts.environment.Ids` that gives the same names in every process that begins at the same number."""

    def __init__(self, first: int) -> None:
        self._numbers = itertools.count(first)

    def ulid(self) -> str:
        return f"02{next(self._numbers):024}"

    def after(self, ulid: str) -> None: ...


_LIFE: ContextVar[int] = ContextVar("_LIFE", default=0)
"""The process that the running task belongs to."""


class World(Bench):
    """A bench that can die: from then on nothing reaches its disk, its journal, its chat or its model."""

    def __init__(self, root: Path) -> None:
        self.disk = FaultyDisk(SystemDisk(), die=self.die)
        super().__init__(root, self.disk)
        self.rows = MemoryJournal(self.clock)
        self.dead = False
        self.life = 0
        self.died = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.press = Press("gedrückt")
        self.chat = Mortal(self)
        self.answers = Answers(self)
        self.add_tools(self.press)
        self.pressing = False
        self.patient = False
        """Whether the model takes longer than the disk."""
        self.press.run = self._pressed  # type: ignore[method-assign]
        self.configure(model=self.answers, max_messages=40)

    async def process(self, number: int) -> None:
        """A new process on the same files."""
        self.life = number
        _LIFE.set(number)
        self.dead = False
        self.died.clear()
        self.disk.mend()
        ids = Names(number * 1_000)
        # What the dead one still held goes with it.
        self.journal = FaultyJournal(self.rows, die=self.die)
        around: Any = {"disk": self.disk, "clock": self.clock, "log": self.log}
        self.stream = LineStream(self.journal, **around)
        self.archive = ChatStore(self.root / "chats", **around, stream=self.stream)
        self.transcript = Transcript(self.root / "transcripts", **around, ids=ids, stream=self.stream)
        self.configure(ids=ids, steps=self.journal, archive=self.archive, transcript=self.transcript)
        await self.start()

    def die(self) -> None:
        self.disk.fail(Failure(times=None))
        self.journal.fail(JournalFailure(times=None))
        self.dead = True
        self._loop.call_soon_threadsafe(self.died.set)

    async def alive(self) -> None:
        # What a thread still does for a process that has died goes no further, though another one lives by then.
        if self.dead or _LIFE.get() != self.life:
            await asyncio.Event().wait()

    async def _pressed(self, _: Any) -> str:
        await self.alive()
        self.press.pressed += 1
        return self.press.result


class Mortal(Chat):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def send(self, text: str, step_id: str | None = None, files: object = ()) -> list[Sent]:
        await self._world.alive()
        return await super().send(text)


class Answers(ScriptedModel):
    """Says what comes next, by what it is shown: the history, then the next thing of the script."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def stream(self, request: ModelRequest) -> Any:
        await self._world.alive()
        if self._world.patient:
            await self._world.pool.flush()
            await self._world.alive()
        self.requests.append(request)
        shown = json.dumps(list(request.messages))
        name, answer = next((one for one in SCRIPT if one[0] not in shown), ("", reply()))
        self._world.pressing |= name == PRESS
        yield answer


@dataclass
class Seen:
    """What a run has left behind."""

    asked: list[list[Json]] = field(default_factory=list)
    """The messages of each request, by how far the script had come."""
    store: list[Json] = field(default_factory=list)
    sources: list[tuple[str, ...]] = field(default_factory=list)
    next_request: list[Json] = field(default_factory=list)


def inbound(number: int, words: str) -> Inbound:
    return Inbound(
        channel="telegram",
        chat_id="1",
        chat_key=KEY,
        chat_type="direct",
        user_id="77",
        keys=(f"k{number}",),
        ts=1_700_000_000_000 + number,
        target={},
        text=words,
        message_id=str(number),
        request_id=f"01{number:024}",
    )


FIRST, BURST, JOINED, NEXT = (
    inbound(number, words) for number, words in enumerate(("Was war das?", "والآن؟", "und blau", "weiter 🚢"))
)


async def request(world: World) -> TurnRequest:
    """What the gateway asks for, now or again. While the button is pressed somebody adds something; what is on file
    of that does not join once more.
    """
    on_file = await world.transcript.load(KEY)
    world.pressing = any(PRESS in json.dumps(line.message) for line in on_file)
    joined = [JOINED] if JOINED.request_id not in await world.pool.cut_off(KEY) else []
    before = len(world.chat.seen)
    return TurnRequest(
        FIRST.request_id,
        KEY,
        FIRST,
        reply=Written(
            world.chat, lambda: [str(number + 1) for number in range(before, len(world.chat.seen))]
        ),
        also=(BURST,),
        arrivals=Added(lambda: [joined.pop()] if joined and world.pressing else []),
        begun=said(*(str(number + 1) for number in range(before))),
    )


async def prepared(root: Path, *, patient: bool = False) -> World:
    world = World(root)
    await world.process(1)
    world.patient = patient
    for number in range(24):
        await world.store(
            1_600_000_000_000 + number, "user", f"früher {number}", request_id=f"00{number:024}"
        )
    return world


async def lived(world: World) -> bool:
    """Run the turn; False where the process died meanwhile."""
    asked = await request(world)
    running, died = asyncio.create_task(world.pool.run(asked)), asyncio.create_task(world.died.wait())
    async with asyncio.timeout(90):
        await asyncio.wait([running, died], return_when=asyncio.FIRST_COMPLETED)
    if running.done() and not world.dead:
        died.cancel()
        assert (await running).status == "done"
        await world.pool.flush()
        return not world.dead
    while not running.done():  # what it would still wait for after its death never comes
        running.cancel()
        await asyncio.wait([running], timeout=0.01)
    await world.pool.flush()
    await world.transcript.close()
    return False


async def seen(world: World) -> Seen:
    """What the turn has left behind, as the next process finds it and goes on with it."""
    await world.transcript.close()
    asked = [list(one.messages) for one in world.answers.requests]
    await world.process(3)
    await world.pool.describe(KEY)
    store = world.pool.runtime(KEY).store
    kept, sources = store.messages(), [turn.sources for turn in store.turns]
    world.answers.requests.clear()
    await world.pool.run(TurnRequest(NEXT.request_id, KEY, NEXT, reply=world.chat))
    return Seen(asked, kept, sources, list(world.answers.requests[0].messages))


def progress(messages: list[Json]) -> int:
    shown = json.dumps(messages)
    return sum(name in shown for name, _ in SCRIPT)


@dataclass
class OnFile:
    """What the dead process has left."""

    answers: int
    ended: bool
    silent: bool
    interrupted: set[str]
    injected: bool


async def on_file(world: World) -> OnFile:
    lines = await world.transcript.load(KEY)
    lines = [line for line in lines if line.request_id == FIRST.request_id]
    steps = await world.journal.steps(FIRST.request_id)
    answers = [line for line in lines if line.type == "assistant"]
    told = [step.result["uuid"] for step in steps if step.kind == "model" and step.result]
    assert {uuid for uuid in told if uuid} <= {line.uuid for line in answers}, "on file, then recorded"
    results = json.dumps([line.message for line in lines if line.type == "user"])
    called = json.dumps([line.message for line in answers])
    begun = {step.id for step in steps if step.kind == "tool" and step.ended_at is None}
    return OnFile(
        answers=len(answers),
        ended=any(line.type == "turn_end" for line in lines),
        silent=None in told,
        # Of a message the outbox knows whether it went out.
        interrupted={one for one in begun - {SEND} if one in called and one not in results},
        injected=any(line.type == "injection" for line in lines),
    )


def nameless(messages: list[Json]) -> list[Json]:
    """The messages without the nonces of their tags, of which each process draws its own."""
    found: list[Json] = json.loads(
        re.sub(r"(</?(?:loaded_history|turn_context)-)[0-9a-f]{8}", r"\1", json.dumps(messages))
    )
    return found


def expected(messages: list[Json], left: OnFile) -> list[Json]:
    """The messages of the undisturbed turn, with what is different by design: a call that may have run is told to
    be interrupted, and what it would have loaded is not there.
    """
    shown = []
    for message in nameless(messages):
        content = [
            {key: block[key] for key in block if key != ORIGIN} | {"content": INTERRUPTED, "is_error": True}
            if block.get("tool_use_id") in left.interrupted
            else block
            for block in message["content"]
        ]
        # The newest 20 of 24 stand there from the beginning.
        loaded = content[-1].get("text", "") in {f"früher {number}" for number in range(4)}
        if not (loaded and LOAD in left.interrupted and not left.injected):
            shown.append({**message, "content": content})
    return shown


async def check(world: World, undisturbed: Seen) -> None:
    """A new process ends the turn that the dead one has left."""
    await world.process(2)
    left = await on_file(world)
    world.answers.requests.clear()
    assert await lived(world)
    assert world.chat.seen == ["完了"]
    assert world.press.pressed == 1 or (world.press.pressed == 0 and PRESS in left.interrupted)
    found = await seen(world)
    assert len(found.asked) == (0 if left.ended else ASKS - left.answers - left.silent)
    for messages in found.asked:
        assert nameless(messages) == expected(undisturbed.asked[progress(messages)], left)
    assert nameless(found.store) == expected(undisturbed.store, left)
    assert found.sources == undisturbed.sources
    assert nameless(found.next_request) == expected(undisturbed.next_request, left)


@pytest.fixture
async def undisturbed(tmp_path: Path) -> Seen:
    world = await prepared(tmp_path / "undisturbed")
    assert await lived(world)
    assert (world.press.pressed, world.chat.seen) == (1, ["完了"])
    found = await seen(world)
    await world.close()
    assert [progress(messages) for messages in found.asked] == [0, 1, 2]
    assert found.sources[-1] == (FIRST.request_id, BURST.request_id, JOINED.request_id)
    return found


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("when", ["before", "torn", "after"])
async def test_at_any_write_of_the_transcript(
    tmp_path: Path, undisturbed: Seen, when: When, stride: int, *, patient: bool
) -> None:
    for at in itertools.count(1, stride):
        world = await prepared(tmp_path / f"{at}", patient=patient)
        world.disk.fail(Failure(kind="write", at=at, when=when, then="kill", named=".jsonl"))
        if await lived(world):
            await world.close()
            assert at > 3, "so many writes there are at the least"
            return
        await check(world, undisturbed)
        await world.close()


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_at_any_step_in_the_journal(
    tmp_path: Path, undisturbed: Seen, when: Literal["before", "after"], stride: int, *, patient: bool
) -> None:
    for at in itertools.count(1, stride):
        world = await prepared(tmp_path / f"{at}", patient=patient)
        world.journal.fail(JournalFailure(at=at, when=when, then="kill"))
        if await lived(world):
            await world.close()
            assert 2 * (ASKS + len(SCRIPT)) < at, "a beginning and an end of each, and the lines"
            return
        await check(world, undisturbed)
        await world.close()


async def test_what_waits_for_its_file_is_neither_missed_nor_in_the_way_of_another_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await prepared(tmp_path)
    await world.pool.run(await request(world))
    whole = (await world.pool.sessions(KEY))[0].messages
    monkeypatch.setattr("bot.batch.MANY", 0)
    monkeypatch.setattr("bot.batch.PATIENCE", 3_600)
    async with asyncio.timeout(90):
        await world.pool.run(TurnRequest(NEXT.request_id, KEY, NEXT, reply=world.chat))
        assert world.pool.runtime(KEY).has_unwritten_lines
        assert (await world.pool.sessions(KEY))[0].messages > whole
        again = inbound(9, "noch einmal")
        await world.pool.run(TurnRequest(again.request_id, KEY, again, reply=world.chat))
        assert world.pool.runtime(KEY).has_unwritten_lines
        await world.pool.use(replace(world.deps))
        assert not world.pool.holds(KEY)
    await world.close()
