"""Sockets that Slack closes: when the next one is opened."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web


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


async def test_sockets_without_hello_back_off_too(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def close_at_once(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.close()
        return socket

    serve = stage.server.link.serve
    monkeypatch.setattr(stage.server.link, "serve", close_at_once)
    await stage.server.cut_sockets()
    for tries, wait in enumerate((1, 2, 4), 2):
        await stage.server.until(
            lambda tries=tries: len(stage.server.called("apps.connections.open")) == tries
        )
        await stage.until(lambda: stage.clock.sleeping > 0)
        await stage.clock.advance(wait - 0.5)
        assert len(stage.server.called("apps.connections.open")) == tries
        if wait == 4:
            monkeypatch.setattr(stage.server.link, "serve", serve)
        await stage.clock.advance(0.5 + wait / 4)
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
