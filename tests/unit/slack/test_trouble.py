"""Sockets through which nothing comes, and sockets that fall all the time."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.timers import leap_until_done


async def test_a_socket_that_answers_no_ping_is_replaced(stage: Any) -> None:
    await stage.server.deafen(answering=False)
    again = asyncio.create_task(
        stage.server.until(lambda: len(stage.server.called("apps.connections.open")) == 2, 3_600.0)
    )
    await leap_until_done(again, 10.0)
    await again
    await stage.until(lambda: stage.slack.health().connected)
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    assert len(await stage.arrived()) == 1


async def test_sockets_that_fall_every_second_lose_nothing(stage: Any) -> None:
    stage.server.storm(1.0)
    said = [f"message {number} 船" for number in range(20)]
    for words in said:
        await stage.server.say(words, channel=stage.direct, user=stage.ada)
        await stage.clock.advance(0.5)
        await stage.until(lambda: stage.slack.health().connected)
    stage.server.calm()
    async with asyncio.timeout(90):
        while stage.server.unacked():
            await stage.clock.advance(10)
    assert sorted(message.text for message in stage.intake.accepted) == sorted(said)
