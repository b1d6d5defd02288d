"""The intake, with a log whose disk is slow."""

from __future__ import annotations

import asyncio
import functools
from types import SimpleNamespace
from typing import Any

import pytest

from bot.contracts.identity import ChatKey
from bot.core import chats as rooms
from bot.core import events
from bot.core.chat import Chat, QueueMode
from bot.core.chats import Chats, Fact
from bot.core.feature import Door
from bot.core.intake import Intake
from bot.system import SystemClock, UlidSource
from bot.testing.log import MemoryLog as Lines
from tests.contracts.event_log import ONE, received
from tests.memory_log import MemoryLog


class SlowLog(MemoryLog):
    """A log whose disk does not answer until the test lets it. `waiting` counts the callers that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = asyncio.Event()
        self.waiting = asyncio.Semaphore(0)

    async def committed(self, *, patient: bool = True) -> None:
        self.waiting.release()
        await self.disk.wait()
        await super().committed(patient=patient)


def chats_of(log: MemoryLog, mode: QueueMode = "steer") -> Chats:
    return Chats(log, functools.partial(Chat, mode=mode), clock=SystemClock(), ids=UlidSource())


def intake_of(chats: Chats, log: MemoryLog) -> Intake:
    access: Any = SimpleNamespace(
        judge=lambda _: SimpleNamespace(allowed=True, reason="listed"),
        is_operator=lambda _: False,
        cleaned=lambda one: one,
        admitted=lambda _, quoted: quoted,
    )
    services: Any = SimpleNamespace(clock=SystemClock(), ids=UlidSource(), log=Lines())
    unused: Any = None
    return Intake(services, chats, log, access, Door(), unused, unused, unused, unused)


async def test_what_is_brought_twice_is_not_confirmed_before_it_is_on_disk() -> None:
    log = SlowLog()
    intake, said = intake_of(chats_of(log), log), received("k").inbound
    first = asyncio.create_task(intake.accept(said))
    again = asyncio.create_task(intake.accept(said))
    await log.waiting.acquire()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not first.done()
    assert not again.done()
    log.disk.set()
    assert await first
    assert not await again


async def test_a_new_chat_can_speak_while_more_than_fit_have_something_unfinished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rooms, "MOST_IDLE", 3)
    chats = chats_of(MemoryLog())
    for number in range(5):
        key = ChatKey("telegram", str(number))
        await chats.get(key)
        chats.append(Fact(key, events.Received(received(f"k{number}").inbound)))
    for number in range(10, 15):
        await chats.get(ChatKey("telegram", str(number)))
    assert len(list(chats)) == 5 + 3


async def test_a_chat_that_somebody_works_with_stays_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MOST_IDLE", 3)
    chats = chats_of(MemoryLog())
    chat = await chats.get(ONE)
    for number in range(10, 15):
        await chats.get(ChatKey("telegram", str(number)))
    assert chat not in chats
    chats.append(Fact(ONE, events.Received(received("k").inbound)))
    assert chat.waiting
    assert await chats.get(ONE) is chat
