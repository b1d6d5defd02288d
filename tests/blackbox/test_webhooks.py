"""Webhooks behind a load balancer: only the platforms' posts are accepted, and a kill loses no event."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bot.testing._slack_requests import SIGNING_SECRET
from bot.testing.anthropic_script import reply
from tests.blackbox.conftest import ANN, World, eventually

PUBLIC = "https://bot.example.org"


async def start(world: World) -> tuple[str, str]:
    """Start the gateway with both webhooks, and connect the platforms. Return the addresses behind the load balancer."""
    channels = world.config["channels"]
    channels["slack"] |= {"webhook": {"url": f"{PUBLIC}/slack", "port": 0}}
    channels["telegram"] |= {"webhook": {"url": f"{PUBLIC}/telegram", "port": 0}}
    world.process.env.pop("SLACK_APP_TOKEN", None)
    world.process.env["SLACK_SIGNING_SECRET"] = SIGNING_SECRET
    before = len(_openings(world))
    await world.start()
    await eventually(lambda: len(_openings(world)) == before + 2)
    ports = {one["channel"]: one["port"] for one in _openings(world)}
    world.telegram.hook.front = ports["telegram"]
    world.telegram.hook.wake()
    slack = f"http://127.0.0.1:{ports['slack']}/slack"
    await world.slack.post_to(slack)
    return slack, f"http://127.0.0.1:{ports['telegram']}/telegram"


def _openings(world: World) -> list[dict[str, Any]]:
    """Return the log details of each server start (host and port), oldest first."""
    return [one["details"] for one in world.log() if one["kind"] == "channel" and "port" in one["details"]]


async def test_without_socket_and_poll_both_platforms_are_answered_and_forgeries_refused(
    world: World,
) -> None:
    slack, telegram = await start(world)
    ts = await world.slack.say("hello", channel="D0ANN", user=ANN)
    world.telegram.say("hello")
    await world.slack.until(lambda: len(world.slack.replies("D0ANN", ts)) == 1)
    await world.telegram.until(lambda: len(world.texts()) == 1)
    assert not world.slack.called("apps.connections.open")
    assert not world.telegram.called("getUpdates")
    forged: dict[str, Any] = {
        slack: {"type": "event_callback", "event": {"type": "message", "user": ANN, "text": "forged words"}},
        telegram: {"update_id": 1, "message": {"message_id": 1, "text": "forged words"}},
    }
    for address, body in forged.items():
        async with world.session.post(address, json=body) as answer:
            assert answer.status == 401
            assert await answer.text() == ""
        async with world.session.get(address) as answer:
            assert answer.status == 200
    assert await world.process.stop() == 0
    assert b"forged words" not in world.everything_on_disk()
    assert SIGNING_SECRET.encode() not in world.everything_on_disk()
    assert world.telegram.hook.secret.encode() not in world.everything_on_disk()


async def test_a_kill_loses_nothing_of_what_was_posted_or_came_meanwhile(world: World) -> None:
    await start(world)
    gate = asyncio.Event()
    world.model.script(lambda _: reply("too late", hold=gate))
    first = await world.slack.say("before", channel="D0ANN", user=ANN)
    world.telegram.say("before")
    await world.model.until(lambda: len(world.model.requests) == 2)
    await world.slack.until(lambda: not world.slack.unacked())
    await world.telegram.until(lambda: not len(world.telegram.updates))
    await world.process.kill()
    gate.set()
    world.model.script(lambda body: f"to {json.dumps(body).count('meanwhile')}")
    world.telegram.say("meanwhile")
    await start(world)
    await world.telegram.until(lambda: "to 1" in world.texts())
    await world.slack.until(lambda: len(world.slack.replies("D0ANN", first)) == 1)
    await world.telegram.until(lambda: not len(world.telegram.updates))
    assert await world.process.stop() == 0
    assert [one.text for one in world.slack.replies("D0ANN", first)] == ["to 0"]
    assert world.texts() in (["to 0", "to 1"], ["to 1"]), "each is answered once, together or one by one"
