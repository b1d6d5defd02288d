"""A disk that is full for a while: what the journal did not take is told it afterwards, in order, by a process that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Command
from bot.contracts.journal import STOPPED
from bot.journal.sqlite import SqliteJournal
from bot.testing.clock import FakeClock
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.testing.log import MemoryLog
from tests.contracts.journal_rig import still_open
from tests.unit.gateway.conftest import Bench, refusing
from tests.unit.gateway.outgoing import TO, Desk, until

REFUSED = JournalFailure("write", times=None)


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[Bench]:
    """A gateway whose journal can be told to refuse."""
    made = Bench(tmp_path, wrap=FaultyJournal)
    await made.open()
    yield made
    await made.close()


async def on_file(root: Path) -> list[str]:
    """What another process would find unfinished."""
    journal = SqliteJournal(root / "journal.db", clock=FakeClock(), log=MemoryLog())
    left = await still_open(journal)
    await journal.close()
    return [one.text for one in left]


async def test_a_turn_whose_end_the_disk_refused_is_closed_without_a_restart(full: Bench) -> None:
    journal = refusing(full, "finish", "end_turn")
    await full.say("你好")
    assert await full.tele.until(1) == ["re: 你好"]
    await full.idle()
    assert await on_file(full.root) == ["你好"]
    assert await full.journal.unfinished() == []
    journal.mend()
    await until(lambda: not full.journal.pending_writes)  # by itself
    await full.journal.flush()
    assert await on_file(full.root) == []


async def test_what_is_cut_off_while_the_disk_is_full_goes_out_once_it_has_room(tmp_path: Path) -> None:
    desk = Desk(tmp_path, wrap=FaultyJournal)
    journal = desk.journal
    assert isinstance(journal, FaultyJournal)
    await desk.asked()
    await desk.delivery.open()
    desk.tele.failures = [errors.DeliveryThrottled("not now", retry_after=5)]
    journal.fail(REFUSED)
    sending = asyncio.create_task(desk.delivery.send(TO, "早上好"))
    await until(lambda: not desk.tele.failures)
    sending.cancel()
    await asyncio.wait([sending])
    journal.mend()
    async with desk.passing():
        await desk.tele.until(1)
    await desk.delivery.close()
    assert await desk.states() == [("sent", "m1")]
    assert desk.tele.texts == ["早上好"]
    await desk.close()


@pytest.mark.parametrize("times", [1, 3])
async def test_what_is_cut_off_while_the_outbox_cannot_be_read_goes_out_later(
    tmp_path: Path, times: int
) -> None:
    desk = Desk(tmp_path, wrap=FaultyJournal)
    journal: Any = desk.journal
    await desk.asked()
    await desk.delivery.open()
    desk.tele.failures = [errors.DeliveryThrottled("429", retry_after=30.0)]
    sending = asyncio.ensure_future(desk.delivery.send(TO, "早上好"))
    await until(lambda: not desk.tele.failures)
    journal.fail(JournalFailure("deliveries", times=2))
    for _ in range(times):
        sending.cancel()
        await until(lambda: desk.clock.sleeping > 0)  # it looks again after a while
    async with desk.passing():
        await asyncio.wait([sending])
        await desk.journal.post.finish(TO.request_id, STOPPED)
        await desk.tele.until(1)
    assert desk.tele.texts == ["早上好"]
    await desk.close()


async def test_what_is_over_is_not_begun_again_while_the_disk_refuses_its_end(full: Bench) -> None:
    """A channel that connects later reads the journal, which goes on reading while it cannot be written."""
    journal = refusing(full, "finish", "end_turn")
    await full.say("你好")
    await full.say("", command=Command(name="undo"), addressed="command")
    await full.idle()
    said = list(full.tele.texts)
    assert await full.open("local") == 0
    await full.idle()
    assert (full.tele.texts, full.agent.undone) == (said, [ChatKey.parse("tele:chat:77")])
    journal.mend()
    assert await full.journal.flush()
    assert await on_file(full.root) == []


async def test_an_edit_that_the_disk_refused_to_note_gets_no_turn_of_its_own_after_a_restart(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, wrap=FaultyJournal)
    await bench.open()
    bench.agent.hold = asyncio.Event()
    await bench.say("busy")
    await bench.agent.began.wait()
    await bench.say("teh", message_id="m")
    journal = refusing(bench, "amend")
    await bench.say("the 你好", message_id="m", kind="edit")
    await until(lambda: bench.journal.pending_writes > 0)
    journal.mend()
    bench.agent.hold.set()
    await bench.idle()
    assert bench.tele.texts == ["re: busy", "re: the 你好"]
    await bench.close()
    again = Bench(tmp_path)
    await again.open()
    await again.idle()
    assert again.tele.texts == []
    assert await again.journal.unfinished() == []
    await again.close()
