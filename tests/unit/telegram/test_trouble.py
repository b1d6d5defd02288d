"""The trouble that the server makes on command, and what the channel makes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot import errors
from bot.testing.clock import FakeClock
from bot.testing.telegram import TelegramServer
from tests.unit.telegram.bed import Bed, message
from tests.unit.telegram.client import Client


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        (1, 1),
        (30, 30),
        (0.5, 0.5),
        ("abc", 1),
        (None, 1),
        (-5, 1),
        (0, 1),
        (True, 1),
        ([3], 1),
        (10**12, 24 * 3600),
        (float("inf"), 24 * 3600),
        (float("nan"), 1),
    ],
)
async def test_whatever_telegram_says_of_waiting_is_a_sane_number(bed: Bed, asked: Any, wait: float) -> None:
    bed.server.say("hi")
    await bed.taken()
    bed.server.limit("sendMessage", asked)
    with pytest.raises(errors.DeliveryThrottled) as caught:
        await bed.channel.send(message("hello"))
    assert caught.value.retry_after == wait
    assert bed.server.tally().posted == 0


@pytest.mark.parametrize("said", ["x\n" * 100_000, "\ud800\n" * 900, ["list"], {"a": 1}, 5, None])
async def test_a_reason_of_any_length_and_kind_fits_a_line_of_the_log(bed: Bed, said: Any) -> None:
    bed.server.say("hi")
    await bed.taken()
    bed.server.fail("sendMessage", status=400, body={"ok": False, "error_code": 400, "description": said})
    with pytest.raises(errors.DeliveryFailed) as caught:
        await bed.channel.send(message("hello"))
    reason = str(caught.value)
    reason.encode()
    assert len(reason) < 300
    assert "\n" not in reason


async def test_an_answer_may_come_late(bed: Bed) -> None:
    bed.server.say("hi")
    bed.server.fail("sendMessage", action="late", seconds=5)
    sending = asyncio.create_task(bed.channel.send(message("慢")))
    await bed.server.until(lambda: bed.server.tally().visible == 1)
    assert not sending.done()
    clock = bed.server.clock
    assert isinstance(clock, FakeClock)
    await bed.until(lambda: clock.sleeping > 0)
    await clock.advance(5)
    assert (await sending).message_id == str(bed.server.visible()[0].message_id)


async def test_what_the_bot_did_in_a_chat_is_counted(client: Client) -> None:
    server = client.server
    assert server.tally(1001).posted == 0
    server.say("hi")
    first, second = [await client.ok("sendMessage", chat_id=1001, text=text) for text in ("one", "two")]
    await client.ok("editMessageText", chat_id=1001, message_id=first["message_id"], text="one!")
    await client.ok("deleteMessage", chat_id=1001, message_id=second["message_id"])
    tally = server.tally(1001)
    assert (tally.posted, tally.edited, tally.deleted, tally.visible) == (2, 1, 1, 1)


async def test_updates_are_kept_for_a_day(server: TelegramServer, clock: FakeClock, client: Client) -> None:
    server.say("old")
    await clock.advance(12 * 3600)
    new = server.say("new")
    await clock.advance(12 * 3600)
    assert await client.ok("getUpdates") == [new]


async def test_an_offset_confirms_what_is_before_it_and_a_negative_one_all_but_the_last(
    server: TelegramServer, client: Client
) -> None:
    said = [server.say(str(n)) for n in range(4)]
    assert await client.ok("getUpdates", offset=said[1]["update_id"]) == said[1:]
    assert await client.ok("getUpdates") == said[1:]
    assert await client.ok("getUpdates", offset=-1) == said[3:]
    assert await client.ok("getUpdates", offset=said[3]["update_id"] + 1) == []
    assert await client.ok("getUpdates") == []


async def test_a_contested_bot_gets_nothing_for_a_while(
    server: TelegramServer, clock: FakeClock, client: Client
) -> None:
    server.contest(10)
    said = server.say("hi")
    assert (await client.refused("getUpdates")).startswith("409 Conflict")
    await clock.advance(10)
    assert await client.ok("getUpdates") == [said]


async def test_a_deletion_by_a_person_is_not_told_to_the_bot(server: TelegramServer, client: Client) -> None:
    said = server.say("oops")
    await client.ok("getUpdates", offset=said["update_id"] + 1)
    server.delete(said["message"]["message_id"])
    assert await client.ok("getUpdates") == []
    assert server.visible(1001, everyone=True) == []
