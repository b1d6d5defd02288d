"""Tests that polling neither loses a message nor processes it twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot import errors
from bot.contracts.messages import Inbound
from bot.testing.intake import RecordingIntake
from bot.testing.telegram import refusal
from tests.unit.telegram.bed import Bed

CONFLICT = refusal(409, "Conflict: terminated by other getUpdates request")


class SlowIntake(RecordingIntake):
    """An intake that accepts a message only after the test opens the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.waiting = 0

    async def accept(self, inbound: Inbound) -> bool:
        self.waiting += 1
        await self.gate.wait()
        return await super().accept(inbound)


def offsets(bed: Bed) -> list[str | None]:
    return [call.params.get("offset") for call in bed.server.called("getUpdates")]


def warnings(bed: Bed) -> list[str]:
    return [line.message for line in bed.log.entries if line.level == "warn"]


async def test_one_chat_that_is_slow_to_take_in_holds_up_no_other_and_keeps_its_order(idle: Bed) -> None:
    slow = idle.intake = SlowIntake()
    await idle.channel.start(slow)
    await idle.polling()
    for chat, text in ((1001, "a1"), (1002, "b1"), (1001, "a2"), (1003, "c1")):
        idle.server.say(text, chat_id=chat)
    await idle.until(lambda: slow.waiting == 3)
    slow.gate.set()
    await idle.taken(4)
    texts = [inbound.text for inbound in slow.accepted]
    assert sorted(texts) == ["a1", "a2", "b1", "c1"]
    assert texts.index("a1") < texts.index("a2")


async def test_what_cannot_be_written_down_stays_at_telegram(bed: Bed) -> None:
    bed.intake.failure = errors.StorageError()
    bed.server.say("one")
    bed.server.say("two")
    for _ in range(4):
        await bed.pausing()
        assert bed.channel.health().connected
        assert "written down" in bed.channel.health().detail
        await bed.wake()
    assert len(bed.server.updates) == 2
    assert set(offsets(bed)) == {None}
    assert [inbound.text for inbound in bed.intake.offered] == ["one"] * len(bed.intake.offered)
    assert len(warnings(bed)) == 1
    await bed.pausing()
    bed.intake.failure = None
    await bed.wake()
    await bed.polling()
    assert [inbound.text for inbound in bed.intake.accepted] == ["one", "two"]
    assert bed.channel.health().detail == ""


async def test_a_stop_is_heard_in_time_behind_what_cannot_be_written_down(bed: Bed) -> None:
    bed.intake.failure = errors.StorageError()
    bed.server.say("one")
    for _ in range(6):
        assert await bed.wake() <= 0.5
    await bed.pausing()
    bed.server.say("/stop")
    bed.server.say("two")
    assert await bed.wake() <= 0.5
    await bed.pausing()
    assert [inbound.text for inbound in bed.intake.offered[-2:]] == ["one", "/stop"]
    assert len(bed.server.updates) == 3
    bed.intake.failure = None
    await bed.wake()
    await bed.polling()
    assert [inbound.text for inbound in bed.intake.accepted] == ["one", "/stop", "two"]


async def test_what_was_taken_in_before_a_failure_is_confirmed(bed: Bed) -> None:
    class Second(RecordingIntake):
        async def accept(self, inbound: Inbound) -> bool:
            self.failure = errors.StorageError() if inbound.text == "two" else None
            return await super().accept(inbound)

    await bed.channel.stop()
    first = bed.server.say("one")
    bed.server.say("two")
    bed.intake = Second()
    await bed.restart()
    await bed.wake()
    await bed.pausing()
    assert offsets(bed)[-1] == str(first["update_id"] + 1)
    assert [inbound.text for inbound in bed.intake.offered] == ["one", "two", "two"]


async def test_pauses_grow_to_three_seconds_and_no_further(bed: Bed) -> None:
    bed.server.fail("getUpdates", times=9, **CONFLICT)
    bed.server.say("x")
    waited = [await bed.wake() for _ in range(9)]
    assert 1 <= waited[0] <= 1.5 < waited[1] <= 3
    assert waited[2:] == pytest.approx([3] * 7), "well within seconds of the last fault"
    await bed.polling()
    await bed.clock.advance(30)
    bed.server.say("y")
    await bed.taken(2)
    await bed.polling()
    bed.server.fail("getUpdates", **CONFLICT)
    bed.server.say("z")
    assert await bed.wake() <= 1.5


async def test_the_end_of_trouble_shows_at_once_and_that_of_a_conflict_after_a_whole_poll(bed: Bed) -> None:
    for fault, hold in (({"status": 502}, "0"), (CONFLICT, "10")):
        bed.server.fail("getUpdates", **fault)
        bed.server.say("x")
        await bed.pausing()
        polls = len(bed.server.called("getUpdates"))
        await bed.wake()
        await bed.polling()
        assert bed.server.called("getUpdates")[polls].params["timeout"] == hold


