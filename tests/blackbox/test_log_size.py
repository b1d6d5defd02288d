"""The operator's log of a turn does not grow with the length of the conversation."""

from __future__ import annotations

import functools

import pytest

from tests.blackbox.conftest import START_SECONDS, World, whole

MOST = 6_000
"""Max bytes of the log lines of a turn."""


def answered(world: World, count: int) -> bool:
    return whole(world.texts(), count)


@pytest.mark.parametrize("turns", [40, pytest.param(300, marks=pytest.mark.torture)])
async def test_short_turns_take_six_kilobytes_of_log_each(world: World, turns: int) -> None:
    world.model.script(lambda body: f"你好, that is answer {len(body['messages'])}.")
    await world.start("telegram")
    for number in range(1, turns + 1):
        world.telegram.say(f"question {number} 问题", name="Ann")
        await world.telegram.until(functools.partial(answered, world, number), START_SECONDS)
    await world.turns(turns)
    await world.sent()
    logs = sorted((world.root / ".ship" / "logs").glob("*.jsonl"))
    ends = [line["requestId"] for line in world.log() if line["kind"] == "turn_end"]
    assert len(ends) == turns
    last = [raw for path in logs for raw in path.read_bytes().splitlines() if ends[-1].encode() in raw]
    assert sum(path.stat().st_size for path in logs) / turns <= MOST
    assert 1_000 < sum(map(len, last)) <= MOST, "nor is the last of them larger"
