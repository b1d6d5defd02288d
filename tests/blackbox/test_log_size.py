"""The size of the operator's log, by the real process: it does not grow with the conversation."""

from __future__ import annotations

import functools

from tests.blackbox.conftest import START_SECONDS, World, whole

TURNS = 300
MOST = 6_000
"""Bytes of a turn."""


def answered(world: World, count: int) -> bool:
    return whole(world.texts(), count)


async def test_three_hundred_short_turns_take_six_kilobytes_of_log_each(world: World) -> None:
    world.only("telegram")
    world.model.script(lambda body: f"你好, that is answer {len(body['messages'])}.")
    await world.start()
    for number in range(1, TURNS + 1):
        world.telegram.say(f"question {number} 问题", name="Ann")
        await world.telegram.until(functools.partial(answered, world, number), START_SECONDS)
    await world.turns(TURNS)
    await world.sent()
    logs = sorted((world.root / ".ship" / "logs").glob("*.jsonl"))
    turns = [line["requestId"] for line in world.log() if line["kind"] == "turn_end"]
    assert len(turns) == TURNS
    last = [raw for path in logs for raw in path.read_bytes().splitlines() if turns[-1].encode() in raw]
    assert sum(path.stat().st_size for path in logs) / TURNS <= MOST
    assert 1_000 < sum(map(len, last)) <= MOST, "nor is the last of them larger"
