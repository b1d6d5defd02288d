"""What happens to a turn while the files of its messages are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.core.attachments import UNDER_WAY, Limits
from bot.core.removal import REMOVED
from tests.unit.gateway.conftest import Bench
from tests.unit.gateway.test_files import TEXT, file, seen


@pytest.fixture
async def burst(tmp_path: Path) -> AsyncIterator[Bench]:
    """Two messages that are one turn, m1 with a file that is being fetched."""
    bench = Bench(tmp_path, mode="collect")
    bench.tele.files = {"f1": TEXT.encode(), "f2": TEXT.encode()}
    bench.tele.holds, bench.agent.hold = asyncio.Event(), asyncio.Event()
    await bench.open()
    await bench.say("before")
    await bench.agent.began.wait()
    await bench.say("look", message_id="m1", attachments=(file(),))
    await bench.say("a word", message_id="m2", attachments=(file("f2"),))
    bench.agent.hold.set()
    await bench.tele.fetching()
    yield bench
    await bench.close()


def said(bench: Bench) -> list[list[str]]:
    """What each request held."""
    requests = [(one.inbound, *one.also) for one in bench.agent.requests]
    return [[one.text for one in inbounds if one is not None] for inbounds in requests]


async def go_on(bench: Bench) -> None:
    assert bench.tele.holds is not None
    bench.tele.holds.set()
    await bench.idle()


async def test_the_later_message_of_a_burst_that_is_deleted_meanwhile_is_not_shown(burst: Bench) -> None:
    await burst.say("", message_id="m2", kind="delete")
    await go_on(burst)
    assert said(burst) == [["before"], ["look"]]
    assert burst.tele.fetched == ["f1"]


async def test_of_the_first_message_of_a_burst_that_is_deleted_meanwhile_nothing_is_shown(
    burst: Bench,
) -> None:
    await burst.say("", message_id="m1", kind="delete")
    await go_on(burst)
    assert said(burst) == [["before"], [REMOVED, "a word"]]
    first = burst.agent.requests[-1].inbound
    assert first is not None
    assert first.attachments == ()
    made = (burst.root / "artifacts").rglob("*.txt")
    assert [path.read_text().count(first.request_id) for path in made] == [0]


async def test_a_file_whose_message_is_deleted_meanwhile_says_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.tele.files["f1"] = TEXT.encode()
    bench.tele.holds, bench.agent.hold = asyncio.Event(), asyncio.Event()
    await bench.open()
    await bench.say("first")
    await bench.agent.began.wait()
    await bench.say("look", message_id="m2", attachments=(file(),))
    (request,) = bench.agent.requests
    (more,) = request.arrivals.take_more()
    reading = asyncio.ensure_future(request.arrivals.files(more))
    await bench.tele.fetching()
    await bench.say("", message_id="m2", kind="delete")
    bench.tele.holds.set()
    assert await reading == ()
    assert await request.arrivals.files(more) == ()
    bench.agent.hold.set()
    await bench.idle()
    assert not list((bench.root / "artifacts").rglob("*.txt"))
    await bench.close()


async def test_what_is_said_meanwhile_is_answered_with_it_where_it_would_interrupt(tmp_path: Path) -> None:
    bench = Bench(tmp_path, mode="interrupt")
    bench.tele.files = {"f1": TEXT.encode(), "f2": TEXT.encode()}
    bench.tele.holds = asyncio.Event()
    await bench.open()
    await bench.say("look", attachments=(file(),))
    await bench.tele.fetching()
    await bench.say("no, at this", attachments=(file("f2"),))
    await go_on(bench)
    assert said(bench) == [["look", "no, at this"]]
    assert bench.tele.fetched == ["f1", "f2"]
    await bench.close()


async def test_a_file_waits_for_its_place_no_longer_than_it_may_take(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files=Limits(most=UNDER_WAY, seconds=0.05))
    await bench.open()
    await bench.files._room.acquire()
    bench.tele.files["f1"] = TEXT.encode()
    (one,) = await asyncio.wait_for(seen(bench, file()), 90)
    assert one.why == "it could not be fetched just now"
    assert bench.tele.fetched == []
    await bench.close()
