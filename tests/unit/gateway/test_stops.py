"""Stops: whose turn they end, from where, and what goes with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.agent import TurnOutcome
from bot.contracts.inbound import Command
from bot.contracts.journal import InboxEnd
from bot.contracts.outbound import OutboxRow
from bot.testing.journal import FaultyJournal
from bot.words import say
from tests.contracts.journal_rig import still_open
from tests.unit.gateway.conftest import Bench, never, refusing, unwritten
from tests.unit.gateway.outgoing import until

GROUP: dict[str, Any] = {"chat_id": "-100", "chat_key": "tele:chat:-100", "chat_type": "group"}
STOP: dict[str, Any] = {"command": Command(name="stop"), "addressed": "command"}


async def running(bench: Bench, **more: Any) -> None:
    bench.agent.hold = asyncio.Event()
    await bench.say("long work", **more)
    await bench.agent.began.wait()


async def test_a_signal_of_the_platform_stops_and_says_nothing(bench: Bench) -> None:
    await running(bench)
    await bench.say("", kind="stop")
    await bench.idle()
    await bench.say("", kind="stop")
    await bench.idle()
    assert bench.tele.sent == []
    assert await bench.journal.unfinished() == []


@pytest.mark.parametrize(("kind", "command"), [("stop", None), ("message", Command(name="stop"))])
async def test_a_stop_that_names_the_place_finds_the_turn_whose_lane_has_another_name(
    bench: Bench, kind: str, command: Command | None
) -> None:
    place = {"chat": "-100", "thread": "17.5"}
    await running(bench, **{**GROUP, "target": {**place, "reply_to": "3"}})
    await bench.say("then this", **{**GROUP, "target": place})
    await bench.say("elsewhere", **{**GROUP, "target": {"chat": "-100", "thread": "9"}})
    there = {**GROUP, "chat_key": "tele:chat:-100:thread:17.5", "target": place}
    await bench.say("", kind=kind, command=command, **there)
    bench.agent.hold = None
    await bench.idle()
    said = [say("stop.stopped")] if command else []
    assert sorted(bench.tele.texts) == [*said, "re: elsewhere"]
    assert await bench.journal.unfinished() == []


@pytest.mark.parametrize("mode", ["steer", "followup"])
async def test_a_stop_in_the_thread_of_a_message_that_joined_or_waits_reaches_it(
    tmp_path: Path, mode: str
) -> None:
    bench = Bench(tmp_path, mode=mode)
    await bench.open()
    await running(bench, target={"chat": "77", "thread": "1"})
    await bench.say("and this", target={"chat": "77", "thread": "2"})
    if mode == "steer":
        (request,) = bench.agent.requests
        assert len(request.arrivals.take_more()) == 1
    there: dict[str, Any] = {"chat_key": "tele:chat:77:thread:2", "target": {"chat": "77", "thread": "2"}}
    await bench.say("!stop", **STOP, **there)
    await bench.tele.until(1)
    assert bench.agent.hold is not None
    bench.agent.hold.set()
    await bench.idle()
    assert bench.tele.texts == [say("stop.stopped"), *(["re: long work"] if mode == "followup" else [])]
    assert await bench.journal.unfinished() == []
    await bench.close()


async def test_the_same_place_of_another_chat_is_another_place(bench: Bench) -> None:
    await running(bench, target={"thread": "1"})
    await bench.say("", kind="stop", user_id="1", chat_id="1", chat_key="tele:chat:1", target={"thread": "1"})
    assert len(bench.agent.running) == 1
    assert bench.agent.hold is not None
    bench.agent.hold.set()
    await bench.idle()
    assert bench.tele.texts == ["re: long work"]


async def test_a_stop_ends_what_runs_before_all_that_waits_is_on_file(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(bench)
    for number in range(5):
        await bench.say(f"waits {number}")
    slow, finish = asyncio.Event(), bench.journal.post.finish

    async def finishing(request_id: str, end: InboxEnd, say: Sequence[OutboxRow] = ()) -> None:
        if end.state == "stopped":
            await slow.wait()
        await finish(request_id, end, say)

    monkeypatch.setattr(bench.journal.post, "finish", finishing)
    await bench.say("/stop", **STOP)
    await until(lambda: not bench.agent.running)
    slow.set()
    await bench.idle()
    assert bench.tele.texts == [say("stop.stopped")]
    assert await bench.journal.unfinished() == []


async def test_what_waits_in_the_journal_alone_is_not_read_back_while_a_stop_is_carried_out(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, most_waiting=20, wrap=FaultyJournal)
    await bench.open()
    await running(bench)
    for number in range(10):
        await bench.say(f"waits {number}")
    journal = refusing(bench, "finish", "end_turn")
    read = journal.done.count("unfinished")
    await bench.say("/stop", **STOP)
    bench.agent.hold = None
    await bench.idle()
    assert journal.done.count("unfinished") > read
    assert bench.tele.texts == [say("stop.stopped")]
    journal.mend()
    assert await journal.flush()
    assert await bench.journal.unfinished() == []
    await bench.close()


async def test_a_stop_that_was_written_down_behind_a_flood_counts_for_all_of_it_after_a_restart(
    tmp_path: Path,
) -> None:
    before = Bench(tmp_path)
    for number in range(10):
        await before.say(f"flood {number}")
    await before.say("/stop", **STOP)
    await before.say("after")
    await before.close()
    bench = Bench(tmp_path, most_waiting=20)
    await bench.open()
    await bench.idle()
    assert set(bench.tele.texts) == {say("stop.stopped"), "re: after"}
    assert len(bench.tele.texts) == 2
    assert await bench.journal.unfinished() == []
    await bench.close()


class TestAStopThatAKillCutOff:
    async def test_it_is_answered_though_what_it_ended_is_closed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = Bench(tmp_path)
        await first.open()
        await running(first)

        monkeypatch.setattr(first.journal.post, "finish", never)
        await first.say("/stop", **STOP)
        await until(lambda: not first.running)
        await first.close()
        second = Bench(tmp_path)
        await second.open()
        await second.idle()
        assert second.tele.texts == [say("stop.nothing")]
        assert await second.journal.unfinished() == []
        await second.close()

    async def test_what_it_ends_in_threads_is_ended(self, tmp_path: Path) -> None:
        first = Bench(tmp_path)  # no channel is open: everything is written down and nothing done
        thread = {**GROUP, "chat_key": "tele:chat:-100:thread:1", "target": {"thread": "1"}}
        await first.say("in a thread", **thread)
        await first.say("of somebody else", user_id="5", **thread)
        await first.say("/shipmate stop", **STOP, **GROUP)
        await first.close()
        second = Bench(tmp_path)
        await second.open()
        await second.idle()
        assert sorted(second.tele.texts) == sorted([say("stop.stopped"), "re: of somebody else"])
        await second.close()

    async def test_of_what_goes_on_it_says_so(self, tmp_path: Path) -> None:
        first = Bench(tmp_path)
        await first.say("theirs", **GROUP, user_id="5")
        await first.say("/stop", **STOP, **GROUP)
        await first.close()
        second = Bench(tmp_path)
        await second.open()
        await second.idle()
        assert sorted(second.tele.texts) == sorted([say("stop.not_yours", who="`5`"), "re: theirs"])
        await second.close()


class TestAStopOutsideOfThreads:
    """Slack has no slash commands in threads, and keeps its conversations there."""

    @staticmethod
    def thread(name: str, **more: Any) -> dict[str, Any]:
        return {**GROUP, "chat_key": f"tele:chat:-100:thread:{name}", "target": {"thread": name}, **more}

    async def test_it_ends_what_its_person_has_in_them_and_nothing_of_others(self, bench: Bench) -> None:
        bench.agent.hold = asyncio.Event()
        await bench.say("in one", **self.thread("1"))
        await bench.say("in another", **self.thread("2"))
        await bench.say("of somebody else", **self.thread("3", user_id="5"))
        await until(lambda: len(bench.agent.running) == 3)
        await bench.say("waits there", **self.thread("3"))
        await bench.say("in another chat", chat_id="-1005", chat_key="tele:chat:-1005", chat_type="group")
        await until(lambda: len(bench.agent.running) == 4)
        await bench.say("/shipmate stop", **{**GROUP, "target": {"trigger": "9"}}, **STOP)
        await bench.tele.until(1)
        assert bench.tele.texts == [say("stop.stopped")]
        assert len(bench.agent.running) == 2
        bench.agent.hold.set()
        await bench.idle()
        assert sorted(bench.tele.texts[1:]) == ["re: in another chat", "re: of somebody else"]
        assert await bench.journal.unfinished() == []

    async def test_it_leaves_them_alone_where_something_runs_in_its_own_place(self, bench: Bench) -> None:
        bench.agent.hold = asyncio.Event()
        await bench.say("here", **GROUP)
        await bench.say("in a thread", **self.thread("1"))
        await until(lambda: len(bench.agent.running) == 2)
        await bench.say("/stop", **GROUP, **STOP)
        await bench.tele.until(1)
        bench.agent.hold.set()
        await bench.idle()
        assert bench.tele.texts == [say("stop.stopped"), "re: in a thread"]

    async def test_the_button_of_a_reply_ends_that_one_alone(self, bench: Bench) -> None:
        await running(bench, **self.thread("1"))
        await bench.say("", kind="stop", **GROUP)
        bench.agent.hold.set()  # type: ignore[union-attr]
        await bench.idle()
        assert bench.tele.texts == ["re: long work"]


class TestWhoMayStop:
    async def test_in_a_group_others_cannot_stop_a_turn_and_are_told(self, bench: Bench) -> None:
        await running(bench, **GROUP)
        await bench.say("/stop", user_id="5", **STOP, **GROUP)
        await bench.tele.until(1)
        goes_on = say("stop.not_yours", who="`77`")
        assert bench.tele.texts == [goes_on]
        await bench.say("mine", user_id="5", **GROUP)
        await bench.say("/stop", user_id="5", **STOP, **GROUP)
        await bench.tele.until(2)
        assert bench.tele.texts[1] == f"{say('stop.waiting')} {goes_on}"
        await bench.say("", kind="stop", user_id="5", **GROUP)
        assert bench.agent.hold is not None
        bench.agent.hold.set()
        await bench.idle()
        assert sorted(bench.tele.texts[2:]) == sorted([goes_on, "re: long work"])

    @pytest.mark.parametrize("who", ["77", "1"])
    async def test_its_person_and_an_operator_can(self, bench: Bench, who: str) -> None:
        await running(bench, **GROUP)
        await bench.say("and this", **GROUP)
        await bench.say("/stop", user_id=who, **STOP, **GROUP)
        bench.agent.hold = None
        await bench.idle()
        rest = [] if who == "77" else ["re: and this"]
        assert sorted(bench.tele.texts) == sorted([say("stop.stopped"), *rest])

    async def test_in_a_direct_chat_anyone_there_can(self, bench: Bench) -> None:
        here: dict[str, Any] = {"channel": "local", "chat_id": "page", "chat_key": "local:chat:page"}
        await running(bench, user_id="one", **here)
        await bench.say("/stop", user_id="other", **STOP, **here)
        await bench.idle()
        assert bench.channels["local"].texts == [say("stop.stopped")]


class TestAStopWhileATurnBegins:
    async def test_what_had_joined_a_turn_that_is_stopped_while_it_reads_its_thread_is_closed_with_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = Bench(tmp_path)
        await first.say("one")
        await first.say("and two")
        ids = tuple(inbound.request_id for inbound in await still_open(first.journal))
        await first.close()
        second = Bench(tmp_path)
        second.agent.sources = ids
        reading = asyncio.Event()

        async def endless(_: object) -> Any:
            reading.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(second.tele, "context", endless)
        await second.open()
        await reading.wait()
        await second.say("/stop", keys=("stop",), **STOP)
        await second.idle()
        assert second.tele.texts == [say("stop.stopped")]
        assert [one.stopped for one in second.agent.requests] == [True]
        assert await second.journal.unfinished() == []
        await second.close()

    async def test_a_turn_that_goes_on_and_still_waits_for_a_place_can_be_stopped(
        self, tmp_path: Path
    ) -> None:
        first = Bench(tmp_path)
        await first.say("other", user_id="1", chat_id="1", chat_key="tele:chat:1")
        await first.say("mine")
        mine = (await still_open(first.journal))[1]
        await first.journal.begin_turn(mine.request_id, mine.chat_key, [mine.request_id])
        await first.close()
        second = Bench(tmp_path, max_concurrent=1)
        second.agent.hold = asyncio.Event()
        await second.open()
        await second.agent.began.wait()
        await second.say("/stop", keys=("stop",), **STOP)
        await second.tele.until(1)
        second.agent.hold.set()
        await second.idle()
        assert second.tele.texts == [say("stop.stopped"), "re: other"]
        assert await second.journal.unfinished() == []
        await second.close()


async def test_a_stop_that_was_written_down_and_not_carried_out_counts_after_a_restart(
    tmp_path: Path,
) -> None:
    first = Bench(tmp_path)  # no channel is open: everything is written down and nothing done
    await first.say("one", **GROUP)
    await first.say("theirs", user_id="5", **GROUP)
    await first.say("/stop", **STOP, **GROUP)
    await first.say("two", **GROUP)
    (before, *_) = await still_open(first.journal)
    await first.journal.begin_turn(before.request_id, before.chat_key, [before.request_id])
    await first.close()
    second = Bench(tmp_path)
    second.agent.sources = (before.request_id,)
    assert await second.open("tele") == 3
    await second.idle()
    assert sorted(second.tele.texts) == sorted([say("stop.stopped"), "re: theirs", "re: two"])
    record = await second.journal.inbound(before.request_id)
    assert record is not None
    assert record.state == "stopped"
    assert await second.journal.unfinished() == []
    await second.close()


async def test_a_turn_that_has_said_its_last_word_is_nothing_to_stop(bench: Bench) -> None:
    told, go_on = asyncio.Event(), asyncio.Event()
    conclude = bench.delivery.conclude

    async def slow(*args: Any) -> None:
        if not told.is_set():
            told.set()
            await go_on.wait()
        await conclude(*args)

    bench.delivery.conclude = slow  # type: ignore[assignment, method-assign]
    bench.agent.answer = lambda _: TurnOutcome("failed", notice="Plain sentence.")
    await bench.say("hello")
    await told.wait()
    await bench.say("/stop", **STOP)
    await bench.tele.until(1)
    go_on.set()
    await bench.idle()
    assert bench.tele.texts == [say("stop.nothing"), "Plain sentence."]


async def test_a_turn_whose_person_was_told_that_it_is_stopped_does_not_go_on_after_a_kill(
    tmp_path: Path,
) -> None:
    first = Bench(tmp_path)
    await first.open()
    await running(first)
    first.journal.post.end_turn = unwritten  # type: ignore[method-assign]
    await first.say("/stop", **STOP)
    assert await first.tele.until(1) == [say("stop.stopped")]
    await first.close()
    second = Bench(tmp_path)
    await second.open()
    await second.idle()
    assert ([one.stopped for one in second.agent.requests], second.tele.texts) == ([True], [])
    record = await second.journal.inbound(first.agent.requests[0].request_id)
    assert record is not None
    assert record.state == "stopped"
    await second.close()
