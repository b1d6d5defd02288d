"""A mention waits for its message only where messages are heard at all."""

from __future__ import annotations

import asyncio

import pytest

from channels.slack import duplicate_mentions


async def test_where_no_message_is_ever_heard_no_mention_waits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app that is not subscribed to messages of channels would pay the wait at every mention."""
    known = duplicate_mentions.DuplicateMentions()
    monkeypatch.setattr(duplicate_mentions, "HOLD", 0.01)
    await known.wait_for_message({"type": "app_mention", "channel": "C1", "ts": "1.0"})
    monkeypatch.setattr(duplicate_mentions, "HOLD", 3600)
    async with asyncio.timeout(90):
        await known.wait_for_message({"type": "app_mention", "channel": "C1", "ts": "2.0"})
        known.message_taken_in({"type": "message", "channel": "C1", "ts": "3.0"})
        for channel in ("C1", "C2"):
            waiting = asyncio.create_task(
                known.wait_for_message({"type": "app_mention", "channel": channel, "ts": "4.0"})
            )
            await asyncio.sleep(0)
            assert not waiting.done(), "messages come here, or may"
            known.message_taken_in({"type": "message", "channel": channel, "ts": "4.0"})
            await waiting
