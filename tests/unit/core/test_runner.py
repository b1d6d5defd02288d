"""What the runner does with turns that wait for a slot, and with those that run while the process ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from bot.core import events
from bot.core.chat import MODES, Chat, Phase
from bot.core.chats import Fact
from bot.core.feature import Door
from bot.core.runner import Runner, Slots
from bot.system import SystemClock
from bot.testing.log import MemoryLog as Lines
from bot.words import DEFAULT, UTC
from tests.contracts.event_log import ONE, received
from tests.memory_log import MemoryLog
from tests.unit.core.test_intake import chats_of


def runner_of(chats: Any, log: MemoryLog, slots: Slots, run: Callable[[Chat, str], Any]) -> Runner:
    """A runner whose turns run this."""
    unused: Any = SimpleNamespace(send=None, find=None, end=None)
    locales: Any = SimpleNamespace(of=lambda _: (DEFAULT, UTC))
    loop: Any = lambda chat, turn: SimpleNamespace(run=lambda: run(chat, turn))  # noqa: E731
    return Runner(
        chats,
        log,
        outbox=unused,
        door=Door(),
        saying=unused,
        locales=locales,
        live=unused,
        loop=loop,
        turn_ended=lambda _: None,
        slots=slots,
        alert=lambda _, words: words,
        boot="boot",
        clock=SystemClock(),
        log=Lines(),
    )


async def test_a_turn_is_named_after_the_first_message_that_is_left_when_it_has_its_slot() -> None:
    log, slots, ended = MemoryLog(), Slots(1), asyncio.Event()
    chats = chats_of(log, MODES["collect"])
    seen = list[tuple[str, str]]()

    async def run(chat: Chat, turn: str) -> str:
        assert chat.turn is not None
        seen.append((turn, chat.turn.first.request_id))
        ended.set()
        return ""

    runner = runner_of(chats, log, slots, run)
    first, second = (received(one).inbound for one in ("a", "b"))
    async with slots.taken():
        await chats.get(ONE)
        chats.append(*(Fact(ONE, events.Received(one), id=one.request_id) for one in (first, second)))
        await log.committed()
        await runner.start()
        await runner.open("telegram")
        for _ in range(10):
            await asyncio.sleep(0)  # it waits for its slot
        gone = first.model_copy(update={"kind": "delete", "request_id": "r-d", "text": ""})
        chats.append(Fact(ONE, events.Deleted(gone)))
    async with asyncio.timeout(60):
        await ended.wait()
    assert seen == [("r-b", "r-b")]
    await runner.close(60)


async def test_a_turn_that_a_clean_end_cuts_off_has_made_no_attempt() -> None:
    log, begun = MemoryLog(), asyncio.Event()
    chats = chats_of(log)

    async def run(chat: Chat, turn: str) -> str:
        assert chat.turn is not None
        assert (turn, chat.turn.attempts) == ("r-k1", 1)
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):  # as a library may
            await asyncio.Event().wait()
        await asyncio.Event().wait()
        return ""

    runner = runner_of(chats, log, Slots(1), run)
    chat = await chats.get(ONE)
    chats.append(Fact(ONE, received(), id="r-k1"))
    await log.committed()
    await runner.start()
    await runner.open("telegram")
    async with asyncio.timeout(60):
        await begun.wait()
    async with asyncio.timeout(60):
        await runner.close(0)
    again = Chat(ONE)
    for event in await log.read(ONE):
        again.apply(event)
    assert chat.turn is not None
    assert again.turn is not None
    assert (chat.turn.attempts, again.turn.attempts, again.turn.phase) == (0, 0, Phase.STARTING)
