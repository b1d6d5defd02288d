"""The way into the transcript: whoever waits until lines are on file finds them there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from bot.agent.ledger import Ledger
from bot.agent.request_log import RequestPrefix
from bot.contracts.transcript import Said, TurnStart
from tests.unit.agent.conftest import KEY, Bench


async def test_a_line_that_comes_while_prompts_are_kept_is_on_file_after_a_flush(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    deps = bench.deps
    ledger = Ledger(KEY, deps.transcript, ids=deps.ids, clock=deps.clock, log=deps.log)
    keeping, gate, keep = asyncio.Event(), asyncio.Event(), deps.transcript.keep

    async def slow(parts: Mapping[str, Any]) -> None:
        keeping.set()
        await gate.wait()
        await keep(parts)

    monkeypatch.setattr(deps.transcript, "keep", slow)
    ledger.add(TurnStart(), "R1")
    ledger.asked("R1", {}, RequestPrefix(shared={"one": "static"}, own={}))
    ledger.add(Said(role="user", message={"role": "user", "content": "hi"}), "R1")
    await keeping.wait()
    ledger.add(Said(role="assistant", message={"role": "assistant", "content": "hello"}), "R1")
    flushing = asyncio.create_task(ledger.flush())
    gate.set()
    assert await flushing
    assert [line.type for line in await deps.transcript.load(KEY)] == [
        "turn_start",
        "meta",
        "user",
        "assistant",
    ]
