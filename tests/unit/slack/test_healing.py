"""Sockets that fall, seem dead or are taken back: a new one, in time and without haste."""

from __future__ import annotations

from typing import Any

import pytest


async def test_a_socket_that_seems_dead_is_replaced_once_when_told_to(stage: Any) -> None:
    for _ in range(3):
        await stage.slack.heal()
    await stage.server.until(lambda: len(stage.server.called("apps.connections.open")) == 2)
    await stage.until(lambda: stage.server.sockets == 1 and stage.slack.health().connected)
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    assert len(await stage.arrived()) == 1
    assert len(stage.server.called("apps.connections.open")) == 2


async def test_healing_leaves_the_session_of_the_sends_alone(stage: Any, out: Any) -> None:
    session = stage.slack._session
    await stage.slack.heal()
    await stage.until(lambda: stage.server.sockets == 1 and stage.slack.health().connected)
    await stage.slack.send(out("answer", stage.direct))
    assert stage.slack._session is session
    assert not session.closed


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("too_many_websockets", "too_many_websockets"),
        ("link_disabled", "Socket Mode is switched off"),
        (["x"], "takes the socket back"),
    ],
)
async def test_a_socket_that_slack_takes_back_is_asked_for_again_without_haste(
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


async def test_sockets_on_which_slack_never_greets_are_asked_for_ever_less_often(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiohttp import web

    async def rude(request: Any) -> Any:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.close()
        return socket

    serve = stage.server.link.serve
    monkeypatch.setattr(stage.server.link, "serve", rude)
    await stage.server.cut_sockets()
    for tries, wait in enumerate((1, 2, 4, 8, 16, 30), 2):
        await stage.server.until(
            lambda tries=tries: len(stage.server.called("apps.connections.open")) == tries
        )
        await stage.until(lambda: stage.clock.sleeping > 0)
        await stage.clock.advance(wait - 0.5)
        assert len(stage.server.called("apps.connections.open")) == tries
        if wait == 30:
            monkeypatch.setattr(stage.server.link, "serve", serve)
        await stage.clock.advance(0.5 + wait / 4)
    await stage.until(lambda: stage.slack.health().connected)


async def test_a_storm_of_falling_sockets_is_slowed_down(stage: Any) -> None:
    opened = stage.server.called
    for fallen in range(1, 11):
        await stage.server.cut_sockets()
        await stage.server.until(lambda fallen=fallen: len(opened("apps.connections.open")) == fallen + 1)
        await stage.until(lambda: stage.server.sockets == 1 and stage.slack.health().connected)
    await stage.server.cut_sockets()
    await stage.until(lambda: stage.clock.sleeping > 0)
    assert len(opened("apps.connections.open")) == 11
    await stage.clock.advance(0.5)
    await stage.server.until(lambda: len(opened("apps.connections.open")) == 12)
