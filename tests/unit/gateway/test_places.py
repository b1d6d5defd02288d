"""Places and lanes: people take turns, however much one of them writes and wherever."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import Backlog
from bot.gateway.conversation import MODES
from bot.gateway.debouncer import Debouncer
from bot.gateway.lanes import Lanes, TurnPlan
from bot.gateway.turn_slots import TurnSlots
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.shares import examples


def inbound(who: str, chat: str, number: int, **more: Any) -> Inbound:
    fields: dict[str, Any] = {
        "channel": "tele", "chat_id": chat, "chat_key": f"tele:chat:{chat}", "chat_type": "group", "user_id": who,
        "keys": (f"{who}:{chat}:{number}",), "ts": number, "target": {"chat": chat}, "text": f"{who}{number}",
        "request_id": f"{number:026}",
    }  # fmt: skip
    return Inbound.model_validate(fields | more)


class Hall:
    """Lanes whose turns end one by one, when they are told to."""

    def __init__(self, limit: int, **options: Any) -> None:
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.begun: list[TurnPlan] = []
        self.sorry: list[str] = []
        self.gates: dict[str, asyncio.Future[None]] = {}
        self.trouble = ""
        """Of the disk."""
        self.tasks, self.backlog = BackgroundTasks(self.log), Backlog()
        self.lanes = Lanes(
            limit=limit, mode=MODES[options.pop("mode", "followup")], backlog=self.backlog, disk=self, tasks=self.tasks,
            clock=self.clock, **options,
        )  # fmt: skip
        self.tasks.serve(self.serve())

    async def serve(self) -> None:
        """Begin what can begin, and what the runner of turns does at its end."""
        while True:
            plan = await self.lanes.next_turn()
            self.tasks.start(self.work(plan), functools.partial(self.ended, plan))
            await asyncio.sleep(0)

    def ended(self, plan: TurnPlan, well: bool) -> None:
        if not well:
            self.sorry.append(plan.first.text)
        self.lanes.over(plan.first.chat_key)

    async def drain(self, seconds: float) -> bool:
        self.lanes.close()
        return await self.tasks.drain(seconds)

    async def work(self, portion: TurnPlan) -> None:
        self.begun.append(portion)
        gate = self.gates[portion.first.request_id] = asyncio.get_running_loop().create_future()
        await gate

    async def end(self, portion: TurnPlan, error: Exception | None = None) -> None:
        gate = self.gates.pop(portion.first.request_id)
        if error is not None:
            gate.set_exception(error)
        else:
            gate.set_result(None)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)

    async def settled(self, *, first: bool) -> None:
        """What comes first begins before anything else has come."""
        if first:
            await self.settle()

    async def finish(self) -> None:
        await self.settle()
        while self.gates:
            await self.end(next(one for one in self.begun if one.first.request_id in self.gates))

    @property
    def words(self) -> list[str]:
        return [one.text for portion in self.begun for one in portion.all]


async def test_one_chat_that_floods_does_not_delay_the_others() -> None:
    hall = Hall(1)
    for number in range(1_000):
        hall.lanes.put(inbound("flood", "big", number))
        await hall.settled(first=not number)
    hall.lanes.put(inbound("ada", "a", 2_000))
    hall.lanes.put(inbound("bob", "b", 2_001))
    await hall.finish()
    assert hall.words[:4] == ["flood0", "flood1", "ada2000", "bob2001"]
    assert [word for word in hall.words if word.startswith("flood")] == [f"flood{n}" for n in range(1_000)]
    assert (hall.lanes.active, hall.lanes.total, hall.tasks.busy) == (0, 0, 0)


async def test_on_a_full_disk_only_turns_that_had_begun_go_on_and_the_others_once_there_is_room() -> None:
    hall = Hall(64)
    hall.trouble = "the disk is full"
    hall.lanes.put(inbound("ada", "a", 1))
    hall.lanes.add(inbound("bob", "b", 2), begun=())
    hall.lanes.put(inbound("bob", "b", 3))
    await hall.finish()
    assert hall.words == ["bob2"]
    hall.trouble = ""
    hall.lanes.resume()
    await hall.finish()
    assert sorted(hall.words) == ["ada1", "bob2", "bob3"]


async def test_a_person_with_a_hundred_threads_does_not_starve_another() -> None:
    hall = Hall(2)
    for number in range(100):
        for chat in range(2):
            hall.lanes.put(inbound("many", f"t{number}", number * 2 + chat))
            await hall.settled(first=not (number or chat))
    hall.lanes.put(inbound("one", "t99", 900))
    hall.lanes.put(inbound("one", "own", 901))
    await hall.finish()
    # The first place was given before anybody else had asked.
    assert {hall.words.index("one900"), hall.words.index("one901")} == {2, 4}


async def test_in_a_chat_people_take_turns_while_there_is_room_for_everybody() -> None:
    hall = Hall(64)
    for number, who in enumerate("aaaabbc"):
        hall.lanes.put(inbound(who, "room", number))
    await hall.finish()
    assert hall.words == ["a0", "b4", "c6", "a1", "b5", "a2", "a3"]


async def test_who_comes_while_a_turn_runs_is_before_its_person() -> None:
    hall = Hall(64)
    for number, who in enumerate("aab"):
        hall.lanes.put(inbound(who, "room", number))
        await hall.settle()
    await hall.finish()
    assert hall.words == ["a0", "b2", "a1"]


async def test_a_lane_that_waits_for_a_place_is_no_task() -> None:
    hall = Hall(1)
    for number in range(3_000):
        hall.lanes.put(inbound(str(number), str(number), number))
    await hall.settle()
    assert (hall.lanes.active, hall.tasks.busy) == (3_000, 1)
    assert len(asyncio.all_tasks()) == 3  # this one, a turn, and what begins them
    await hall.drain(0)


@settings(derandomize=True, deadline=None, max_examples=examples(60))
@given(
    limit=st.integers(1, 3),
    steps=st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"), st.booleans()), max_size=40),
)
async def test_everything_is_done_once_in_each_persons_order_and_never_two_at_once(
    limit: int, steps: list[tuple[str, str, bool]]
) -> None:
    hall = Hall(limit)
    running: list[TurnPlan] = []

    async def end_one() -> None:
        await hall.settle()
        running[:] = [one for one in hall.begun if one.first.request_id in hall.gates]
        assert len(running) <= limit
        assert len({one.first.chat_key for one in running}) == len(running)
        if running:
            await hall.end(running[0])

    for number, (who, chat, ends) in enumerate(steps):
        hall.lanes.put(inbound(who, chat, number))
        if ends:
            await end_one()
    while hall.lanes.active:
        await end_one()
    done = [(one.user_id, one.chat_id, one.ts) for portion in hall.begun for one in portion.all]
    assert Counter(done) == Counter((who, chat, number) for number, (who, chat, _) in enumerate(steps))
    for who in "abcd":
        for chat in "xyz":
            mine = [ts for one, place, ts in done if (one, place) == (who, chat)]
            assert mine == sorted(mine)
    assert hall.lanes.total == 0
    assert not hall.lanes._places._rank
    assert not hall.lanes._places._asking
    assert not hall.lanes._places._chats


@settings(derandomize=True, deadline=None, max_examples=examples(60))
@given(
    one_chat=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("xyz")), min_size=1, max_size=60),
    ends=st.lists(st.booleans(), min_size=60, max_size=60),
)
async def test_nobody_waits_for_more_turns_than_there_are_people(
    one_chat: bool, steps: list[tuple[str, str]], ends: list[bool]
) -> None:
    # One place over all chats, or one chat with places for all: in both each turn is one that somebody waits for.
    hall = Hall(8 if one_chat else 1)
    waiting: Counter[str] = Counter()
    waited: Counter[str] = Counter()
    seen = 0

    async def look() -> None:
        nonlocal seen
        await hall.settle()
        for portion in hall.begun[seen:]:
            who = portion.first.user_id
            waiting[who] -= 1
            waited[who] = 0
            for other in [one for one in waiting if waiting[one] > 0 and one != who]:
                waited[other] += 1
                assert waited[other] < 5, f"{other} was passed over"
        seen = len(hall.begun)

    for number, (who, chat) in enumerate(steps):
        hall.lanes.put(inbound(who, "room" if one_chat else chat, number))
        waiting[who] += 1
        await look()
        if ends[number] and hall.gates:
            await hall.end(hall.begun[-1])
            await look()
    while hall.gates:
        await hall.end(hall.begun[-1])
        await look()
    assert sum(waiting.values()) == 0


async def test_work_that_fails_is_excused_and_gives_its_place_back() -> None:
    hall = Hall(1)
    hall.lanes.put(inbound("a", "x", 1))
    hall.lanes.put(inbound("b", "y", 2))
    await hall.settle()
    await hall.end(hall.begun[0], ZeroDivisionError("oops"))
    assert hall.sorry == ["a1"]
    assert [portion.first.text for portion in hall.begun] == ["a1", "b2"]
    assert "ZeroDivisionError" in hall.log.at("error")[0].message
    await hall.end(hall.begun[1])
    assert hall.lanes.active == 0


async def test_after_a_drain_nothing_begins_and_what_runs_long_is_cut() -> None:
    hall = Hall(1)
    hall.lanes.put(inbound("a", "x", 1))
    hall.lanes.put(inbound("b", "y", 2))
    await hall.settle()
    assert await hall.drain(0) is False
    hall.lanes.put(inbound("c", "z", 3))
    await hall.settle()
    assert len(hall.begun) == 1


async def test_a_drain_waits_for_what_ends_in_time() -> None:
    hall = Hall(1)
    hall.lanes.put(inbound("a", "x", 1))
    await hall.settle()
    drained = asyncio.create_task(hall.drain(5))
    await hall.settle()
    await hall.end(hall.begun[0])
    assert await drained is True


async def test_a_drain_does_not_wait_for_a_turn_that_waits_for_a_person() -> None:
    hall = Hall(2)
    for number, name in enumerate("ab"):
        hall.lanes.put(inbound(name, name, number))
    await hall.settle()

    async def ask() -> None:
        async with hall.lanes.parked():
            await asyncio.Event().wait()

    asked = asyncio.create_task(ask())
    drained = asyncio.create_task(hall.drain(60))
    await hall.settle()
    assert not drained.done()
    await hall.end(hall.begun[0])
    assert await drained is True
    asked.cancel()


async def test_what_is_taken_out_of_a_queue_no_longer_asks_for_a_place() -> None:
    hall = Hall(1)
    for number, (who, chat) in enumerate([("a", "x"), ("b", "y"), ("b", "y"), ("c", "y")]):
        hall.lanes.put(inbound(who, chat, number))
    await hall.settle()
    assert [
        one.text for one in hall.lanes.take(ChatKey.parse("tele:chat:y"), lambda one: one.user_id == "b")
    ] == [
        "b1",
        "b2",
    ]
    assert hall.lanes.take(ChatKey.parse("tele:chat:none"), lambda _: True) == []
    assert (
        hall.lanes.waiting(ChatKey.parse("tele:chat:y")),
        hall.backlog.waiting_of(UserRef("tele", "b")),
        hall.lanes.total,
    ) == (1, 0, 1)
    assert [one.text for one in hall.lanes.take(ChatKey.parse("tele:chat:y"), lambda _: True)] == ["c3"]
    assert hall.lanes.active == 1
    await hall.finish()
    assert hall.words == ["a0"]


async def test_the_next_of_a_person_are_those_before_what_others_wrote() -> None:
    hall = Hall(1)
    for number, who in enumerate("aaaba"):
        hall.lanes.put(inbound(who, "x", number))
    await hall.settle()
    them = UserRef("tele", "a")
    assert [
        one.text
        for one in hall.lanes.take_next(ChatKey.parse("tele:chat:x"), them, lambda one: one.text != "a2")
    ] == ["a1"]
    assert [one.text for one in hall.lanes.take_next(ChatKey.parse("tele:chat:x"), them, lambda _: True)] == [
        "a2"
    ]
    assert hall.lanes.take_next(ChatKey.parse("tele:chat:x"), them, lambda _: True) == []
    await hall.finish()
    assert hall.words == ["a0", "b3", "a4"]


def test_standing_places_that_were_left_do_not_pile_up() -> None:
    places = TurnSlots(1_000)
    person = UserRef("tele", "a")
    places.enter(person)
    for _ in range(1_000):
        places.ask(ChatKey.parse("tele:chat:x"), [person])
        assert places.give() == (ChatKey.parse("tele:chat:x"), person)
        places.give_back()
    assert len(places._order) < 100


class TestBursts:
    async def test_a_turn_begins_when_its_person_has_been_quiet(self) -> None:
        hall = Hall(8, debounce=2.0)
        for number in range(3):
            hall.lanes.put(inbound("a", "x", number))
            await hall.clock.advance(1.5)
            assert hall.begun == []
        hall.lanes.put(inbound("b", "x", 9))
        await hall.clock.advance(0.5)
        assert hall.words == ["a0", "a1", "a2"]
        assert len(hall.begun) == 1
        await hall.finish()
        assert len(hall.begun) == 1
        await hall.clock.advance(1.5)
        await hall.finish()
        assert [len(portion.all) for portion in hall.begun] == [3, 1]

    async def test_a_person_who_never_stops_is_answered_after_five_times_as_long(self) -> None:
        hall = Hall(8, debounce=2.0)
        for number in range(12):
            hall.lanes.put(inbound("a", "x", number))
            await hall.clock.advance(1.0)
        assert [len(portion.all) for portion in hall.begun] == [10]
        assert hall.clock.monotonic() == 12.0
        await hall.clock.advance(2.0)
        await hall.finish()
        assert [len(portion.all) for portion in hall.begun] == [10, 2]

    @pytest.mark.parametrize("other", [{"command": {"name": "new"}}, {"kind": "edit"}])
    async def test_what_is_no_plain_message_is_no_part_of_it(self, other: dict[str, Any]) -> None:
        hall = Hall(8, debounce=2.0)
        hall.lanes.put(inbound("a", "x", 1))
        hall.lanes.put(inbound("a", "x", 2, **other))
        await hall.clock.advance(2.0)
        await hall.finish()
        assert [len(portion.all) for portion in hall.begun] == [1, 1]

    async def test_a_command_is_not_waited_for(self) -> None:
        hall = Hall(8, debounce=2.0)
        hall.lanes.put(inbound("a", "x", 1))
        hall.lanes.put(inbound("a", "x", 2, command={"name": "new"}))
        await hall.finish()
        assert hall.words == ["a1", "a2"]

    async def test_two_bursts_that_wait_for_a_turn_are_two_turns_unless_all_is_collected(self) -> None:
        for mode, sizes in (("followup", [1, 2, 2]), ("collect", [1, 4])):
            hall = Hall(8, debounce=2.0, mode=mode)
            hall.lanes.put(inbound("a", "x", 0))
            await hall.clock.advance(2.0)
            for number in range(1, 5):
                hall.lanes.put(inbound("a", "x", number))
                await hall.clock.advance(2.0 if number == 2 else 0.5)
            await hall.clock.advance(2.0)
            await hall.finish()
            assert [len(portion.all) for portion in hall.begun] == sizes, mode

    async def test_what_was_written_before_a_restart_merges_as_it_would_have(self) -> None:
        hall = Hall(8, debounce=2.0)
        for number, at in enumerate([100.0, 101.0, 104.0, 105.0, 106.0, 300.0]):
            hall.lanes.add(inbound("a", "x", number), at=at)
        assert hall.begun == []
        hall.lanes.go_on()
        await hall.finish()
        assert [len(portion.all) for portion in hall.begun] == [2, 3, 1]
        assert hall.clock.sleeping == 0

    async def test_a_timer_that_nobody_needs_ends(self) -> None:
        class Listener:
            told: ClassVar[list[ChatKey]] = []

            def quiet(self, chat_key: ChatKey) -> None:
                self.told.append(chat_key)

        clock, listener = FakeClock(), Listener()
        holds = Debouncer(clock, 1.0, listener)
        holds.burst(ChatKey.parse("tele:chat:x"), UserRef("tele", "a"), at=None, held=True)
        holds.burst(ChatKey.parse("tele:chat:y"), UserRef("tele", "a"), at=None, held=True)
        holds.end(ChatKey.parse("tele:chat:x"), UserRef("tele", "a"))
        await asyncio.sleep(0)
        await clock.advance(1.0)
        assert listener.told == [ChatKey.parse("tele:chat:y")]
        assert holds._timer is None
        holds.burst(ChatKey.parse("tele:chat:x"), UserRef("tele", "a"), at=None, held=True)
        holds.close()


async def test_a_turn_that_had_begun_goes_on_alone() -> None:
    hall = Hall(8, mode="collect")
    head, rest = inbound("a", "x", 1), inbound("a", "x", 2)
    hall.lanes.add(head, begun=(rest,))
    hall.lanes.add(inbound("a", "x", 3), at=1.0)
    hall.lanes.add(inbound("a", "x", 4), at=1.0)
    assert (hall.lanes.total, sorted(hall.lanes.known())) == (4, [f"{n:026}" for n in range(1, 5)])
    assert hall.lanes.take(ChatKey.parse("tele:chat:x"), lambda one: one.ts == 1) == []
    assert (
        hall.lanes.find(ChatKey.parse("tele:chat:x"), UserRef("tele", "a"), lambda one: one.ts == 1) is None
    )
    hall.lanes.go_on()
    await hall.finish()
    assert [[one.ts for one in portion.all] for portion in hall.begun] == [[1, 2], [3, 4]]
    assert [portion.begun for portion in hall.begun] == [True, False]
