"""A poll that is contested or seems dead."""

from __future__ import annotations

import asyncio

from tests.unit.telegram.bed import Bed
from tests.unit.telegram.test_poll import SlowIntake


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
