"""What a turn leaves at its end: its last words, and what was stopped, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.model import ModelReply, ModelRequest
from bot.contracts.outbound import Outbound, Sent
from bot.testing.model import reply, text
from bot.words import say
from tests.unit.agent.conftest import Bench as AgentBench
from tests.unit.gateway.conftest import Bench, killed
from tests.unit.gateway.desk import GROUP
from tests.unit.gateway.outgoing import until
from tests.unit.gateway.test_recovery import STOP, told


def no_model(request: TurnRequest) -> str | TurnOutcome:
    """Fails for "bad", and answers anything else."""
    words = request.inbound.text if request.inbound is not None else ""
    return TurnOutcome("failed", notice="no model today") if words == "bad" else f"re: {words}"


async def test_a_channel_that_fails_unforeseen_holds_no_slot(tmp_path: Path) -> None:
    """Last words whose send fails with a bug each time: others go on, in the one slot that there is."""
    bench = Bench(tmp_path, max_concurrent=1)
    await bench.open()
    bench.agent.answer = no_model
    send = bench.tele.send
    broken_sends = 0

    async def broken(message: Outbound) -> Sent:
        nonlocal broken_sends
        if "no model" in message.text:
            broken_sends += 1
            raise RuntimeError("a bug of the channel")
        return await send(message)

    bench.tele.send = broken  # type: ignore[method-assign]
    await bench.say("bad")
    await until(lambda: broken_sends >= 1, bench.clock)
    await bench.say("other", **GROUP, user_id="1", addressed="mention")
    await until(lambda: "re: other" in bench.tele.texts, bench.clock)
    await bench.close()


@pytest.mark.parametrize("stop_reason", ["max_tokens", "pause_turn"])
async def test_a_stopped_turn_does_not_ask_the_model_again_after_a_kill(
    tmp_path: Path, stop_reason: str
) -> None:
    agent = AgentBench(tmp_path / "agent")

    def half(_: ModelRequest) -> ModelReply:
        agent.model.hold = asyncio.Event()
        return reply(text("the first half"), stop_reason=stop_reason)

    agent.model.answers.append(half)
    first = Bench(tmp_path, agent=agent.pool)
    await first.open()
    await first.say("work")
    await until(lambda: len(agent.model.requests) == 2)
    stop = agent.pool.stop
    agent.pool.stop = lambda _: asyncio.sleep(0, True)  # type: ignore[method-assign, assignment]
    await first.say("/stop", **STOP)
    await until(lambda: say("stop.stopped") in first.tele.texts)
    await told(first)
    await killed(first)
    agent.pool.stop = stop  # type: ignore[method-assign]
    agent.model.hold = None
    agent.restart()
    before = len(agent.model.requests)
    second = Bench(tmp_path, agent=agent.pool)
    await second.open()
    await second.idle()
    after = len(agent.model.requests)
    await second.close()
    await agent.close()
    assert after == before


@pytest.mark.parametrize("mode", ["steer", "followup", "collect", "interrupt"])
async def test_the_next_turn_while_last_words_go_out(tmp_path: Path, mode: str) -> None:
    bench = Bench(tmp_path, mode=mode)
    await bench.open()
    bench.agent.answer = no_model
    sending, go_on, send = asyncio.Event(), asyncio.Event(), bench.tele.send

    async def hangs(message: Outbound) -> Sent:
        if "no model" in message.text:
            sending.set()
            await go_on.wait()
        return await send(message)

    bench.tele.send = hangs  # type: ignore[method-assign]
    await bench.say("bad")
    await sending.wait()
    await bench.say("next")
    for _ in range(200):
        await asyncio.sleep(0.001)
    go_on.set()
    await bench.idle()
    assert bench.tele.texts == ["no model today", "re: next"]
    await bench.close()


async def test_a_stop_is_told_though_the_journal_cannot_be_read(tmp_path: Path) -> None:
    """A stop with more in the journal than in memory, and a journal that refuses to be read."""
    first = Bench(tmp_path)
    for n in range(60):
        await first.say(f"flood {n}", message_id=f"f{n}", keys=(f"f{n}",))
    await first.close()
    from bot import errors

    second = Bench(tmp_path, most_waiting=20)
    second.agent.hold = asyncio.Event()
    await second.open()
    await second.agent.began.wait()

    async def refuses(*_: Any, **__: Any) -> Any:
        raise errors.StorageError("refused")

    kept = second.journal.unfinished
    second.journal.unfinished = refuses  # type: ignore[method-assign]
    await second.say("/stop", **STOP, keys=("stop",), message_id="stop")
    assert await second.tele.until(1) == [say("stop.stopped")]
    second.journal.unfinished = kept  # type: ignore[method-assign]
    await second.close()
