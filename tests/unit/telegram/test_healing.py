"""Tests of conflicts between two polls, and of polls that receive nothing."""

from __future__ import annotations

import asyncio

from bot.contracts.messages import Inbound
from bot.testing.intake import RecordingIntake
from channels.telegram import updates
from tests.unit.telegram.bed import Bed
from tests.unit.telegram.test_poll import CONFLICT, SlowIntake, warnings


async def test_a_poll_that_hangs_is_given_up_when_told_to(bed: Bed) -> None:
    bed.server.fail("getUpdates", action="hang")
    bed.server.say("one")
    await bed.taken()
    await bed.server.until(lambda: len(bed.server.called("getUpdates")) == 2)
    bed.server.say("two")
    await asyncio.gather(*[bed.channel.heal() for _ in range(3)])
    assert (await bed.taken(2)).text == "two"
    await bed.polling()
    assert bed.channel.health().connected


async def test_healing_does_not_cut_what_is_being_taken_in(idle: Bed) -> None:
    slow = idle.intake = SlowIntake()
    await idle.channel.start(slow)
    idle.server.say("one")
    await idle.until(lambda: slow.waiting == 1)
    await idle.channel.heal()
    slow.gate.set()
    assert (await idle.taken()).text == "one"
    await idle.polling()
    assert slow.waiting == 1


async def test_a_second_poller_is_reported_once_and_outlived(bed: Bed) -> None:
    began = bed.clock.monotonic()
    bed.server.fail("getUpdates", times=14, **CONFLICT)
    bed.server.say("before")
    await bed.taken()
    seen = []
    for _ in range(14):
        await bed.pausing()
        health = bed.channel.health()
        seen.append((bed.clock.monotonic() - began < 30, health.connected))
        assert "another process polls" in health.detail
        assert "since 2027-01-15 08:00:00 UTC" in health.detail
        assert health.last_heard == bed.clock.now()
        await bed.wake()
    assert set(seen) == {(True, True), (False, False)}
    await bed.polling()
    bed.server.say("after")
    await bed.taken(2)
    await bed.polling()
    assert not bed.channel.health().connected, "one good poll proves nothing"
    await bed.clock.advance(30)
    bed.server.say("よし")
    assert (await bed.taken(3)).text == "よし"
    await bed.polling()
    health = bed.channel.health()
    assert (health.connected, health.detail) == (True, "")
    assert len(warnings(bed)) == 1
    assert bed.log.entries[-1].message == "Telegram: all is well again"


async def test_a_conflict_that_came_back_within_a_poll_is_the_same_one(bed: Bed) -> None:
    for number in range(4):
        bed.server.fail("getUpdates", **CONFLICT)
        bed.server.say(f"{number}")
        await bed.taken(number + 1)
        await bed.wake()
        await bed.polling()
        await bed.clock.advance(20)
    assert not bed.channel.health().connected
    assert "08:00:00" in bed.channel.health().detail
    assert len(warnings(bed)) == 1


async def test_telegram_cannot_put_the_poll_to_sleep_for_a_day(bed: Bed) -> None:
    bed.server.limit("getUpdates", 10**9)
    bed.server.say("x")
    assert await bed.wake() == 600
    await bed.taken()


class BrittleIntake(RecordingIntake):
    """An intake that raises an unexpected error for some texts."""

    async def accept(self, inbound: Inbound) -> bool:
        if "poison" in inbound.text:
            raise ZeroDivisionError
        return await super().accept(inbound)


async def test_an_update_that_breaks_its_taking_in_is_a_dead_letter_and_what_stands_behind_it_goes_on(
    idle: Bed,
) -> None:
    brittle = idle.intake = BrittleIntake()
    await idle.channel.start(brittle)
    idle.server.say("poison 毒")
    idle.server.say("behind it")
    idle.server.say("elsewhere", chat_id=1002)
    for _ in range(updates.TRIES - 1):
        await idle.wake()
    await idle.until(lambda: len(brittle.accepted) == 2)
    await idle.until(lambda: len(idle.server.updates) == 0)
    assert [one.text for one in brittle.accepted] == ["elsewhere", "behind it"]
    (letter,) = brittle.dead_letters
    assert letter.reason == "an update that cannot be taken in: ZeroDivisionError"
    assert "poison" in letter.raw
