"""The turn queue: people take turns, however much one of them writes and wherever."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import ANSWERED
from bot.core.chat import MODES
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import Backlog
from bot.gateway.conversation import (
    Delete,
    Effect,
    Message,
    Stop,
    Turn,
    TurnClosed,
    TurnEnded,
    TurnPlan,
    TurnResumed,
)
from bot.gateway.turn_queue import TurnQueue, TurnSlots
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.shares import examples


def inbound(who: str, chat: str, number: int, **more: Any) -> Inbound:
    fields: dict[str, Any] = {
        "channel": "tele",
        "chat_id": chat,
        "chat_key": f"tele:chat:{chat}",
        "chat_type": "group",
        "user_id": who,
        "keys": (f"{who}:{chat}:{number}",),
        "ts": number,
        "target": {"chat": chat},
        "text": f"{who}{number}",
        "request_id": f"{number:026}",
    }
    return Inbound.model_validate(fields | more)


class Hall:
    """A turn queue whose turns end one by one, when they are told to."""

    def __init__(self, limit: int, **options: Any) -> None:
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.begun: list[TurnPlan] = []
        self.sorry: list[str] = []
        self.gates: dict[str, asyncio.Future[None]] = {}
        self.trouble = ""
        """Of the disk."""
        self.tasks, self.backlog = BackgroundTasks(self.log), Backlog()
        self.turn_queue = TurnQueue(
            limit=limit,
            mode=MODES[options.pop("mode", "followup")],
            backlog=self.backlog,
            disk=self,
            tasks=self.tasks,
            clock=self.clock,
            **options,
        )
        self.tasks.serve(self.serve())

    async def serve(self) -> None:
        """Begin what can begin, and what the runner of turns does at its end."""
        while True:
            turn = await self.turn_queue.next_turn()
            self.tasks.start(self.work(turn), functools.partial(self.ended, turn))
            await asyncio.sleep(0)

    def ended(self, turn: Turn, well: bool) -> None:
        if not well:
            self.sorry.append(turn.first.text)
        for event in (TurnEnded(ANSWERED), TurnClosed()):
            self.turn_queue.apply(turn.first.chat_key, event)
        self.turn_queue.give_back()

    def put(self, one: Inbound, at: float | None = None) -> list[Effect]:
        return self.turn_queue.apply(one.chat_key, Message(one, taken_in=at))

    def go_on(self, first: Inbound, *rest: Inbound) -> None:
        self.turn_queue.apply(first.chat_key, TurnResumed(TurnPlan(first, rest, begun=True)))

    async def drain(self, seconds: float) -> bool:
        self.turn_queue.close()
        return await self.tasks.drain(seconds)

    async def work(self, turn: Turn) -> None:
        self.begun.append(turn.plan)
        gate = self.gates[turn.first.request_id] = asyncio.get_running_loop().create_future()
        await gate

    async def end(self, plan: TurnPlan, error: Exception | None = None) -> None:
        gate = self.gates.pop(plan.first.request_id)
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
        return [one.text for plan in self.begun for one in plan.all]


async def test_one_chat_that_floods_does_not_delay_the_others() -> None:
    hall = Hall(1)
    for number in range(1_000):
        hall.put(inbound("flood", "big", number))
        await hall.settled(first=not number)
    hall.put(inbound("ada", "a", 2_000))
    hall.put(inbound("bob", "b", 2_001))
    await hall.finish()
    assert hall.words[:4] == ["flood0", "flood1", "ada2000", "bob2001"]
    assert [word for word in hall.words if word.startswith("flood")] == [f"flood{n}" for n in range(1_000)]
    assert (hall.turn_queue.active, hall.turn_queue.total, hall.tasks.busy) == (0, 0, 0)


async def test_on_a_full_disk_only_turns_that_had_begun_go_on_and_the_others_once_there_is_room() -> None:
    hall = Hall(64)
    hall.trouble = "the disk is full"
    hall.put(inbound("ada", "a", 1))
    hall.go_on(inbound("bob", "b", 2))
    hall.put(inbound("bob", "b", 3))
    await hall.finish()
    assert hall.words == ["bob2"]
    hall.trouble = ""
    hall.turn_queue.resume()
    await hall.finish()
    assert sorted(hall.words) == ["ada1", "bob2", "bob3"]


async def test_a_person_with_a_hundred_threads_does_not_starve_another() -> None:
    hall = Hall(2)
    for number in range(100):
        for chat in range(2):
            hall.put(inbound("many", f"t{number}", number * 2 + chat))
            await hall.settled(first=not (number or chat))
    hall.put(inbound("one", "t99", 900))
    hall.put(inbound("one", "own", 901))
    await hall.finish()
    # The first place was given before anybody else had asked.
    assert {hall.words.index("one900"), hall.words.index("one901")} == {2, 4}


async def test_in_a_chat_people_take_turns_while_there_is_room_for_everybody() -> None:
    hall = Hall(64)
    for number, who in enumerate("aaaabbc"):
        hall.put(inbound(who, "room", number))
    await hall.finish()
    assert hall.words == ["a0", "b4", "c6", "a1", "b5", "a2", "a3"]


async def test_who_comes_while_a_turn_runs_is_before_its_person() -> None:
    hall = Hall(64)
    for number, who in enumerate("aab"):
        hall.put(inbound(who, "room", number))
        await hall.settle()
    await hall.finish()
    assert hall.words == ["a0", "b2", "a1"]


async def test_a_lane_that_waits_for_a_place_is_no_task() -> None:
    hall = Hall(1)
    for number in range(3_000):
        hall.put(inbound(str(number), str(number), number))
    await hall.settle()
    assert (hall.turn_queue.active, hall.tasks.busy) == (3_000, 1)
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
        hall.put(inbound(who, chat, number))
        if ends:
            await end_one()
    while hall.turn_queue.active:
        await end_one()
    done = [(one.user_id, one.chat_id, one.ts) for plan in hall.begun for one in plan.all]
    assert Counter(done) == Counter((who, chat, number) for number, (who, chat, _) in enumerate(steps))
    for who in "abcd":
        for chat in "xyz":
            mine = [ts for one, place, ts in done if (one, place) == (who, chat)]
            assert mine == sorted(mine)
    assert hall.turn_queue.total == 0
    assert not hall.turn_queue.ready
    assert list(hall.turn_queue.request_ids()) == []


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
        for plan in hall.begun[seen:]:
            who = plan.first.user_id
            waiting[who] -= 1
            waited[who] = 0
            for other in [one for one in waiting if waiting[one] > 0 and one != who]:
                waited[other] += 1
                assert waited[other] < 5, f"{other} was passed over"
        seen = len(hall.begun)

    for number, (who, chat) in enumerate(steps):
        hall.put(inbound(who, "room" if one_chat else chat, number))
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
    hall.put(inbound("a", "x", 1))
    hall.put(inbound("b", "y", 2))
    await hall.settle()
    await hall.end(hall.begun[0], ZeroDivisionError("oops"))
    assert hall.sorry == ["a1"]
    assert [plan.first.text for plan in hall.begun] == ["a1", "b2"]
    assert "ZeroDivisionError" in hall.log.at("error")[0].message
    await hall.end(hall.begun[1])
    assert hall.turn_queue.active == 0


async def test_after_a_drain_nothing_begins_and_what_runs_long_is_cut() -> None:
    hall = Hall(1)
    hall.put(inbound("a", "x", 1))
    hall.put(inbound("b", "y", 2))
    await hall.settle()
    assert await hall.drain(0) is False
    hall.put(inbound("c", "z", 3))
    await hall.settle()
    assert len(hall.begun) == 1


async def test_a_drain_waits_for_what_ends_in_time() -> None:
    hall = Hall(1)
    hall.put(inbound("a", "x", 1))
    await hall.settle()
    drained = asyncio.create_task(hall.drain(5))
    await hall.settle()
    await hall.end(hall.begun[0])
    assert await drained is True


async def test_a_drain_does_not_wait_for_a_turn_that_waits_for_a_person() -> None:
    hall = Hall(2)
    for number, name in enumerate("ab"):
        hall.put(inbound(name, name, number))
    await hall.settle()

    async def ask() -> None:
        async with hall.turn_queue.suspended():
            await asyncio.Event().wait()

    asked = asyncio.create_task(ask())
    drained = asyncio.create_task(hall.drain(60))
    await hall.settle()
    assert not drained.done()
    await hall.end(hall.begun[0])
    assert await drained is True
    asked.cancel()


async def test_what_is_taken_out_of_a_queue_no_longer_asks_for_a_slot() -> None:
    hall, place = Hall(1), ChatKey.parse("tele:chat:y")
    for number, (who, chat) in enumerate([("a", "x"), ("b", "y"), ("b", "y"), ("c", "y")]):
        hall.put(inbound(who, chat, number, message_id=str(number)))
    await hall.settle()
    hall.turn_queue.apply(place, Stop(inbound("b", "y", 4, kind="stop")))
    assert (
        dict(hall.turn_queue.chats())[place].waiting,
        hall.backlog.waiting_of(UserRef("tele", "b")),
        hall.turn_queue.total,
    ) == (1, 0, 1)
    hall.turn_queue.apply(place, Delete(inbound("c", "y", 5, kind="delete", message_id="3")))
    assert hall.turn_queue.active == 1
    await hall.finish()
    assert hall.words == ["a0"]


async def test_a_chat_that_has_nothing_is_not_kept() -> None:
    hall, place = Hall(1), ChatKey.parse("tele:chat:y")
    hall.turn_queue.apply(place, Stop(inbound("b", "y", 4, kind="stop")))
    assert (hall.turn_queue.active, hall.turn_queue.turn(place), hall.turn_queue.chats()) == (0, None, [])


async def test_a_disk_that_fills_up_once_a_chat_has_asked_lets_nothing_begin() -> None:
    hall = Hall(1)
    hall.put(inbound("ada", "a", 1))
    hall.trouble = "full"
    await hall.finish()
    assert (hall.words, hall.turn_queue.free) == ([], 1)
    hall.trouble = ""
    hall.turn_queue.resume()
    await hall.finish()
    assert hall.words == ["ada1"]


def test_outdated_entries_in_the_order_of_people_do_not_pile_up() -> None:
    slots, place, who = TurnSlots(1_000), ChatKey.parse("tele:chat:x"), UserRef("tele", "a")
    slots.wait(place, who, waits=True)
    for _ in range(1_000):
        slots.ask(place, [who])
        assert slots.give() == (place, who)
        slots.give_back()
    assert slots.queued < 100
    slots.wait(place, who, waits=False)
    assert slots.idle


class TestBursts:
    async def test_a_turn_begins_when_its_person_has_been_quiet(self) -> None:
        hall = Hall(8, debounce=2.0)
        for number in range(3):
            hall.put(inbound("a", "x", number))
            await hall.clock.advance(1.5)
            assert hall.begun == []
        hall.put(inbound("b", "x", 9))
        await hall.clock.advance(0.5)
        assert hall.words == ["a0", "a1", "a2"]
        assert len(hall.begun) == 1
        await hall.finish()
        assert len(hall.begun) == 1
        await hall.clock.advance(1.5)
        await hall.finish()
        assert [len(plan.all) for plan in hall.begun] == [3, 1]

    async def test_a_person_who_never_stops_is_answered_after_five_times_as_long(self) -> None:
        hall = Hall(8, debounce=2.0)
        for number in range(12):
            hall.put(inbound("a", "x", number))
            await hall.clock.advance(1.0)
        assert [len(plan.all) for plan in hall.begun] == [10]
        assert hall.clock.monotonic() == 12.0
        await hall.clock.advance(2.0)
        await hall.finish()
        assert [len(plan.all) for plan in hall.begun] == [10, 2]

    @pytest.mark.parametrize("other", [{"command": {"name": "new"}}, {"kind": "edit"}])
    async def test_what_is_no_plain_message_is_no_part_of_it(self, other: dict[str, Any]) -> None:
        hall = Hall(8, debounce=2.0)
        hall.put(inbound("a", "x", 1))
        hall.put(inbound("a", "x", 2, **other))
        await hall.clock.advance(2.0)
        await hall.finish()
        assert [len(plan.all) for plan in hall.begun] == [1, 1]

    async def test_a_command_is_not_waited_for(self) -> None:
        hall = Hall(8, debounce=2.0)
        hall.put(inbound("a", "x", 1))
        hall.put(inbound("a", "x", 2, command={"name": "new"}))
        await hall.finish()
        assert hall.words == ["a1", "a2"]

    async def test_two_bursts_that_wait_for_a_turn_are_two_turns_unless_all_is_collected(self) -> None:
        for mode, sizes in (("followup", [1, 2, 2]), ("collect", [1, 4])):
            hall = Hall(8, debounce=2.0, mode=mode)
            hall.put(inbound("a", "x", 0))
            await hall.clock.advance(2.0)
            for number in range(1, 5):
                hall.put(inbound("a", "x", number))
                await hall.clock.advance(2.0 if number == 2 else 0.5)
            await hall.clock.advance(2.0)
            await hall.finish()
            assert [len(plan.all) for plan in hall.begun] == sizes, mode

    async def test_what_was_written_before_a_restart_merges_as_it_would_have(self) -> None:
        hall = Hall(8, debounce=2.0)
        for number, at in enumerate([100.0, 101.0, 104.0, 105.0, 106.0, 300.0]):
            hall.put(inbound("a", "x", number), at)
        assert hall.begun == []
        await hall.finish()
        assert [len(plan.all) for plan in hall.begun] == [2, 3, 1]
        assert hall.clock.sleeping == 0

    async def test_a_shorter_wait_is_not_held_up_by_a_longer_one_that_began_before(self) -> None:
        hall = Hall(8, debounce=0.5)
        hall.put(inbound("a", "x", 1, of_album=True))
        await hall.clock.advance(0.25)
        hall.put(inbound("b", "y", 2))
        await hall.clock.advance(0.5)
        assert hall.words == ["b2"]
        assert hall.clock.sleeping == 1
        await hall.clock.advance(0.25)
        assert hall.words == ["b2", "a1"]
        await hall.finish()

    async def test_one_timer_waits_for_all_and_ends_with_the_last_of_them(self) -> None:
        hall = Hall(8, debounce=1.0)
        hall.put(inbound("a", "x", 1, message_id="1"))
        await hall.clock.advance(0.5)
        hall.put(inbound("a", "y", 2))
        hall.turn_queue.apply(
            ChatKey.parse("tele:chat:x"), Delete(inbound("a", "x", 3, kind="delete", message_id="1"))
        )
        await hall.settle()
        assert hall.clock.sleeping == 1
        await hall.clock.advance(1.0)
        await hall.finish()
        assert (hall.words, hall.clock.sleeping) == (["a2"], 0)


async def test_a_turn_that_had_begun_goes_on_alone_and_before_what_waits() -> None:
    hall = Hall(8, mode="collect")
    hall.put(inbound("b", "x", 0), 1.0)
    hall.put(inbound("a", "x", 3), 1.0)
    hall.go_on(inbound("a", "x", 1), inbound("a", "x", 2))
    hall.put(inbound("a", "x", 4), 1.0)
    assert (hall.turn_queue.total, sorted(hall.turn_queue.request_ids())) == (
        5,
        [f"{n:026}" for n in range(5)],
    )
    await hall.finish()
    assert [[one.ts for one in plan.all] for plan in hall.begun] == [[1, 2], [0], [3, 4]]
    assert [plan.begun for plan in hall.begun] == [True, False, False]
