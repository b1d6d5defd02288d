"""A deferred answer whose send has an unknown outcome, and the process killed before its repeat is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.journal import Journal
from bot.contracts.outbound import Outbound
from bot.gateway.outbox import REPEATED
from bot.testing.clock import FakeClock
from tests.unit.gateway.outgoing import TO, Desk, until
from tests.unit.gateway.test_deferred import HOUR, deferred


@pytest.mark.parametrize("call", ["intend", "mark"])
async def test_a_kill_before_the_repeat_of_a_deferred_reply_does_not_lose_it(
    tmp_path: Path, call: str
) -> None:
    clock = FakeClock()
    first = Desk(tmp_path, clock=clock)
    await first.asked()
    await deferred(first)
    await first.file.finish(TO.request_id, "done")
    await first.close()
    clock.jump(HOUR)
    killed = asyncio.Event()

    class Mortal:
        """It dies once the repeat is written down, or is about to be sent."""

        def __init__(self, inner: Journal) -> None:
            self._inner = inner
            self._repeats: set[str] = set()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def intend(self, messages: Sequence[Outbound], **more: Any) -> Any:
            self._repeats |= {message.id for message in messages if message.repeat_of is not None}
            return self._until("intend", self._inner.intend(messages, **more))

        def mark(self, name: str, state: str, **more: Any) -> Any:
            if killed.is_set() or (state == "sending" and name in self._repeats):
                killed.set()
                return asyncio.Event().wait()
            return self._inner.mark(name, state, **more)

        async def _until(self, what: str, change: Awaitable[None]) -> None:
            if what == call:
                killed.set()
            await change

    second = Desk(tmp_path, clock=clock, wrap=Mortal)
    second.tele.failures = [errors.DeliveryUncertain("lost")]
    await second.delivery.open(lambda *_: None)
    await asyncio.wait_for(killed.wait(), 5)
    await second.close()
    third = Desk(tmp_path, clock=clock)
    await third.delivery.open(lambda *_: None)
    assert await third.tele.until(1) == [f"{REPEATED}答え"]
    await until(lambda: not third.delivery._waiting.chats)
    assert {row.state for row in await third.rows()} == {"uncertain", "sent"}
    await third.close()
