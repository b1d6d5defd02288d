"""Random conversations with tasks in them: crashes, restarts, sessions that go on elsewhere, removals. Every request is made
again as it was sent, but where words were removed since.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from bot import batch
from bot.llm.body import wire
from bot.testing.model import reply, text, tool_use
from tests.shares import one_in
from tests.unit.agent import test_random
from tests.unit.agent.conftest import Bench
from tests.unit.agent.short_bench import AtOnce, QuietDisk
from tests.unit.agent.test_rebuilding import calls
from tests.unit.agent.test_rebuilding_tasks import again

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
SINCE = ["words were removed from this conversation since"]


@pytest.mark.parametrize("seed", one_in(4, range(16)))
async def test_random_conversations_with_tasks_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(batch, "ThreadPoolExecutor", AtOnce)
    asyncio.get_running_loop().set_default_executor(AtOnce(1))
    monkeypatch.setattr(test_random, "ANSWERS", test_random.ANSWERS + SHARES)
    bench = Bench(tmp_path, QuietDisk())
    bench.configure(artifacts=bench.artifacts)
    await test_random.converse(bench, random.Random(seed), 12)
    sent = {
        purpose: {wire(one) for one in bench.model.requests if one.purpose == purpose}
        for purpose in ("turn", "subagent")
    }
    tasks = sorted(path.stem for path in (bench.root / "artifacts").glob("*/*.jsonl"))
    made = {"turn": await calls(bench)}
    made["subagent"] = [call for one in tasks for call in (await again(bench, one)).calls]
    for purpose, found in made.items():
        assert {call.body for call in found if call.exact} <= sent[purpose]
        assert all(call.wrong == SINCE for call in found if not call.exact)
        assert len({call.record["sha256"] for call in found}) == len(sent[purpose]), "and none is missing"
    await bench.close()
