"""An answer in three parts, and the process killed at every call of its journal and its channel, before and after it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.journal import ANSWERED, Journal
from bot.contracts.outbound import Outbound, Sent
from bot.gateway.outbox import batch_sender
from bot.testing.clock import FakeClock
from bot.words import say
from tests.contracts.journal_rig import still_open
from tests.unit.gateway.outgoing import TO, Desk, until

REPEATED = f"{say('delivery.repeated')}\n\n"

PARTS = [letter * 900 for letter in "甲乙丙"]
WORDS = "\n\n".join(PARTS)
WAIT = 600.0
FOREVER = 1_000_000


class World:
    """What people see, over the deaths of processes. `tells`: the platform can be asked what became of a send."""

    def __init__(self, root: Path, *, tells: bool, throttled: int = 0) -> None:
        self.root = root
        self.tells = tells
        self.throttled = throttled
        self.clock = FakeClock()
        self.seen: list[Outbound] = []
        self.sends = 0

    async def send(self, message: Outbound) -> Sent:
        self.sends += 1
        if self.sends == self.throttled:
            raise errors.DeliveryThrottled("429", retry_after=WAIT)
        self.seen.append(message)
        return Sent(f"m{len(self.seen)}")

    async def find(self, message: Outbound) -> Sent | None:
        if not self.tells:
            raise errors.DeliveryUncertain("cannot tell")
        for number, one in enumerate(self.seen, 1):
            if one.id == message.id:
                return Sent(f"m{number}")
        return None


class Process:
    """One life: it ends at its `last`-th call, before that has done anything or after it has done everything."""

    def __init__(self, world: World, last: int, when: str, **options: Any) -> None:
        self.calls = 0
        self.dead = asyncio.Event()
        self._last = last
        self._when = when
        self.desk = Desk(world.root, clock=world.clock, wrap=self._journal, **options)
        self.desk.tele.send = self._mortal(world.send)  # type: ignore[method-assign]
        self.desk.archive.append = self._mortal(self.desk.archive.append)  # type: ignore[method-assign]
        self.desk.tele.find = self._mortal(world.find)  # type: ignore[method-assign]
        if hasattr(world, "edit"):
            self.desk.tele.edit = self._mortal(world.edit)  # type: ignore[attr-defined]
            self.desk.tele.delete = self._mortal(world.delete)  # type: ignore[method-assign,attr-defined]

    def _journal(self, inner: Journal) -> Any:
        mortal = self._mortal

        class MortalWrites:
            def __getattr__(self, name: str) -> Any:
                write = mortal(getattr(inner.post, name))
                return lambda *args, **more: asyncio.shield(asyncio.ensure_future(write(*args, **more)))

        class Mortal:
            post = MortalWrites()

            def __getattr__(self, name: str) -> Any:
                found = getattr(inner, name)
                return found if name in {"flush", "pending_writes"} else mortal(found)

        return Mortal()

    def _mortal(self, call: Callable[..., Awaitable[Any]]) -> Any:
        async def mortal(*args: Any, **more: Any) -> Any:
            self.calls += 1
            last = self.calls == self._last
            if self.dead.is_set() or (last and self._when == "before"):
                await self._die()
            try:
                return await call(*args, **more)
            finally:
                if last and self._when == "after":
                    await self._die()

        return mortal

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()

    async def live(self, work: Callable[[Desk], Awaitable[None]]) -> bool:
        """Whether it lived to the end of its work."""
        task = asyncio.ensure_future(work(self.desk))
        dying = asyncio.ensure_future(self.dead.wait())
        async with asyncio.timeout(90), self.desk.passing(60.0):
            await asyncio.wait({task, dying}, return_when="FIRST_COMPLETED")
        lived = task.done()
        dying.cancel()
        while not task.done():  # what it would still do after its death waits for ever
            task.cancel()
            await asyncio.sleep(0)
        await self.desk.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for one in left:  # nothing outlives a process
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if lived:
            task.result()
        return lived


async def answer(desk: Desk) -> None:
    """A turn with one long answer, and what its delivery puts off."""
    with contextlib.suppress(errors.DeliveryDeferred):
        await desk.delivery.send(TO, WORDS)
    await finish(desk)


async def go_on(desk: Desk) -> None:
    """The same after a restart; a turn that had not begun to deliver says it all."""
    if [one.request_id for one in await still_open(desk.file)] and not await desk.delivery.resume(TO):
        with contextlib.suppress(errors.DeliveryDeferred):
            await desk.delivery.send(TO, WORDS)
    await finish(desk)


async def finish(desk: Desk) -> None:
    await desk.journal.finish(TO.request_id, ANSWERED)
    await desk.delivery.reopen("tele", "77")
    desk.delivery.outbox.start()
    await until(lambda: not desk.delivery.outbox.deferred)


def check(world: World, archived: Sequence[str]) -> None:
    visible = Counter(message.text for message in world.seen)
    for part in PARTS:
        assert visible[part] <= 1, "never twice in silence"
        assert visible[part] + visible[REPEATED + part] >= 1, "never lost"
        if world.tells:
            assert visible[part] == 1
            assert not visible[REPEATED + part]
    first = [next(n for n, one in enumerate(world.seen) if part in one.text) for part in PARTS]
    assert first == sorted(first), "in order"
    assert [sum(words.count(part) for words in archived) for part in PARTS] == [1, 1, 1]


async def restarted(world: World) -> None:
    assert await Process(world, FOREVER, "before").live(go_on)
    after = Desk(world.root, clock=world.clock)
    check(world, [words for _, words in await after.lines()])
    states = {row.state for row in await after.rows()}
    assert states <= {"sent", "unknown"}
    await after.close()


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sender, "GRACE_SECONDS", 0.0)


@pytest.mark.parametrize("throttled", [0, 2, *(pytest.param(n, marks=pytest.mark.torture) for n in (1, 3))])
@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_call_every_part_is_there_once_or_once_with_a_repeat_that_says_so(
    tmp_path: Path, when: str, tells: bool, throttled: int, stride: int
) -> None:
    lived, last = False, 1 - stride
    while not lived:
        last += stride
        world = World(tmp_path / str(last), tells=tells, throttled=throttled)
        first = Process(world, last, when)
        await first.desk.asked()
        lived = await first.live(answer)
        await restarted(world)
    assert last > 10


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_again_while_it_brings_an_answer_to_its_end(
    tmp_path: Path, when: str, tells: bool, stride: int
) -> None:
    lived, last = False, 1 - stride
    while not lived:
        last += stride
        world = World(tmp_path / str(last), tells=tells)
        first = Process(world, 9, "after")
        await first.desk.asked()
        assert not await first.live(answer)
        lived = await Process(world, last, when).live(go_on)
        await restarted(world)
    assert last > 5
