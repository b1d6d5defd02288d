"""Tests of the webhook: only Telegram's posts are accepted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot import errors
from bot.contracts.channel import Webhook
from bot.testing.clock import FakeClock
from bot.testing.telegram_webhook import SECRET
from channels.telegram.adapter import TelegramChannel
from channels.telegram.updates import LOOK_EVERY
from tests.unit.telegram.bed import Bed

WEBHOOK = Webhook(url="https://bot.example.org/telegram", port=0)


class HookedBed(Bed):
    """A bot with a webhook. `front` is the address to which its load balancer forwards."""

    def build(self, **changes: Any) -> TelegramChannel:
        return super().build(webhook=WEBHOOK, **changes)

    async def begin(self) -> None:
        self.channel = self.build()
        before = len(self.log.entries)
        await self.channel.start(self.intake)
        ports = [one.details["port"] for one in self.log.entries[before:] if "port" in one.details]
        self.server.hook.front = ports[0]
        self.server.hook.wake()

    async def post(self, body: str, headers: dict[str, str]) -> int:
        address = f"http://127.0.0.1:{self.server.hook.front}/telegram"
        async with (
            aiohttp.ClientSession() as session,
            session.post(address, data=body.encode(), headers=headers) as answer,
        ):
            return answer.status

    async def retry(self) -> None:
        """Make Telegram post unconfirmed updates again."""
        clock = self.server.clock
        assert isinstance(clock, FakeClock)
        await self.until(lambda: clock.sleeping > 0 or not len(self.server.updates))
        await clock.advance(64)

    async def look(self) -> None:
        """Move the clock until the channel asks Telegram about its posts."""
        asked = len(self.server.called("getWebhookInfo"))
        await self.pausing()
        await self.clock.advance(LOOK_EVERY)
        await self.until(lambda: len(self.server.called("getWebhookInfo")) > asked)
        await self.pausing()


@pytest.fixture
async def hooked(tmp_path: Path) -> AsyncIterator[HookedBed]:
    made = HookedBed(tmp_path)
    async with made.server:
        await made.begin()
        yield made
        await made.channel.stop()


@pytest.mark.parametrize("headers", [{}, {SECRET: ""}, {SECRET: "0" * 64}, {SECRET: "ü"}])
async def test_a_post_without_the_secret_is_refused_and_leaves_nothing(
    hooked: HookedBed, headers: dict[str, str]
) -> None:
    hooked.server.say("mine")
    await hooked.taken()
    await hooked.until(lambda: len(hooked.server.updates) == 0)
    forged = json.dumps(
        {"update_id": 9, "message": {"message_id": 9, "chat": {"id": 1001, "type": "private"}}}
    )
    assert await hooked.post(forged, headers) == 401
    assert await _raw(hooked, b"\xff\xfe") == b"401"
    assert len(hooked.intake.offered) == 1
    assert not hooked.intake.dead_letters


async def _raw(hooked: HookedBed, secret: bytes) -> bytes:
    """Post with a secret of any bytes, without ever sending the body. Return the response status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", hooked.server.hook.front)
    head = b"POST /telegram HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n"
    writer.write(head + SECRET.encode() + b": " + secret + b"\r\n\r\n")
    status = (await reader.readline()).split()[1]
    writer.close()
    return status


@pytest.mark.parametrize("body", ["{", "[]", '{"a": 1}', "\ufffd"])
async def test_a_post_that_is_no_update_is_logged_and_does_not_come_again(
    hooked: HookedBed, body: str
) -> None:
    assert await hooked.post(body, {SECRET: hooked.server.hook.secret}) == 200
    assert [one.message for one in hooked.log.at("warn")] == ["Telegram posted no update"]


async def test_an_update_that_breaks_the_intake_is_a_dead_letter_in_the_end(hooked: HookedBed) -> None:
    hooked.intake.failure = KeyError("x")
    hooked.server.say("poison")
    while not hooked.intake.dead_letters:
        await hooked.retry()
    hooked.intake.failure = None
    hooked.server.say("next")
    await hooked.until(lambda: [one.text for one in hooked.intake.accepted] == ["next"])


async def test_what_cannot_be_written_down_is_told_as_that_and_comes_again_within_a_second(
    hooked: HookedBed,
) -> None:
    clock = hooked.server.clock
    assert isinstance(clock, FakeClock)
    hooked.intake.failure = errors.StorageError()
    hooked.server.say("keep me")
    await hooked.until(lambda: clock.sleeping > 0)
    await hooked.look()
    health = hooked.channel.health()
    assert (health.connected, "cannot be written down" in health.detail) == (True, True)
    hooked.intake.failure = None
    await clock.advance(1)
    await hooked.until(lambda: bool(hooked.intake.accepted))
    await hooked.until(lambda: len(hooked.server.updates) == 0)
    assert hooked.channel.health().detail == ""
    assert len([one for one in hooked.log.at("warn") if "cannot be written" in one.message]) == 1


async def test_a_failure_of_before_says_nothing_of_what_waits_now(hooked: HookedBed) -> None:
    port, hooked.server.hook.front = hooked.server.hook.front, 1
    hooked.server.say("hello")
    await hooked.until(lambda: bool(hooked.server.hook.error))
    hooked.server.hook.front = port
    await hooked.clock.advance(60)
    await hooked.retry()
    await hooked.taken()
    await hooked.until(lambda: len(hooked.server.updates) == 0)
    hooked.server.updates.add({"update_id": 1})  # a post that is still being processed
    await hooked.look()
    assert hooked.server.hook.error
    assert (hooked.channel.health().connected, hooked.channel.health().detail) == (True, "")


async def test_posts_that_do_not_arrive_are_told_until_they_do(hooked: HookedBed) -> None:
    port, hooked.server.hook.front = hooked.server.hook.front, 1
    clock = hooked.server.clock
    assert isinstance(clock, FakeClock)
    await clock.advance(60)
    hooked.server.say("hello")
    await hooked.until(lambda: bool(hooked.server.hook.error))
    await hooked.look()
    health = hooked.channel.health()
    assert not health.connected
    assert "do not arrive at https://bot.example.org/telegram (Connection refused)" in health.detail
    hooked.server.hook.front = port
    await hooked.retry()
    await hooked.taken()
    await hooked.until(lambda: len(hooked.server.updates) == 0)
    await hooked.look()
    assert (hooked.channel.health().connected, hooked.channel.health().detail) == (True, "")


async def test_a_webhook_that_another_program_has_taken_is_told_and_taken_back(hooked: HookedBed) -> None:
    hooked.server.hook.url = "https://elsewhere.example/hook"
    await hooked.look()
    assert "another program" in hooked.channel.health().detail
    await hooked.channel.heal()
    assert hooked.server.hook.url == WEBHOOK.url
    await hooked.look()
    assert hooked.channel.health().connected


async def test_a_webhook_that_telegram_refuses_is_no_start(hooked: HookedBed) -> None:
    await hooked.channel.stop()
    hooked.server.fail("setWebhook", status=502)
    with pytest.raises(errors.ChannelUnreachable):
        await hooked.channel.start(hooked.intake)
    body = {"ok": False, "error_code": 400, "description": "Bad Request: bad webhook: IP address is reserved"}
    hooked.server.fail("setWebhook", status=400, body=body)
    with pytest.raises(errors.ConfigError, match="ip address is reserved"):
        await hooked.channel.start(hooked.intake)
    await hooked.begin()
    hooked.server.say("hello")
    await hooked.taken()
