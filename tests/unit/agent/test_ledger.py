"""The way into the transcript: whoever waits until lines are on file finds them there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.agent.ledger import Ledger
from bot.contracts.transcript import MessageEvent, TurnStart
from tests.unit.agent.conftest import KEY, Bench


async def test_a_line_that_comes_while_others_are_written_is_on_file_after_a_flush(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    deps = bench.deps
    ledger = Ledger(KEY, deps.history.transcript, ids=deps.ids, clock=deps.clock, log=deps.log)
    writing, gate, append = asyncio.Event(), asyncio.Event(), deps.history.transcript.append

    async def slow(*given: Any, **how: Any) -> str:
        writing.set()
        await gate.wait()
        return await append(*given, **how)

    monkeypatch.setattr(deps.history.transcript, "append", slow)
    ledger.add(TurnStart(), "R1")
    ledger.add(MessageEvent(role="user", message={"role": "user", "content": "hi"}), "R1")
    await writing.wait()
    ledger.add(MessageEvent(role="assistant", message={"role": "assistant", "content": "hello"}), "R1")
    flushing = asyncio.create_task(ledger.flush())
    gate.set()
    assert await flushing
    assert [line.type for line in await deps.history.transcript.load(KEY)] == [
        "turn_start",
        "user",
        "assistant",
    ]


async def test_a_line_that_reaches_the_disk_once_that_was_read_is_loaded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    deps = bench.deps
    ledger = Ledger(KEY, deps.history.transcript, ids=deps.ids, clock=deps.clock, log=deps.log)
    read = deps.history.transcript.read

    async def early(*given: Any, **how: Any) -> Any:
        found = await read(*given, **how)
        assert await ledger.flush()
        return found

    monkeypatch.setattr(deps.history.transcript, "read", early)
    ledger.add(TurnStart(), "R1")
    said = ledger.add(MessageEvent(role="user", message={"role": "user", "content": "hi"}), "R1")
    assert said in (await ledger.load()).lines
