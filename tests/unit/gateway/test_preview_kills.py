"""An answer that is shown while it is written, and the process killed at every call of its journal and its channel."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.outbound import Outbound, Sent
from bot.features.live.preview_parts import GOES_ON, Previewing
from bot.gateway.outbox import batch_sender
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.words import say
from tests.contracts.journal_rig import still_open
from tests.unit.gateway.outgoing import TO, Desk, until
from tests.unit.gateway.test_board import event
from tests.unit.gateway.test_outbox_kills import FOREVER, Process, World, finish
from tests.unit.gateway.test_previews import ANSWER, EDITS, Writing

REPEATED = f"{say('delivery.repeated')}\n\n"
INTERRUPTED = f"\n\n{say('turn.interrupted')}"

OPTIONS: dict[str, Any] = {"edits": EDITS, "previewing": Previewing({"tele": 1.0}, str)}


class Wall(World):
    """Messages that can be changed; `stands` is what people see of each."""

    def __init__(self, root: Path, *, tells: bool) -> None:
        super().__init__(root, tells=tells)
        self.stands: dict[str, str] = {}

    async def send(self, message: Outbound) -> Sent:
        sent = await super().send(message)
        self.stands[sent.message_id] = message.text
        return sent

    async def edit(self, message: Outbound, message_id: str) -> None:
        if message_id not in self.stands:
            raise errors.EditRefused("not found")
        self.stands[message_id] = message.text
        # As on Slack, where what is changed is known by the new name from then on.
        self.seen[int(message_id[1:]) - 1] = message

    async def delete(self, message: Outbound, message_id: str) -> None:
        self.stands.pop(message_id, None)


async def write(desk: Desk) -> None:
    """A turn that writes its answer in three strokes."""
    words = Writing("Half of an answer")
    desk.delivery.preview(TO, words)
    await desk.clock.sleep(120)
    words.words = "Half of an answer, and then some"
    await desk.clock.sleep(120)
    await desk.delivery.send(TO, ANSWER)
    await desk.delivery.ended(TO)
    await finish(desk)


async def go_on(desk: Desk) -> None:
    """The same after a restart: what was not answered is written anew."""
    if not await still_open(desk.file):
        return
    if await desk.delivery.resume(TO):
        await desk.delivery.ended(TO)
        await finish(desk)
    else:
        await write(desk)


async def give_up(desk: Desk) -> None:
    """After a restart the turn ends without an answer."""
    if await still_open(desk.file):
        await desk.delivery.resume(TO)
        await desk.delivery.ended(TO)
        await finish(desk)


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sender, "GRACE_SECONDS", 0.0)


async def checked(world: Wall) -> None:
    after = Desk(world.root, clock=world.clock, **OPTIONS)
    shown = list(world.stands.values())
    assert shown.count(ANSWER) == 1, "once"
    # Where a platform cannot tell whether a message arrived, what was left of it says by itself that it goes on.
    assert all(words.endswith(GOES_ON) for words in shown if words != ANSWER)
    assert len(shown) == 1 or not world.tells
    assert [words for _, words in await after.lines()] == [ANSWER]
    assert {row.state for row in await after.rows()} <= {"sent", "unknown", "failed"}
    await after.close()


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_call_the_answer_is_there_once_and_nothing_dangles(
    tmp_path: Path, when: str, tells: bool, stride: int
) -> None:
    lived, last = False, 1 - stride
    while not lived:
        last += stride
        world = Wall(tmp_path / str(last), tells=tells)
        first = Process(world, last, when, **OPTIONS)
        await first.desk.asked()
        lived = await first.live(write)
        assert await Process(world, FOREVER, "before", **OPTIONS).live(go_on)
        await checked(world)
    assert last > 10


LONG = "word " * 450
"""Three messages."""


async def write_long(desk: Desk) -> None:
    words = Writing(LONG[:1_500])
    desk.delivery.preview(TO, words)
    await desk.clock.sleep(120)
    words.words = LONG[:2_100]
    await desk.clock.sleep(120)
    await desk.delivery.send(TO, LONG)
    await desk.delivery.ended(TO)
    await finish(desk)


async def go_on_long(desk: Desk) -> None:
    if not await still_open(desk.file):
        return
    if await desk.delivery.resume(TO):
        await desk.delivery.ended(TO)
        await finish(desk)
    else:
        await write_long(desk)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_call_an_answer_in_several_messages_is_there_once_and_in_order(
    tmp_path: Path, when: str, stride: int
) -> None:
    lived, last = False, 1 - stride
    while not lived:
        last += stride
        world = Wall(tmp_path / str(last), tells=True)
        first = Process(world, last, when, **OPTIONS)
        await first.desk.asked()
        lived = await first.live(write_long)
        assert await Process(world, FOREVER, "before", **OPTIONS).live(go_on_long)
        assert list(world.stands.values()) == first.desk.tele.split(LONG)
        after = Desk(world.root, clock=world.clock, **OPTIONS)
        assert {row.state for row in await after.rows()} <= {"sent", "unknown", "failed"}
        await after.close()
    assert last > 10


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_again_while_it_goes_on(tmp_path: Path, when: str, stride: int) -> None:
    lived, last = False, 1 - stride
    while not lived:
        last += stride
        world = Wall(tmp_path / str(last), tells=True)
        first = Process(world, 6, "after", **OPTIONS)
        await first.desk.asked()
        assert not await first.live(write)
        lived = await Process(world, last, when, **OPTIONS).live(go_on)
        assert await Process(world, FOREVER, "before", **OPTIONS).live(go_on)
        await checked(world)
    assert last > 5


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_call_a_turn_without_an_answer_leaves_nothing_that_goes_on(
    tmp_path: Path, when: str, stride: int
) -> None:
    lived, last = False, 1 - stride
    while not lived:
        last += stride
        world = Wall(tmp_path / str(last), tells=True)
        first = Process(world, last, when, **OPTIONS)
        await first.desk.asked()
        lived = await first.live(write)
        assert await Process(world, FOREVER, "before", **OPTIONS).live(give_up)
        assert len(world.stands) <= 1
        assert not any(words.endswith(GOES_ON) for words in world.stands.values())


@pytest.mark.parametrize("changes", [1, 5])
async def test_after_a_death_its_end_shows_all_that_people_have_seen(tmp_path: Path, changes: int) -> None:
    world = Wall(tmp_path, tells=True)
    first = Process(world, FOREVER, "before", **OPTIONS)
    await first.desk.asked()
    words = Writing("Half of an answer")
    first.desk.delivery.preview(TO, words)
    async with first.desk.passing():
        await first.desk.placed()
        for change in range(changes):
            words.words += f", and then {change} more parts"
            await until(lambda: list(world.stands.values()) == [words.words[:-1] + GOES_ON])
            while [row.text for row in await first.desk.rows()] != [words.words[:-1]]:  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.001)
    first.dead.set()  # none of its later calls does anything
    await first.desk.delivery.close()
    await first.desk.file.close()

    second = Process(world, FOREVER, "before", **OPTIONS)
    assert await second.live(give_up)
    assert list(world.stands.values()) == [words.words[:-1] + INTERRUPTED]
    after = Desk(world.root, clock=world.clock, **OPTIONS)
    assert [(row.state, row.text) for row in await after.rows()] == [("sent", words.words[:-1] + INTERRUPTED)]
    await after.close()


@pytest.mark.parametrize("tells", [True, False])
async def test_a_change_in_doubt_that_is_then_refused_is_not_made_twice_in_silence(
    tmp_path: Path, tells: bool
) -> None:
    world = Wall(tmp_path, tells=tells)
    change, calls = world.edit, 0

    async def edit(message: Outbound, message_id: str) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise errors.EditRefused("message can't be edited")
        await change(message, message_id)
        raise errors.DeliveryUncertain("its answer was lost")

    world.edit = edit  # type: ignore[method-assign]
    desk = Desk(tmp_path, clock=world.clock, **OPTIONS)
    desk.tele.send, desk.tele.find = world.send, world.find  # type: ignore[method-assign]
    desk.tele.edit = edit  # type: ignore[attr-defined]
    await desk.asked()
    async with desk.passing():
        desk.delivery.preview(TO, Writing("Half of an answer"))
        await until(lambda: bool(world.stands))
        await desk.delivery.send(TO, ANSWER)
    assert list(world.stands.values()) == ([ANSWER] if tells else [ANSWER, REPEATED + ANSWER])
    await desk.close()


async def test_what_cannot_be_noted_as_begun_is_not_shown(tmp_path: Path) -> None:
    """After a death nobody would know of it."""
    world = Wall(tmp_path, tells=True)
    desk = Desk(tmp_path, clock=world.clock, wrap=FaultyJournal, **OPTIONS)
    desk.tele.send = world.send  # type: ignore[method-assign]
    await desk.asked()
    journal: Any = desk.journal
    journal.fail(JournalFailure("put_outbox"))
    async with desk.passing():
        desk.delivery.preview(TO, Writing("Half of an answer"))
        await until(lambda: "no preview is shown any more" in desk.log.text)
    assert not world.stands
    await desk.close()


async def work(desk: Desk) -> None:
    """A turn that has two things at work before it answers."""
    desk.delivery.progress.begin(TO)
    for name in ("alpha", "beta"):
        desk.delivery.progress.record(event("queued", name, desk.clock.now() - 1_800_000_000.0))
    await desk.clock.sleep(240)
    for name in ("alpha", "beta"):
        desk.delivery.progress.record(event("ended", name, desk.clock.now() - 1_800_000_000.0))
    await desk.clock.sleep(240)
    await desk.delivery.send(TO, ANSWER)
    await desk.delivery.ended(TO)
    await finish(desk)


async def work_on(desk: Desk) -> None:
    """The same after a restart."""
    if not await still_open(desk.file):
        return
    if await desk.delivery.resume(TO):
        await desk.delivery.ended(TO)
        await finish(desk)
    else:
        await work(desk)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_call_what_was_at_work_is_one_message_that_goes_on_no_more(
    tmp_path: Path, when: str, stride: int
) -> None:
    lived, last = False, 1 - stride
    while not lived:
        last += stride
        world = Wall(tmp_path / str(last), tells=True)
        first = Process(world, last, when, **OPTIONS)
        await first.desk.asked()
        lived = await first.live(work)
        assert await Process(world, FOREVER, "before", **OPTIONS).live(work_on)
        shown = [words for words in world.stands.values() if words != ANSWER]
        assert len(world.stands) == len(shown) + 1, "the answer is there, once"
        assert len(shown) <= 1
        assert not [
            words for words in shown if words.startswith("**Working") and "(interrupted)" not in words
        ]
        after = Desk(world.root, clock=world.clock, **OPTIONS)
        assert {row.state for row in await after.rows()} <= {"sent", "failed"}
        await after.close()
    assert last > 8
