"""Random conversations with tasks in them: crashes, restarts, sessions that go on elsewhere, removals. Every request is on
file as it was sent, but where words were removed since.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from pathlib import Path
from typing import Any

import pytest

from bot import batch
from bot.history.transcript import requests
from bot.llm.body import wire
from bot.testing.model import reply, text, tool_use
from tests.shares import one_in
from tests.unit.agent import test_random
from tests.unit.agent.conftest import Bench
from tests.unit.agent.short_bench import AtOnce, QuietDisk
from tests.unit.agent.test_recording import calls

FORK, FRESH = {"prompt": "teil 一", "mode": "fork"}, {"prompt": "allein"}
LOADS: dict[str, Any] = {"limit": 2}
SHARES: list[Any] = [
    lambda _: reply(test_random.THINKING, text("I share it"), tool_use("task", **FORK)),
    lambda _: reply(
        tool_use("chat_load_history", **LOADS), tool_use("task", **FORK), tool_use("task", **FRESH)
    ),
    lambda _: reply(
        tool_use("task", **FORK), tool_use("task", **FORK), tool_use("chat_load_history", **LOADS)
    ),
] * 4


@pytest.mark.parametrize("seed", one_in(4, range(16)))
async def test_random_conversations_with_tasks_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(batch, "ThreadPoolExecutor", AtOnce)
    asyncio.get_running_loop().set_default_executor(AtOnce(1))
    monkeypatch.setattr(test_random, "ANSWERS", test_random.ANSWERS + SHARES)
    bench = Bench(tmp_path, QuietDisk())
    await test_random.converse(bench, random.Random(seed), 12)
    sent, made = [wire(one) for one in bench.model.requests], await calls(bench)
    assert len(made) == len(sent), "and none is missing"
    for call, body in zip(made, sent, strict=True):
        assert call.record.sha256 == hashlib.sha256(body).hexdigest()
        assert call.record.body == (body if call.exact else None)
        assert call.record.wrong in {None, requests.REMOVED}
    await bench.close()
