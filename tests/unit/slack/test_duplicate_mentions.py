"""A mention waits for its message, except where messages are not subscribed."""

from __future__ import annotations

import asyncio
from typing import Any

from channels.slack.adapter import HOLD_SECONDS, DuplicateMentions
from tests.timers import leap_until_done


async def test_a_mention_waits_once_in_a_channel_without_messages_and_again_after_a_message() -> None:
    mentions = DuplicateMentions()

    async def process(kind: str, ts: str) -> None:
        event: dict[str, Any] = {"type": kind, "channel": "C1", "ts": ts}
        async with mentions.paired(event):
            pass

    first = asyncio.create_task(process("app_mention", "1.0"))
    await asyncio.sleep(0)
    assert not first.done()
    await leap_until_done(first, HOLD_SECONDS)
    second = asyncio.create_task(process("app_mention", "2.0"))
    await asyncio.sleep(0)
    assert second.done()
    await process("message", "3.0")
    third = asyncio.create_task(process("app_mention", "4.0"))
    await asyncio.sleep(0)
    assert not third.done()
    await process("message", "4.0")
    await third
