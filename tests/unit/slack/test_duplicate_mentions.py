"""A mention waits for its message."""

from __future__ import annotations

import asyncio
from typing import Any

from channels.slack.adapter import HOLD_SECONDS, DuplicateMentions
from tests.timers import leap_until_done


async def test_a_mention_waits_for_its_message_and_not_for_ever() -> None:
    mentions = DuplicateMentions()

    async def process(kind: str, ts: str) -> None:
        event: dict[str, Any] = {"type": kind, "channel": "C1", "ts": ts}
        async with mentions.paired(event):
            pass

    alone = asyncio.create_task(process("app_mention", "1.0"))
    await asyncio.sleep(0)
    assert not alone.done()
    await leap_until_done(alone, HOLD_SECONDS)
    mention = asyncio.create_task(process("app_mention", "4.0"))
    await asyncio.sleep(0)
    assert not mention.done()
    await process("message", "4.0")
    await mention
