"""Sockets that Slack closes, or through which nothing comes: when the next one is opened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.timers import leap_until_done


async def test_backoff_grows_to_half_a_minute_and_honours_retry_after(stage: Any) -> None:
    opens = "apps.connections.open"
    stage.server.limit(opens, "100")
    stage.server.fail(opens, status=503, times=6)
    await stage.server.cut_sockets()
    for tries, wait in enumerate((101, 2, 4, 8, 16, 30, 30), 2):
        await stage.server.until(lambda tries=tries: len(stage.server.called(opens)) == tries)
        await stage.until(lambda: stage.clock.sleeping > 0)
        await stage.clock.advance(wait - 1)
        assert len(stage.server.called(opens)) == tries
        await stage.clock.advance(1 + wait / 4)
    await stage.until(lambda: stage.slack.health().connected)


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("too_many_websockets", "too_many_websockets"),
        ("link_disabled", "Socket Mode is switched off"),
        (["x"], "closes the socket"),
    ],
)
async def test_a_disconnect_that_is_no_refresh_is_reported_and_backs_off(
    stage: Any, reason: Any, says: str
) -> None:
    await stage.server.disconnect(reason)
    await stage.until(lambda: stage.clock.sleeping > 0)
    health = stage.slack.health()
    assert not health.connected
    assert says in health.detail
    assert len(stage.server.called("apps.connections.open")) == 1
    await stage.clock.advance(2)
    await stage.until(lambda: stage.slack.health().connected)
    assert stage.slack.health().detail == ""
    assert [line.level for line in stage.log.entries] == ["warn", "info"]


async def test_a_socket_that_seems_dead_is_replaced_once_when_told_to(stage: Any) -> None:
    hello = stage.slack.health().last_heard
    await stage.server.deafen()
    stage.clock.jump(90)
    await stage.server.ping()
    await stage.server.say("anybody?", channel=stage.direct, user=stage.ada)
    await stage.server.until(lambda: stage.server.deliveries[0].attempts == 1)
    assert stage.slack.health().last_heard == hello
    for _ in range(3):
        await stage.slack.heal()
    await stage.until(lambda: stage.slack.health().last_heard != hello)
    await stage.clock.advance(3)
    assert [message.text for message in await stage.arrived()] == ["anybody?"]
    await stage.until(lambda: stage.server.sockets == 1)
    assert len(stage.server.called("apps.connections.open")) == 2


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
