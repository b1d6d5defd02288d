"""One message shows what a turn has at work, in the limits of its chat, and ends as a summary."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.channel import EditPace, Pace
from bot.contracts.tools import ToolCall
from bot.features.live.progress_view import ALONE_SECONDS
from bot.gateway.turn_runner import working
from tests.unit.gateway.outgoing import TO, Desk, until
from tests.unit.gateway.test_board import event
from tests.unit.gateway.test_previews import Screen, desk


@pytest.fixture
async def made(tmp_path: Path) -> Any:
    one = desk(tmp_path)
    await one.asked()
    yield one
    await one.close()


def tell(made: Desk, kind: str, task: str, **more: Any) -> None:
    made.delivery.progress.record(event(kind, task, made.clock.now() - 1_800_000_000.0, **more))


def begin(made: Desk, *tasks: str) -> Screen:
    made.delivery.progress.begin(TO)
    for task in tasks:
        tell(made, "queued", task)
        tell(made, "started", task)
    assert isinstance(made.tele, Screen)
    return made.tele


def first(screen: Screen) -> str:
    """The first line of what stands there."""
    return screen.seen[-1].partition("\n")[0] if screen.seen else ""


async def test_work_side_by_side_is_one_message_that_goes_at_the_end(made: Desk) -> None:
    screen = begin(made, "alpha", "beta")
    async with made.passing():
        await until(lambda: first(screen).startswith("**Working: 0 of 2**"))
        tell(made, "ended", "alpha")
        await until(lambda: first(screen).startswith("**Working: 1 of 2**"))
        await made.delivery.send(TO, "The answer.")
        tell(made, "failed", "beta", error="No page.")
        await made.delivery.ended(TO)
    assert screen.seen == ["The answer."]
    progress, reply = await made.rows()
    assert (progress.kind, progress.state) == ("progress", "failed")
    assert reply.kind == "reply"
    assert await made.lines() == [("assistant", "The answer.")], "it is no part of the conversation"


async def test_what_is_over_soon_is_never_shown(made: Desk) -> None:
    screen = begin(made, "alpha")
    await made.slept(1.0, int(ALONE_SECONDS) - 1)
    tell(made, "ended", "alpha")
    await made.slept(1.0)
    await made.delivery.ended(TO)
    assert screen.shown == []
    assert await made.rows() == []


async def test_when_many_end_at_once_none_is_lost(made: Desk) -> None:
    names = [f"n{number:02}" for number in range(20)]
    screen = begin(made, *names)
    async with made.passing():
        await until(lambda: first(screen).startswith("**Working: 0 of 20**"))
        before = screen.asked
        for number, name in enumerate(names):
            tell(made, "failed" if number % 5 == 0 else "ended", name)
        await until(lambda: first(screen).startswith("**Done: 16 of 20, 4 failed**"))
    assert screen.asked == before + 1, "all of them in one change"
    await made.delivery.ended(TO)


async def test_it_leaves_the_last_slot_to_the_answer_and_is_caught_up_later(tmp_path: Path) -> None:
    one = desk(tmp_path, limits=True, total=Pace(2, 100.0))
    await one.asked()
    screen = begin(one, "alpha", "beta")
    await one.slept(1.0, 3)
    await until(lambda: len(screen.shown) == 1)
    tell(one, "ended", "alpha")
    tell(one, "ended", "beta")
    await one.slept(1.0, 5)
    assert len(screen.shown) == 1
    before = one.clock.monotonic()
    await one.delivery.send(TO, "The answer.")
    assert one.clock.monotonic() == before, "the answer does not wait for it"
    async with one.passing(10.0):
        await one.delivery.ended(TO)
    assert screen.seen == ["The answer."]
    await one.close()


async def test_changes_keep_to_the_pace_of_the_chat(made: Desk) -> None:
    screen = begin(made, "alpha", "beta")
    async with made.passing():
        await until(lambda: len(screen.shown) == 1)
    start = made.clock.monotonic()
    for _ in range(40):
        tell(made, "model", "alpha")
        await made.slept(0.25)
    assert len(screen.shown) - 1 <= made.clock.monotonic() - start + 1
    assert "step 0" in screen.seen[0]
    await made.delivery.ended(TO)


async def test_a_platform_that_refuses_it_does_not_hold_anything_up(made: Desk) -> None:
    screen = begin(made, "alpha", "beta")
    screen.failures.append(errors.DeliveryFailed("no"))
    async with made.passing():
        await until(lambda: "no progress is shown any more" in made.log.text)
        await made.delivery.send(TO, "The answer.")
        await made.delivery.ended(TO)
    assert screen.seen == ["The answer."]


async def test_where_it_is_off_or_cannot_be_nothing_is_shown(tmp_path: Path) -> None:
    off: list[dict[str, Any]] = [{"after": {}}, {"edits": None}]
    for number, options in enumerate(off):
        (tmp_path / str(number)).mkdir()
        one = desk(tmp_path / str(number), **options)
        screen = begin(one, "alpha", "beta")
        await one.clock.advance(100)
        await one.delivery.ended(TO)
        assert screen.shown == []
        await one.close()


async def test_events_of_turns_that_no_chat_has_caused_are_nobodys(made: Desk) -> None:
    tell(made, "queued", "alpha")
    made.delivery.progress.began("01OTHER", ToolCall("toolu_1", "run_shell"))
    made.delivery.progress.ended("01OTHER", "toolu_1", failed=False)
    await made.clock.advance(100)
    assert made.tele.sent == []


async def test_after_a_crash_it_goes_on_in_the_same_message(tmp_path: Path) -> None:
    screen = Screen()
    one = desk(tmp_path, screen)
    await one.asked()
    begin(one, "alpha", "beta")
    async with one.passing():
        await one.placed()
    one.delivery.leave(TO)
    await one.close()

    again = desk(tmp_path, screen)
    again.delivery.progress.begin(TO)
    await again.delivery.resume(TO)
    tell(again, "queued", "gamma")
    async with again.passing():
        await until(lambda: "gamma" in screen.seen[0])
        await again.delivery.ended(TO)
    assert len(screen.stands) == 1
    assert first(screen) == "■ Look at gamma · stopped"
    await again.close()


async def test_a_turn_watches_from_its_beginning_and_goes_at_its_end(tmp_path: Path) -> None:
    one = desk(tmp_path, edits=EditPace({"direct": 1.0, "group": 1.0}))
    screen: Any = one.tele
    async with one.passing(), working(one.delivery, TO, one.clock, 4.5):
        tell(one, "queued", "alpha")
        tell(one, "queued", "beta")
        await until(lambda: bool(screen.seen))
        tell(one, "ended", "alpha")
        tell(one, "ended", "beta")
    assert screen.seen == []
    task = asyncio.create_task(_cancelled(one))
    async with one.passing():
        await until(lambda: bool(screen.seen))
        task.cancel()
        await asyncio.wait([task])
    assert first(screen).startswith("**Working"), "the next process goes on with it"
    await one.close()


async def _cancelled(one: Desk) -> None:
    async with working(one.delivery, TO, one.clock, 4.5):
        tell(one, "queued", "gamma")
        tell(one, "queued", "delta")
        await asyncio.Event().wait()
