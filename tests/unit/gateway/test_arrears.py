"""A disk that is full for a while: what the journal did not take is told it afterwards, in order, by a process that goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Command, Inbound
from bot.contracts.outbound import OutboxRow
from bot.gateway.arrears import Arrears
from bot.testing.clock import FakeClock
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.testing.log import MemoryLog
from bot.testing.memory_journal import MemoryJournal
from tests.unit.gateway.conftest import Bench
from tests.unit.gateway.outgoing import TO, Desk, until

REFUSED = JournalFailure("write", times=None)


async def test_a_turn_whose_end_the_disk_refused_is_closed_without_a_restart(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = bench.journal.finish

    async def full(*_: Any) -> None:
        raise errors.StorageError("the disk is full")

    await bench.delivery.open(lambda *_: None)
    monkeypatch.setattr(bench.journal, "finish", full)
    await bench.say("你好")
    assert await bench.tele.until(1) == ["re: 你好"]
    await bench.idle()
    assert len(await bench.journal.unfinished()) == 1
    monkeypatch.setattr(bench.journal, "finish", finish)
    await until(lambda: bench.clock.sleeping > 0)
    await bench.clock.advance(10)
    await until(lambda: not bench.delivery.arrears.owes)
    assert await bench.journal.unfinished() == []
    await bench.delivery.close()


async def test_what_is_cut_off_while_the_disk_is_full_goes_out_once_it_has_room(tmp_path: Path) -> None:
    desk = Desk(tmp_path, wrap=FaultyJournal)
    journal = desk.journal
    assert isinstance(journal, FaultyJournal)
    await desk.asked()
    await desk.delivery.open(lambda *_: None)
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
    await desk.delivery.open(lambda *_: None)
    desk.tele.failures = [errors.DeliveryThrottled("429", retry_after=30.0)]
    sending = asyncio.ensure_future(desk.delivery.send(TO, "早上好"))
    await until(lambda: not desk.tele.failures)
    journal.fail(JournalFailure("deliveries", times=2))
    for _ in range(times):
        sending.cancel()
        await until(lambda: desk.clock.sleeping > 0)  # it looks again after a while
    async with desk.passing():
        await asyncio.wait([sending])
        await desk.delivery.arrears.finish(TO.request_id, "stopped")
        await desk.tele.until(1)
    assert desk.tele.texts == ["早上好"]
    await desk.close()


async def test_what_is_owed_is_told_in_order_and_nothing_passes_it() -> None:
    clock, log = FakeClock(), MemoryLog()
    journal = FaultyJournal(MemoryJournal(clock))
    arrears = Arrears(journal, log)
    row = OutboxRow("o1", "r1", ChatKey.parse("tele:chat:77"), {"chat": "77"}, "hi")
    journal.fail(JournalFailure("put_outbox"))
    journal.fail(JournalFailure("update_outbox"))
    await arrears.put_outbox([row])
    await arrears.update_outbox(row.begin())
    assert arrears.owes
    assert arrears.refused.is_set()
    await arrears.update_outbox(row.begin().arrive("m1"))
    assert not arrears.owes
    assert [(row.state, row.message_id) for row in await journal.deliveries("r1")] == [("sent", "m1")]
    assert len(log.of("error")) == 1


async def test_a_message_is_closed_only_once_all_before_that_is_on_file() -> None:
    """Else a death in that moment would lose an answer that was put off, or ask again what was answered together."""
    clock = FakeClock()
    journal = FaultyJournal(MemoryJournal(clock))
    arrears = Arrears(journal, MemoryLog())
    for name in ("r1", "r2"):
        await journal.receive(
            Inbound(
                channel="tele", chat_id="77", chat_key="tele:chat:77", chat_type="direct", user_id="77",
                keys=(name,), ts=1, target={"chat": "77"}, text="你好", request_id=name,
            )
        )  # fmt: skip
    row = OutboxRow("o1", "r1", ChatKey.parse("tele:chat:77"), {"chat": "77"}, "hi")
    await arrears.put_outbox([row])

    async def left() -> list[str]:
        return [one.request_id for one in await journal.unfinished()]

    journal.fail(JournalFailure("update_outbox", times=2))
    await arrears.update_outbox(row.put_off(1.0))
    await arrears.finish("r2", "joined r1")
    assert await left() == ["r1", "r2"], "the mark is refused still"
    journal.fail(JournalFailure("finish"))
    await arrears.finish("r1", "stopped")
    assert await left() == ["r1", "r2"], "the first is not closed before what joined it"
    assert await arrears.settle()
    assert await left() == []
    assert [row.not_before for row in await journal.deliveries("r1")] == [1.0]


async def test_what_is_over_is_not_begun_again_while_the_disk_refuses_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel that connects later reads the journal, which goes on reading while it cannot be written."""
    finish = bench.journal.finish

    async def full(*_: Any) -> None:
        raise errors.StorageError("the disk is full")

    monkeypatch.setattr(bench.journal, "finish", full)
    await bench.say("你好")
    await bench.say("", command=Command(name="undo"), addressed="command")
    await bench.idle()
    said = list(bench.tele.texts)
    assert await bench.open("local") == 0
    await bench.idle()
    assert (bench.tele.texts, bench.agent.undone) == (said, [ChatKey.parse("tele:chat:77")])
    monkeypatch.setattr(bench.journal, "finish", finish)
    assert await bench.delivery.arrears.settle()
    assert bench.delivery.arrears.closing == set()
    assert await bench.journal.unfinished() == []


async def test_an_edit_that_the_disk_refused_to_note_gets_no_turn_of_its_own_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    await bench.open()
    amend, asked = bench.journal.amend, asyncio.Event()

    async def full(*_: Any) -> bool:
        asked.set()
        raise errors.StorageError("the disk is full")

    bench.agent.hold = asyncio.Event()
    await bench.say("busy")
    await bench.agent.began.wait()
    await bench.say("teh", message_id="m")
    monkeypatch.setattr(bench.journal, "amend", full)
    await bench.say("the 你好", message_id="m", kind="edit")
    await asked.wait()
    monkeypatch.setattr(bench.journal, "amend", amend)
    await bench.clock.advance(5)
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
