"""Start and stop of the channel, and loss and replacement of its socket, with the real library and the loopback server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from bot import errors
from channels.slack import events
from tests.timers import leap, leap_until_done


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"bot_token": "xoxb-wrong"}, "invalid_auth"),
        ({"app_token": "xapp-wrong"}, "invalid_auth"),
        ({"bot_token": None}, "not_authed"),
        ({"bot_token": "xapp-1-loopback"}, "not_allowed_token_type"),
        ({"app_token": "xoxb-1-loopback"}, "not_allowed_token_type"),
    ],
)
async def test_a_token_that_slack_refuses_is_said_so(idle: Any, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.ChannelRefused, match=says) as caught:
        await idle.make(**settings).start(idle.intake)
    assert "xapp" not in str(caught.value)
    assert "xoxb" not in str(caught.value)


async def test_a_token_of_a_person_is_refused(idle: Any) -> None:
    body = {"ok": True, "team_id": "T0TEAM", "user_id": "U0ADA"}
    idle.server.fail("auth.test", status=200, body=body)
    with pytest.raises(errors.ChannelRefused, match="not the token of a bot"):
        await idle.slack.start(idle.intake)


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("auth.test", {"status": 503, "body": "<html>busy</html>"}),
        ("auth.test", {"status": 200, "body": "<html>log in to the hotel network</html>"}),
        ("auth.test", {"status": 200, "body": "just words", "headers": {"Content-Type": "text/plain"}}),
        ("auth.test", {"status": 200, "body": "[1]", "headers": {"Content-Type": "application/json"}}),
        ("auth.test", {"action": "cut"}),
        ("auth.test", {"action": "hang"}),
        ("auth.test", {"status": 429, "body": {"ok": False, "error": "ratelimited"}}),
        ("apps.connections.open", {"status": 200, "body": {"ok": False, "error": "internal_error"}}),
        ("apps.connections.open", {"status": 200, "body": {"ok": True, "url": "ws://192.0.2.1/link"}}),
        ("apps.connections.open", {"status": 200, "body": {"ok": True}}),
        ("link", {"status": 500}),
        # aiohttp itself repeats the request once, so two cuts are needed.
        ("link", {"action": "cut", "times": 2}),
    ],
)
async def test_trouble_on_the_way_is_waited_for(idle: Any, method: str, fault: dict[str, Any]) -> None:
    idle.server.fail(method, **fault)
    starting = asyncio.create_task(idle.slack.start(idle.intake))
    if fault.get("action") == "hang":
        await idle.server.until(lambda: bool(idle.server.called(method)))
        await leap_until_done(starting, 10.0)
    with pytest.raises(errors.ChannelUnreachable):
        await starting
    await idle.slack.start(idle.intake)
    assert idle.slack.health().connected


async def test_a_socket_without_hello_is_unreachable(idle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = asyncio.Event()

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        opened.set()
        await socket.receive()
        return socket

    monkeypatch.setattr(idle.server.link, "serve", serve)
    starting = asyncio.create_task(idle.slack.start(idle.intake))
    await opened.wait()
    await leap_until_done(starting, events.CONNECT_SECONDS)
    with pytest.raises(errors.ChannelUnreachable, match="no hello"):
        await starting


async def test_proxies_of_the_environment_are_not_used_on_loopback(
    idle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    await idle.slack.start(idle.intake)
    assert idle.slack.health().connected


async def test_slack_variables_of_the_environment_change_nothing(
    idle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_CLIENT_ID", "SLACK_CLIENT_SECRET"):
        monkeypatch.setenv(name, "xoxb-from-the-environment")
    await idle.slack.start(idle.intake)
    await idle.server.say("hello", channel=idle.direct, user=idle.ada)
    assert len(await idle.arrived()) == 1
    assert not idle.log.entries
    assert all(
        call.headers["Authorization"] in {"Bearer xoxb-1-loopback", "Bearer xapp-1-loopback"}
        for call in idle.server.calls
    )


async def test_what_was_said_without_a_socket_arrives_after_it(stage: Any) -> None:
    stage.server.fail("apps.connections.open", status=503, times=2)
    await stage.server.cut_sockets()
    await stage.server.until(lambda: len(stage.server.called("apps.connections.open")) == 2)
    await stage.server.until(lambda: stage.server.sockets == 0)
    await stage.until(lambda: stage.slack.health().detail == "HTTP 503")
    assert not stage.slack.health().connected
    await stage.server.say("anybody?", channel=stage.direct, user=stage.ada)
    await stage.server.until(lambda: stage.server.deliveries[0].attempts == 2)
    for tries, seconds in ((3, 2), (4, 3)):
        await stage.until(lambda: stage.clock.sleeping > 1)
        await stage.clock.advance(seconds)
        await stage.server.until(
            lambda tries=tries: len(stage.server.called("apps.connections.open")) == tries
        )
    await stage.until(lambda: stage.slack.health().connected)
    await stage.clock.advance(60)
    assert [message.text for message in await stage.arrived()] == ["anybody?"]
    assert stage.slack.health().detail == ""
    assert [(line.message, line.level) for line in stage.log.entries] == [
        ("Slack cannot be reached, trying again", "warn"),
        ("Slack is reached again", "info"),
    ]


async def test_answers_to_our_own_pings_are_no_signs_of_life(idle: Any) -> None:
    await idle.slack.start(idle.intake)
    greeted = idle.clock.now()
    idle.clock.jump(100)
    leap(10.0)
    await idle.server.until(lambda: idle.server.pinged > 0)
    assert idle.slack.health().last_heard == greeted
    await idle.server.ping()
    await idle.until(lambda: idle.slack.health().last_heard == idle.clock.now())


async def test_pause_does_not_wait_for_ever(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()

    async def stuck(inbound: Any) -> bool:
        begun.set()
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(events, "DRAIN_SECONDS", 0.01)
    monkeypatch.setattr(stage.intake, "accept", stuck)
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    await begun.wait()
    await asyncio.wait_for(stage.slack.pause(), 90)
    assert len(stage.server.unacked()) == 1


async def test_a_stop_while_reconnecting_ends_it(stage: Any) -> None:
    stage.server.fail("apps.connections.open", status=503, times=100)
    await stage.server.cut_sockets()
    await stage.server.until(lambda: len(stage.server.called("apps.connections.open")) == 2)
    await asyncio.wait_for(stage.slack.stop(), 90)
    assert stage.slack.health().detail == "not started"


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