async def test_a_poison_update_is_buried_and_those_behind_it_are_taken_in(bed: Bed) -> None:
    poison = bed.server.push_raw({"message": {"message_id": "secret words"}})
    bed.server.say("after")
    assert (await bed.taken()).text == "after"
    await bed.polling()
    (letter,) = bed.intake.dead_letters
    assert (letter.channel, letter.key) == ("telegram", f"telegram:4242:update:{poison['update_id']}")
    assert "secret words" in letter.raw
    assert "secret words" not in letter.reason + bed.log.text
    assert len(bed.server.updates) == 0
    assert len(bed.server.called("getUpdates")) <= 4


async def test_a_flood_wait_is_kept(bed: Bed) -> None:
    bed.server.fail("getUpdates", **refusal(429, "Too Many Requests", retry_after=70))
    bed.server.say("x")
    await bed.pausing()
    calls = len(bed.server.calls)
    await bed.clock.advance(69)
    assert bed.clock.sleeping
    assert len(bed.server.calls) == calls
    await bed.clock.advance(1)
    await bed.polling()
    assert bed.channel.health().connected


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 502, "body": "<html>Bad Gateway</html>"},
        {"status": 200, "body": "<html>Welcome to the hotel</html>"},
        {"status": 200, "body": "[" * 100_000},
        {"status": 200, "body": {"ok": True, "result": {"update_id": 1}}},
        {"status": 200, "body": {"ok": True, "result": [{"message": {}}]}},
        {"status": 200, "body": {"ok": True}},
        {"status": 200, "body": {"ok": False, "result": []}},
        {"status": 429, "body": {"ok": False, "parameters": {"retry_after": "abc"}}},
        {"status": 400, "body": {"ok": False, "description": ["x"], "parameters": [1]}},
        {"status": 401, "body": {"ok": False, "description": "Unauthorized"}},
        {"status": 302, "headers": {"location": "/elsewhere"}},
        {"action": "cut"},
    ],
)
async def test_whatever_a_poll_brings_the_next_one_heals_it(bed: Bed, fault: dict[str, Any]) -> None:
    bed.server.fail("getUpdates", **fault)
    bed.server.say("one")
    await bed.pausing()
    assert not bed.channel.health().connected
    assert bed.channel.health().detail
    bed.server.say("two")
    await bed.wake()
    await bed.polling()
    assert [inbound.text for inbound in bed.intake.accepted] == ["one", "two"]
    assert bed.channel.health().connected
    assert bed.channel.health().detail == ""
    assert bed.server.token not in bed.log.text


async def test_a_webhook_is_taken_down_and_what_waited_for_it_is_kept(idle: Bed) -> None:
    idle.server.hook.url = "https://bot.test/hook"
    idle.server.say("waiting")
    await idle.channel.start(idle.intake)
    assert (await idle.taken()).text == "waiting"
    assert idle.server.hook.url == ""


async def test_a_pause_takes_in_no_more_and_confirms_what_it_took(bed: Bed) -> None:
    bed.server.fail("getUpdates", action="hang")
    bed.server.say("before")
    await bed.taken()
    await bed.server.until(lambda: len(bed.server.called("getUpdates")) == 2)
    assert len(bed.server.updates) == 1
    await bed.channel.pause()
    assert len(bed.server.updates) == 0
    bed.server.say("after")
    assert len(bed.server.updates) == 1
    assert not bed.channel.health().connected
    await bed.channel.stop()
    await bed.restart()
    assert (await bed.taken(2)).text == "after"


async def test_a_stop_does_not_wait_for_a_pause_between_polls(bed: Bed) -> None:
    bed.server.fail("getUpdates", times=2, **CONFLICT)
    bed.server.say("x")
    await bed.pausing()
    await bed.channel.stop()
    assert bed.clock.sleeping == 0


async def test_a_stop_does_not_hang_on_a_network_that_is_gone(bed: Bed) -> None:
    bed.server.fail("getUpdates", action="hang")
    bed.server.say("x")
    await bed.taken()
    await bed.server.until(lambda: len(bed.server.called("getUpdates")) == 2)
    await bed.server.stop()
    await bed.channel.stop()
    assert not bed.channel.health().connected


async def test_an_unexpected_error_shows_in_health_and_log_and_loses_nothing(bed: Bed) -> None:
    bed.intake.failure = RuntimeError("a bug")
    bed.server.say("keep me")
    await bed.pausing()
    assert "RuntimeError" in bed.channel.health().detail
    assert bed.log.entries[-1].level == "error"
    assert len(bed.server.updates) == 1
    bed.intake.failure = None
    await bed.wake()
    await bed.until(lambda: [one.text for one in bed.intake.accepted] == ["keep me"])
