"""A deferred answer whose send has an unknown outcome, and the process killed before its repeat is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.journal import ANSWERED, Journal
from bot.contracts.outbound import OutboxRow
from bot.testing.clock import FakeClock
from bot.words import say
from tests.unit.gateway.outgoing import TO, Desk, until
from tests.unit.gateway.test_deferred import HOUR, deferred

REPEATED = f"{say('delivery.repeated')}\n\n"


@pytest.mark.parametrize("call", ["put_outbox", "update_outbox"])
async def test_a_kill_before_the_repeat_of_a_deferred_reply_does_not_lose_it(
    tmp_path: Path, call: str
) -> None:
    clock = FakeClock()
    first = Desk(tmp_path, clock=clock)
    await first.asked()
    await deferred(first)
    await first.file.finish(TO.request_id, ANSWERED)
    await first.close()
    clock.jump(HOUR)
    killed = asyncio.Event()

    class Mortal:
        """It dies once the repeat is written down, or is about to be sent."""

        def __init__(self, inner: Journal) -> None:
            self._inner = inner
            self._repeats: set[str] = set()
            self.post = self

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def put_outbox(self, rows: Sequence[OutboxRow]) -> Any:
            self._repeats |= {row.id for row in rows if row.repeat_of is not None}
            return self._until("put_outbox", self._inner.put_outbox(rows))

        def update_outbox(self, row: OutboxRow) -> Any:
            if killed.is_set() or (row.state == "sending" and row.id in self._repeats):
                killed.set()
                return asyncio.Event().wait()
            return self._inner.update_outbox(row)

        async def _until(self, what: str, change: Awaitable[None]) -> None:
            if what == call:
                killed.set()
            await change

    second = Desk(tmp_path, clock=clock, wrap=Mortal)
    second.tele.failures = [errors.DeliveryUncertain("lost")]
    await second.delivery.open()
    await asyncio.wait_for(killed.wait(), 90)
    await second.close()
    third = Desk(tmp_path, clock=clock)
    await third.delivery.open()
    assert await third.tele.until(1) == [f"{REPEATED}答え"]
    await until(lambda: not third.delivery.outbox.deferred)
    assert {row.state for row in await third.rows()} == {"unknown", "sent"}
    await third.close()
