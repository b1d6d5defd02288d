"""Events over HTTP are accepted only with Slack's signature."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from bot import errors
from bot.contracts.channel import Webhook
from bot.contracts.messages import Command
from bot.testing._slack_requests import SIGNING_SECRET, signed

WEBHOOK = Webhook(url="https://bot.example.org/slack", port=0)
JSON = {"Content-Type": "application/json"}
FORM = "application/x-www-form-urlencoded"


def settings(**changes: Any) -> dict[str, Any]:
    return {"app_token": None, "signing_secret": SIGNING_SECRET, "webhook": WEBHOOK, **changes}


@dataclass
class Door:
    """A stage with a webhook, and a client that posts to it."""

    stage: Any
    url: str
    session: aiohttp.ClientSession

    async def post(self, body: str, headers: dict[str, str]) -> tuple[int, str]:
        async with self.session.post(self.url, data=body.encode(), headers=JSON | headers) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def unknown_door(idle: Any) -> AsyncIterator[Door]:
    """A webhook to which Slack has not posted yet."""
    idle.slack = idle.make(**settings())
    await idle.slack.start(idle.intake)
    port = next(entry.details["port"] for entry in idle.log.of("channel") if "port" in entry.details)
    async with aiohttp.ClientSession() as session:
        yield Door(idle, f"http://127.0.0.1:{port}/slack", session)


@pytest.fixture
async def door(unknown_door: Door) -> Door:
    await unknown_door.stage.server.post_to(unknown_door.url)
    return unknown_door


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"X-Slack-Request-Timestamp": "1", "X-Slack-Signature": "v0=0"},
        {"X-Slack-Request-Timestamp": "soon", "X-Slack-Signature": "v0=0"},
        {"X-Slack-Request-Timestamp": "9" * 400, "X-Slack-Signature": "v0=0"},
        {"X-Slack-Signature": "v0=0"},
        {"X-Slack-Request-Timestamp": "now", "X-Slack-Signature": "ü"},
        "another secret",
        "another body",
        "six minutes ago",
    ],
)
async def test_what_slack_did_not_sign_is_refused_and_leaves_nothing(door: Door, forged: Any) -> None:
    stage = door.stage
    now = stage.clock.now()
    body = json.dumps({"type": "url_verification", "challenge": "mine"})
    if forged == "another secret":
        forged = signed(body, now, "f" * 32)
    elif forged == "another body":
        forged = signed("{}", now)
    elif forged == "six minutes ago":
        forged = signed(body, now - 360)
    headers = {key: str(int(now)) if value == "now" else value for key, value in forged.items()}
    assert await door.post(body, headers) == (401, "")
    assert not stage.intake.offered
    assert not stage.intake.dead_letters
    assert await door.post(body, signed(body, now)) == (200, "mine")


async def test_a_command_with_the_word_payload_arrives(door: Door) -> None:
    stage = door.stage
    await stage.server.command("model payload=x & payload", channel=stage.direct, user=stage.ada)
    (found,) = await stage.arrived()
    assert found.command == Command(name="model", args="payload=x & payload")


async def test_a_wrong_secret_is_told_until_something_is_signed_right(unknown_door: Door) -> None:
    door, stage = unknown_door, unknown_door.stage
    for _ in range(3):
        assert (await door.post("{}", signed("{}", stage.clock.now(), "f" * 32)))[0] == 401
    assert stage.slack.health().connected
    assert "signingSecret" in stage.slack.health().detail
    assert len([one for one in stage.log.at("warn") if "signingSecret" in one.message]) == 1
    check = signed("ssl_check=1&token=x", stage.clock.now()) | {"Content-Type": FORM}
    assert await door.post("ssl_check=1&token=x", check) == (200, "")
    assert stage.slack.health().detail == ""
    await door.post("{}", signed("{}", stage.clock.now(), "f" * 32))
    assert stage.slack.health().detail == ""
    assert not stage.intake.dead_letters


@pytest.mark.parametrize("body", ["{", "[]", "null", '"text"', "payload=%7B", "a=b"])
async def test_signed_nonsense_is_a_dead_letter_and_confirmed(door: Door, body: str) -> None:
    assert await door.post(body, signed(body, door.stage.clock.now())) == (200, "")
    (kept,) = door.stage.intake.dead_letters
    assert "malformed" in kept.reason


async def test_a_pause_waits_for_what_is_being_taken_in_and_takes_no_more(door: Door) -> None:
    stage = door.stage
    go_on, begun = asyncio.Event(), asyncio.Event()
    accept = stage.intake.accept

    async def slowly(inbound: Any) -> bool:
        begun.set()
        await go_on.wait()
        return bool(await accept(inbound))

    stage.intake.accept = slowly
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    await begun.wait()
    pausing = asyncio.create_task(stage.slack.pause())
    await stage.until(lambda: not stage.slack.health().connected)
    go_on.set()
    await pausing
    assert [one.text for one in await stage.arrived()] == ["hello"]
    with pytest.raises(aiohttp.ClientConnectionError):
        await door.post("{}", {})


async def test_a_port_that_is_taken_is_named(idle: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        slack = idle.make(**settings(webhook=Webhook(url=WEBHOOK.url, port=port)))
        with pytest.raises(errors.Unavailable, match=rf"channels\.slack\.webhook\.port: {port}"):
            await slack.start(idle.intake)
    await slack.start(idle.intake)
    assert slack.health().connected
